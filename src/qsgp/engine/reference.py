"""The products in plain torch, block by block: any device, any precision. In float64 the truth of all tests."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.engine import l1
from qsgp.engine.formulas import FORMULAS
from qsgp.engine.frequencies import Frequencies, numbers

BLOCK = 1 << 19  # projections or kernel values held at a time
CLOSE = 1e-4  # of the inputs' squared length: a smaller distance is taken by differences
BLOCK_CUDA = 1 << 25  # kernel values on a GPU: a launch must be worth its start


class Block(NamedTuple):
    """Projections of some rows at some pairs, with the numbers they come from."""

    rows: slice
    both: slice  # features of the pairs
    omega: Float[Tensor, "p d"]
    t: Float[Tensor, "r p"]

    def features(self) -> Float[Tensor, "r m"]:
        """cos and sin, side by side."""
        return torch.stack((self.t.cos(), self.t.sin()), -1).flatten(1)


def projections(
    x: Float[Tensor, "n d"], frequencies: Frequencies, lengthscale: Float[Tensor, " d"], precision: str = "default"
) -> Iterator[Block]:
    """(x / lengthscale)^T omega, BLOCK of them at a time; frequencies are drawn once. "wide": in float64, whole
    revolutions dropped, for angles of which float32 would keep nothing."""
    wide = min(len(frequencies), 4096)
    dtype = torch.float64 if precision == "wide" else x.dtype
    ell = lengthscale.to(dtype)
    for p in range(0, len(frequencies), wide or 1):
        omega, both = numbers(frequencies[p : p + wide], x).to(dtype), slice(2 * p, 2 * (p + wide))
        tall = max(1, BLOCK // len(omega))
        for r in range(0, len(x), tall):
            rows = slice(r, r + tall)
            t = (x[rows].to(dtype) / ell) @ omega.mT
            if dtype != x.dtype:
                t = (t - 2 * math.pi * (t / (2 * math.pi)).round()).to(x.dtype)
            yield Block(rows, both, omega, t)


def phi_v(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    out = V.new_zeros((len(x), V.shape[1]))
    for block in projections(x, frequencies, lengthscale, precision):
        out[block.rows] += block.features() @ V[block.both]
    return out


def phit_r(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    R: Float[Tensor, "n c"],
    lengthscale: Float[Tensor, " d"],
    precision: str = "default",
) -> Float[Tensor, "m c"]:
    out = R.new_zeros((2 * len(frequencies), R.shape[1]))
    for block in projections(x, frequencies, lengthscale, precision):
        out[block.both] += block.features().mT @ R[block.rows]
    return out


def k_v(
    x: Float[Tensor, "n d"],
    z: Float[Tensor, "b d"],
    V: Float[Tensor, "b c"],
    lengthscale: Float[Tensor, " d"],
    kernel: str,
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    """Square tiles: of a few rows against all points, the points would be prepared for each. How points are cut does
    not depend on the rows, and sums are float64: a row has the same product in any company."""
    side, norm = math.isqrt(BLOCK_CUDA if x.is_cuda else BLOCK), FORMULAS[kernel].norm
    out = torch.zeros(len(x), V.shape[1], dtype=torch.float64, device=x.device)
    for points, own in zip(z.split(side), V.double().split(side), strict=True):
        for rows, part in zip(out.split(side), x.split(side), strict=True):
            rows += profile(distances(part, points, lengthscale, norm), kernel).double() @ own
    return out.to(V.dtype)


def largest(x: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """The largest |x| of each column, without a copy of x. (torch.aminmax starts threads for the smallest of inputs,
    and in a forked process waits for them for ever.)"""
    return torch.maximum(x.amax(0), -x.amin(0))


def profile(r: Float[Tensor, "*shape"], kernel: str) -> Float[Tensor, "*shape"]:
    """rho(r): the kernel with unit variance and lengthscale."""
    return FORMULAS[kernel].profile(r)


def distances(
    x: Float[Tensor, "n d"], z: Float[Tensor, "b d"], lengthscale: Float[Tensor, " d"], norm: int = 2
) -> Float[Tensor, "n b"]:
    """|(x - z) / lengthscale|, accurate for near duplicates; ``norm`` 1: the sum of absolute values, by differences.

    Float64 takes differences; float32 a float64 product of centred inputs, which is faster and loses less than they do.
    So does float64 on CUDA, where differences start a block of threads for every pair: there only close pairs, whose
    squares cancel, are taken by differences.
    """
    if x.dtype == torch.float64 and not x.is_cuda and norm == 2:
        return torch.cdist(x / lengthscale, z / lengthscale, compute_mode="donot_use_mm_for_euclid_dist")
    centre, ell = z.double().mean(0), lengthscale.double()
    X, Z = (x.double() - centre) / ell, (z.double() - centre) / ell
    if norm == 1:
        return l1.distances(X, Z).to(x.dtype)
    norms = X.square().sum(1)[:, None] + Z.square().sum(1)
    r = torch.addmm(norms, X, Z.mT, alpha=-2).clamp_(min=0).sqrt_()
    return with_close(r, X, Z) if x.dtype == torch.float64 else r.to(x.dtype)


def with_close(
    r: Float64[Tensor, "n b"], X: Float64[Tensor, "n d"], Z: Float64[Tensor, "b d"]
) -> Float64[Tensor, "n b"]:
    """Distances r from products, with those of close pairs taken by differences."""
    a, b = close(r, X, Z)
    if len(a) > r.numel() // 16:  # their indices would take as much room as r
        return torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist")
    squares = torch.zeros(len(a), dtype=r.dtype, device=r.device)
    for k in range(X.shape[1] if len(a) else 0):  # one input at a time: all inputs of all pairs would not fit
        squares += (X[a, k] - Z[b, k]).square_()
    r[a, b] = squares.sqrt_()
    return r


def close(
    r: Float64[Tensor, "n b"], X: Float64[Tensor, "n d"], Z: Float64[Tensor, "b d"]
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Pairs so close that squares multiplied out, which lose 1e-16 of the inputs' squared length, would move r by more
    than 1e-12."""
    length = X.square().sum(1).amax().sqrt() + Z.square().sum(1).amax().sqrt() if r.numel() else r.new_zeros(())
    a, b = torch.nonzero(r < CLOSE * length * length.clamp(min=1), as_tuple=True)
    return a, b
