"""Kriging control variate: the error of a sampled prediction is a smooth function, known at the support points.

f_hat_i(x) = (m / m_tilde) phi_i(x) v_i - W [(m / m_tilde) Phi_pi v_i - a],   W = k(x, p) (K_pp + eps I)^-1.
Unbiased for any W fixed before the draw; a = Phi_p V as in Proposition 3. What needs care is the gradient: a is
multiplied by quantities of the same draw, so its dense path must not be sparsified by m / |i u j|.
"""

from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_shape


def kriged(
    F_l: Float[Tensor, "l c"],
    F_p: Float[Tensor, "p c"],
    a: Float[Tensor, "p c"],
    W: Float[Tensor, "l p"],
) -> Float[Tensor, "l c"]:
    """f_hat from the sampled predictions F = (m / m_tilde) Phi_i V_i at the batch and at the support points."""
    _check(F_l, a, W, F_p=F_p)
    return F_l - W @ (F_p - a)


def kriged_in_site(
    F_li: Float[Tensor, "l c"],
    F_pi: Float[Tensor, "p c"],
    F_pr: Float[Tensor, "p c"],
    a: Float[Tensor, "p c"],
    W: Float[Tensor, "l p"],
) -> Float[Tensor, "l c"]:
    """f_hat_i to be put into a site: value of `kriged`, gradient unbiased for any function of f_hat_i.

    The path through a = Phi_p V runs to the rows of a draw r that is independent of all the site sees, scaled by
    m / m_tilde (F_pr holds that factor).
    """
    _check(F_li, a, W, F_pi=F_pi, F_pr=F_pr)
    return F_li - W @ (F_pi - (a.detach() + F_pr - F_pr.detach()))


def kriging(
    y: Float[Tensor, "l c"],
    F_li: Float[Tensor, "l c"],
    F_lj: Float[Tensor, "l c"],
    f_i: Float[Tensor, "l c"],
    f_j: Float[Tensor, "l c"],
    n: int,
) -> Float[Tensor, " c"]:
    """The zero-mean term, times sigma2, that puts kriged predictions in place of F_i and F_j, column by column.

    It is added to `theorems.mean_loss` and `theorems.covariance_loss`; y = 0 for columns of C.

    Value (n / n_tilde) sum_l f_i f_j - F_i F_j - y (f_i - F_i + f_j - F_j). Gradient: rows i get
    (m / m_tilde) Phi_li^T (f_j - F_j), rows j the mirror image, nothing flows through a.
    """
    for name, values in {"F_li": F_li, "F_lj": F_lj, "f_i": f_i, "f_j": f_j}.items():
        check_shape(name, values, tuple(y.shape), "Give values for each drawn point and each column, as y has.")
    scale = n / len(y)
    change_i, change_j = (f_i - F_li).detach(), (f_j - F_lj).detach()
    path = scale * (F_li * change_j + F_lj * change_i).sum(0)
    # f_i f_j - F_i F_j is the path's value and the product of both changes
    return path + scale * (change_i * change_j - y * (change_i + change_j)).sum(0)


def _check(F_l: Tensor, a: Tensor, W: Tensor, **at_support: Tensor) -> None:
    check_shape("W", W, (len(F_l), len(a)), "W = `Support.weights(x)`: a row for each point, a column for each of U.")
    for name, values in {"a": a, **at_support}.items():
        check_shape(name, values, (len(a), F_l.shape[-1]), "Give a row for each support point and the columns of F_l.")
