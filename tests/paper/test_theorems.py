"""Theorems 1 and 2 and Propositions 1 and 2 against `dense`, by the average over all draws for n = 4, m = 3."""

from types import SimpleNamespace

import pytest
import torch

from enumeration import WITH, WITHOUT, all_draws, assert_same, average, gradients, together
from qsgp.paper import dense, theorems
from qsgp.paper.theorems import Sampled

N, M = 4, 3
# (l, i and j, r) sizes: all of them without replacement, 1 and 2 with.
SIZES = [(WITHOUT, l, i, r) for l in (1, 2, 3, 4) for i in (1, 2, 3) for r in (1, 2, 3)] + [
    (WITH, l, i, r) for l in (1, 2) for i in (1, 2) for r in (1, 2)
]
MEAN_SIZES = sorted({(replacement, l, i) for replacement, l, i, _ in SIZES})


@pytest.fixture(params=["dense", "diagonal"])
def toy(request):
    """A random problem whose every tensor is a leaf, so that gradients of all of them are compared."""
    g = torch.Generator().manual_seed(11)

    def leaf(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_()

    y, Phi, mu, L = leaf(N), leaf(N, M), leaf(M), leaf(M, M)
    log_c, log_sigma2, root, log_s = leaf(M), leaf(), leaf(M, M), leaf(M)
    s = log_s.exp()
    S = root @ root.mT + torch.eye(M) if request.param == "dense" else torch.diag(s)
    return SimpleNamespace(
        y=y,
        Phi=Phi,
        mu=mu,
        S=S,
        s=s,
        sigma2=log_sigma2.exp(),
        C=torch.tril(L, -1) + torch.diag(log_c.exp()),
        c=log_c.exp(),
        diagonal=request.param == "diagonal",
        leaves=[y, Phi, mu, L, log_c, log_sigma2, root, log_s],
    )


def block(toy, j, i):
    """What the theorems take for S: the sampled block, or the diagonal at both draws."""
    return (toy.s[i], toy.s[j]) if toy.diagonal else toy.S[j][:, i]


def sampled(Phi_l, V, i, j):
    """Columns V at the draws i and j."""
    return Sampled.of(Phi_l[:, i], Phi_l[:, j], V[i], V[j], N, M)


@pytest.mark.parametrize(("replacement", "l_size", "i_size"), MEAN_SIZES)
def test_theorem_1_is_unbiased(toy, replacement, l_size, i_size):
    draws = together(
        all_draws(N, l_size, replacement), all_draws(M, i_size, replacement), all_draws(M, i_size, replacement)
    )

    def estimate(l, i, j):
        mu = sampled(toy.Phi[l], toy.mu[:, None], i, j)
        return theorems.mean_loss(toy.y[l, None], mu, block(toy, j, i), toy.sigma2)

    assert_same(average(estimate, *draws), dense.mean_loss(toy.y, toy.Phi, toy.S, toy.mu, toy.sigma2), toy.leaves)


@pytest.mark.parametrize(("replacement", "l_size", "i_size", "r_size"), SIZES)
def test_theorem_2_is_unbiased(toy, replacement, l_size, i_size, r_size):
    """Full C; the mean-field and chevron C of the next test are special cases with zeros."""
    check_theorem_2(toy, toy.C, replacement, l_size, i_size, r_size)


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("replacement", [WITH, WITHOUT])
def test_theorem_2_is_unbiased_for_chevron_and_mean_field(toy, k, replacement):
    keep = torch.eye(M, dtype=torch.bool) | (torch.arange(M) < k)
    check_theorem_2(toy, torch.where(keep, toy.C, 0.0), replacement, 2, 2, 2)


def check_theorem_2(toy, C, replacement, l_size, i_size, r_size):
    i = all_draws(M, i_size, replacement)
    draws = together(all_draws(N, l_size, replacement), i, i, all_draws(M, r_size, replacement))

    def estimate(l, i, j, r):
        return theorems.covariance_loss(sampled(toy.Phi[l], C[:, r], i, j), C[r, r], block(toy, j, i), toy.sigma2)

    assert_same(average(estimate, *draws), dense.covariance_loss(toy.Phi, toy.S, C, toy.sigma2), toy.leaves)


@pytest.mark.parametrize(("replacement", "l_size", "r_size"), MEAN_SIZES)
def test_theorem_2_for_diagonal_columns_is_unbiased(toy, replacement, l_size, r_size):
    draws = together(all_draws(N, l_size, replacement), all_draws(M, r_size, replacement))

    def estimate(l, r):
        arms = theorems.diagonal_quadratic(toy.Phi[l][:, r], toy.S.diagonal()[r], toy.c[r], toy.sigma2, N, M)
        return arms - theorems.log_determinant(toy.c[r], M)

    truth = dense.covariance_loss(toy.Phi, toy.S, torch.diag(toy.c), toy.sigma2)
    assert_same(average(estimate, *draws), truth, toy.leaves)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_chevron_splits_into_dense_columns_and_arms(toy, k):
    """Dense columns by Theorem 2 over k columns, arms by their own form: together the whole of L_Sigma."""
    arm = (torch.arange(M) >= k).double()
    C = torch.where(torch.eye(M, dtype=torch.bool) | (torch.arange(M) < k), toy.C, 0.0)
    i = all_draws(M, 2, WITHOUT)
    draws = together(all_draws(N, 2, WITHOUT), i, i, all_draws(M, 2, WITHOUT))

    def estimate(l, i, j, r):
        dense_columns = sampled(toy.Phi[l], C[:, :k], i, j)
        columns = theorems.covariance_loss(dense_columns, toy.c[r], block(toy, j, i), toy.sigma2, columns=k)
        s_r, c_r = toy.S.diagonal()[r], (arm * toy.c)[r]
        return columns + theorems.diagonal_quadratic(toy.Phi[l][:, r], s_r, c_r, toy.sigma2, N, M)

    assert_same(average(estimate, *draws), dense.covariance_loss(toy.Phi, toy.S, C, toy.sigma2), toy.leaves)


@pytest.mark.parametrize("toy", ["diagonal"], indirect=True)
@pytest.mark.parametrize(("replacement", "l_size", "i_size"), MEAN_SIZES)
def test_proposition_2_is_unbiased(toy, replacement, l_size, i_size):
    draws = together(all_draws(N, l_size, replacement), all_draws(M, i_size, replacement))

    def estimate(l, i):
        return theorems.constant_loss(toy.y[l], toy.s[i], toy.sigma2, N, M)

    assert_same(average(estimate, *draws), dense.constant_loss(toy.y, toy.S, toy.sigma2), toy.leaves)


@pytest.mark.parametrize("k_size", [2, 3])
def test_u_statistic_is_unbiased(toy, k_size):
    draws = together(all_draws(N, 2, WITHOUT), all_draws(M, k_size, WITHOUT))

    def estimate(l, k):
        C_k = toy.C[k]
        gram = theorems.gram_quadratic_u(toy.Phi[l][:, k], C_k, N, M)
        return gram + theorems.prior_quadratic_u(toy.S[k][:, k], C_k, M)

    truth = dense.gram_quadratic(toy.Phi, toy.C) + dense.prior_quadratic(toy.S, toy.C)
    assert_same(average(estimate, *draws), truth, toy.leaves)


# --- what the paper leaves out: these variants fail the same test --------------------------------------------------


def quadratic_gap(toy, draws, pick):
    """Relative error of the averaged Phi^T Phi term when (i, j) = pick(draw)."""

    def estimate(l, *sets):
        return theorems.gram_quadratic(sampled(toy.Phi[l], toy.mu[:, None], *pick(*sets)))

    truth = dense.gram_quadratic(toy.Phi, toy.mu[:, None])
    return float(((average(estimate, *draws) - truth).abs().sum() / truth.abs().sum()).detach())


def test_same_indices_for_i_and_j_are_biased(toy):
    l = all_draws(N, 2, WITHOUT)
    for size in (1, 2):
        assert quadratic_gap(toy, together(l, all_draws(M, size, WITHOUT)), lambda i: (i, i)) > 0.05
    assert (
        quadratic_gap(toy, together(l, all_draws(M, 2, WITHOUT), all_draws(M, 2, WITHOUT)), lambda i, j: (i, j)) < 1e-12
    )


def test_disjoint_halves_are_biased(toy):
    """Two halves of one permutation never meet, so the diagonal of Phi^T Phi is lost."""
    pairs = torch.tensor([(a, b) for a in range(M) for b in range(M) if a != b])
    gap = quadratic_gap(toy, together(all_draws(N, 2, WITHOUT), pairs), lambda pair: (pair[:1], pair[1:]))
    assert gap > 0.05


def test_u_statistic_with_replacement_is_biased(toy):
    draws = together(all_draws(N, 2, WITHOUT), all_draws(M, 2, WITH))
    got = average(lambda l, k: theorems.gram_quadratic_u(toy.Phi[l][:, k], toy.C[k], N, M), *draws)
    assert float((got - dense.gram_quadratic(toy.Phi, toy.C)).abs().max().detach()) > 0.05


def test_u_statistic_needs_two_functions():
    with pytest.raises(ValueError, match="2 <= k <= m = 3.*k = 1"):
        theorems.gram_quadratic_u(torch.ones(2, 1), torch.ones(1, 1), N, M)


def test_proposition_1_is_biased_from_sampled_norms(toy):
    """sqrt is not linear: averaging over draws of l does not give the optimum of all n points."""
    truth = theorems.optimal_diagonal(toy.Phi.square().sum(0), toy.S.diagonal(), toy.sigma2)

    def from_sample(l):
        return theorems.optimal_diagonal(N / len(l) * toy.Phi[l].square().sum(0), toy.S.diagonal(), toy.sigma2)

    averaged = average(from_sample, all_draws(N, 1, WITHOUT))
    assert float(((averaged - truth) / truth).abs().max().detach()) > 0.02


# --- Proposition 1, variances, convexity ---------------------------------------------------------------------------


def test_proposition_1_is_the_optimum(toy):
    """The gradient of the dense L_Sigma vanishes at the closed form, also with dense columns beside it."""
    best = theorems.optimal_diagonal(toy.Phi.square().sum(0), toy.S.diagonal(), toy.sigma2).detach().requires_grad_()
    for k in (0, 2):
        first = torch.where(torch.arange(M) < k, toy.C.detach(), 0.0)
        arms = (torch.arange(M) >= k).double()
        loss = dense.covariance_loss(toy.Phi, toy.S, first + torch.diag(arms * best), toy.sigma2)
        (gradient,) = gradients(loss, [best])
        torch.testing.assert_close(gradient, torch.zeros(M, dtype=torch.float64), atol=1e-10, rtol=0)


def variance(estimate, *draws):
    values = torch.vmap(estimate)(*draws).detach()
    return float(values.var(0, correction=0).sum())


@pytest.mark.parametrize("toy", ["diagonal"], indirect=True)
def test_diagonal_forms_have_less_variance(toy):
    """Exact variances over all draws: the printed S_ji and generic Theorem 2 against the low-variance forms."""
    i = all_draws(M, 1, WITHOUT)
    V = toy.mu.detach()[:, None]
    printed = variance(lambda i, j: theorems.prior_quadratic(toy.S[j][:, i], V[i], V[j], M), *together(i, i))
    low = variance(lambda i: theorems.prior_quadratic(toy.s[i], V[i], V[i], M), i)
    assert printed > 2 * low

    C, l = torch.diag(toy.c), all_draws(N, 2, WITHOUT)
    generic = variance(
        lambda l, i, j, r: theorems.covariance_loss(
            sampled(toy.Phi[l], C[:, r], i, j), C[r, r], block(toy, j, i), toy.sigma2
        ),
        *together(l, i, i, i),
    )
    arms = variance(
        lambda l, r: (
            theorems.diagonal_quadratic(toy.Phi[l][:, r], toy.s[r], toy.c[r], toy.sigma2, N, M)
            - theorems.log_determinant(toy.c[r], M)
        ),
        *together(l, i),
    )
    assert generic > 3 * arms


@pytest.mark.parametrize("toy", ["dense"], indirect=True)
def test_stochastic_covariance_loss_is_not_convex(toy):
    """i != j gives an indefinite quadratic form; the full batch is convex."""

    Phi = toy.Phi.detach()

    def curvature(i, j):
        def of_column(v):
            return theorems.gram_quadratic(sampled(Phi, v[:, None], i, j))[0]

        hessian = torch.autograd.functional.hessian(of_column, torch.zeros(M, dtype=torch.float64))
        return torch.linalg.eigvalsh(hessian)

    assert curvature(torch.tensor([0]), torch.tensor([1])).min() < -0.01
    assert curvature(torch.arange(M), torch.arange(M)).min() > -1e-12


@pytest.mark.parametrize("toy", ["dense"], indirect=True)
def test_full_batch_without_replacement_has_no_variance(toy):
    """ "Zero variance at m_tilde = m" holds only without replacement."""
    full = torch.arange(M)

    def estimate(i, j):
        return theorems.prior_quadratic(toy.S[j][:, i], toy.C[i], toy.C[j], M)

    torch.testing.assert_close(estimate(full, full), dense.prior_quadratic(toy.S, toy.C))
    repeats = all_draws(M, M, WITH)
    assert variance(estimate, *together(repeats, repeats)) > 1e-3


@pytest.mark.parametrize("toy", ["dense"], indirect=True)
def test_elbo_is_below_the_evidence_and_meets_it_at_the_posterior(toy):
    """Eq. (1): the bound holds for any q and is tight at the exact posterior."""
    with torch.no_grad():
        evidence = dense.log_evidence(toy.y, toy.Phi, toy.S, toy.sigma2)
        mu, Sigma = dense.posterior(toy.y, toy.Phi, toy.S, toy.sigma2)
        at_posterior = dense.elbo(toy.y, toy.Phi, toy.S, mu, torch.linalg.cholesky(Sigma), toy.sigma2)
        torch.testing.assert_close(at_posterior, evidence)
        assert dense.elbo(toy.y, toy.Phi, toy.S, toy.mu, toy.C, toy.sigma2) < evidence


# --- bad input, float32 --------------------------------------------------------------------------------------------


def test_float32_stays_float32():
    Phi, mu, s = torch.randn(5, 3), torch.randn(3, 1), torch.ones(3)
    seen = Sampled.of(Phi, Phi, mu, mu, 10, 6)
    loss = theorems.mean_loss(torch.randn(5, 1), seen, (s, s), torch.tensor(0.1))
    assert loss.dtype == torch.float32 and torch.isfinite(loss)


def test_bad_input_is_named():
    Phi, mu, s, one = torch.ones(2, 3), torch.ones(3, 1), torch.ones(3), torch.tensor(1.0)
    seen = Sampled.of(Phi, Phi, mu, mu, 4, 6)
    with pytest.raises(ValueError, match="sigma2 > 0, got -1.0.*noise variance"):
        theorems.mean_loss(torch.ones(2, 1), seen, (s, s), -one)
    with pytest.raises(ValueError, match="sigma2 > 0, got nan"):
        theorems.mean_loss(torch.ones(2, 1), seen, (s, s), one * torch.nan)
