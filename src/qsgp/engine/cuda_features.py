"""Phi V and Phi^T R on an NVIDIA GPU: blocks of rows and pairs, prepared and handed to the Triton kernels."""

# mypy: disable-error-code="import-not-found, import-untyped"

import math
from typing import NamedTuple

import triton
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from qsgp.engine.frequencies import Drawn, Frequencies, numbers
from qsgp.engine.triton_features import many_columns, one_column
from qsgp.engine.triton_prepare import depth, draw, largest, padded, split, split_columns
from qsgp.engine.triton_tiles import COLUMNS, Tile, block_rows, blocks, shares

INTERPRETED = triton.knobs.runtime.interpret


def phi_v(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    precision: str,
) -> Float[Tensor, "n c"]:
    return _product(x, frequencies, V, lengthscale, precision, transpose=False)


def phit_r(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    R: Float[Tensor, "n c"],
    lengthscale: Float[Tensor, " d"],
    precision: str,
) -> Float[Tensor, "m c"]:
    return _product(x, frequencies, R, lengthscale, precision, transpose=True)


class Range(NamedTuple):
    """What halves must be able to hold."""

    factor: Float64[Tensor, " d"]  # 1 / lengthscale
    peak: Float[Tensor, ""]  # largest scaled input over the largest frequency

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], frequencies: Frequencies, lengthscale: Float[Tensor, " d"]) -> "Range":
        factor = lengthscale.double().reciprocal()
        peak = (largest(x, 0) * factor).amax().float()
        return cls(factor, peak / largest(frequencies).clamp(min=1e-30) if isinstance(frequencies, Tensor) else peak)


def tile(D: int, columns: int, transpose: bool, precision: str) -> Tile:
    """Fastest of those tried on an H200 (docs/engine.md)."""
    if precision == "wide":
        return Tile(64, 32, 0, 4, 2)
    if D > 64:
        return Tile(128, 256 if precision == "fast" and columns == 1 else 128, 0, 8, 3)
    if columns == 1:
        return Tile(64, 64, 32, 4, 3) if transpose else Tile(64, 64, 16, 4, 3)
    if columns <= 64:
        return Tile(128, 64, 0, 8, 3) if transpose else Tile(128, 32, 0, 4, 3)
    return Tile(64, 32, 0, 4, 3)


class Operand(NamedTuple):
    """Points in halves, rows padded, and how many of them count."""

    data: Tensor
    size: int


class _Operands:
    """Blocks of inputs and frequencies as kernels read them; the last block of inputs stays for the next pairs."""

    def __init__(self, x: Tensor, known: Range, columns: int, precision: str) -> None:
        self.x, self.wide = x.contiguous(), precision == "wide"
        self.factor, self.peak = known
        D, _ = depth(x.shape[1])
        self.rows = block_rows(24 * x.shape[1] if self.wide else 4 * D, columns)
        self.last: tuple[slice, Operand] | None = None

    def inputs(self, part: slice) -> Operand:
        if self.last is None or self.last[0] != part:
            block = self.x[part]
            data = columns_first(block * self.factor) if self.wide else split(block, self.peak, factor=self.factor)
            self.last = part, Operand(data, len(block))
        return self.last[1]

    def frequencies(self, block: Frequencies) -> Operand:
        if self.wide:
            data = columns_first(numbers(block, self.x).double() / (2 * math.pi))
        elif isinstance(block, Drawn):
            data = draw(block, self.x.shape[1], self.peak)
        else:
            data = split(block, self.peak, grow=True)
        return Operand(data, len(block))


def columns_first(source: Float[Tensor, "n d"]) -> Float[Tensor, "d padded"]:
    return pad(source.mT, (0, padded(len(source)) - len(source)))


def _product(
    x: Tensor, frequencies: Frequencies, V: Tensor, lengthscale: Tensor, precision: str, transpose: bool
) -> Tensor:
    pairs, columns = len(frequencies), V.shape[1]
    out = V.new_zeros((2 * pairs if transpose else len(x), columns))
    operands = _Operands(x, Range.of(x, frequencies, lengthscale), columns, precision)
    for c in blocks(columns, COLUMNS):
        chunk = V[:, c].contiguous()
        for p in blocks(pairs, operands.rows):
            W = operands.frequencies(frequencies[p])
            both = slice(2 * p.start, 2 * p.stop)
            for r in blocks(len(x), operands.rows):
                X = operands.inputs(r)
                if transpose:
                    out[both, c] += launch(W, X, chunk[r], 2, precision, x.shape[1])
                else:
                    out[r, c] += launch(X, W, chunk[both], 1, precision, x.shape[1])
    return out


def launch(fixed: Operand, stream: Operand, V: Tensor, outputs: int, precision: str, d: int) -> Tensor:
    """One block: Phi V (one output per row), or Phi^T R (two outputs per pair)."""
    D, DEPTH = depth(d)
    columns = V.shape[1]
    chosen = tile(D, columns, outputs == 2, precision)
    work = shares(fixed.size, stream.size, chosen, columns, least=2 if D > 64 else 16)
    partial = V.new_empty((work.splits, outputs * fixed.size, columns))
    grid = (work.programs, work.splits)
    sizes = (fixed.size, stream.size, work.share, d, fixed.data.shape[-1], stream.data.shape[-1])
    options = {
        "D": D, "DEPTH": DEPTH, "M": chosen.M, "N": chosen.N, "TRANSPOSE": outputs == 2, "PROJECTION": precision,
        "HARDWARE": not INTERPRETED, "num_warps": chosen.warps, "num_stages": chosen.stages,
    }  # fmt: skip
    rows = padded(stream.size) * (3 - outputs)  # of V, with zeros for what the last tile reads past the end
    if columns == 1:
        V = pad(V, (0, 0, 0, rows - len(V)))
        one_column[grid](fixed.data, stream.data, V, partial, *sizes, POLYNOMIAL=chosen.polynomial, **options)
    else:
        size = max(16, triton.next_power_of_2(columns))
        pieces, peak = split_columns(V, rows, size)
        many_columns[grid](
            fixed.data, stream.data, pieces, peak, partial, *sizes, columns, rows * size, COLUMNS=size, **options
        )
    return partial.sum(0)
