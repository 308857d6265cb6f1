"""Appendix F.2: a Nystrom approximation of a dense S = K(Z, Z), for the prior terms of Theorems 1 and 2."""

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_shape
from qsgp.paper.control_variates import sketch


def nystrom_factor(factor_UU: Float[Tensor, "p p"], K_Ui: Float[Tensor, "p i"]) -> Float[Tensor, "p i"]:
    """B_i = L^-1 K(U, Z_i) with L L^T = K(U, U), so that B^T B = K(Z, U) K(U, U)^-1 K(U, Z)."""
    check_shape("K_Ui", K_Ui, (len(factor_UU), K_Ui.shape[-1]), "Give one row for each support point.")
    return torch.linalg.solve_triangular(factor_UU, K_Ui, upper=False)


def nystrom(
    B_i: Float[Tensor, "p i"],
    B_j: Float[Tensor, "p j"],
    B_u: Float[Tensor, "p u"],
    V_i: Float[Tensor, "i c"],
    V_j: Float[Tensor, "j c"],
    V_u: Float[Tensor, "u c"],
    share: Float[Tensor, " u"],
    a: Float[Tensor, "p c"],
    m: int,
) -> Float[Tensor, " c"]:
    """Appendix F.2: the zero-mean term to add to `estimators.prior_quadratic`, one value for each column."""
    one = a.new_tensor(1.0)
    return sketch.expectation(a, B_u, V_u, share, one, m) - sketch.sampled_part(B_i, B_j, V_i, V_j, one, m)
