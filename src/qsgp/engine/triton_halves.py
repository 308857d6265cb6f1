"""Products of float32 precision on tensor cores: every number as a pair of half-precision ones.

value = high + low holds 22 bits. Products of halves are exact and summed in float32, so a b^T from three products,
the one of both low parts (2^-22 of the whole) left out, is as good as a float32 product, at the speed of halves.
Distances need the fourth: low parts of n points are a kernel of their own, and what is left out of K(X, X) is not
noise but has an eigenvalue that grows like n. At a million rows it outweighed a noise variance of 0.0027.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, misc"

import triton
import triton.language as tl


@triton.jit
def halves(value):
    high = value.to(tl.float16)
    return high, (value - high.to(tl.float32)).to(tl.float16)


@triton.jit
def held(A, rows, D: tl.constexpr, DEPTH: tl.constexpr):
    """Both halves of rows of A, to be kept; with D inputs too many to hold (> DEPTH) the first DEPTH, not used."""
    at = A + rows[:, None] * (2 * D) + tl.arange(0, DEPTH)[None, :]
    return tl.load(at), tl.load(at + D)


@triton.jit
def tile_product(
    A, rows, a, a_low, B, at, D: tl.constexpr, DEPTH: tl.constexpr, FAST: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    """Rows ``rows`` of A times rows ``at`` of B; FAST takes the high halves alone, 11 bits as in tf32; WHOLE all four
    products, the smallest first: a sum that has become large would swallow them. Each of more than 64 inputs has so
    small a part in a distance that its low half does not matter.
    """
    k = tl.arange(0, DEPTH)
    if D == DEPTH:
        b_at = B + at[None, :] * (2 * D) + k[:, None]
        b = tl.load(b_at)
        if FAST:
            total = tl.dot(a, b)
        else:
            b_low = tl.load(b_at + D)
            if WHOLE:
                total = tl.dot(a, b_low, tl.dot(a_low, b_low))
            else:
                total = tl.dot(a, b_low)
            total = tl.dot(a, b, tl.dot(a_low, b, total))
    else:
        total = tl.zeros((rows.shape[0], at.shape[0]), tl.float32)
        for first in range(0, D, DEPTH):
            left_at = A + rows[:, None] * (2 * D) + first + k[None, :]
            right_at = B + at[None, :] * (2 * D) + first + k[:, None]
            left = tl.load(left_at)
            right = tl.load(right_at)
            total = tl.dot(left, right, total)
            if not FAST:
                total = tl.dot(left, tl.load(right_at + D), total)
                total = tl.dot(tl.load(left_at + D), right, total)
    return total


@triton.jit
def add_columns(total, high, low, V, plane, FAST: tl.constexpr):
    """total + (high + low) (v + v_low): what a tile of features or kernel values adds to the columns.

    Tensor cores truncate their sums. So a ``total`` belongs to one tile and is added to the others in float32.
    """
    v = tl.load(V)
    total = tl.dot(high, v, total)
    if not FAST:
        total = tl.dot(high, tl.load(V + plane), total)
        total = tl.dot(low, v, total)
    return total
