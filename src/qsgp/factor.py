"""The one place where a matrix is factored: a Cholesky factor, or one exception that says what went wrong.

A Gram matrix is positive definite but for rounding. Where rounding has made it indefinite, the diagonal is raised by
the least power of ten that helps, beginning at the rounding of its own entries. What was added is told: callers add it
to their noise, or correct for it by a residual that does not contain it.
"""

import torch
from jaxtyping import Float
from torch import Tensor

TRIES = 9  # float64: from 2e-15 to 2e-7 of the mean diagonal


class NotPositiveDefinite(FloatingPointError):
    """No jitter within reason gives a factor: the matrix holds numbers that are not finite, or is no Gram matrix."""


def cholesky(K: Float[Tensor, "n n"], tries: int = TRIES) -> tuple[Float[Tensor, "n n"], float]:
    """The lower factor of K + jitter I, and that jitter: 0 unless rounding asks for more. K is left as it was.

    With ``tries`` of 0 there is no jitter: a search for hyperparameters must not compare evidences of other matrices.
    """
    factor, failed = torch.linalg.cholesky_ex(K)
    if not failed.any():
        return factor, 0.0
    size = float(K.diagonal().abs().mean())
    jitter = 10 * torch.finfo(K.dtype).eps * size
    for _ in range(tries if 0 < size < float("inf") else 0):
        raised = K.clone()
        raised.diagonal().add_(jitter)
        factor, failed = torch.linalg.cholesky_ex(raised)
        if not failed.any():
            return factor, jitter
        jitter *= 10
    raise NotPositiveDefinite(f"A matrix of {len(K)} rows, mean diagonal {size:.3g}, has no Cholesky factor.")
