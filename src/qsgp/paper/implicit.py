"""Steps that are implicit in the prior: what the data say enters at a rate, the prior as it is."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.paper.objective import Estimate, site_curvature
from qsgp.paper.optimisers import block_newton


def implicit_step(estimate: Estimate, of_drawn: Float[Tensor, "drawn c"], k: int, rate: float) -> Float[Tensor, "i c"]:
    """Change of the rows i of [mu, L]: -(S + Phi_li^T Phi_li n / (n_tilde sigma2 rate))^-1 gradient.

    mu and every dense column have this Hessian at rate 1. Of what the data determine, a step goes the part ``rate``
    of the way; a difference between like functions, which only the prior determines, goes to zero at once. The rows i
    all see what j predicts, and j stays: were i and j to move, each by the other's residual, the difference of the two
    would be taken for one between functions. O(n_tilde^2 (m_tilde + n_tilde)) beyond a step of AdaGrad.
    """
    drawn, batch = estimate.drawn, estimate.drawn.batch
    i, Phi_i, s_i = batch.draws[0], batch.split(drawn.Phi, 1)[0], batch.split(drawn.s)[0]
    # The estimate counts a drawn row m / |drawn| times over, so that it is right on average; the block wants it once.
    own = batch.split(of_drawn)[0] * (len(batch.drawn) / drawn.m)
    curvature = site_curvature(drawn, estimate.values) * drawn.n / len(drawn.Phi)
    return free_newton(own, s_i, Phi_i * torch.sqrt(curvature / rate)[:, None], i, k)


def free_newton(
    gradient: Float[Tensor, "i c"], s: Float[Tensor, " i"], root: Float[Tensor, "l i"], i: Int[Tensor, " i"], k: int
) -> Float[Tensor, "i c"]:
    """-H^-1 gradient with H = diag(s) + root^T root; in the last k columns, dense ones of C, only below the diagonal.

    Entries on and above the diagonal are held at no change: with H^-1 known at their rows, multipliers for them are a
    system of at most k equations for each column, and all columns share the factor of H.
    """
    held_rows = torch.nonzero(i < k)[:, 0]
    c, p = gradient.shape[1], len(held_rows)
    units = torch.zeros(len(i), p, dtype=gradient.dtype, device=gradient.device)
    units[held_rows, torch.arange(p, device=i.device)] = 1.0
    both = torch.cat([gradient, units], 1)
    solved = block_newton(torch.zeros_like(both), both, s, root, 1.0)
    change, inverse = solved[:, :c], -solved[:, c:]
    if p:
        held = (i[held_rows] <= torch.arange(k, device=i.device)[:, None]).to(gradient)
        system = held[:, :, None] * inverse[held_rows] * held[:, None] + torch.diag_embed(1 - held)
        multipliers = torch.linalg.solve(system, held * change[held_rows, c - k :].mT)
        change[:, c - k :] -= inverse @ multipliers.mT
    return change
