"""Theorem 3 mended: every draw is enumerated, so no statement below depends on a seed or on luck."""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

import enumeration
from enumeration import all_draws, together
from qsgp.interfaces import Likelihood
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.paper import bounds, dense

N, M = 4, 3


def scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


# 31 points: the bounds hold for the quadrature's own h, whatever its accuracy.
SITES: list[Likelihood] = [Gaussian(scalar(0.4)), Laplace(scalar(0.6)), Logistic(points=31)]
each_site = pytest.mark.parametrize("site", SITES, ids=lambda site: type(site).__name__)
# (n_tilde, sizes of i, j, r, with replacement); the last one is the full batch
SIZES = [(1, 1, 1, 1, True), (2, 1, 2, 1, True), (1, 2, 2, 2, True), (2, 2, 2, 1, False), (1, 3, 3, 2, True)]
FULL = (4, 3, 3, 3, False)
each_size = pytest.mark.parametrize("sizes", [*SIZES, FULL], ids=str)
SCALES = [0.1, 0.5, 2.0]  # of mu and C: deviations from far below to far above 1


class Problem(NamedTuple):
    y: Tensor
    Phi: Tensor
    mu: Tensor
    C: Tensor

    @property
    def f(self) -> Tensor:
        return self.Phi @ self.mu

    @property
    def v(self) -> Tensor:
        return (self.Phi @ self.C).square().sum(1)


