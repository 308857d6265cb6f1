"""K(X, Z) V on an NVIDIA GPU: blocks of both point sets, prepared and handed to the Triton kernel."""

# mypy: disable-error-code="import-not-found, import-untyped"

import math
from typing import NamedTuple

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from qsgp.engine.cuda_features import INTERPRETED
from qsgp.engine.triton_kernels import kernel_product
from qsgp.engine.triton_prepare import depth, padded, split, split_columns
from qsgp.engine.triton_tiles import COLUMNS, Tile, block_rows, blocks, shares

# The kernel works on q = (SHARPNESS r)^2, for which every exponential is a power of two.
SHARPNESS = {
    "rbf": math.sqrt(0.5 / math.log(2)),
    "matern12": 1 / math.log(2),
    "matern32": math.sqrt(3) / math.log(2),
    "matern52": math.sqrt(5) / math.log(2),
}
FAR = {"rbf": 30.0, "matern12": 900.0, "matern32": 900.0, "matern52": 900.0}  # q of a kernel value below 1e-9
# |x|^2 + |z|^2 (in units of q) whose rounding, 2^-24 of it, moves a kernel value by 2.5e-6 where it is steepest in q;
# for Matern-1/2, steepest at q = 0, where it does so at q = 1
LONG = {"rbf": 60.0, "matern12": 120.0, "matern32": 170.0, "matern52": 500.0}


def k_v(
    x: Float[Tensor, "n d"],
    z: Float[Tensor, "b d"],
    V: Float[Tensor, "b c"],
    lengthscale: Float[Tensor, " d"],
    kernel: str,
    precision: str,
) -> Float[Tensor, "n c"]:
    x, z = x.contiguous(), z.contiguous()
    out = V.new_zeros((len(x), V.shape[1]))
    sides = _Sides(z.mean(0), SHARPNESS[kernel] / lengthscale.double(), _reach(x, z, lengthscale), precision == "fast")
    largest = block_rows(4 * depth(x.shape[1])[0], V.shape[1])
    for c in blocks(V.shape[1], COLUMNS):
        chunk = V[:, c].contiguous()
        for b in blocks(len(z), largest):
            Z = sides.prepare(z[b])
            for a in blocks(len(x), largest):
                out[a, c] += _launch(sides.prepare(x[a]), Z, sides, chunk[b], kernel)
    return out


def _reach(x: Tensor, z: Tensor, lengthscale: Tensor) -> Float[Tensor, ""]:
    """A bound of the squared scaled inputs, wherever the centre lies among them: the range that halves must hold."""
    largest = torch.maximum(x.amax(0), z.amax(0)) - torch.minimum(x.amin(0), z.amin(0))
    return (largest / lengthscale).amax().square()


class _Side(NamedTuple):
    points: Tensor  # as given: for differences
    data: Tensor
    norms: Tensor


class _Sides(NamedTuple):
    """What both sets of points are prepared with. Distances do not change with the centre; the digits lost do."""

    centre: Tensor
    factor: Tensor
    peak: Tensor
    fast: bool

    def prepare(self, points: Tensor) -> _Side:
        norms = points.new_empty(padded(len(points)))
        data = split(
            points, self.peak, centre=self.centre, factor=self.factor, norms=norms, rounded=self.fast
        )  # fmt: skip
        return _Side(points, data, norms)


def tile(D: int, columns: int) -> Tile:
    """Fastest of those tried on an H200 (docs/engine.md)."""
    if D > 64:  # with many columns a wider one overflows the registers; which of the two is faster was not measured
        return Tile(128, 128 if columns <= 64 else 64, 0, 8, 3)
    if columns == 1:
        return Tile(128, 32, 0, 4, 3)
    return Tile(128, 32, 0, 8, 2) if columns <= 64 else Tile(64, 64, 0, 4, 2)


def _launch(X: _Side, Z: _Side, sides: _Sides, V: Tensor, kernel: str) -> Tensor:
    """One block. A second launch takes the rows that need care, in most cases none; Matern-1/2 always does."""
    (n, d), m, columns = X.points.shape, len(Z.points), V.shape[1]
    D, DEPTH = depth(d)
    chosen = tile(D, columns)
    work = shares(n, m, chosen, columns, least=2 if D > 64 else 16)
    partial = V.new_empty((work.splits, n, columns))
    rows, size = padded(m), 1
    pieces, column_peak = V, None
    if columns == 1:
        pieces = pad(V, (0, 0, 0, rows - m))
    else:
        size = max(16, triton.next_power_of_2(columns))
        pieces, column_peak = split_columns(V, rows, size)
    # Sums of two lengths must be exact. Rounded, they err as the fractions of both say: no noise, but a kernel of its
    # own whose eigenvalues, of both signs, grow like n. At a million rows they outweighed a noise variance of 0.0027.
    longest = Z.norms.amax()
    finite = [torch.where(side.norms < torch.inf, side.norms, 0.0).amax() for side in (X, Z)]
    grid = torch.exp2(torch.maximum(*finite).clamp(1e-30, 1e30).log2().ceil() - 23)
    x_norms, z_norms = ((side.norms / grid).round() * grid for side in (X, Z))
    for careful in (True,) if kernel == "matern12" else (False, True):
        kernel_product[(work.programs, work.splits)](
            X.data, Z.data, X.points, Z.points, x_norms, z_norms, longest, sides.factor, sides.peak,
            pieces, column_peak, partial, n, m, work.share, d, columns, rows * size, FAR[kernel],
            LONG=LONG[kernel], COLUMNS=size, D=D, DEPTH=DEPTH, M=chosen.M, N=chosen.N, KERNEL=kernel, FAST=sides.fast,
            HARDWARE=not INTERPRETED, CAREFUL=careful, num_warps=chosen.warps, num_stages=chosen.stages,
        )  # fmt: skip
    return partial.sum(0)
