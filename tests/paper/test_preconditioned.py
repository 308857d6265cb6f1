"""Preconditioned steps and sites over blocks: unbiased by enumeration of every draw, averages and products kept."""

import itertools
from dataclasses import replace

import pytest
import torch
from test_blocks import features, full_gradient, make, random_state

from qsgp.likelihoods import pointwise as sites
from qsgp.paper import blocks as B
from qsgp.paper import preconditioned as P
from qsgp.solvers.support_variance import SupportVariance


def every_draw(blocks, starts):
    for l in itertools.product(range(len(blocks.x)), repeat=blocks.n_tilde):
        for start in starts:
            yield B.Draw(torch.tensor(l), torch.tensor(start))


def mean_of(blocks, state, estimate, starts):
    """Mean over all draws of (rows i, values there)."""
    draws, total = list(every_draw(blocks, starts)), torch.zeros_like(state.V)
    for batch in draws:
        i, g = estimate(batch)
        total.index_add_(0, i, g / len(draws))
    return total


def all_starts(blocks):
    pairs = range(blocks.basis.m // 2)
    return list(itertools.product(pairs, pairs))


def wanted_direction(blocks, state, spectral):
    """Phi^T s + V - Phi_p^T T (K_pX s + Phi_p V), from the definition."""
    kernel, Phi_p = blocks.basis.kernel, features(blocks, blocks.U)
    s = features(blocks, blocks.x) @ state.V
    s[:, : blocks.Y.shape[1]] -= blocks.Y
    s /= blocks.sigma2
    top = kernel(blocks.U, blocks.x) @ s + Phi_p @ state.V
    return full_gradient(blocks, state.V) - Phi_p.mT @ (spectral.T @ top)


def flattening(blocks):
    """Any T will do where a mean is tested; one that weighs."""
    p = len(blocks.U)
    return replace(P.Spectral.build(blocks), T=0.2 + 0.1 * torch.eye(p, dtype=torch.float64))


@pytest.mark.parametrize(("n_tilde", "m_tilde"), [(1, 2), (2, 4), (1, 6), (1, 8)])
@pytest.mark.parametrize("columns", [1, 3])
def test_the_direction_is_unbiased_over_every_draw(n_tilde, m_tilde, columns):
    blocks = make(n=5, n_tilde=n_tilde, m_tilde=m_tilde)
    state, spectral = random_state(blocks, columns), flattening(blocks)
    found = mean_of(blocks, state, lambda batch: P.direction(blocks, state, spectral, batch), all_starts(blocks))
    torch.testing.assert_close(found, wanted_direction(blocks, state, spectral), rtol=1e-10, atol=1e-10)


def test_one_block_for_both_or_no_wrap_around_would_be_biased():
    blocks = make(n=5)
    state, spectral = random_state(blocks, 1), flattening(blocks)
    wanted, pairs = wanted_direction(blocks, state, spectral), range(blocks.basis.m // 2)
    inside = range(blocks.basis.m // 2 - blocks.pairs + 1)
    for starts in ([(s, s) for s in pairs], list(itertools.product(inside, inside))):
        found = mean_of(blocks, state, lambda batch: P.direction(blocks, state, spectral, batch), starts)
        assert (found - wanted).abs().max() > 0.1


def test_the_zero_of_the_direction_is_near_the_exact_solution():
    """The exact kernel in place of the features moves it a little; without that the two would be the same."""
    blocks = make(n=200, m=600, n_tilde=10, m_tilde=300)
    spectral, kernel = P.Spectral.build(blocks), blocks.basis.kernel
    Phi, Phi_p, identity = features(blocks, blocks.x), features(blocks, blocks.U), torch.eye(600, dtype=torch.float64)
    exact = torch.linalg.solve(Phi.mT @ Phi + blocks.sigma2 * identity, Phi.mT @ blocks.Y)
    moved = {}
    for name, K in (("kernel", kernel(blocks.U, blocks.x)), ("features", Phi_p @ Phi.mT)):
        left = Phi.mT - Phi_p.mT @ spectral.T @ K
        H = left @ Phi + blocks.sigma2 * (identity - Phi_p.mT @ spectral.T @ Phi_p)
        moved[name] = float((Phi @ (torch.linalg.solve(H, left @ blocks.Y) - exact)).norm() / (Phi @ exact).norm())
    assert moved["features"] < 1e-6 < moved["kernel"] < 0.02


def test_the_preconditioner_flattens_the_top_of_the_spectrum():
    """Exact kernel in place of the features: the top q eigenvalues of K_pp fall to the next one, others stay."""
    blocks = make(n=40, m=60, n_tilde=10, m_tilde=30)
    spectral, K = P.Spectral.build(blocks), blocks.basis.kernel(blocks.U, blocks.U)
    values = torch.linalg.eigvalsh(K).flip(0)
    flat = torch.linalg.eigvalsh(K - K @ spectral.T @ K).flip(0)
    wanted = values.clamp_max(values[spectral.directions])
    torch.testing.assert_close(flat, wanted, rtol=1e-8, atol=1e-10)


def test_the_average_is_that_of_the_tables():
    blocks = make(n=40, m=60, n_tilde=10, m_tilde=14, outputs=2)
    state, spectral = B.BlockState.zeros(blocks, 2), P.Spectral.build(blocks)
    generator, tables = torch.Generator().manual_seed(0), []
    for _ in range(30):
        P.step(blocks, state, spectral, B.draw(blocks, generator))
        tables.append(state.V.clone())
    torch.testing.assert_close(P.averaged(state), torch.stack(tables).mean(0))
    torch.testing.assert_close(state.a, features(blocks, blocks.U) @ state.V)


@pytest.mark.parametrize(("n_tilde", "m_tilde"), [(200, 300), (20, 300), (100, 60)])
def test_the_step_of_the_spectrum_is_stable_and_comes_near_the_exact_solution(n_tilde, m_tilde):
    blocks = make(n=200, m=300, n_tilde=n_tilde, m_tilde=m_tilde)
    V = P.fit(blocks, 1, 1000, generator=torch.Generator().manual_seed(0))
    Phi = features(blocks, blocks.x)
    exact = torch.linalg.solve(Phi.mT @ Phi + blocks.sigma2 * torch.eye(300, dtype=Phi.dtype), Phi.mT @ blocks.Y)
    assert (Phi @ (V - exact)).norm() < 0.08 * (Phi @ exact).norm()


def test_it_ends_when_told_to():
    blocks = make(n=40, m=60, n_tilde=10, m_tilde=14)
    V = P.fit(blocks, 1, 1000, halt=lambda: True, every=3, generator=torch.Generator().manual_seed(0))
    assert 0 < int(V.ne(0).any(1).sum()) <= 42


# --- sites ---------------------------------------------------------------------------------------------------------


def labelled(site, outputs=1, **sizes):
    blocks = make(n=5, outputs=outputs, **sizes)
    if site.curvature is None:
        labels = torch.eye(outputs, dtype=torch.float64)[torch.arange(5) % outputs]
    else:
        labels = torch.where(blocks.Y > 0, 1.0, -1.0).double()
    return replace(blocks, Y=labels, site=site)


def kriged(blocks, state, start):
    """f_j at all rows, from the definition."""
    _, j = B.rows_of(blocks, torch.tensor(start))
    scale, W = blocks.basis.m / len(j), blocks.basis.kernel(blocks.x, blocks.U) @ blocks.inverse
    at = [scale * features(blocks, x)[:, j] @ state.V[j] for x in (blocks.x, blocks.U)]
    return at[0] - W @ (at[1] - state.a)


@pytest.mark.parametrize(
    ("site", "outputs"), [(sites.logistic(), 1), (sites.logistic(), 3), (sites.softmax(), 3), (sites.gaussian(0.3), 1)]
)
def test_the_gradient_of_sites_is_unbiased_for_their_mean_slope(site, outputs):
    blocks = labelled(site, outputs)
    state, pairs = random_state(blocks, outputs), range(blocks.basis.m // 2)
    slope = sum(site.slope(blocks.Y, kriged(blocks, state, start)) for start in pairs) / len(pairs)
    wanted = features(blocks, blocks.x).mT @ slope + state.V
    found = mean_of(blocks, state, lambda batch: B.gradient(blocks, state, batch), all_starts(blocks))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    same = mean_of(blocks, state, lambda batch: B.gradient(blocks, state, batch), [(s, s) for s in pairs])
    assert (same - wanted).abs().max() > 0.01


def test_gaussian_sites_are_the_gaussian_step():
    plain = make()
    blocks, state = replace(plain, site=sites.gaussian(plain.sigma2)), random_state(plain, 1)
    for batch in itertools.islice(every_draw(plain, all_starts(plain)), 20):
        torch.testing.assert_close(B.gradient(blocks, state, batch)[1], B.gradient(plain, state, batch)[1])


@pytest.mark.parametrize("preconditioned", [True, False])
def test_logistic_training_comes_near_the_most_probable_weights(preconditioned):
    blocks = make(n=200, m=100, n_tilde=50, m_tilde=50)
    site, labels = sites.logistic(), torch.where(blocks.Y > 0, 1.0, -1.0).double()
    blocks, generator = replace(blocks, Y=labels, site=site), torch.Generator().manual_seed(0)
    if preconditioned:
        V = P.fit(blocks, 1, 1500, generator=generator)
    else:
        state = B.BlockState.zeros(blocks, 1)
        for _ in range(1500):
            B.step(blocks, state, B.draw(blocks, generator), rate=0.3, decay=2e-3)
        V = state.V
    Phi, exact = features(blocks, blocks.x), torch.zeros(100, 1, dtype=torch.float64)
    for _ in range(20):
        f = Phi @ exact
        H = Phi.mT @ (site.curvature(labels, f) * Phi) + torch.eye(100, dtype=Phi.dtype)
        exact = exact - torch.linalg.solve(H, Phi.mT @ site.slope(labels, f) + exact)
    assert (Phi @ (V - exact)).norm() < 0.1 * (Phi @ exact).norm()


def test_support_variance_is_that_of_the_dense_formula():
    blocks = make(n=40, m=60)
    U, kernel = blocks.U, blocks.basis.kernel
    generator = torch.Generator().manual_seed(0)
    curvature = torch.rand(len(U), 2, generator=generator, dtype=torch.float64)
    x = torch.randn(9, 2, generator=generator, dtype=torch.float64)
    found = SupportVariance.build(kernel, U, curvature, 40)(x, block_rows=4)
    for column in range(2):
        noise = torch.diag(len(U) / 40 / curvature[:, column])
        wanted = kernel.diag(x) - (kernel(x, U) @ torch.linalg.inv(kernel(U, U) + noise) * kernel(x, U)).sum(1)
        torch.testing.assert_close(found[:, column], wanted, rtol=1e-4, atol=1e-4)


def test_support_variance_in_float32_is_positive_at_decided_and_repeated_points():
    blocks = make(n=40, m=60, dtype=torch.float32)
    U = torch.cat([blocks.U, blocks.U])
    curvature = torch.cat([torch.zeros(len(blocks.U), 1), torch.full((len(blocks.U), 1), 1e8)])
    assert (SupportVariance.build(blocks.basis.kernel, U, curvature, 10_000)(U) > 0).all()
