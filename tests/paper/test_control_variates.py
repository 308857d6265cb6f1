"""Control variates by the average over all draws (n = 4, m = 3): zero mean, right gradients, and the wrong variants."""

from types import SimpleNamespace

import pytest
import torch

from enumeration import WITH, WITHOUT, all_draws, assert_same, average, gradients, shares, together
from qsgp.likelihoods import Logistic
from qsgp.paper import bounds, dense, theorems
from qsgp.paper.control_variates import (
    Part,
    advance,
    exact_target,
    gram,
    kriged,
    kriged_in_site,
    kriging,
    nystrom,
    nystrom_factor,
    optimal_coefficient,
    target,
)
from qsgp.paper.theorems import Sampled

N, M, P = 4, 3, 2
SIZES = [(WITHOUT, l, i) for l in (1, 2, 3, 4) for i in (1, 2, 3)] + [(WITH, l, i) for l in (1, 2) for i in (1, 2)]


@pytest.fixture
def toy():
    g = torch.Generator().manual_seed(5)

    def normal(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    Phi, V, log_sigma2, root = normal(N, M), normal(M, 2).requires_grad_(), normal().requires_grad_(), normal(M, M)
    S = root @ root.mT + torch.eye(M)
    U = torch.tensor([0, 2])  # support points of the Nystrom factor: K(U, U) is a part of S
    B = nystrom_factor(torch.linalg.cholesky(S[U][:, U]), S[U])
    p = torch.tensor([1, 3])
    return SimpleNamespace(
        y=normal(N),
        Phi=Phi,
        V=V,
        S=S,
        B=B,
        Phi_p=Phi[p],
        W=normal(N, P),
        sigma2=log_sigma2.exp(),
        leaves=[V, log_sigma2],
    )


def draws_of(replacement, l_size, i_size, sets=2):
    i = all_draws(M, i_size, replacement)
    drawn = together(all_draws(N, l_size, replacement), *[i] * sets)
    return [*drawn, shares(*drawn[1:3])]


def parts(B, V, i, j):
    """The sketch at i, at j and at both."""
    return [Part(B[:, k], V[k]) for k in (i, j, torch.cat([i, j]))]


def gram_term(toy, i, j, share, a):
    return gram(*parts(toy.Phi_p, toy.V, i, j), share, a, N, M)


def controlled(toy, l, i, j, share, a):
    """Theorems 1 and 2 for both columns of V, with Eq. (3) and the Nystrom term of Appendix F.2."""
    Phi_l = toy.Phi[l]
    seen = Sampled.of(Phi_l[:, i], Phi_l[:, j], toy.V[i], toy.V[j], N, M)
    fit = theorems.gram_quadratic(seen) + gram_term(toy, i, j, share, a)
    prior = theorems.prior_quadratic(toy.S[j][:, i], toy.V[i], toy.V[j], M)
    correction = nystrom(*parts(toy.B, toy.V, i, j), share, (toy.B @ toy.V).detach(), M)
    return (fit / toy.sigma2 + prior + correction).sum()


def truth(toy):
    return (dense.gram_quadratic(toy.Phi, toy.V) / toy.sigma2 + dense.prior_quadratic(toy.S, toy.V)).sum()


@pytest.mark.parametrize(("replacement", "l_size", "i_size"), SIZES)
def test_scaled_sparse_gradient_is_unbiased(toy, replacement, l_size, i_size):
    """Eq. (3), Proposition 3, Appendix F.1 and F.2 together: value and gradient, that of sigma2 included."""
    a = (toy.Phi_p @ toy.V).detach()
    got = average(lambda l, i, j, share: controlled(toy, l, i, j, share, a), *draws_of(replacement, l_size, i_size))
    assert_same(got, truth(toy), toy.leaves)


@pytest.mark.parametrize(("replacement", "i_size"), [(WITHOUT, 1), (WITHOUT, 2), (WITH, 2)])
def test_nominal_scaling_on_the_union_is_biased(toy, replacement, i_size):
    """m / (2 m_tilde) in place of m / |i u j| fails whenever i and j can overlap."""
    a = (toy.Phi_p @ toy.V).detach()

    def nominal(l, i, j, share):
        # A share that sums to 2 m_tilde but counts the union's rows once each.
        value = gram_term(toy, i, j, share, a).sum()
        path = (2 * N / P * (toy.Phi_p.mT @ a)[torch.cat([i, j])] * share[:, None] * toy.V[torch.cat([i, j])]).sum()
        right, wrong = M / share.sum() * path, M / (2 * i_size) * path
        return value - right + wrong

    got = average(nominal, *draws_of(replacement, 1, i_size))
    (gradient,) = gradients(got, [toy.V])  # the zero-mean term alone: its mean gradient should vanish
    assert float(gradient.abs().max()) > 0.05


def test_printed_stop_gradient_scales_sigma2(toy):
    """Appendix F.1 as printed multiplies the gradient of every live tensor, that of sigma2 too."""
    a_of = lambda: toy.Phi_p @ toy.V  # noqa: E731

    def printed(l, i, j, share):
        ratio = M / share.sum()
        a = a_of().detach()
        expectation = N / P / toy.sigma2 * a.square().sum()
        part = (
            -(M**2)
            / len(i) ** 2
            * N
            / P
            / toy.sigma2
            * ((toy.Phi_p[:, i] @ toy.V[i]) * (toy.Phi_p[:, j] @ toy.V[j])).sum()
        )
        return part + ratio * expectation + ((1 - ratio) * expectation).detach()

    got = average(printed, *draws_of(WITHOUT, 1, 1))
    assert abs(float(got.detach())) < 1e-10  # the value is right
    (gradient,) = gradients(got, [toy.leaves[1]])
    assert float(gradient.abs()) > 0.05


@pytest.mark.parametrize(("replacement", "l_size", "i_size"), SIZES)
def test_kriging_value_and_gradient_are_unbiased(toy, replacement, l_size, i_size):
    """Any weights W fixed before the draw; both columns, the first with targets."""
    a = (toy.Phi_p @ toy.V).detach()
    Y = torch.stack([toy.y, torch.zeros(N, dtype=torch.float64)], 1)

    def estimate(l, i, j, _):
        F_li, F_lj = (M / len(k) * (toy.Phi[l][:, k] @ toy.V[k]) for k in (i, j))
        F_pi, F_pj = (M / len(k) * (toy.Phi_p[:, k] @ toy.V[k]) for k in (i, j))
        f_i, f_j = kriged(F_li, F_pi, a, toy.W[l]), kriged(F_lj, F_pj, a, toy.W[l])
        plain = N / len(l) * (F_li * F_lj - Y[l] * (F_li + F_lj)).sum(0)
        return ((plain + kriging(Y[l], F_li, F_lj, f_i, f_j, N)) / toy.sigma2).sum()

    F = toy.Phi @ toy.V
    assert_same(
        average(estimate, *draws_of(replacement, l_size, i_size)),
        (F.square() - 2 * Y * F).sum() / toy.sigma2,
        toy.leaves,
    )


def test_union_scaling_of_the_kriging_gradient_is_biased(toy):
    """a is multiplied by a quantity of the same draw, so m / |i u j| on its dense path does not average out."""
    a = (toy.Phi_p @ toy.V).detach()

    def wrong(l, i, j, share):
        u = torch.cat([i, j])
        path = M / share.sum() * toy.Phi_p[:, u] @ (share[:, None] * toy.V[u])
        live = a + path - path.detach()
        f_i, f_j = (
            kriged(
                M / len(k) * (toy.Phi[l][:, k] @ toy.V[k]), M / len(k) * (toy.Phi_p[:, k] @ toy.V[k]), live, toy.W[l]
            )
            for k in (i, j)
        )
        return N / len(l) * (f_i * f_j).sum()

    got, wanted = average(wrong, *draws_of(WITHOUT, 1, 1)), dense.gram_quadratic(toy.Phi, toy.V).sum()
    assert abs(float((got - wanted).detach())) < 1e-10  # the value is right
    assert float((gradients(got, [toy.V])[0] - gradients(wanted, [toy.V])[0]).abs().max()) > 1.0


@pytest.mark.parametrize("i_size", [1, 2, 3])
def test_kriging_inside_a_site_has_the_gradient_of_its_mean(toy, i_size):
    """Bound B at kriged arguments: the gradient with the path of a on an independent draw r equals that of the mean.

    The mean over all draws of the bound with a = Phi_p V fully live is a deterministic function of V; its gradient is
    what the sampled one must average to.
    """
    likelihood, y = Logistic(), torch.sign(toy.y)
    eta = torch.full((N,), 0.7, dtype=torch.float64)
    i = all_draws(M, i_size, WITHOUT)
    draws = together(all_draws(N, 2, WITHOUT), i, i, i)

    def bound(l, i, j, r, sampled):
        F_l = [M / len(k) * (toy.Phi[l][:, k] @ toy.V[k]) for k in (i, j)]
        F_p = [M / len(k) * (toy.Phi_p[:, k] @ toy.V[k]) for k in (i, j, r)]
        a = toy.Phi_p @ toy.V
        if sampled:
            f_i, f_j = (kriged_in_site(F_l[k], F_p[k], F_p[2], a.detach(), toy.W[l]) for k in (0, 1))
        else:
            f_i, f_j = (kriged(F_l[k], F_p[k], a, toy.W[l]) for k in (0, 1))
        return bounds.site_bound_b(likelihood, y[l], f_i[:, 0], f_i[:, 1] * f_j[:, 1], eta[l], N)

    got = average(lambda *sets: bound(*sets, sampled=True), *draws)
    assert_same(got, average(lambda *sets: bound(*sets, sampled=False), *draws), [toy.V])


@pytest.mark.parametrize(("replacement", "l_size", "i_size"), SIZES)
def test_target_control_variate_is_unbiased(toy, replacement, l_size, i_size):
    """Appendix F.2: b = Phi^T y, with the sampled linear term and outright."""
    mu, b = toy.V[:, 0], toy.Phi.mT @ toy.y
    wanted = -2 * toy.y @ (toy.Phi @ mu)

    def estimate(l, i, j, share):
        u = torch.cat([i, j])
        linear = -2 * N * M / (len(l) * len(i)) * (toy.y[l] @ (toy.Phi[l][:, i] @ mu[i]))
        return linear + target(b[i], mu[i], b[u], mu[u], share, (b @ mu).detach(), M)

    assert_same(average(estimate, *draws_of(replacement, l_size, i_size)), wanted, [toy.V])
    outright = average(lambda i: exact_target(b[i], mu[i], M), all_draws(M, i_size, replacement))
    assert_same(outright, wanted, [toy.V])


def test_target_control_variate_keeps_the_noise_of_l(toy):
    """With every function in the batch only l is noisy: the control variate then changes nothing, b outright does."""
    mu, b, full = toy.V[:, 0].detach(), toy.Phi.mT @ toy.y, torch.arange(M)

    def plain(l):
        return -2 * N / len(l) * (toy.y[l] @ (toy.Phi[l] @ mu))

    def with_target(l):
        return plain(l) + target(b, mu, b, mu, torch.ones(M, dtype=torch.float64), b @ mu, M)

    l = all_draws(N, 1, WITHOUT)
    noise = [float(torch.vmap(f)(l).var(correction=0)) for f in (plain, with_target)]
    assert noise[0] > 0.1 and abs(noise[1] - noise[0]) < 1e-9 * noise[0]
    torch.testing.assert_close(exact_target(b[full], mu, M), -2 * toy.y @ (toy.Phi @ mu))


def test_poor_support_set_needs_the_optimal_coefficient(toy):
    """A support set unlike the data raises the variance; the fitted multiple does not."""
    Phi_p = 5 * torch.tensor([[1.0, -1.0, 2.0]], dtype=torch.float64)
    V = toy.V[:, :1].detach()
    i = all_draws(M, 1, WITHOUT)
    l, i, j = together(all_draws(N, 1, WITHOUT), i, i)

    def plain(l, i, j):
        return theorems.gram_quadratic(Sampled.of(toy.Phi[l][:, i], toy.Phi[l][:, j], V[i], V[j], N, M))[0]

    def control(i, j):
        return N * M**2 * ((Phi_p[:, i] @ V[i]) * (Phi_p[:, j] @ V[j])).sum()

    estimates, controls = torch.vmap(plain)(l, i, j), torch.vmap(control)(i, j)
    centred = controls - controls.mean()
    fitted = optimal_coefficient(estimates, controls)
    none, whole, best = (float((estimates - c * centred).var(correction=0)) for c in (0.0, 1.0, fitted))
    assert whole > 2 * none
    assert best <= none


def test_running_product_equals_its_definition(toy):
    """Proposition 3: after 1,000 sparse updates of scattered, repeated rows a is still B V."""
    g = torch.Generator().manual_seed(3)
    B, V = torch.randn(5, 40, generator=g, dtype=torch.float64), torch.zeros(40, 3, dtype=torch.float64)
    a = B @ V
    for _ in range(1000):
        drawn = torch.randint(40, (12,), generator=g)
        touched, at, counts = drawn.unique(return_inverse=True, return_counts=True)
        change = 0.1 * torch.randn(len(touched), 3, generator=g, dtype=torch.float64)
        V[touched] += change
        a = advance(a, B[:, drawn], change[at], 1 / counts[at].double())
    torch.testing.assert_close(a, B @ V, rtol=1e-10, atol=1e-10)
