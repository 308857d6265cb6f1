"""K(X, Z) V on an NVIDIA GPU: distances on tensor cores, exponentials on the special-function unit, K never stored.

r^2 = |x|^2 + |z|^2 - 2 x^T z loses digits where points are close compared with their length. A tile in which that
could show (``_doubtful``) takes its distances again by differences, which never cancel: rare for centred inputs.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from qsgp.engine.triton_math import halves, profile
from qsgp.engine.triton_prepare import _balance, column_scale, depth, padded, peak_of, split, split_columns


@triton.jit
def _doubtful(r2, length, KERNEL: tl.constexpr):
    """Where rounding of r^2, about 2^-24 length, moves a kernel value by more than 5e-6 of the largest.

    Beyond r = 7 (12 for a Matern kernel) values are too small to matter; Matern-1/2 is steep at r = 0.
    """
    if KERNEL == "rbf":
        return (length > 84.0) & (r2 < 50.0)
    elif KERNEL == "matern12":
        return (length * length > 7056.0 * tl.maximum(r2, 0.0)) & (r2 < 150.0)
    else:
        return (length > 42.0) & (r2 < 150.0)


@triton.jit
def _squared_distances(
    A, rows, a, a_low, x, x_norm, n, B, at, z, z_norm, n_stream, factor, d, scale,
    D: tl.constexpr, DEPTH: tl.constexpr, FAST: tl.constexpr, KERNEL: tl.constexpr,
):  # fmt: skip
    k = tl.arange(0, DEPTH)
    if D == DEPTH:
        b_at = B + at[None, :] * (2 * D) + k[:, None]
        b = tl.load(b_at)
        product = tl.dot(a, b)
        if not FAST:
            product = tl.dot(a, tl.load(b_at + D), product)
            product = tl.dot(a_low, b, product)
    else:
        product = tl.zeros((rows.shape[0], at.shape[0]), tl.float32)
        for first in range(0, D, DEPTH):
            a_at = A + rows[:, None] * (2 * D) + first + k[None, :]
            b_at = B + at[None, :] * (2 * D) + first + k[:, None]
            a = tl.load(a_at)
            b = tl.load(b_at)
            product = tl.dot(a, b, product)
            if not FAST:
                product = tl.dot(a, tl.load(b_at + D), product)
                product = tl.dot(tl.load(a_at + D), b, product)
    length = x_norm[:, None] + tl.load(z_norm + at)[None, :]
    r2 = tl.maximum(tl.fma(product, scale, length), 0.0)
    if not FAST:
        if tl.max(tl.max(_doubtful(r2, length, KERNEL).to(tl.int32), 1), 0) > 0:
            r2 = tl.zeros_like(r2)
            for i in range(0, d):
                difference = (
                    tl.load(x + rows.to(tl.int64) * d + i, mask=rows < n, other=0.0)[:, None]
                    - tl.load(z + at.to(tl.int64) * d + i, mask=at < n_stream, other=0.0)[None, :]
                ) * tl.load(factor + i).to(tl.float32)
                r2 = tl.fma(difference, difference, r2)
    return r2


@triton.jit
def _kernel_product(
    A, B, x, z, x_norms, z_norms, factor, peak, V, column_peak, out, n, n_stream, share, d, columns, plane,
    COLUMNS: tl.constexpr, D: tl.constexpr, DEPTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    KERNEL: tl.constexpr, FAST: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    begin = tl.program_id(1) * share
    column = tl.arange(0, COLUMNS)
    power = _balance(peak)
    scale = -2.0 * power * power
    x_norm = tl.load(x_norms + rows)
    a = 0
    a_low = 0
    if D == DEPTH:
        a_at = A + rows[:, None] * (2 * D) + tl.arange(0, D)[None, :]
        a = tl.load(a_at)
        a_low = tl.load(a_at + D)
    if COLUMNS == 1:
        total = tl.zeros((M, N), tl.float32)
    else:
        total = tl.zeros((M, COLUMNS), tl.float32)
    for start in range(begin, tl.minimum(begin + share, n_stream), N):
        at = start + tl.arange(0, N)
        r2 = _squared_distances(
            A, rows, a, a_low, x, x_norm, n, B, at, z, z_norms, n_stream, factor, d, scale, D, DEPTH, FAST, KERNEL
        )  # fmt: skip
        value = profile(r2, KERNEL, HARDWARE)
        if COLUMNS == 1:
            total += value * tl.load(V + at, mask=at < n_stream, other=0.0)[None, :]
        else:
            high, low = halves(value)
            v_at = V + at[:, None] * COLUMNS + column[None, :]
            v = tl.load(v_at)
            total = tl.dot(high, v, total)
            if not FAST:
                total = tl.dot(high, tl.load(v_at + plane), total)
                total = tl.dot(low, v, total)
    target = tl.program_id(1).to(tl.int64) * n + rows
    if COLUMNS == 1:
        tl.store(out + target, tl.sum(total, 1), mask=rows < n)
    else:
        unscale = (1.0 / column_scale(column_peak, column, columns))[None, :]
        inside = (rows < n)[:, None] & (column < columns)[None, :]
        tl.store(out + target[:, None] * columns + column[None, :], total * unscale, mask=inside)
