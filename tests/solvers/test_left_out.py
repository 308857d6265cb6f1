"""Labels taken for numbers: rows left out one by one, by one inverse and by models of the others."""

import pytest
import torch
from torch.nn.functional import logsigmoid, one_hot

from qsgp.data.rows import Rows
from qsgp.hyperparameters.asked import Asked
from qsgp.hyperparameters.search import learn
from qsgp.hyperparameters.small_tables import Watch
from qsgp.kernels import Matern32, hyperparameters
from qsgp.likelihoods import LabelsAsNumbers
from qsgp.solvers.closed_form import density_of_others
from qsgp.solvers.left_out import best_scale, density_of_classes, log_probability, scaled_to_labels

NOISE = torch.tensor(0.3, dtype=torch.float64)


def labelled(n: int, classes: int, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator).double()
    number = ((2 * x[:, 0] + x[:, 1] + 0.3 * torch.randn(n, generator=generator)).round().long() % classes).long()
    labels = 2.0 * number[:, None] - 1 if classes == 2 else 2.0 * one_hot(number, classes) - 1
    Y = labels.double() - labels.double().mean(0)
    return Rows(x, Y, 0.5 + torch.rand(n, generator=generator).double())


def kernel_of(lengthscale: float = 1.3) -> Matern32:
    return Matern32(*hyperparameters(lengthscale, 0.9, d=3, dtype=torch.float64))


@pytest.mark.parametrize("classes", [2, 4])
def test_rows_left_out_are_those_that_models_of_the_others_predict(classes: int) -> None:
    rows, kernel = labelled(12, classes), kernel_of()
    means = []
    for i in range(rows.x.shape[0]):
        kept = torch.arange(len(rows.x)) != i
        x, Y, weight = rows.x[kept], rows.Y[kept], rows.weight[kept]
        B = kernel(x, x) + torch.diag(NOISE / weight)
        means.append(kernel(rows.x[i : i + 1], x) @ torch.linalg.solve(B, Y))
    each = density_of_classes(torch.cat(means), rows)
    found = log_probability(kernel(rows.x, rows.x), LabelsAsNumbers(NOISE), rows)
    assert float(found / rows.weight.sum()) == pytest.approx(each, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 4])
def test_slopes_are_those_of_differences(classes: int) -> None:
    rows = labelled(15, classes)

    def value(logs: torch.Tensor) -> torch.Tensor:
        own = kernel_of().with_parameters({"log_lengthscale": logs[:3], "log_variance": logs[3]})
        return log_probability(own(rows.x, rows.x), LabelsAsNumbers(logs[4].exp()), rows)

    at = torch.tensor([0.1, 0.4, -0.2, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(value(at), at)
    for number in range(5):
        step = torch.zeros(5, dtype=torch.float64)
        step[number] = 1e-5
        difference = (value(at.detach() + step) - value(at.detach() - step)) / 2e-5
        assert float(slope[number]) == pytest.approx(float(difference), rel=1e-3, abs=1e-6)


def test_the_best_scale_is_the_best() -> None:
    rows, generator = labelled(40, 4), torch.Generator().manual_seed(2)
    label = rows.Y.sign()
    odds = 0.2 * label + torch.randn(label.shape, generator=generator).double()
    best = best_scale(label, odds, rows.weight)

    def density(scale: torch.Tensor) -> float:
        logs = logsigmoid(scale * odds)
        logs = (logs - logs.logsumexp(1, keepdim=True)).gather(1, label.argmax(1, keepdim=True))[:, 0]
        return float(rows.weight @ logs / rows.weight.sum())

    assert density(best) > max(density(0.98 * best), density(1.02 * best))
    assert density(best) == pytest.approx(density_of_classes(odds - label + rows.Y, rows), abs=1e-9)
    separable = best_scale(label, label, rows.weight)
    assert torch.isfinite(separable) and float(separable) > 10


def test_the_size_makes_labels_as_likely_as_can_be() -> None:
    """The evidence as a function of a factor of kernel and noise is largest at the one that is returned."""
    rows, kernel = labelled(30, 2)._replace(weight=torch.ones(30, dtype=torch.float64)), kernel_of()
    Gram = kernel(rows.x, rows.x)
    size = scaled_to_labels(Gram, LabelsAsNumbers(NOISE), rows)
    B = Gram + torch.diag(NOISE.expand(30))

    def evidence(factor: float) -> float:
        law = torch.distributions.MultivariateNormal(torch.zeros(30).double(), factor * B)
        return float(law.log_prob(rows.Y[:, 0]))

    assert evidence(size) > max(evidence(0.97 * size), evidence(1.03 * size))


def test_a_search_tells_classes_better_than_one_by_the_evidence() -> None:
    """Eight classes by the angle of two inputs, four more that say nothing but are never dropped by chance."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(900, 6, generator=generator).double()
    number = ((torch.atan2(x[:, 0], x[:, 1]) / torch.pi + 1) * 4).long().clamp(max=7)
    labels = 2 * one_hot(number, 8).double() - 1
    rows = Rows(x, labels - labels[:300].mean(0), torch.ones(900).double())
    known, others = rows.take(slice(300)), rows.take(slice(300, 900))
    found = {}
    for name in ("numbers", "gaussian"):
        kernel, noise = learn(known, Asked(likelihood=name, kernels=("matern32",), most=300), Watch())
        found[name] = density_of_others(kernel, LabelsAsNumbers(noise.noise_variance), known, others)
    assert found["numbers"] > found["gaussian"] + 0.02
