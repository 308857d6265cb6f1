"""Eq. (3): the support points' Gram matrix in place of all n, for mu and for every dense column of C."""

from jaxtyping import Float
from torch import Tensor

from qsgp.paper.control_variates import sketch


def gram(
    Phi_pi: Float[Tensor, "p i"],
    Phi_pj: Float[Tensor, "p j"],
    Phi_pu: Float[Tensor, "p u"],
    V_i: Float[Tensor, "i c"],
    V_j: Float[Tensor, "j c"],
    V_u: Float[Tensor, "u c"],
    share: Float[Tensor, " u"],
    a: Float[Tensor, "p c"],
    n: int,
    m: int,
) -> Float[Tensor, " c"]:
    """Eq. (3), times sigma2: the zero-mean term to add to `estimators.gram_quadratic`, one value for each column."""
    scale = a.new_tensor(n / len(a))
    return sketch.expectation(a, Phi_pu, V_u, share, scale, m) - sketch.sampled_part(Phi_pi, Phi_pj, V_i, V_j, scale, m)
