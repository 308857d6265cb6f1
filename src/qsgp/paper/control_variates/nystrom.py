"""Appendix F.2: a Nystrom approximation of a dense S = K(Z, Z), for the prior terms of Theorems 1 and 2."""

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_shape
from qsgp.paper.control_variates import sketch
from qsgp.paper.control_variates.sketch import Part


def nystrom_factor(factor_UU: Float[Tensor, "p p"], K_Ui: Float[Tensor, "p i"]) -> Float[Tensor, "p i"]:
    """B_i = L^-1 K(U, Z_i) with L L^T = K(U, U), so that B^T B = K(Z, U) K(U, U)^-1 K(U, Z)."""
    check_shape("K_Ui", K_Ui, (len(factor_UU), K_Ui.shape[-1]), "Give one row for each support point.")
    return torch.linalg.solve_triangular(factor_UU, K_Ui, upper=False)


def nystrom(
    i: Part, j: Part, drawn: Part, share: Float[Tensor, " u"], a: Float[Tensor, "p c"], m: int
) -> Float[Tensor, " c"]:
    """Appendix F.2: the zero-mean term to add to `theorems.prior_quadratic`, one value for each column."""
    one = a.new_tensor(1.0)
    return sketch.expectation(a, drawn, share, one, m) - sketch.sampled_part(i, j, one, m)
