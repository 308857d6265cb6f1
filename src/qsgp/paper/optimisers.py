"""Pure updates. Rows that were not touched do not move: the O(1) recursion of Proposition 3 depends on it."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


def adagrad(
    rows: Float[Tensor, "u w"], sums: Float[Tensor, "u w"], gradient: Float[Tensor, "u w"], rate: float | Tensor
) -> tuple[Float[Tensor, "u w"], Float[Tensor, "u w"]]:
    """AdaGrad (Duchi et al., 2011) on the touched rows: no momentum, so untouched rows stay where they are."""
    sums = sums + gradient.square()
    return rows - rate * gradient / (sums.sqrt() + 1e-10), sums


def adagrad_rows(
    rows: Float[Tensor, "u k"],
    sums: Float[Tensor, "u 1"],
    gradient: Float[Tensor, "u k"],
    rate: Float[Tensor, " u"],
) -> tuple[Float[Tensor, "u k"], Float[Tensor, "u 1"]]:
    """AdaGrad with one sum for a whole row: no step is longer than the ``rate`` of its row, whatever k is.

    Entries whose gradient is mostly noise then stay small beside those with a signal, and a table of L needs one sum a
    row, not k.
    """
    sums = sums + gradient.square().sum(1, keepdim=True)
    return rows - rate[:, None] * gradient / (sums.sqrt() + 1e-10), sums


def block_newton(
    mu: Float[Tensor, "u o"],
    gradient: Float[Tensor, "u o"],
    s: Float[Tensor, " u"],
    root: Float[Tensor, "l u"],
    rate: float,
) -> Float[Tensor, "u o"]:
    """mu - rate H^-1 gradient with the sampled Hessian H = diag(s) + root^T root of the touched block.

    By the Woodbury identity in O(n_tilde^2 u + n_tilde^3). For functions so alike that only the prior tells them apart
    (kernel functions at neighbouring points) a diagonal scaling cannot undo what sampling one and not the other did.
    """
    scaled = root / s
    inner = torch.eye(len(root), dtype=root.dtype, device=root.device) + scaled @ root.mT
    factor, failed = torch.linalg.cholesky_ex(inner)
    if failed and root.dtype != torch.float64:
        # The data say so much more than the prior that float32 rounds the 1 on the diagonal away. Adding to it instead
        # would lengthen the step and diverge.
        double = block_newton(mu.double(), gradient.double(), s.double(), root.double(), rate)
        return double.to(mu.dtype)
    white = gradient / s[:, None]
    inside = torch.cholesky_solve(root @ white, factor)
    return mu - rate * (white - scaled.mT @ inside)


class Moments(NamedTuple):
    """Adam's memory of one parameter."""

    first: Tensor
    second: Tensor


def adam(
    value: Tensor,
    moments: Moments,
    gradient: Tensor,
    rate: float | Tensor,
    t: int | Tensor,
    betas: tuple[float, float] = (0.9, 0.999),
) -> tuple[Tensor, Moments]:
    """Adam (Kingma & Ba, 2015), step number t = 1, 2, ..., for the few hyperparameters."""
    first = betas[0] * moments.first + (1 - betas[0]) * gradient
    second = betas[1] * moments.second + (1 - betas[1]) * gradient.square()
    step = (first / (1 - betas[0] ** t)) / (torch.sqrt(second / (1 - betas[1] ** t)) + 1e-8)
    return value - rate * step, Moments(first, second)


def decayed(rate: float, t: int, iterations: int, final: float) -> float:
    """Exponential decay from ``rate`` to ``final * rate`` over ``iterations`` steps (Appendix I.1)."""
    return rate * final ** (t / max(iterations, 1))
