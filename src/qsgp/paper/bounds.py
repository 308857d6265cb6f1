"""Theorem 3 mended: lower bounds of sum_l E_q log g_l(phi_l w) from sampled columns, cost independent of n and m.

With h(a, s) = E_z log g(a + z s), jointly concave in (a, s) and even in s for a log-concave site, the exact value is
sum_l h(phi_l mu, sqrt(v_l)), v_l = phi_l Sigma phi_l^T (`dense.expected_log_likelihood`). The bounds hold in the mean
over the draws l, i, j, r, which must be independent of each other (`docs/paper_notes.md`):

(A) Gaussian given i: argument (m / m_tilde) phi_i (mu_i + C_i: eps). Inflates the variance by about m / m_tilde.
(B) deviation (eta + v_hat / eta) / 2, on average at least sqrt(v) because arithmetic means exceed geometric ones.
(Q) quadratic sites: linear in unbiased estimates of phi mu, (phi mu)^2 and v, hence free of sampling bias.

Every bound takes the estimates as vectors over l. A zero-mean control variate may be added to any of them; the less
the argument varies, the tighter (A) and (B) become. A chevron adds the variance of its dense columns to that of its
diagonal ones.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_rows, check_shape, check_vectors
from qsgp.interfaces import Likelihood

_REMEDY = "Give one entry (or row) for each drawn function."


class Moments(NamedTuple):
    """Unbiased estimates of phi mu, (phi mu)^2 and phi Sigma phi^T at the points l."""

    f_hat: Float[Tensor, " l"]
    f2_hat: Float[Tensor, " l"]
    v_hat: Float[Tensor, " l"]


def sampled_argument(Phi_li: Float[Tensor, "l i"], mu_i: Float[Tensor, " i"], m: int) -> Float[Tensor, " l"]:
    """Unbiased estimate (m / m_tilde) phi_i mu_i of phi mu. Two independent draws multiply to one of (phi mu)^2."""
    check_shape("mu_i", mu_i, (Phi_li.shape[1],), _REMEDY)
    return m / len(mu_i) * (Phi_li @ mu_i)


def sampled_variance(
    Phi_li: Float[Tensor, "l i"],
    Phi_lj: Float[Tensor, "l j"],
    C_ir: Float[Tensor, "i r"],
    C_jr: Float[Tensor, "j r"],
    m: int,
    columns: int,
) -> Float[Tensor, " l"]:
    """Unbiased estimate of phi C C^T phi^T from sampled rows of ``r`` out of ``columns`` columns of C.

    (columns / r_tilde) (m / m_tilde)^2 sum_r (phi_i c_ir) (phi_j c_jr). It may be negative: leave it so, clamping
    would bias it. Cost O(n_tilde m_tilde r_tilde).
    """
    check_rows(Phi_li=Phi_li, Phi_lj=Phi_lj)
    check_shape("C_ir", C_ir, (Phi_li.shape[1], C_ir.shape[-1]), _REMEDY)
    check_shape("C_jr", C_jr, (Phi_lj.shape[1], C_ir.shape[-1]), _REMEDY)
    r_tilde = max(C_ir.shape[1], 1)  # a mean-field C has no dense columns, and no variance from them
    scale = columns / r_tilde * (m / len(C_ir)) * (m / len(C_jr))
    return scale * ((Phi_li @ C_ir) * (Phi_lj @ C_jr)).sum(1)


def diagonal_variance(Phi_lr: Float[Tensor, "l r"], c_r: Float[Tensor, " r"], m: int) -> Float[Tensor, " l"]:
    """Unbiased estimate (m / m_tilde) sum_r phi_r^2 c_rr^2 for diagonal columns; c_r = 0 where r has none.

    One draw suffices: such a column meets the row r alone.
    """
    check_shape("c_r", c_r, (Phi_lr.shape[1],), _REMEDY)
    return m / len(c_r) * (Phi_lr.square() @ c_r.square())


def conditional_variance(Phi_li: Float[Tensor, "l i"], C_i: Float[Tensor, "i c"], m: int) -> Float[Tensor, " l"]:
    """Variance of the argument of bound (A) given i: (m / m_tilde)^2 |phi_i C_i:|^2.

    C_i holds whole rows of C (or of its dense columns), so that repeats of a row share their noise.
    """
    check_shape("C_i", C_i, (Phi_li.shape[1], C_i.shape[-1]), _REMEDY)
    return (m / len(C_i)) ** 2 * (Phi_li @ C_i).square().sum(1)


def conditional_diagonal_variance(
    Phi_li: Float[Tensor, "l i"], c_i: Float[Tensor, " i"], repeats_i: Float[Tensor, " i"], m: int
) -> Float[Tensor, " l"]:
    """What the diagonal columns add to `conditional_variance`; c_i = 0 where i has none.

    ``repeats_i`` counts how often the column at each position occurs in i (1 without replacement): k equal positions
    share one noise and give (k phi c)^2 together, k phi^2 c^2 each.
    """
    check_shape("c_i", c_i, (Phi_li.shape[1],), _REMEDY)
    check_shape("repeats_i", repeats_i, (Phi_li.shape[1],), _REMEDY)
    return (m / len(c_i)) ** 2 * (Phi_li.square() @ (repeats_i * c_i.square()))


def site_bound_a(
    likelihood: Likelihood,
    y_l: Float[Tensor, " l"],
    f_hat: Float[Tensor, " l"],
    v_given_i: Float[Tensor, " l"],
    n: int,
    weight: Float[Tensor, " l"] | None = None,
) -> Float[Tensor, ""]:
    """Theorem 3 mended, bound (A): (n / n_tilde) sum_l h(f_hat, sqrt(v_given_i)), both from the same draw i.

    Concave in (mu, C). Equal to the exact value at m_tilde = m without replacement.
    """
    check_vectors(y_l=y_l, f_hat=f_hat, v_given_i=v_given_i)
    known = v_given_i > 0  # the square root has no gradient at 0
    deviation = torch.where(known, torch.where(known, v_given_i, 1.0).sqrt(), 0.0)
    return _total(likelihood.expected_log_site(y_l, f_hat, deviation), n, weight)


def site_bound_b(
    likelihood: Likelihood,
    y_l: Float[Tensor, " l"],
    f_hat: Float[Tensor, " l"],
    v_hat: Float[Tensor, " l"],
    eta: Float[Tensor, " l"],
    n: int,
    weight: Float[Tensor, " l"] | None = None,
) -> Float[Tensor, ""]:
    """Theorem 3 mended, bound (B): (n / n_tilde) sum_l h(f_hat, (eta + v_hat / eta) / 2).

    eta > 0 must not come from the current draw of i, j, r: with eta = sqrt(v_hat) this is no bound. Any other eta is
    valid, eta = sqrt(v) is tight. v_hat is unbiased and may be negative.
    """
    check_vectors(y_l=y_l, f_hat=f_hat, v_hat=v_hat, eta=eta)
    return _total(likelihood.expected_log_site(y_l, f_hat, 0.5 * (eta + v_hat / eta)), n, weight)


def site_bound_q(
    likelihood: Likelihood,
    y_l: Float[Tensor, " l"],
    moments: Moments,
    xi: Float[Tensor, " l"],
    n: int,
    weight: Float[Tensor, " l"] | None = None,
) -> Float[Tensor, ""]:
    """Theorem 3 mended, bound (Q): (n / n_tilde) sum_l constant + linear f_hat + quadratic (f2_hat + v_hat).

    f2_hat estimates (phi mu)^2 without bias: the product of two arguments of independent draws, not a square.
    xi must not come from the current draw of i, j, r: its own noise would be fitted and the value exceed the truth.
    The mean over draws is the full-batch value, so is the mean gradient; the gap to the truth is the site's alone.
    """
    f_hat, f2_hat, v_hat = moments
    check_vectors(y_l=y_l, f_hat=f_hat, f2_hat=f2_hat, v_hat=v_hat, xi=xi)
    constant, linear, quadratic = likelihood.quadratic_bound(y_l, xi)
    return _total(constant + linear * f_hat + quadratic * (f2_hat + v_hat), n, weight)


def _total(sites: Float[Tensor, " l"], n: int, weight: Float[Tensor, " l"] | None) -> Float[Tensor, ""]:
    """(n / n_tilde) sum_l; a point of weight 2 counts like two."""
    return n * (sites if weight is None else weight * sites).mean()
