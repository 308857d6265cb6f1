"""Draws of prior and posterior, and the blend of their variance with that of the support points."""

import pytest
import torch

from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.solvers.pathwise import blended, fit_blend, noise_draws, prior_draws


def kernel_of(name, dtype=torch.float64):
    return BY_NAME[name](*hyperparameters([0.7, 1.6], 1.3, dtype=dtype))


@pytest.mark.parametrize("name", BY_NAME)
def test_prior_draws_have_the_kernel_as_second_moment(name):
    """However few features a draw has: each has frequencies of its own."""
    kernel = kernel_of(name)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = prior_draws(kernel, x, 600, 3, pairs=2)
    products = draws[:, None] * draws[None]
    error = (products.mean(2) - kernel(x, x)).abs()
    assert (error < 5 * products.std(2) / 600**0.5).all()


def test_draws_are_functions():
    kernel = kernel_of("matern32", torch.float32)
    x = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    all_rows = prior_draws(kernel, x, 3, 7)
    torch.testing.assert_close(prior_draws(kernel, x[4:6], 3, 7), all_rows[4:6], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(prior_draws(kernel, x, 2, 7), all_rows[:, :2], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(prior_draws(kernel, x, 3, 8), all_rows, atol=0.1)
    assert prior_draws(kernel, x, 0, 7).shape == (9, 0)
    assert noise_draws(9, 3, 0, x).shape == (9, 3)


@pytest.mark.parametrize("name", ["rbf", "matern32"])
def test_their_spread_is_the_exact_variance(name):
    kernel, count = kernel_of(name), 600
    generator = torch.Generator().manual_seed(0)
    x, new = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (40, 6))
    noise = torch.full((40,), 0.05, dtype=torch.float64)
    H = kernel(x, x) + torch.diag(noise)
    Xi = prior_draws(kernel, x, count, 1, pairs=8) + noise[:, None].sqrt() * noise_draws(40, count, 2, x)
    spread = prior_draws(kernel, new, count, 1, pairs=8) - kernel(new, x) @ torch.linalg.solve(H, Xi)
    exact = kernel.diag(new) - (kernel(new, x) * torch.linalg.solve(H, kernel(x, new)).mT).sum(1)
    squares = spread.square()
    assert ((squares.mean(1) - exact).abs() < 5 * squares.std(1) / count**0.5).all()


@pytest.mark.parametrize("differs", [0.0, 0.5, 1.5])
def test_the_blend_beats_both_its_parts(differs):
    """Variances that are ``ratio`` times those of the support points, more or less: the blend finds out how much."""
    generator = torch.Generator().manual_seed(0)
    support = torch.rand(4000, 1, generator=generator, dtype=torch.float64) + 0.1
    true = 0.6 * support * torch.exp(differs * torch.randn(4000, 1, generator=generator, dtype=torch.float64))
    spread = true.sqrt()[..., None] * torch.randn(4000, 1, 16, generator=generator, dtype=torch.float64)
    found = fit_blend(spread[:1000], support[:1000])
    variance = blended(spread[1000:], support[1000:], found)

    def loss(guess):
        return float((guess.log() + true[1000:] / guess).mean())

    assert loss(variance) < min(loss(spread[1000:].square().mean(2)), loss(found[0, 0] * support[1000:])) + 1e-3
    assert loss(variance) < loss(support[1000:]) - 0.05
    if differs < 1:  # beyond, the mean of quotients is that of a few of them
        assert found[0, 0] == pytest.approx(float((true / support)[:1000].mean()), rel=0.05)


@pytest.mark.parametrize("freedom", [4.0, 20.0])
def test_the_blend_finds_the_law_of_the_quotients(freedom):
    """Inverse gamma quotients: the posterior mean of a variance is the blend, so its constants are known."""
    torch.manual_seed(0)
    support, scale = torch.rand(20_000, 1, dtype=torch.float64) + 0.1, 0.6
    law = torch.distributions.Gamma(torch.tensor(freedom / 2).double(), torch.tensor(freedom * scale / 2).double())
    true = support / law.sample((20_000, 1))
    ratio, worth = fit_blend(true.sqrt()[..., None] * torch.randn(20_000, 1, 16, dtype=torch.float64), support)[0]
    assert float(ratio) == pytest.approx(freedom * scale / (freedom - 2), rel=0.05)
    assert float(worth) == pytest.approx(freedom - 2, rel=0.1)


def test_without_draws_the_support_points_speak():
    support = torch.rand(5, 2)
    assert torch.equal(blended(torch.zeros(5, 2, 0), support, torch.ones(2, 2)), support)


def test_each_variance_has_a_blend_of_its_own():
    generator = torch.Generator().manual_seed(0)
    support = torch.rand(500, 2, generator=generator, dtype=torch.float64) + 0.1
    spread = (support * torch.tensor([0.3, 0.9])).sqrt()[..., None] * torch.randn(500, 2, 8, generator=generator)
    found = fit_blend(spread, support)
    assert found.shape == (2, 2)
    for g in range(2):
        torch.testing.assert_close(found[g : g + 1], fit_blend(spread[:, g : g + 1], support[:, g : g + 1]))
        alone = blended(spread[:, g : g + 1], support[:, g : g + 1], found[g : g + 1])
        torch.testing.assert_close(blended(spread, support, found)[:, g : g + 1], alone)
