"""K(X, Z) V on an NVIDIA GPU: distances on tensor cores, exponentials on the special-function unit, K never stored.

r^2 = |x|^2 + |z|^2 - 2 x^T z loses digits where points are close compared with their length. Rows for which that could
show are left to a careful launch, which looks at the smallest distance of each tile and, where it is small, takes all
of the tile again by differences, which do not cancel. Centred inputs a few lengthscales wide never come to that.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, misc"

import triton
import triton.language as tl

from qsgp.engine.triton_halves import add_columns, halves, held, tile_product
from qsgp.engine.triton_math import profile
from qsgp.engine.triton_prepare import balance, column_scale


@triton.jit
def _differences(x, rows, n, z, at, n_stream, factor, d):
    q = tl.zeros((rows.shape[0], at.shape[0]), tl.float32)
    for k in range(0, d):
        x_k = tl.load(x + rows.to(tl.int64) * d + k, mask=rows < n, other=0.0)
        z_k = tl.load(z + at.to(tl.int64) * d + k, mask=at < n_stream, other=0.0)
        difference = (x_k[:, None] - z_k[None, :]) * tl.load(factor + k).to(tl.float32)
        q = tl.fma(difference, difference, q)
    return q


# Compiled once, not for every way in which these can be multiples of 16: with hundreds of inputs that takes long.
@triton.jit(do_not_specialize=["n", "n_stream", "d", "columns"])
def kernel_product(
    A, B, x, z, x_norms, z_norms, longest, factor, peak, V, column_peak, out, n, n_stream, share, d, columns, plane,
    far, LONG: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, DEPTH: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, KERNEL: tl.constexpr, FAST: tl.constexpr, HARDWARE: tl.constexpr,
    CAREFUL: tl.constexpr,
):  # fmt: skip
    """A program computes its rows when it is as careful as they need, and otherwise leaves them to the other launch."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    begin = tl.program_id(1) * share
    column = tl.arange(0, COLUMNS)
    power = balance(peak)
    scale = -2.0 * power * power
    x_norm = tl.load(x_norms + rows)
    length = tl.max(x_norm, 0) + tl.load(longest)
    if KERNEL == "matern12":
        # A slope at r = 0 makes an error e of q one of e / sqrt(q): close points always need care.
        mine = (length >= 0.0) | (length != length)
        near = tl.minimum(length * length * (1.0 / (LONG * LONG)), far)
    else:
        # Written so that one launch takes rows whose length is not a number: what nobody writes is not zero.
        mine = (length > LONG) if CAREFUL else ((length <= LONG) | (length != length))
        near = far
    stop = tl.where(mine, tl.minimum(begin + share, n_stream), begin)
    inside = rows < tl.where(mine, n, 0)
    a, a_low = held(A, rows, D, DEPTH)
    if COLUMNS == 1:
        total = tl.zeros((M, N), tl.float32)
    else:
        total = tl.zeros((M, COLUMNS), tl.float32)
    for start in range(begin, stop, N):
        at = start + tl.arange(0, N)
        product = tile_product(A, rows, a, a_low, B, at, D, DEPTH, FAST, True)
        q = tl.fma(product, scale, x_norm[:, None] + tl.load(z_norms + at)[None, :])
        if CAREFUL:
            if tl.min(tl.min(q, 1), 0) < near:
                q = _differences(x, rows, n, z, at, n_stream, factor, d)
        value = profile(q, KERNEL, HARDWARE)
        if COLUMNS == 1:
            total += value * tl.load(V + at)[None, :]
        else:
            high, low = halves(value)
            v_at = V + at[:, None] * COLUMNS + column[None, :]
            total += add_columns(tl.zeros((M, COLUMNS), tl.float32), high, low, v_at, plane, FAST)
    target = tl.program_id(1).to(tl.int64) * n + rows
    if COLUMNS == 1:
        tl.store(out + target, tl.sum(total, 1), mask=inside)
    else:
        unscale = (1.0 / column_scale(column_peak, column, columns))[None, :]
        at = out + target[:, None] * columns + column[None, :]
        tl.store(at, total * unscale, mask=inside[:, None] & (column < columns)[None, :])
