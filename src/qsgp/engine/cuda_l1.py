"""K(X, Z) V of the Laplacian kernel on an NVIDIA GPU: blocks of both point sets handed to the Triton kernel.

Its tiles are those of `cuda_kernels`; others were not tried.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

import math
from typing import NamedTuple

import triton
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from qsgp.engine.cuda_features import INTERPRETED, columns_first
from qsgp.engine.cuda_kernels import tile
from qsgp.engine.triton_l1 import l1_product
from qsgp.engine.triton_prepare import padded, split_columns
from qsgp.engine.triton_tiles import COLUMNS, block_rows, blocks, shares

LONG = 120.0  # |x|_1 + |z|_1 (in units of q) whose rounding, 2^-25 of it, moves a kernel value by 2.5e-6 at the worst


def k_v(
    x: Float[Tensor, "n d"],
    z: Float[Tensor, "b d"],
    V: Float[Tensor, "b c"],
    lengthscale: Float[Tensor, " d"],
    kernel: str,
    precision: str,
) -> Float[Tensor, "n c"]:
    """``kernel`` is "laplacian": 2^-q, q the sum of |x - z| / (log(2) lengthscale)."""
    out = V.new_zeros((len(x), V.shape[1]))
    sides = _Sides(z.mean(0), 1 / (math.log(2) * lengthscale.double()), precision == "fast")
    largest = block_rows(8 * x.shape[1], V.shape[1])
    for c in blocks(V.shape[1], COLUMNS):
        chunk = V[:, c].contiguous()
        for b in blocks(len(z), largest):
            Z = sides.prepare(z[b])
            for a in blocks(len(x), largest):
                out[a, c] += _launch(sides.prepare(x[a]), Z, sides, chunk[b])
    return out


class _Side(NamedTuple):
    size: int
    given: Float[Tensor, "d padded"]  # for the careful launch
    scaled: Float[Tensor, "d padded"]
    lengths: Float[Tensor, " padded"]


class _Sides(NamedTuple):
    """What both sets of points are prepared with. Distances do not change with the centre; the digits lost do."""

    centre: Float[Tensor, " d"]
    factor: Float64[Tensor, " d"]
    fast: bool

    def prepare(self, points: Float[Tensor, "n d"]) -> _Side:
        scaled = columns_first(((points.double() - self.centre) * self.factor).float())
        return _Side(len(points), columns_first(points), scaled, scaled.abs().sum(0))


def _launch(X: _Side, Z: _Side, sides: _Sides, V: Float[Tensor, "m columns"]) -> Float[Tensor, "n columns"]:
    """One block. A second launch takes the rows that need care, in most cases none."""
    (m, columns), d = V.shape, len(sides.centre)
    chosen = tile(16, columns)
    work = shares(X.size, m, chosen, columns, least=16)
    partial = V.new_empty((work.splits, X.size, columns))
    rows, size = padded(m), 1
    pieces, column_peak = V, None
    if columns == 1:
        pieces = pad(V, (0, 0, 0, rows - m))
    else:
        size = max(16, triton.next_power_of_2(columns))
        pieces, column_peak = split_columns(V, rows, size)
    longest, factor = Z.lengths.amax(), sides.factor.float()
    for careful in (False, True):
        x, z = (X.given, Z.given) if careful else (X.scaled, Z.scaled)
        l1_product[(work.programs, work.splits)](
            x, z, X.lengths, longest, factor, pieces, column_peak, partial, X.size, m, work.share, d, columns,
            rows * size, x.shape[1], z.shape[1],
            LONG=LONG, COLUMNS=size, M=chosen.M, N=chosen.N, FAST=sides.fast, HARDWARE=not INTERPRETED,
            CAREFUL=careful, num_warps=chosen.warps, num_stages=chosen.stages,
        )  # fmt: skip
    return partial.sum(0)
