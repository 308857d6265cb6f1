import pytest
import torch

from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import Matern32, SquaredExponential, Sum
from qsgp.paper import dense


def draw_from(kernel, sigma2, n=250, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = 6 * torch.rand(n, 2, generator=g, dtype=torch.float64)
    K = kernel(x, x) + (sigma2 + 1e-9) * torch.eye(n, dtype=torch.float64)
    return x, torch.linalg.cholesky(K) @ torch.randn(n, generator=g, dtype=torch.float64)


def kernel_of(kind, lengthscale, variance):
    return kind(torch.tensor(lengthscale, dtype=torch.float64), torch.tensor(variance, dtype=torch.float64))


@pytest.mark.parametrize("kind", [SquaredExponential, Matern32])
def test_the_evidence_is_at_a_maximum_and_near_the_truth(kind):
    x, y = draw_from(kernel_of(kind, [0.8, 2.0], 1.5), 0.05)
    found, sigma2 = fit_exact_gp(kernel_of(kind, [1.0, 1.0], 1.0), x, y)

    def evidence(log_parameters, log_noise):
        return dense.log_marginal_likelihood(found.with_parameters(log_parameters)(x, x), y, log_noise.exp())

    variables = {name: value.detach().requires_grad_() for name, value in found.parameters().items()}
    log_noise = sigma2.log().requires_grad_()
    for gradient in torch.autograd.grad(evidence(variables, log_noise), [*variables.values(), log_noise]):
        assert gradient.abs().max() < 0.5  # nats for each e-fold
    assert 0.5 < float(found.lengthscale[0]) / 0.8 < 2 and 0.5 < float(sigma2) / 0.05 < 2
    assert found.lengthscale[1] > found.lengthscale[0]


def test_sums_of_kernels_and_float32_work():
    x, y = draw_from(kernel_of(SquaredExponential, [1.0, 1.0], 1.0), 0.1, n=60)
    both = Sum((kernel_of(SquaredExponential, [1.0, 1.0], 1.0), kernel_of(Matern32, [3.0, 3.0], 0.5)))
    found, _ = fit_exact_gp(both, x, y, iterations=5)
    assert isinstance(found, Sum)
    single = SquaredExponential(torch.ones(2), torch.tensor(1.0))
    kernel, sigma2 = fit_exact_gp(single, x.float(), y.float(), iterations=5)
    assert kernel.lengthscale.dtype == sigma2.dtype == torch.float32


def test_duplicates_and_a_constant_target_are_survived():
    x = torch.zeros(40, 2, dtype=torch.float64)
    for y in (torch.ones(40, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)):
        found, sigma2 = fit_exact_gp(kernel_of(SquaredExponential, [1.0, 1.0], 1.0), x, y)
        assert torch.isfinite(found.lengthscale).all() and torch.isfinite(sigma2) and sigma2 > 0


def test_missing_values_are_named():
    x, y = draw_from(kernel_of(SquaredExponential, [1.0, 1.0], 1.0), 0.1, n=10)
    x[3, 1] = torch.nan
    with pytest.raises(ValueError, match=r"finite numbers in x, got nan at \[3, 1\].*missing values"):
        fit_exact_gp(kernel_of(SquaredExponential, [1.0, 1.0], 1.0), x, y)
