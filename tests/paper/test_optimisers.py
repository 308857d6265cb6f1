"""The pure updates against torch.optim, which keeps its state in objects."""

import pytest
import torch

from qsgp.paper.optimisers import Moments, adagrad, adam, block_newton, decayed


def run_torch(optimiser, value, gradients):
    for gradient in gradients:
        value.grad = gradient.clone()
        optimiser.step()
    return value.detach()


@pytest.fixture
def gradients():
    return torch.randn(20, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_adagrad_is_that_of_torch(gradients):
    value = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    wanted = run_torch(torch.optim.Adagrad([value], lr=0.1), value, gradients)
    rows, sums = torch.ones(3, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    for gradient in gradients:
        rows, sums = adagrad(rows, sums, gradient, 0.1)
    torch.testing.assert_close(rows, wanted)


def test_adam_is_that_of_torch(gradients):
    value = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    wanted = run_torch(torch.optim.Adam([value], lr=0.1), value, gradients)
    rows = torch.ones(3, 2, dtype=torch.float64)
    moments = Moments(torch.zeros_like(rows), torch.zeros_like(rows))
    for t, gradient in enumerate(gradients, start=1):
        rows, moments = adam(rows, moments, gradient, 0.1, t)
    torch.testing.assert_close(rows, wanted)


def test_rates_decay_exponentially():
    assert decayed(0.1, 0, 100, 0.01) == pytest.approx(0.1)
    assert decayed(0.1, 50, 100, 0.01) == pytest.approx(0.01)
    assert decayed(0.1, 100, 100, 0.01) == pytest.approx(0.001)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("strength", [1.0, 1e5])
def test_a_block_newton_step_is_that_of_the_dense_hessian(dtype, strength):
    """Also where float32 cannot factor I + B S^-1 B^T: data 10^10 times as precise as the prior, points repeated."""
    g = torch.Generator().manual_seed(0)
    root = strength * torch.randn(6, 9, generator=g, dtype=torch.float64).repeat(2, 1).to(dtype)
    mu, gradient = (torch.randn(9, 2, generator=g, dtype=torch.float64).to(dtype) for _ in range(2))
    s = torch.rand(9, generator=g, dtype=torch.float64).to(dtype) + 0.1
    H = torch.diag(s.double()) + root.double().mT @ root.double()
    wanted = mu.double() - 0.7 * torch.linalg.solve(H, gradient.double())
    got = block_newton(mu, gradient, s, root, 0.7)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))
