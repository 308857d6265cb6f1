"""The posterior of a Fourier model, against dense matrices."""

import pytest
import torch

from qsgp.bases import Fourier
from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.posteriors import solved_features as feature_posterior
from qsgp.posteriors.solved_features import Seen, weight_draws
from qsgp.solvers.feature_dual import Descent
from qsgp.solvers.pathwise import blended, fit_blend, noise_draws


def problem(n=60, m=80, dtype=torch.float64, name="rbf", device="cpu"):
    generator = torch.Generator().manual_seed(0)
    x, new, unseen = (torch.randn(rows, 2, generator=generator, dtype=dtype).to(device) for rows in (n, 7, 40))
    Y = torch.sin(2 * x) + 0.1 * torch.randn(n, 2, generator=generator, dtype=dtype).to(device)
    kernel = BY_NAME[name](*hyperparameters(1.2, 1.3, d=2, dtype=dtype, device=device))
    noise = torch.full((n,), 0.05, dtype=dtype, device=device)
    noise[::3] *= 4
    return Fourier(kernel, m, seed=1), x, Y, noise, new, unseen


def dense(basis, x, noise):
    """Phi at x, and what takes targets to weights: Phi^T (Phi Phi^T + D)^-1."""
    Phi = basis.features(x, basis.columns(torch.arange(basis.m)))
    return Phi, torch.linalg.solve(Phi @ Phi.mT + torch.diag(noise), Phi).mT


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("m_tilde", [None, 34])
def test_mean_and_draws_are_those_of_the_dense_formula(name, m_tilde):
    basis, x, Y, noise, new, unseen = problem(name=name)
    found = feature_posterior.solve(
        basis, Seen(x, Y, noise), x[:20], unseen, 5, 3, Descent(m_tilde, passes=300, tolerance=1e-10)
    )
    Phi, G = dense(basis, x, noise)
    W, E = weight_draws(basis.m, 5, 3, x), noise.sqrt()[:, None] * noise_draws(len(x), 5, 3, x)
    table = torch.cat([G @ Y, W - G @ (Phi @ W + E)], 1)
    torch.testing.assert_close(found.table, table, rtol=1e-6, atol=1e-6)
    Phi_new, _ = dense(basis, new, torch.ones_like(new[:, 0]))
    mean, draws = found.pieces(new)
    torch.testing.assert_close(torch.cat([mean, draws[:, 0]], 1), Phi_new @ table, rtol=1e-6, atol=1e-6)
    blend = fit_blend(found.pieces(unseen)[1], found.spread.support(unseen))
    expected = blended(draws, found.spread.support(new), blend).expand_as(mean)
    torch.testing.assert_close(found.latent(new), (mean, expected))


def test_the_formula_has_the_covariance_of_the_posterior():
    """No seed: the draw is linear in (w, e), and I and D are their covariances."""
    basis, x, _, noise, _, _ = problem()
    Phi, G = dense(basis, x, noise)
    of_w = torch.eye(basis.m, dtype=x.dtype) - G @ Phi
    Sigma = torch.linalg.inv(torch.eye(basis.m, dtype=x.dtype) + Phi.mT @ torch.diag(1 / noise) @ Phi)
    torch.testing.assert_close(of_w @ of_w.mT + G @ torch.diag(noise) @ G.mT, Sigma)


def test_the_variance_comes_near_the_exact_one():
    basis, x, Y, noise, new, unseen = problem()
    found = feature_posterior.solve(basis, Seen(x, Y, noise), x[:20], unseen, 2000, descent=Descent(tolerance=1e-6))
    Phi, G = dense(basis, x, noise)
    Phi_new, _ = dense(basis, new, torch.ones_like(new[:, 0]))
    exact = (Phi_new * (Phi_new - Phi_new @ G @ Phi)).sum(1)
    squares = found.pieces(new)[1][:, 0].square()
    assert ((squares.mean(1) - exact).abs() < 5 * squares.std(1) / 2000**0.5).all()
    assert (found.latent(new)[1][:, 0] / exact).log().abs().max() < 0.2


def test_without_draws_the_support_points_speak():
    basis, x, Y, noise, new, unseen = problem()
    found = feature_posterior.solve(basis, Seen(x, Y, noise), x[:20], unseen, 0)
    assert torch.equal(found.latent(new)[1], found.spread.support(new).expand(-1, 2))


def test_float32(device):
    basis, x, Y, noise, new, unseen = problem(400, 1000, torch.float32, device=device)
    found = feature_posterior.solve(basis, Seen(x, Y, noise), x[:100], unseen, 16)
    mean, variance = found.latent(new)
    assert mean.dtype == variance.dtype == torch.float32 and bool((variance > 0).all())


def test_weights_of_the_prior_do_not_depend_on_how_many_there_are():
    few, many = (weight_draws(m, 3, 5, torch.zeros(1)) for m in (10, (1 << 16) + 10))
    assert torch.equal(few, many[:10])
    assert not torch.equal(few, weight_draws(10, 3, 6, torch.zeros(1)))
