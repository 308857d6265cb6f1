"""The quadruply stochastic step, preconditioned: rows, and blocks i and j of features, are sampled; cost O(1).

For data too large for one pass over n m feature values (`feature_dual` needs some twenty). The direction of block i is

    (m / m_tilde) [Phi_li^T rho + V_i - Phi_pi^T T (K_pl rho + a)],
    T = sum_k (1 - lambda_q / lambda_k) / lambda_k u_k u_k^T,

with rho of `blocks.residual` and the top q eigenpairs of K_pp: it flattens them, so that steps grow by
lambda_1 / lambda_q. K_pl, the exact kernel, stands in for Phi_p Phi_l^T, which would cost O(m): the direction is
unbiased for the formula above with all rows and features, whose zero lies near the exact solution but not on it. The
step size follows from the spectrum; the weights are averaged over the second half. There is no momentum: noise, not
curvature, limits the step.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.paper.blocks import Blocks, BlockState, Draw, draw, phi_v, phit_r, replayed, residual, rows_of


@dataclass(frozen=True)
class Spectral:
    """T, how many directions it flattens, and the step that the rest allows."""

    T: Float[Tensor, "p p"]
    directions: int
    rate: float

    @classmethod
    def build(cls, blocks: Blocks) -> "Spectral":
        """Flatten what stands out of the noise of a block, lambda_1 / sqrt(m_tilde): beyond it the step cannot grow.

        The largest eigenvalue that a step meets, in units of n times the steepest curvature: twice lambda_q (support
        points miss part of it), that noise, and the variance left at a point over the sizes of both samples.
        """
        kernel, p, m_tilde = blocks.basis.kernel, len(blocks.U), 2 * blocks.pairs
        values, vectors = torch.linalg.eigh(kernel(blocks.U, blocks.U).double())
        values, vectors = values.flip(0) / p, vectors.flip(1)
        noise = float(values[0]) / m_tilde**0.5
        q = min(int((values > noise).sum()), p - 1)
        top, last = values[:q], values[q].clamp_min(0)
        T = (vectors[:, :q] * ((1 - last / top) / (p * top))) @ vectors[:, :q].mT
        left = blocks.variance - float((top - last).sum())
        steepest = 1 / blocks.sigma2 if blocks.site is None else blocks.site.steepest
        largest = 2 * float(last) + noise + left * (1 / blocks.n_tilde + 1 / m_tilde)
        return cls(T.to(blocks.x), q, 0.5 / (len(blocks.x) * steepest * largest + 1))


def direction(
    blocks: Blocks, state: BlockState, spectral: Spectral, batch: Draw
) -> tuple[Int[Tensor, " i"], Float[Tensor, "i c"]]:
    """Rows i and the preconditioned gradient there."""
    kernel = blocks.basis.kernel
    pair_i, i = rows_of(blocks, batch.start[0])
    x_l, rho = blocks.x[batch.l], residual(blocks, state, batch)
    at_support = kernel.product(blocks.U, x_l, rho) + state.a
    # one product for both: rows l weigh rho, support points what is taken off
    rows, weights = torch.cat([x_l, blocks.U]), torch.cat([rho, -(spectral.T @ at_support)])
    return i, blocks.scale * (phit_r(blocks, rows, pair_i, weights) + state.V[i])


def step(blocks: Blocks, state: BlockState, spectral: Spectral, batch: Draw) -> None:
    """One step of block i, in place. ``sums`` collects t times each change: see `averaged`."""
    i, g = direction(blocks, state, spectral, batch)
    change = -spectral.rate * g
    state.V.index_add_(0, i, change)
    state.sums.index_add_(0, i, state.t * change)
    state.a += phi_v(blocks, blocks.U, rows_of(blocks, batch.start[0])[0], change)
    state.t += 1


def averaged(state: BlockState) -> Float[Tensor, "m c"]:
    """Mean of V over the t steps since ``sums`` and ``t`` were zero: change s is missing from s of these tables."""
    return state.V - state.sums / state.t.clamp_min(1)


def fit(
    blocks: Blocks,
    columns: int,
    steps: int,
    *,
    generator: torch.Generator | None = None,
    halt: Callable[[], bool] = lambda: False,
    every: int = 100,
) -> Float[Tensor, "m c"]:
    """Weights after ``steps`` steps, averaged over the second half. ``halt`` is asked ``every`` so many steps.

    On a GPU one step is one replayed graph, which draws from the device's own generator.
    """
    state, spectral = BlockState.zeros(blocks, columns), Spectral.build(blocks)

    def once() -> None:
        step(blocks, state, spectral, draw(blocks, None if blocks.x.is_cuda else generator))

    advance = replayed(once, blocks.x.device) if blocks.x.is_cuda else once
    for number in range(steps):
        if number == steps // 2:
            state.sums.zero_()
            state.t.zero_()
        advance()
        if number % every == every - 1 and halt():
            break
    return averaged(state)
