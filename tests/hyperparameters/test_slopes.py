"""The slope of the evidence from solved systems, against automatic differentiation of the dense evidence."""

import pytest
import torch

from qsgp.hyperparameters.slopes import slopes
from qsgp.kernels import BY_NAME, hyperparameters

N = 30


def problem(name, outputs=1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 2, generator=generator, dtype=dtype)
    Y = torch.randn(N, outputs, generator=generator, dtype=dtype)
    kernel = BY_NAME[name](*hyperparameters([0.7, 1.6], 1.3, dtype=dtype))
    return kernel, x, Y, 0.2 * (1 + torch.rand(N, generator=generator, dtype=dtype))


def dense(kernel, x, Y, noise):
    """The gradient of sum over outputs of log N(y | 0, H), by autograd through a Cholesky factor."""
    leaves = {name: value.detach().requires_grad_() for name, value in kernel.parameters().items()}
    leaves["log_noise_variance"] = torch.zeros((), dtype=x.dtype, requires_grad=True)  # of a common factor
    at = kernel.with_parameters({name: value for name, value in leaves.items() if name != "log_noise_variance"})
    H = at(x, x) + torch.diag(noise * leaves["log_noise_variance"].exp())
    factor = torch.linalg.cholesky(H)
    half = torch.linalg.solve_triangular(factor, Y, upper=False)
    value = -0.5 * half.square().sum() - Y.shape[1] * factor.diagonal().log().sum()
    return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True)), H.detach()


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("outputs", [1, 2])
def test_all_blocks_together_give_the_slope(name, outputs):
    """With draws whose second moment is H^-1 exactly (its columns of the root, times the root of n) nothing is left to
    chance but the block of rows, and the mean over a partition is the mean over all blocks."""
    kernel, x, Y, noise = problem(name, outputs)
    wanted, H = dense(kernel, x, Y, noise)
    values, vectors = torch.linalg.eigh(H)
    Z = N**0.5 * vectors / values.sqrt()
    A = torch.cat([torch.linalg.solve(H, Y), Z], 1)
    sign = torch.tensor([1.0] * outputs + [-outputs / N] * N, dtype=torch.float64)
    blocks = torch.randperm(N, generator=torch.Generator().manual_seed(1)).split(6)
    found = [slopes(kernel, x, A, sign, noise, rows) for rows in blocks]
    for parameter, value in wanted.items():
        mean = torch.stack([each[parameter] for each in found]).mean(0)
        torch.testing.assert_close(mean, value, rtol=1e-8, atol=1e-9)
        assert not torch.allclose(found[0][parameter], value, rtol=1e-3)  # one block alone is an estimate


@pytest.mark.parametrize("name", BY_NAME)
def test_float32(name):
    kernel, x, Y, noise = problem(name, dtype=torch.float32)
    double = kernel.with_parameters({key: value.double() for key, value in kernel.parameters().items()})
    wanted, H = dense(double, x.double(), Y.double(), noise.double())
    values, vectors = torch.linalg.eigh(H)
    A = torch.cat([torch.linalg.solve(H, Y.double()), N**0.5 * vectors / values.sqrt()], 1).float()
    sign = torch.cat([torch.ones(1), torch.full((N,), -1 / N)])
    found = slopes(kernel, x, A, sign, noise, torch.arange(N))
    for parameter, value in wanted.items():
        torch.testing.assert_close(found[parameter].double(), value, rtol=1e-3, atol=1e-3)
