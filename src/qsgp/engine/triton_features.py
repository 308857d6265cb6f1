"""Phi V and Phi^T R on an NVIDIA GPU: project on tensor cores, sine and cosine on the special-function unit.

One kernel shape serves both products: a program keeps M "fixed" points (rows of x, or frequencies) and streams the
others past them, so each output is summed on chip and no feature reaches memory. Programs that share fixed points
write partial sums, added afterwards in a fixed order: results do not change from run to run.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from qsgp.engine.frequencies import Drawn, Frequencies, numbers
from qsgp.engine.triton_math import halves, sincos, sincos_polynomial
from qsgp.engine.triton_prepare import column_scale, depth, draw, padded, peak_of, split, split_columns

BLOCK_BYTES = 16 << 20  # of each prepared operand: with partial sums the products stay below 64 MiB
INTERPRETED = triton.knobs.runtime.interpret
PROGRAMS = 132 * 16  # enough for several rounds on every multiprocessor


@triton.jit
def _angles(
    A, rows, a, a_low, B, at, depth_in, stride_a, stride_b,
    D: tl.constexpr, DEPTH: tl.constexpr, PROJECTION: tl.constexpr,
):  # fmt: skip
    """Projections of a tile in radians.

    From halves, the product of the two low ones (2^-22 of the whole) left out; DEPTH inputs at a time when they are
    too many to hold. "wide": in float64, by revolutions, of which the whole ones are dropped before float32.
    """
    if PROJECTION == "wide":
        turns = tl.zeros((rows.shape[0], at.shape[0]), tl.float64)
        for k in range(0, depth_in):
            turns += tl.load(A + k * stride_a + rows)[:, None] * tl.load(B + k * stride_b + at)[None, :]
        t = (turns - tl.floor(turns + 0.5)).to(tl.float32) * 6.283185307179586
    elif D == DEPTH:
        b_at = B + at[None, :] * (2 * D) + tl.arange(0, D)[:, None]
        b = tl.load(b_at)
        t = tl.dot(a, b)
        if PROJECTION == "default":
            t = tl.dot(a, tl.load(b_at + D), t)
            t = tl.dot(a_low, b, t)
    else:
        k = tl.arange(0, DEPTH)
        t = tl.zeros((rows.shape[0], at.shape[0]), tl.float32)
        for first in range(0, D, DEPTH):
            a_at = A + rows[:, None] * (2 * D) + first + k[None, :]
            b_at = B + at[None, :] * (2 * D) + first + k[:, None]
            b = tl.load(b_at)
            a = tl.load(a_at)
            t = tl.dot(a, b, t)
            if PROJECTION == "default":
                t = tl.dot(a, tl.load(b_at + D), t)
                t = tl.dot(tl.load(a_at + D), b, t)
    return t


@triton.jit
def _held(A, rows, D: tl.constexpr, DEPTH: tl.constexpr, PROJECTION: tl.constexpr):
    """The halves of the fixed points, loaded once; placeholders where the loop loads them."""
    if PROJECTION == "wide" or D != DEPTH:
        return 0, 0
    else:
        at = A + rows[:, None] * (2 * D) + tl.arange(0, D)[None, :]
        return tl.load(at), tl.load(at + D)


@triton.jit
def _accumulate(first, second, s, c, V, at, n_stream, TRANSPOSE: tl.constexpr):
    if TRANSPOSE:
        r = tl.load(V + at, mask=at < n_stream, other=0.0)
        first += c * r[None, :]
        second += s * r[None, :]
    else:
        v_cos = tl.load(V + 2 * at, mask=at < n_stream, other=0.0)
        v_sin = tl.load(V + 2 * at + 1, mask=at < n_stream, other=0.0)
        first += c * v_cos[None, :]
        first += s * v_sin[None, :]
    return first, second


@triton.jit
def _one_column(
    A, B, V, out, n_fixed, n_stream, share, depth_in, stride_a, stride_b,
    D: tl.constexpr, DEPTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, POLYNOMIAL: tl.constexpr,
    TRANSPOSE: tl.constexpr, PROJECTION: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """Of N + POLYNOMIAL streamed points N go to the special-function unit, the others to the multiply-add units."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    begin = tl.program_id(1) * share
    a, a_low = _held(A, rows, D, DEPTH, PROJECTION)
    first = tl.zeros((M, N), tl.float32)
    second = tl.zeros((M, N), tl.float32)
    if POLYNOMIAL > 0:
        first_p = tl.zeros((M, POLYNOMIAL), tl.float32)
        second_p = tl.zeros((M, POLYNOMIAL), tl.float32)
    for start in range(begin, tl.minimum(begin + share, n_stream), N + POLYNOMIAL):
        at = start + tl.arange(0, N)
        t = _angles(A, rows, a, a_low, B, at, depth_in, stride_a, stride_b, D, DEPTH, PROJECTION)
        if POLYNOMIAL > 0:
            at_p = start + N + tl.arange(0, POLYNOMIAL)
            t_p = _angles(A, rows, a, a_low, B, at_p, depth_in, stride_a, stride_b, D, DEPTH, PROJECTION)
        s, c = sincos(t, HARDWARE)
        first, second = _accumulate(first, second, s, c, V, at, n_stream, TRANSPOSE)
        if POLYNOMIAL > 0:
            s, c = sincos_polynomial(t_p)
            first_p, second_p = _accumulate(first_p, second_p, s, c, V, at_p, n_stream, TRANSPOSE)
    total = tl.sum(first, 1)
    total_2 = tl.sum(second, 1)
    if POLYNOMIAL > 0:
        total += tl.sum(first_p, 1)
        total_2 += tl.sum(second_p, 1)
    target = tl.program_id(1).to(tl.int64) * n_fixed + rows
    if TRANSPOSE:
        tl.store(out + 2 * target, total, mask=rows < n_fixed)
        tl.store(out + 2 * target + 1, total_2, mask=rows < n_fixed)
    else:
        tl.store(out + target, total, mask=rows < n_fixed)


