"""K(X, Z) V of the Laplacian kernel on an NVIDIA GPU: sums of absolute differences, K never stored.

No tensor core helps with absolute values: two operations on the multiply-add units for every pair and input. Scaled
inputs are rounded, which moves q by 2^-25 of the lengths |x|_1 + |z|_1. Rows for which that could show are left to a
careful launch, which takes differences of the inputs as they are, exact for near duplicates, and scales those.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, misc"

import triton
import triton.language as tl

from qsgp.engine.triton_halves import add_columns, halves
from qsgp.engine.triton_math import exp2
from qsgp.engine.triton_prepare import column_scale


@triton.jit
def _distances(X, rows, Z, at, factor, d, stride_x, stride_z, CAREFUL: tl.constexpr):
    """q of a tile. Inputs stand column by column, scaled already unless CAREFUL."""
    q = tl.zeros((rows.shape[0], at.shape[0]), tl.float32)
    for k in range(0, d):
        difference = tl.load(X + k * stride_x + rows)[:, None] - tl.load(Z + k * stride_z + at)[None, :]
        if CAREFUL:
            difference = difference * tl.load(factor + k)
        q += tl.abs(difference)
    return q


# Compiled once, not for every way in which these can be multiples of 16, as in triton_kernels.py.
@triton.jit(do_not_specialize=["n", "n_stream", "d", "columns"])
def l1_product(
    X, Z, x_lengths, longest, factor, V, column_peak, out, n, n_stream, share, d, columns, plane, stride_x, stride_z,
    LONG: tl.constexpr, COLUMNS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, FAST: tl.constexpr,
    HARDWARE: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """A program computes its rows when it is as careful as they need, and otherwise leaves them to the other launch."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    begin = tl.program_id(1) * share
    column = tl.arange(0, COLUMNS)
    length = tl.max(tl.load(x_lengths + rows), 0) + tl.load(longest)
    # Written so that one launch takes rows whose length is not a number: what nobody writes is not zero.
    mine = (length > LONG) if CAREFUL else ((length <= LONG) | (length != length))
    stop = tl.where(mine, tl.minimum(begin + share, n_stream), begin)
    inside = rows < tl.where(mine, n, 0)
    if COLUMNS == 1:
        total = tl.zeros((M, N), tl.float32)
    else:
        total = tl.zeros((M, COLUMNS), tl.float32)
    for start in range(begin, stop, N):
        at = start + tl.arange(0, N)
        q = _distances(X, rows, Z, at, factor, d, stride_x, stride_z, CAREFUL)
        if COLUMNS == 1:
            total += exp2(-q, HARDWARE) * tl.load(V + at)[None, :]
        else:  # 2^15 times as large: of many inputs values are small, and halves end at 2^-24
            high, low = halves(exp2(15.0 - q, HARDWARE))
            v_at = V + at[:, None] * COLUMNS + column[None, :]
            total += add_columns(tl.zeros((M, COLUMNS), tl.float32), high, low, v_at, plane, FAST)
    target = tl.program_id(1).to(tl.int64) * n + rows
    if COLUMNS == 1:
        tl.store(out + target, tl.sum(total, 1), mask=inside)
    else:
        unscale = (1.0 / (32768.0 * column_scale(column_peak, column, columns)))[None, :]
        at = out + target[:, None] * columns + column[None, :]
        tl.store(at, total * unscale, mask=inside[:, None] & (column < columns)[None, :])
