"""Frequencies with heavier tails, and what they are for."""

import pytest
import torch
from scipy.stats import multivariate_t

from qsgp.kernels import (
    Laplacian,
    Mapped,
    Matern12,
    Matern32,
    Matern52,
    SpectralSum,
    SquaredExponential,
    hyperparameters,
)
from qsgp.kernels.tails import heavy_frequencies, student_log_density
from qsgp.solvers.pathwise import prior_draws, prior_tables


def of(kind, lengthscale=1.5, variance=1.0, d=2):
    return kind(*hyperparameters(lengthscale, variance, d=d, dtype=torch.float64))


def test_the_density_is_that_of_student():
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for degrees in (1, 3, 5):
        wanted = multivariate_t(df=degrees, shape=torch.eye(3).numpy()).logpdf(z.numpy())
        torch.testing.assert_close(student_log_density(z.square().sum(1), degrees, 3), torch.tensor(wanted))


def test_kernels_without_or_with_cauchy_tails_keep_their_frequencies():
    index = torch.arange(7)
    for kind in (SquaredExponential, Matern12, Laplacian):
        own, weight = heavy_frequencies(of(kind), 3, index)
        torch.testing.assert_close(own, of(kind).frequencies(3, index), rtol=0, atol=0)
        assert (weight == 1).all()


@pytest.mark.parametrize("kind", ["matern32", "matern52", "metric", "sum"])
def test_weights_make_the_mean_product_the_kernel(kind):
    """Mean of weight cos(omega (x - z)), from 200,000 frequencies."""
    turned = Mapped(of(Matern52), torch.tensor([[1.0, 0.3], [-0.4, 0.8]], dtype=torch.float64))
    kernels = {
        "matern32": of(Matern32),
        "matern52": of(Matern52),
        "metric": turned,
        "sum": SpectralSum((turned, of(Laplacian, 0.7, 0.5))),
    }
    kernel, lag = kernels[kind], torch.tensor([[0.0, 0.0], [0.5, -0.2], [1.5, 1.0], [4.0, 0.0]], dtype=torch.float64)
    omega, weight = heavy_frequencies(kernel, 5, torch.arange(200_000))
    mean = kernel.variance * (weight * (lag / kernel.lengthscale @ omega.mT).cos()).mean(1)
    torch.testing.assert_close(mean, kernel(lag, torch.zeros(1, 2, dtype=torch.float64))[:, 0], atol=0.006, rtol=0)
    assert weight.max() <= 2 and weight.min() > 0


def test_draws_and_their_tables_agree():
    kernel, x = of(Matern52), torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for tails in (True, False):
        omega, weights = prior_tables(kernel, 3, 11, tails)
        angle = torch.einsum("td,dsp->tsp", x, omega)
        served = (angle.cos() * weights[:, :, 0] + angle.sin() * weights[:, :, 1]).sum(2)
        torch.testing.assert_close(prior_draws(kernel, x, 3, 11, tails=tails), served, rtol=1e-9, atol=1e-9)


def test_they_tell_what_many_rows_of_a_smooth_function_leave_open():
    """The variance of 64 draws, given 400 rows with hardly any noise, beside the exact one: a factor that all new rows
    share is what a lack of high frequencies does."""
    generator = torch.Generator().manual_seed(2)
    x, new = torch.rand(400, 4, generator=generator).double(), torch.rand(40, 4, generator=generator).double()
    kernel, noise = of(Matern52, 3.0, d=4), 1e-8
    H = kernel(x, x) + noise * torch.eye(400)
    cross = kernel(new, x)
    exact = kernel.diag(new) - (cross * torch.linalg.solve(H, cross.mT).mT).sum(1)
    off = {}
    for tails in (True, False):
        ratios = []
        for seed in range(4):
            e = noise**0.5 * torch.randn(400, 64, generator=generator, dtype=torch.float64)
            known = torch.linalg.solve(H, prior_draws(kernel, x, 64, seed, tails=tails) + e)
            found = (prior_draws(kernel, new, 64, seed, tails=tails) - cross @ known).square().mean(1)
            ratios.append((found / exact).log().mean())
        off[tails] = float(torch.stack(ratios).square().mean().sqrt())
    assert off[True] < 0.1
    assert off[False] > 0.25
