"""Which metric and which sum: what is made of the best kernels, and that rows not learned from choose it."""

import math
from dataclasses import replace

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.hyperparameters.asked import Asked
from qsgp.hyperparameters.found import NOT_YET, Found, best_of_each_formula, formula
from qsgp.hyperparameters.geometry import Making, chosen
from qsgp.hyperparameters.search import learn
from qsgp.hyperparameters.small_tables import Watch
from qsgp.kernels import Laplacian, Mapped, Matern32, SpectralSum, SquaredExponential, Tied, hyperparameters
from qsgp.kernels.relevance import has_map, metric
from qsgp.likelihoods import Gaussian

ASKED = Asked(kernels=("rbf", "laplacian"), most=500, metric="auto", sums=True)


def normals(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rows_of(x: torch.Tensor, f: torch.Tensor, noise: float = 0.05) -> Rows:
    y = f + noise * normals(len(x), seed=7)
    return Rows(x, ((y - y.mean()) / y.std())[:, None], torch.ones(len(x), dtype=torch.float64))


def plain_kernel(kind: type = SquaredExponential) -> Found:
    kernel = kind(*hyperparameters([1.0, 1.0], 1.0, dtype=torch.float64))
    return Found(kernel, Gaussian(torch.tensor(0.1, dtype=torch.float64)), -1.0)


def test_formulas_tell_kernels_apart_by_what_they_are_made_of() -> None:
    rbf, l1 = plain_kernel(), plain_kernel(Laplacian)
    turned = rbf._replace(kernel=Mapped(rbf.kernel, normals(2, 2)))
    both = rbf._replace(kernel=SpectralSum((turned.kernel, l1.kernel)))
    assert [formula(each.kernel) for each in (rbf, turned, both)] == [
        ("rbf",),
        ("rbf", "metric"),
        ("rbf", "metric", "laplacian"),
    ]
    assert formula(Tied.of(rbf.kernel)) == ("rbf",)
    assert best_of_each_formula([rbf, turned, rbf._replace(value=3.0)]) == [rbf, turned]


def test_a_wave_across_the_axes_gets_a_metric() -> None:
    """The angle is recovered to a degree or two; lengthscales of the inputs alone cannot say it."""
    angle = math.radians(30)
    x = normals(700, 2)
    w = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    kernel, _ = learn(rows_of(x, torch.sin(3 * x @ w)), ASKED, Watch())
    assert has_map(kernel)
    first = torch.linalg.svd(metric(kernel))[0][:, 0]
    assert math.degrees(math.acos(float((first @ w).abs().clamp(max=1)))) < 2


@pytest.mark.slow
def test_effects_of_single_inputs_get_no_metric_that_is_surely_wrong() -> None:
    """Steps along the axes: the Laplacian is part of what is chosen."""
    x = normals(700, 3)
    f = torch.sign(x[:, 0]) + 0.5 * torch.sign(x[:, 1] - 0.3)
    kernel, _ = learn(rows_of(x, f), ASKED, Watch())
    assert "laplacian" in formula(kernel)


def test_ard_and_one_kernel_are_respected() -> None:
    x = normals(300, 2)
    rows = rows_of(x, torch.sin(2 * x.sum(1)))
    kernel, _ = learn(rows, replace(ASKED, metric="ard", sums=False), Watch())
    assert not has_map(kernel)
    assert not isinstance(kernel, SpectralSum)
    kernel, _ = learn(rows, replace(ASKED, kernels=("matern32",), metric="full", sums=False), Watch())
    assert has_map(kernel)
    assert kernel.name == "matern32"


def test_a_sum_that_is_asked_for_is_the_sum() -> None:
    x = normals(300, 2)
    asked = replace(ASKED, sums=False, sum_of=("rbf", "laplacian"), metric="ard")
    kernel, _ = learn(rows_of(x, torch.sin(2 * x[:, 0])), asked, Watch())
    assert isinstance(kernel, SpectralSum)
    assert kernel.name == "rbf+laplacian"
    unlearned, _ = learn(rows_of(x, x[:, 0]), replace(asked, fixed=True), Watch())
    assert unlearned.name == "rbf+laplacian"
    assert float(unlearned.variance) == pytest.approx(1.0)


def test_without_time_the_plain_kernels_remain() -> None:
    found = [plain_kernel(), plain_kernel(Laplacian)]
    rows = rows_of(normals(50, 2), normals(50))
    making = Making(lambda count: rows.take(slice(count)), lambda starts, count, effort: starts, 50, 50)
    kept = chosen(found, making, ASKED)
    assert all(each.value > NOT_YET for each in kept)
    assert kept[0] in found


def test_the_best_plain_kernel_stays_a_contender() -> None:
    def searched(starts: list[Found], count: int, effort: object) -> list[Found]:
        return [each._replace(value=len(formula(each.kernel)) + 0.1 * number) for number, each in enumerate(starts)]

    rows = rows_of(normals(60, 2), normals(60))
    making = Making(lambda count: rows.take(slice(count)), searched, 60, 60)
    kept = chosen([plain_kernel(), plain_kernel(Matern32), plain_kernel(Laplacian)], making, ASKED)
    assert len(kept) == 3
    assert [len(formula(each.kernel)) for each in kept] == [3, 3, 1]


def test_a_sum_of_many_inputs_is_no_sum_of_ties() -> None:
    """Beyond 128 inputs searches begin with tied lengthscales; what is made of them multiplies as any kernel does."""
    x = normals(60, 130)
    asked = replace(ASKED, most=60, sums=False, sum_of=("rbf", "laplacian"), metric="ard")
    kernel, _ = learn(rows_of(x, x[:, 0]), asked, Watch())
    assert isinstance(kernel, SpectralSum)
    torch.testing.assert_close(kernel.product(x[:3], x, x), kernel(x[:3], x) @ x)
