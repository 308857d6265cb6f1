"""Zero-mean terms for v^T A v from a sketch A ~ scale B^T B with few rows: Eq. (3), Proposition 3, Appendix F.

B is Phi_p for Phi^T Phi (`gram`) and a Nystrom factor for S (`nystrom`). a = B V is kept up to date in O(1).
B belongs to the basis at initialisation (Appendix F.3); only V carries a gradient.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_shape, check_vectors

_SHARE_REMEDY = "Give `Batch.share`, one number for each drawn function."


class Part(NamedTuple):
    """What a draw of functions shows of a sketch: columns of B, and the rows of V that belong to them."""

    B: Float[Tensor, "p i"]
    V: Float[Tensor, "i c"]


def sampled_part(i: Part, j: Part, scale: Float[Tensor, ""], m: int) -> Float[Tensor, " c"]:
    """Eq. (3), the control variate: scale (m / m_tilde)^2 v_j^T B_j^T B_i v_i. Its mean is `expectation`."""
    check_shape("V_i", i.V, (i.B.shape[1], i.V.shape[-1]), "Give one row for each drawn function.")
    check_shape("V_j", j.V, (j.B.shape[1], i.V.shape[-1]), "Give one row for each drawn function.")
    return scale * (m / len(i.V)) * (m / len(j.V)) * ((i.B @ i.V) * (j.B @ j.V)).sum(0)


def expectation(
    a: Float[Tensor, "p c"], drawn: Part, share: Float[Tensor, " u"], scale: Float[Tensor, ""], m: int
) -> Float[Tensor, " c"]:
    """Proposition 3 with Appendix F.1: value scale a^T a; sparse, unbiased gradient with respect to the drawn rows.

    The dense gradient 2 scale B^T a is taken at the touched rows only, times m / |i u j|. Unlike the printed
    stop_gradient form this scales nothing but those rows. ``share`` (1 / repeats) makes sums over drawn rows sums
    over the union.
    """
    check_shape("V_drawn", drawn.V, (drawn.B.shape[1], drawn.V.shape[-1]), "Give one row for each drawn function.")
    check_shape("a", a, (len(drawn.B), drawn.V.shape[1]), "a = B V: a row for each support point, the columns of V.")
    check_shape("share", share, (len(drawn.V),), _SHARE_REMEDY)
    pull = 2 * scale * (m / share.sum()) * share[:, None] * (drawn.B.mT @ a)
    path = (pull.detach() * drawn.V).sum(0)
    return (scale * a.square().sum(0)).detach() + path - path.detach()


def advance(
    a: Float[Tensor, "p c"],
    B_drawn: Float[Tensor, "p u"],
    change_drawn: Float[Tensor, "u c"],
    share: Float[Tensor, " u"],
) -> Float[Tensor, "p c"]:
    """Proposition 3: a + B_u (V_u - V_u^(t-1)) over the touched rows u. Cost O(n_bar m_tilde c)."""
    check_shape("change_drawn", change_drawn, (B_drawn.shape[1], a.shape[-1]), "Give one row for each drawn function.")
    check_shape("a", a, (len(B_drawn), a.shape[-1]), "a = B V has a row for each support point.")
    check_shape("share", share, (len(change_drawn),), _SHARE_REMEDY)
    return a + B_drawn @ (share[:, None] * change_drawn)


def optimal_coefficient(estimates: Float[Tensor, " s"], controls: Float[Tensor, " s"]) -> Float[Tensor, ""]:
    """Cov(estimate, control) / Var(control) over earlier draws: the multiple of the control variate that helps most.

    A poor support set makes the plain control variate raise the variance; this multiple never does. It must come
    from other draws than the one it is applied to.
    """
    check_vectors(estimates=estimates, controls=controls)
    centred = controls - controls.mean()
    return (centred * (estimates - estimates.mean())).sum() / centred.square().sum().clamp_min(
        torch.finfo(controls.dtype).tiny
    )
