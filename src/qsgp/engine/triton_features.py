"""Phi V and Phi^T R on an NVIDIA GPU: project on tensor cores, sine and cosine on the special-function unit.

One kernel shape serves both products: a program keeps M "fixed" points (rows of x, or frequencies) and streams the
others past them, so each output is summed on chip and no feature reaches memory. Programs that share fixed points
write partial sums, added afterwards in a fixed order: results do not change from run to run.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, misc"

import triton
import triton.language as tl

from qsgp.engine.triton_halves import add_columns, halves, held, tile_product
from qsgp.engine.triton_math import sincos, sincos_polynomial
from qsgp.engine.triton_prepare import column_scale


@triton.jit
def _angles(
    A, rows, a, a_low, B, at, inputs, stride_a, stride_b,
    D: tl.constexpr, DEPTH: tl.constexpr, PROJECTION: tl.constexpr,
):  # fmt: skip
    """Projections of a tile in radians. "wide": float64 revolutions, the whole ones dropped before float32."""
    if PROJECTION == "wide":
        turns = tl.zeros((rows.shape[0], at.shape[0]), tl.float64)
        for k in range(0, inputs):
            turns += tl.load(A + k * stride_a + rows)[:, None] * tl.load(B + k * stride_b + at)[None, :]
        return (turns - tl.floor(turns + 0.5)).to(tl.float32) * 6.283185307179586
    else:
        return tile_product(A, rows, a, a_low, B, at, D, DEPTH, PROJECTION == "fast", False)


@triton.jit
def _zeros(M: tl.constexpr, N: tl.constexpr, SUM: tl.constexpr):
    if SUM:
        return tl.zeros((M,), tl.float32)
    else:
        return tl.zeros((M, N), tl.float32)


@triton.jit
def _accumulate(first, second, s, c, V, at, TRANSPOSE: tl.constexpr, SUM: tl.constexpr):
    """Adds a tile's products to the sums: one per entry of the tile, or one per row (SUM) to save registers."""
    if TRANSPOSE:
        r = tl.load(V + at)[None, :]
        if SUM:
            first += tl.sum(c * r, 1)
            second += tl.sum(s * r, 1)
        else:
            first += c * r
            second += s * r
    else:
        v_cos = tl.load(V + 2 * at)[None, :]
        v_sin = tl.load(V + 2 * at + 1)[None, :]
        if SUM:
            first += tl.sum(c * v_cos + s * v_sin, 1)
        else:
            first += c * v_cos
            first += s * v_sin
    return first, second


@triton.jit
def _total(sums, SUM: tl.constexpr):
    if SUM:
        return sums
    else:
        return tl.sum(sums, 1)


@triton.jit
def one_column(
    A, B, V, out, n_fixed, n_stream, share, inputs, stride_a, stride_b,
    D: tl.constexpr, DEPTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, POLYNOMIAL: tl.constexpr,
    TRANSPOSE: tl.constexpr, PROJECTION: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """Of N + POLYNOMIAL streamed points N go to the special-function unit, the others to the multiply-add units."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    begin = tl.program_id(1) * share
    SUM: tl.constexpr = D != DEPTH  # a deep projection needs the registers, and its sums cost little beside it
    first = _zeros(M, N, SUM)
    second = _zeros(M, N, SUM)
    a, a_low = A, A
    if PROJECTION != "wide":
        a, a_low = held(A, rows, D, DEPTH)
    if POLYNOMIAL > 0:
        first_p = _zeros(M, POLYNOMIAL, SUM)
        second_p = _zeros(M, POLYNOMIAL, SUM)
    for start in range(begin, tl.minimum(begin + share, n_stream), N + POLYNOMIAL):
        at = start + tl.arange(0, N)
        t = _angles(A, rows, a, a_low, B, at, inputs, stride_a, stride_b, D, DEPTH, PROJECTION)
        if POLYNOMIAL > 0:
            at_p = start + N + tl.arange(0, POLYNOMIAL)
            t_p = _angles(A, rows, a, a_low, B, at_p, inputs, stride_a, stride_b, D, DEPTH, PROJECTION)
        s, c = sincos(t, HARDWARE)
        first, second = _accumulate(first, second, s, c, V, at, TRANSPOSE, SUM)
        if POLYNOMIAL > 0:
            s, c = sincos_polynomial(t_p)
            first_p, second_p = _accumulate(first_p, second_p, s, c, V, at_p, TRANSPOSE, SUM)
    total = _total(first, SUM)
    total_2 = _total(second, SUM)
    if POLYNOMIAL > 0:
        total += _total(first_p, SUM)
        total_2 += _total(second_p, SUM)
    target = tl.program_id(1).to(tl.int64) * n_fixed + rows
    if TRANSPOSE:
        tl.store(out + 2 * target, total, mask=rows < n_fixed)
        tl.store(out + 2 * target + 1, total_2, mask=rows < n_fixed)
    else:
        tl.store(out + target, total, mask=rows < n_fixed)


@triton.jit
def many_columns(
    A, B, V, peak, out, n_fixed, n_stream, share, inputs, stride_a, stride_b, columns, plane,
    COLUMNS: tl.constexpr, D: tl.constexpr, DEPTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    TRANSPOSE: tl.constexpr, PROJECTION: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """As ``one_column`` with the sums over streamed points on tensor cores, features in halves as well."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    begin = tl.program_id(1) * share
    column = tl.arange(0, COLUMNS)
    zeros = tl.zeros((M, COLUMNS), tl.float32)
    first = zeros
    second = zeros
    a, a_low = A, A
    if PROJECTION != "wide":
        a, a_low = held(A, rows, D, DEPTH)
    for start in range(begin, tl.minimum(begin + share, n_stream), N):
        at = start + tl.arange(0, N)
        t = _angles(A, rows, a, a_low, B, at, inputs, stride_a, stride_b, D, DEPTH, PROJECTION)
        s, c = sincos(t, HARDWARE)
        s_high, s_low = halves(s)
        c_high, c_low = halves(c)
        if TRANSPOSE:
            V_at = V + at[:, None] * COLUMNS + column[None, :]
            first += add_columns(zeros, c_high, c_low, V_at, plane, PROJECTION == "fast")
            second += add_columns(zeros, s_high, s_low, V_at, plane, PROJECTION == "fast")
        else:
            V_at = V + at[:, None] * (2 * COLUMNS) + column[None, :]
            part = add_columns(zeros, c_high, c_low, V_at, plane, PROJECTION == "fast")
            first += add_columns(part, s_high, s_low, V_at + COLUMNS, plane, PROJECTION == "fast")
    scale = (1.0 / column_scale(peak, column, columns))[None, :]
    target = tl.program_id(1).to(tl.int64) * n_fixed + rows
    inside = (rows < n_fixed)[:, None] & (column < columns)[None, :]
    if TRANSPOSE:
        at = out + 2 * target[:, None] * columns + column[None, :]
        tl.store(at, first * scale, mask=inside)
        tl.store(at + columns, second * scale, mask=inside)
    else:
        tl.store(out + target[:, None] * columns + column[None, :], first * scale, mask=inside)
