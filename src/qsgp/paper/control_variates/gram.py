"""Eq. (3): the support points' Gram matrix in place of all n, for mu and for every dense column of C."""

from jaxtyping import Float
from torch import Tensor

from qsgp.paper.control_variates import sketch
from qsgp.paper.control_variates.sketch import Part


def gram(
    i: Part, j: Part, drawn: Part, share: Float[Tensor, " u"], a: Float[Tensor, "p c"], n: int, m: int
) -> Float[Tensor, " c"]:
    """Eq. (3), times sigma2: the zero-mean term to add to `theorems.gram_quadratic`, one value for each column.

    The sketch B is Phi_p: ``i``, ``j`` and ``drawn`` hold its columns and the rows of V there.
    """
    scale = a.new_tensor(n / len(a))
    return sketch.expectation(a, drawn, share, scale, m) - sketch.sampled_part(i, j, scale, m)