def problem(site: Likelihood, scale: float, seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    y, Phi, mu, C = (
        torch.randn(shape, dtype=torch.float64, generator=generator) for shape in [(N,), (N, M), (M,), (M, M)]
    )
    C = C.tril(-1) + torch.diag(C.diagonal().abs() + 0.1)
    return Problem(y.sign() if isinstance(site, Logistic) else y, Phi, scale * mu, scale * C)


def average(estimator, sizes: tuple[int, int, int, int, bool]) -> Tensor:
    """Mean of estimator(l, i, j, r) over all draws of the four index sets."""
    *counts, replacement = sizes
    if sizes == FULL:  # the order within a full batch changes nothing but the running time
        return estimator(*(torch.arange(population) for population in (N, M, M, M)))
    sets = [all_draws(p, size, replacement) for p, size in zip((N, M, M, M), counts, strict=True)]
    return enumeration.average(estimator, *together(*sets))


def bound_a(site: Likelihood, p: Problem):
    def value(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        Phi_li = p.Phi[l][:, i]
        f_hat = bounds.sampled_argument(Phi_li, p.mu[i], M)
        return bounds.site_bound_a(site, p.y[l], f_hat, bounds.conditional_variance(Phi_li, p.C[i], M), N)

    return value


def estimates(p: Problem, l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> bounds.Moments:
    """Unbiased f_hat, f2_hat and v_hat."""
    Phi_li, Phi_lj = p.Phi[l][:, i], p.Phi[l][:, j]
    f_i, f_j = bounds.sampled_argument(Phi_li, p.mu[i], M), bounds.sampled_argument(Phi_lj, p.mu[j], M)
    return bounds.Moments(f_i, f_i * f_j, bounds.sampled_variance(Phi_li, Phi_lj, p.C[i][:, r], p.C[j][:, r], M, M))


def bound_b(site: Likelihood, p: Problem, eta: Tensor):
    def value(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        f_hat, _, v_hat = estimates(p, l, i, j, r)
        return bounds.site_bound_b(site, p.y[l], f_hat, v_hat, eta[l], N)

    return value


def bound_q(site: Likelihood, p: Problem, xi: Tensor):
    def value(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        return bounds.site_bound_q(site, p.y[l], estimates(p, l, i, j, r), xi[l], N)

    return value


def full_batch_q(site: Likelihood, p: Problem, xi: Tensor) -> Tensor:
    constant, linear, quadratic = site.quadratic_bound(p.y, xi)
    return (constant + linear * p.f + quadratic * (p.f.square() + p.v)).sum()


def truth(site: Likelihood, p: Problem) -> Tensor:
    return dense.expected_log_likelihood(site, *p)


@each_site
def test_equation_5_mended_is_the_expectation_over_weights(site: Likelihood) -> None:
    """Sampling the weights themselves; 4.5 standard errors around a fixed seed."""
    p = problem(site, 0.5)
    weights = p.mu + torch.randn(200_000, M, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) @ p.C.T
    samples = site.log_site(p.y, weights @ p.Phi.T).sum(1)
    error = samples.mean() - truth(site, p)
    assert error.abs() < 4.5 * samples.std() / math.sqrt(len(samples))


@each_site
@each_size
def test_bounds_hold_by_enumeration(site: Likelihood, sizes: tuple[int, int, int, int, bool]) -> None:
    """Theorem 3 mended: (A), (B) and (Q) average to at most the exact value; (Q) to its own full batch exactly."""
    for seed, scale in enumerate(SCALES):
        p = problem(site, scale, seed)
        exact = truth(site, p)
        some_eta = torch.tensor([0.3, 1.0, 2.5, 0.8], dtype=torch.float64)
        best_xi = site.optimal_xi(p.y, p.f, p.f.square() + p.v)
        values = {
            "A": average(bound_a(site, p), sizes),
            "B": average(bound_b(site, p, some_eta), sizes),
            "B, best eta": average(bound_b(site, p, p.v.sqrt()), sizes),
            "Q": average(bound_q(site, p, some_eta), sizes),
            "Q, best xi": average(bound_q(site, p, best_xi), sizes),
        }
        for name, value in values.items():
            assert value <= exact + 1e-10, (name, scale)
        torch.testing.assert_close(values["Q"], full_batch_q(site, p, some_eta), rtol=1e-12, atol=1e-10)
        torch.testing.assert_close(values["Q, best xi"], full_batch_q(site, p, best_xi), rtol=1e-12, atol=1e-10)
        if sizes == FULL:
            torch.testing.assert_close(values["A"], exact, rtol=0, atol=1e-10)
            torch.testing.assert_close(values["B, best eta"], exact, rtol=0, atol=1e-10)
        if isinstance(site, Gaussian):
            torch.testing.assert_close(values["Q"], exact, rtol=1e-12, atol=1e-10)
        if isinstance(site, Logistic) and p.v.max() < 1:
            assert values["Q, best xi"] > exact - 0.05 * N


def test_negative_variance_estimates_are_not_clamped() -> None:
    """h is even and concave on the whole line; for the Gaussian site the value is a polynomial to check by hand."""
    y, f, v, eta = (
        torch.tensor(row, dtype=torch.float64) for row in ([0.5, 1.0], [0.0, 2.0], [-3.0, -0.2], [0.5, 1.0])
    )
    value = bounds.site_bound_b(Gaussian(scalar(0.4)), y, f, v, eta, n=2)
    deviation = [(0.5 - 3.0 / 0.5) / 2, (1.0 - 0.2 / 1.0) / 2]
    squares = (0.5 - 0.0) ** 2 + deviation[0] ** 2 + (1.0 - 2.0) ** 2 + deviation[1] ** 2
    torch.testing.assert_close(value, scalar(-math.log(2 * math.pi * 0.4) - squares / 0.8), rtol=1e-14, atol=0)


@each_site
def test_bounds_loosen_with_fewer_columns(site: Likelihood) -> None:
    p = problem(site, 0.5)
    by_size = [(1, size, size, size, False) for size in (1, 2, 3)]
    for bound in (bound_a(site, p), bound_b(site, p, p.v.sqrt())):
        one, two, three = (average(bound, sizes) for sizes in by_size)
        assert one < two < three


@each_site
def test_bounds_hold_for_a_chevron(site: Likelihood) -> None:
    """One dense column and two diagonal ones, with repeats: the parts add up to the rows of the full C."""
    full = problem(site, 0.7, seed=5)
    p = full._replace(C=torch.cat([full.C[:, :1], torch.diag(full.C.diagonal())[:, 1:]], 1))
    own = torch.where(torch.arange(M) >= 1, p.C.diagonal(), 0.0)
    eta = p.v.sqrt()

    def mended(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        Phi_li, Phi_lj = p.Phi[l][:, i], p.Phi[l][:, j]
        v_hat = bounds.sampled_variance(Phi_li, Phi_lj, p.C[i][:, :1], p.C[j][:, :1], M, 1)
        v_hat = v_hat + bounds.diagonal_variance(p.Phi[l][:, r], own[r], M)
        return bounds.site_bound_b(site, p.y[l], bounds.sampled_argument(Phi_li, p.mu[i], M), v_hat, eta[l], N)

    def parts(i: Tensor) -> tuple[Tensor, Tensor]:
        repeats = (i[:, None] == i).sum(1).double()
        dense_part = bounds.conditional_variance(p.Phi[:, i], p.C[i][:, :1], M)
        diagonal_part = bounds.conditional_diagonal_variance(p.Phi[:, i], own[i], repeats, M)
        return dense_part + diagonal_part, bounds.conditional_variance(p.Phi[:, i], p.C[i], M)

    for i in all_draws(M, 3, replacement=True):
        torch.testing.assert_close(*parts(i), rtol=1e-12, atol=1e-12)
    for sizes in SIZES:
        assert average(mended, sizes) <= truth(site, p) + 1e-10
    torch.testing.assert_close(average(mended, FULL), truth(site, p), rtol=0, atol=1e-10)


@each_size
def test_variance_estimates_are_unbiased(sizes: tuple[int, int, int, int, bool]) -> None:
    p = problem(SITES[0], 1.0)
    every_point = torch.arange(N)

    def sampled(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        return estimates(p, every_point, i, j, r)[2][l].mean()

    def diagonal(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        return bounds.diagonal_variance(p.Phi[l][:, r], p.C.diagonal()[r], M).mean()

    torch.testing.assert_close(average(sampled, sizes), p.v.mean(), rtol=1e-12, atol=0)
    mean_field = (p.Phi.square() @ p.C.diagonal().square()).mean()
    torch.testing.assert_close(average(diagonal, sizes), mean_field, rtol=1e-12, atol=0)


def test_mean_field_has_no_variance_from_dense_columns() -> None:
    p = problem(SITES[0], 1.0)
    none = p.C[:, :0]
    assert torch.equal(bounds.sampled_variance(p.Phi, p.Phi, none, none, M, 0), torch.zeros(N, dtype=torch.float64))


def printed(site: Likelihood, p: Problem):
    def value(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        f_hat, _, v_hat = estimates(p, l, i, j, r)
        return dense.printed_theorem_3(site, p.y[l], f_hat, v_hat, N)

    return value


def test_printed_theorem_3_is_not_a_bound() -> None:
    """It exceeds what it should bound: for one site of variance 0.156, at m_tilde = m, and with sampled columns."""
    site = Logistic()
    one, mean, v = torch.ones(1, dtype=torch.float64), scalar(-0.618)[None], scalar(0.156)
    C = v.sqrt()[None, None]
    exact = dense.expected_log_likelihood(site, one, one[:, None], mean, C)
    as_printed = dense.printed_theorem_3(site, one, mean, v[None], 1)
    torch.testing.assert_close(exact, scalar(-1.0666), rtol=0, atol=1e-4)
    torch.testing.assert_close(as_printed, scalar(-1.0519), rtol=0, atol=1e-4)

    for seed in range(5):
        p = problem(site, 1.0, seed)
        p = p._replace(C=p.C * (0.05 / p.v.max()).sqrt())  # variances far below 1, where squaring them shrinks them
        torch.testing.assert_close(average(printed(site, p), FULL), dense.printed_expectation(site, *p))
        assert average(printed(site, p), FULL) > truth(site, p) + 1e-4
        # The sampled mean costs every estimator something; mu = 0 leaves the variance term alone.
        p = p._replace(mu=torch.zeros(M, dtype=torch.float64))
        assert average(printed(site, p), (1, 2, 2, 2, False)) > truth(site, p) + 1e-4


def mean_field_at_the_bend(site: Likelihood) -> Problem:
    """mu = 0, diagonal C, targets 0 where they are numbers: only the variance is sampled, where the sites bend most."""
    p = problem(site, 1.0)
    y = p.y if isinstance(site, Logistic) else torch.zeros_like(p.y)
    return Problem(y, p.Phi, torch.zeros_like(p.mu), torch.diag(p.C.diagonal()))


@each_site
def test_deviation_of_unbiased_variance_is_not_a_bound(site: Likelihood) -> None:
    """E sqrt(v_hat) <= sqrt(v): z sqrt(v_hat) with a mean-field C, where v_hat is never negative."""
    p = mean_field_at_the_bend(site)

    def root(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        v_hat = bounds.diagonal_variance(p.Phi[l][:, r], p.C.diagonal()[r], M)
        return (
            N * site.expected_log_site(p.y[l], bounds.sampled_argument(p.Phi[l][:, i], p.mu[i], M), v_hat.sqrt()).mean()
        )

    # The Gaussian site sees v_hat itself and stays exact; the others are too high.
    surplus = average(root, (1, 1, 1, 1, False)) - truth(site, p)
    assert surplus.abs() < 1e-10 if isinstance(site, Gaussian) else surplus > 1e-3


@pytest.mark.parametrize("site", SITES[1:], ids=lambda site: type(site).__name__)
def test_eta_of_the_same_draw_is_not_a_bound(site: Likelihood) -> None:
    p = mean_field_at_the_bend(site)

    def value(fixed: bool):
        def estimate(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
            v_hat = bounds.diagonal_variance(p.Phi[l][:, r], p.C.diagonal()[r], M)
            eta = p.v[l].sqrt() if fixed else v_hat.sqrt()
            return bounds.site_bound_b(site, p.y[l], bounds.sampled_argument(p.Phi[l][:, i], p.mu[i], M), v_hat, eta, N)

        return average(estimate, (1, 1, 1, 1, False))

    assert value(fixed=False) > truth(site, p) + 1e-3
    assert value(fixed=True) <= truth(site, p) + 1e-10


@pytest.mark.parametrize("site", SITES[1:], ids=lambda site: type(site).__name__)
def test_xi_of_the_same_draw_is_not_a_bound(site: Likelihood) -> None:
    """The best xi for a noisy draw fits the noise: the average comes out above what it should bound."""
    p = problem(site, 3.0)
    p = p._replace(C=0.05 * p.C)

    def same_draw(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
        f_hat, f2_hat, v_hat = estimates(p, l, i, j, r)
        xi = site.optimal_xi(p.y[l], f_hat, f2_hat + v_hat)
        return bounds.site_bound_q(site, p.y[l], bounds.Moments(f_hat, f2_hat, v_hat), xi, N)

    best_xi = site.optimal_xi(p.y, p.f, p.f.square() + p.v)
    for sizes in [(1, 1, 1, 1, True), (1, 2, 2, 2, False)]:
        assert average(same_draw, sizes) > truth(site, p) + 1e-3
        assert average(bound_q(site, p, best_xi), sizes) < truth(site, p)


@each_site
def test_control_variate_in_the_site_tightens_the_bound(site: Likelihood) -> None:
    """A zero-mean term that cancels most of the noise of the argument raises the average, which stays below."""
    p = problem(site, 1.0)
    guess = 0.8 * p.Phi * p.mu + 0.05  # what a cheap model knows of every phi_li mu_i, and its known sum

    def with_control(coefficient: float):
        def estimate(l: Tensor, i: Tensor, j: Tensor, r: Tensor) -> Tensor:
            f_hat, _, v_hat = estimates(p, l, i, j, r)
            control = M / len(i) * guess[l][:, i].sum(1) - guess[l].sum(1)
            return bounds.site_bound_b(site, p.y[l], f_hat - coefficient * control, v_hat, p.v[l].sqrt(), N)

        return average(estimate, (1, 1, 1, 1, True))

    plain, helped, harmed = with_control(0.0), with_control(1.0), with_control(-1.0)
    assert harmed < plain < helped <= truth(site, p) + 1e-10


@each_site
def test_theorem_3_without_variance_is_dropout(site: Likelihood) -> None:
    """Theorem 3 with Sigma = 0 is inverted dropout that keeps exactly m_tilde of m columns, at rate 1 - m_tilde / m.

    Both lie below the log likelihood, as does the usual dropout, which keeps every column by its own coin.
    """
    p = problem(site, 1.0)
    p = p._replace(C=torch.zeros(M, M, dtype=torch.float64))
    log_likelihood = site.log_site(p.y, p.f).sum()
    torch.testing.assert_close(truth(site, p), log_likelihood, rtol=1e-12, atol=1e-12)

    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=M)), dtype=torch.float64)
    for m_tilde in (1, 2):
        keep = m_tilde / M
        dropped = site.log_site(p.y, (masks / keep * p.mu) @ p.Phi.T).sum(1)  # one value per mask
        objective = dropped[masks.sum(1) == m_tilde].mean()
        sizes = (2, m_tilde, m_tilde, m_tilde, False)
        torch.testing.assert_close(average(printed(site, p), sizes), objective, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(average(bound_a(site, p), sizes), objective, rtol=1e-12, atol=1e-12)
        probability = (keep * masks + (1 - keep) * (1 - masks)).prod(1)
        assert objective < log_likelihood
        assert (probability * dropped).sum() < log_likelihood


@each_site
def test_quadratic_bound_gradients_are_unbiased(site: Likelihood) -> None:
    """Gradients of (Q) in mu and C average to those of the full batch; those of (B) are exact at m_tilde = m."""
    p = problem(site, 0.8)
    xi = site.optimal_xi(p.y, p.f, p.f.square() + p.v)
    eta = p.v.sqrt()

    def gradients(objective) -> tuple[Tensor, ...]:
        leaf = p._replace(mu=p.mu.clone().requires_grad_(), C=p.C.clone().requires_grad_())
        return torch.autograd.grad(objective(leaf), (leaf.mu, leaf.C))

    exact = gradients(lambda leaf: full_batch_q(site, leaf, xi))
    for sizes in SIZES:
        sampled = gradients(lambda leaf, sizes=sizes: average(bound_q(site, leaf, xi), sizes))
        torch.testing.assert_close(sampled, exact, rtol=1e-12, atol=1e-10)
    at_full_batch = gradients(lambda leaf: average(bound_b(site, leaf, eta), FULL))
    torch.testing.assert_close(at_full_batch, gradients(lambda leaf: truth(site, leaf)), rtol=1e-9, atol=1e-10)


@each_site
def test_average_of_gradients_is_the_gradient_of_the_average(site: Likelihood) -> None:
    """One draw at a time, as a training step sees them."""
    p = problem(site, 0.8)
    eta = torch.full((N,), 0.7, dtype=torch.float64)
    every = list(itertools.product(*(all_draws(p, 1, True) for p in (N, M, M, M))))
    leaf = p._replace(mu=p.mu.clone().requires_grad_(), C=p.C.clone().requires_grad_())
    for bound in (bound_b(site, leaf, eta), bound_q(site, leaf, eta)):
        one_by_one = [torch.autograd.grad(bound(*draw), (leaf.mu, leaf.C)) for draw in every]
        mean = tuple(torch.stack(parts).mean(0) for parts in zip(*one_by_one, strict=True))
        together = torch.autograd.grad(average(bound, (1, 1, 1, 1, True)), (leaf.mu, leaf.C))
        torch.testing.assert_close(mean, together, rtol=1e-10, atol=1e-12)


@each_site
def test_expected_site_is_jointly_concave_and_even(site: Likelihood) -> None:
    """h at the midpoint of any two points of a grid is at least the mean of the two, negative deviations included."""
    grid = torch.cartesian_prod(*(torch.linspace(-5, 5, 21, dtype=torch.float64),) * 2)

    def h(points: Tensor) -> Tensor:
        return site.expected_log_site(torch.ones_like(points[..., 0]), points[..., 0], points[..., 1])

    values = h(grid)
    midpoints = h((grid[:, None] + grid) / 2)
    assert (midpoints - (values[:, None] + values) / 2).min() >= -1e-12
    torch.testing.assert_close(values, h(grid * torch.tensor([1.0, -1.0])), rtol=1e-13, atol=1e-13)
    falling = values.reshape(21, 21)[:, 10:].diff(dim=1)
    assert falling.max() <= 1e-12


@each_site
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_and_gradients_on_every_device(site: Likelihood, dtype: torch.dtype, device: torch.device) -> None:
    """Float32 agrees with float64; a column of zeros, where the deviation of (A) vanishes, still has gradients."""
    p = problem(site, 0.8)
    p = p._replace(Phi=p.Phi * torch.tensor([[0.0], [1.0], [1.0], [1.0]], dtype=torch.float64))
    leaf = Problem(*(part.to(device, dtype) for part in p))
    leaf = leaf._replace(mu=leaf.mu.requires_grad_(), C=leaf.C.requires_grad_())
    local = site.with_parameters({key: value.to(device, dtype) for key, value in site.parameters().items()})
    index = torch.arange(M, device=device)
    draw = (torch.arange(N, device=device), index[:2], index[1:], index)
    eta = torch.full((N,), 0.9, dtype=torch.float64)
    for bound in (bound_a, lambda s, q: bound_b(s, q, eta.to(q.y)), lambda s, q: bound_q(s, q, eta.to(q.y))):
        value = bound(local, leaf)(*draw)
        assert value.dtype == dtype
        expected = bound(site, p)(*(part.cpu() for part in draw))
        torch.testing.assert_close(value.detach().cpu().double(), expected, rtol=1e-5, atol=1e-5)
        gradients = torch.autograd.grad(value, (leaf.mu, leaf.C), allow_unused=True)
        assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_rows_must_agree() -> None:
    p = problem(SITES[0], 1.0)
    # Where shapes are checked at run time the annotation speaks first.
    with pytest.raises((ValueError, TypeCheckError)):
        bounds.site_bound_b(SITES[0], p.y[:1], p.f, p.v, p.v, N)