@triton.jit
def _add(total, high, low, V, plane, FAST: tl.constexpr):
    """total + (high + low) (v + v_low), low * v_low left out."""
    v = tl.load(V)
    total = tl.dot(high, v, total)
    if not FAST:
        total = tl.dot(high, tl.load(V + plane), total)
        total = tl.dot(low, v, total)
    return total


@triton.jit
def _many_columns(
    A, B, V, peak, out, n_fixed, n_stream, share, depth_in, stride_a, stride_b, columns, plane,
    COLUMNS: tl.constexpr, D: tl.constexpr, DEPTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    TRANSPOSE: tl.constexpr, PROJECTION: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """As ``_one_column`` with the sums over streamed points on tensor cores, features in halves as well."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    begin = tl.program_id(1) * share
    column = tl.arange(0, COLUMNS)
    a, a_low = _held(A, rows, D, DEPTH, PROJECTION)
    first = tl.zeros((M, COLUMNS), tl.float32)
    second = tl.zeros((M, COLUMNS), tl.float32)
    for start in range(begin, tl.minimum(begin + share, n_stream), N):
        at = start + tl.arange(0, N)
        t = _angles(A, rows, a, a_low, B, at, depth_in, stride_a, stride_b, D, DEPTH, PROJECTION)
        s, c = sincos(t, HARDWARE)
        s_high, s_low = halves(s)
        c_high, c_low = halves(c)
        if TRANSPOSE:
            V_at = V + at[:, None] * COLUMNS + column[None, :]
            first = _add(first, c_high, c_low, V_at, plane, PROJECTION == "fast")
            second = _add(second, s_high, s_low, V_at, plane, PROJECTION == "fast")
        else:
            V_at = V + at[:, None] * (2 * COLUMNS) + column[None, :]
            first = _add(first, c_high, c_low, V_at, plane, PROJECTION == "fast")
            first = _add(first, s_high, s_low, V_at + COLUMNS, plane, PROJECTION == "fast")
    scale = (1.0 / column_scale(peak, column, columns))[None, :]
    target = tl.program_id(1).to(tl.int64) * n_fixed + rows
    inside = (rows < n_fixed)[:, None] & (column < columns)[None, :]
    if TRANSPOSE:
        at = out + 2 * target[:, None] * columns + column[None, :]
        tl.store(at, first * scale, mask=inside)
        tl.store(at + columns, second * scale, mask=inside)
    else:
        tl.store(out + target[:, None] * columns + column[None, :], first * scale, mask=inside)


class Tile(NamedTuple):
    """Fixed and streamed points of a program, how many more of them take the polynomial, warps, pipeline stages."""

    M: int
    N: int
    polynomial: int
    warps: int
    stages: int


def tile(D: int, columns: int, transpose: bool, precision: str) -> Tile:
    """Measured on an H200 (docs/engine.md)."""
    if precision == "wide":
        return Tile(64, 32, 0, 4, 2)
    if D > 64:
        return Tile(128, 128, 0, 8, 3)
    if columns == 1:
        return Tile(128, 64, 0, 4, 3)
    return Tile(128, 64, 0, 8, 3) if columns <= 64 else Tile(64, 64, 0, 4, 2)


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


def _product(
    x: Tensor, frequencies: Frequencies, V: Tensor, lengthscale: Tensor, precision: str, transpose: bool
) -> Tensor:
    """Blocks of pairs times blocks of rows times blocks of columns; each block prepared when its turn comes."""
    pairs, columns = len(frequencies), V.shape[1]
    out = V.new_zeros((2 * pairs if transpose else len(x), columns))
    prepare = _Prepared(x, lengthscale, precision)
    V = V.contiguous()
    for c in _blocks(columns, 128):
        chunk = V if c == slice(0, columns) else V[:, c].contiguous()
        for p in _blocks(pairs, prepare.rows):
            W = prepare.frequencies(frequencies[p])
            both = slice(2 * p.start, 2 * p.stop)
            for r in _blocks(len(x), prepare.rows):
                X = prepare.inputs(r)
                if transpose:
                    out[both, c] += _launch(W, X, chunk[r], 2, precision, x.shape[1])
                else:
                    out[r, c] += _launch(X, W, chunk[both], 1, precision, x.shape[1])
    return out


def _blocks(size: int, largest: int) -> list[slice]:
    """Equal parts of at most ``largest``."""
    parts = max(1, -(-size // largest))
    step = -(-size // parts)
    return [slice(first, min(first + step, size)) for first in range(0, size, step)]


class _Operand(NamedTuple):
    data: Tensor
    size: int


class _Prepared:
    """Blocks of inputs and frequencies as kernels read them; the last block of inputs stays for the next pairs."""

    def __init__(self, x: Tensor, lengthscale: Tensor, precision: str) -> None:
        self.x, self.factor, self.wide = x, 1 / lengthscale.double(), precision == "wide"
        self.peak = peak_of(x, self.factor)
        D, _ = depth(x.shape[1])
        self.rows = max(PROGRAM_ROWS, BLOCK_BYTES // (8 * x.shape[1] if self.wide else 4 * D))
        self.last: tuple[slice, _Operand] | None = None

    def inputs(self, part: slice) -> _Operand:
        if self.last is None or self.last[0] != part:
            self.last = part, self._split(self.x[part], self.factor, grow=False)
        return self.last[1]

    def frequencies(self, block: Frequencies) -> _Operand:
        if self.wide:
            return self._split(numbers(block, self.x) / (2 * math.pi), torch.ones_like(self.factor), grow=True)
        if isinstance(block, Drawn):
            return _Operand(draw(block, self.x.shape[1], self.peak), len(block))
        return self._split(block, torch.ones_like(self.factor), grow=True)

    def _split(self, source: Tensor, factor: Tensor, grow: bool) -> _Operand:
        if self.wide:
            data = source.new_zeros((source.shape[1], padded(len(source))), dtype=torch.float64)
            data[:, : len(source)] = (source.double() * factor).mT
            return _Operand(data, len(source))
        return _Operand(split(source, torch.zeros_like(factor), factor, self.peak, grow), len(source))


PROGRAM_ROWS = 1024


def _launch(fixed: _Operand, stream: _Operand, V: Tensor, outputs: int, precision: str, d: int) -> Tensor:
    D, DEPTH = depth(d)
    columns = V.shape[1]
    M, N, polynomial, warps, stages = tile(D, columns, outputs == 2, precision)
    programs = triton.cdiv(fixed.size, M)
    step = N + polynomial
    splits = max(1, min(PROGRAMS // programs, triton.cdiv(stream.size, 8 * step)))
    share = triton.cdiv(triton.cdiv(stream.size, splits), step) * step
    splits = triton.cdiv(stream.size, share)
    out = V.new_empty((splits, outputs * fixed.size, columns))
    common = dict(
        D=D, DEPTH=DEPTH, M=M, N=N, TRANSPOSE=outputs == 2, PROJECTION=precision, HARDWARE=not INTERPRETED,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    sizes = (fixed.size, stream.size, share, d, fixed.data.shape[-1], stream.data.shape[-1])
    if columns == 1:
        _one_column[(programs, splits)](fixed.data, stream.data, V, out, *sizes, POLYNOMIAL=polynomial, **common)
    else:
        size = max(16, triton.next_power_of_2(columns))
        rows = (3 - outputs) * padded(stream.size)
        pieces, peak = split_columns(V, rows, size)
        _many_columns[(programs, splits)](
            fixed.data, stream.data, pieces, peak, out, *sizes, columns, rows * size, COLUMNS=size, **common
        )
    return out.sum(0)
