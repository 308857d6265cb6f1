"""Sums of absolute differences in float64, and their slopes: in C on a CPU, in plain torch elsewhere.

No product of matrices gives them: every pair and input is a difference of its own. Torch makes the slopes in as many
passes over the pairs as there are inputs, C in one.
"""

import ctypes

import torch
from jaxtyping import Float64
from torch import Tensor

from qsgp.engine.compiled import call, library, share

GROUP, LANES = 64, 16  # rows whose slopes are one partial sum; points at a time, as in l1.c


def distances(X: Float64[Tensor, "n d"], Z: Float64[Tensor, "b d"]) -> Float64[Tensor, "n b"]:
    """sum_j |x_j - z_j|, in a tensor of its own."""
    compiled = _usable(X, Z)
    if compiled is None:
        return _plain_distances(X, Z)
    X, points = X.contiguous(), _columns_first(Z)
    out = X.new_empty((len(X), len(Z)))

    def run(begin: int, end: int) -> None:
        sizes = (end - begin, X.shape[1], len(Z), points.shape[1])
        call(compiled.l1_distances, (X[begin:], points, out[begin:]), sizes)

    share(run, len(X), GROUP)
    return out


def weighted(W: Float64[Tensor, "n b"], X: Float64[Tensor, "n d"], Z: Float64[Tensor, "b d"]) -> Float64[Tensor, " d"]:
    """Of every input j the sum of W |x_j - z_j| over all pairs; the same for any number of threads."""
    compiled = _usable(X, Z)
    if compiled is None:
        return _plain_weighted(W, X, Z)
    W, X, points = W.contiguous(), X.contiguous(), _columns_first(Z)
    partial = X.new_zeros((-(-len(X) // GROUP), X.shape[1]))

    def run(begin: int, end: int) -> None:
        sizes = (end - begin, X.shape[1], len(Z), points.shape[1])
        call(compiled.l1_weighted, (W[begin:], X[begin:], points, partial[begin // GROUP :]), sizes)

    share(run, len(X), GROUP)
    return partial.sum(0)


def _plain_distances(X: Float64[Tensor, "n d"], Z: Float64[Tensor, "b d"]) -> Float64[Tensor, "n b"]:
    """On CUDA one input at a time: there torch.cdist starts a block of threads for every pair."""
    if not X.is_cuda:
        return torch.cdist(X, Z, p=1.0)
    out = X.new_zeros((len(X), len(Z)))
    for x, z in zip(X.mT, Z.mT, strict=True):
        out += (x[:, None] - z).abs_()
    return out


def _plain_weighted(W: Tensor, X: Tensor, Z: Tensor) -> Float64[Tensor, " d"]:
    each = [(x[:, None] - z).abs_().mul_(W).sum() for x, z in zip(X.mT, Z.mT, strict=True)]
    return torch.stack(each) if each else X.new_zeros(0)


def _usable(X: Tensor, Z: Tensor) -> ctypes.CDLL | None:
    """The compiled files, for what is on a CPU and not empty."""
    return library() if X.device.type == "cpu" and X.numel() and Z.numel() else None


def _columns_first(Z: Float64[Tensor, "b d"]) -> Float64[Tensor, "d padded"]:
    return torch.nn.functional.pad(Z.mT, (0, -len(Z) % LANES)).contiguous()
