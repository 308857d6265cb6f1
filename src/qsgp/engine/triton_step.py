"""The kernels of a block step. Each output belongs to one program: no atomics, the same result in every run.

One column: predict, krige, residual, update, support; their projections are plain multiply-adds, since with the few
inputs of such a step tensor cores would wait for their operands. Several columns: split_points, split_pairs,
kernel_matrix and move_rows around the products of `triton_features`.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, misc"

import triton
import triton.language as tl

from qsgp.engine.triton_math import profile, sincos
from qsgp.engine.triton_prepare import balance, store_halves


@triton.jit
def predict(
    X, l, U, omega, V, ell, start, f, n_tilde, p, pairs, total, scale,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """f = scale * Phi_j V_j at the drawn rows (first n_tilde), then at the support points."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    first = tl.load(start + 1)
    drawn = rows < n_tilde
    at_row = tl.load(l + rows, mask=drawn, other=0)
    point = rows - n_tilde
    support = (point >= 0) & (point < p)
    sums = tl.zeros((M, N), tl.float32)
    for q in range(0, pairs, N):
        i = q + tl.arange(0, N)
        good = i < pairs
        at = (first + i) % total
        t = tl.zeros((M, N), tl.float32)
        for k in tl.static_range(0, D):
            a = tl.load(X + at_row * D + k, mask=drawn, other=0.0)
            a += tl.load(U + point * D + k, mask=support, other=0.0)
            w = tl.load(omega + k * total + at, mask=good, other=0.0)
            t += (a / tl.load(ell + k))[:, None] * w[None, :]
        s, c = sincos(t, HARDWARE)
        v_cos = tl.load(V + 2 * at, mask=good, other=0.0)
        v_sin = tl.load(V + 2 * at + 1, mask=good, other=0.0)
        sums += c * v_cos[None, :] + s * v_sin[None, :]
    tl.store(f + rows, scale * tl.sum(sums, 1), mask=rows < n_tilde + p)


@triton.jit
def krige(inverse, f, a, error, n_tilde, p, M: tl.constexpr, N: tl.constexpr):
    """error = inverse (f_p - a)."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    sums = tl.zeros((M, N), tl.float32)
    for q in range(0, p, N):
        i = q + tl.arange(0, N)
        good = i < p
        e = tl.load(f + n_tilde + i, mask=good, other=0.0) - tl.load(a + i, mask=good, other=0.0)
        both = (rows < p)[:, None] & good[None, :]
        sums += tl.load(inverse + rows[:, None] * p + i[None, :], mask=both, other=0.0) * e[None, :]
    tl.store(error + rows, tl.sum(sums, 1), mask=rows < p)


@triton.jit
def residual(
    X, Y, l, U, ell, f, error, r, n_tilde, p, variance, factor, sharpness,
    D: tl.constexpr, KERNEL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """r = factor (f_l - k(l, U) error - y_l), distances by differences."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    inside = rows < n_tilde
    at_row = tl.load(l + rows, mask=inside, other=0)
    sums = tl.zeros((M, N), tl.float32)
    for q in range(0, p, N):
        i = q + tl.arange(0, N)
        good = i < p
        square = tl.zeros((M, N), tl.float32)
        for k in tl.static_range(0, D):
            a = tl.load(X + at_row * D + k, mask=inside, other=0.0)
            b = tl.load(U + i * D + k, mask=good, other=0.0)
            gap = (a[:, None] - b[None, :]) * (sharpness / tl.load(ell + k))
            square += gap * gap
        e = tl.load(error + i, mask=good, other=0.0)
        sums += profile(square, KERNEL, HARDWARE) * e[None, :]
    y = tl.load(Y + at_row, mask=inside, other=0.0)
    out = tl.load(f + rows, mask=inside, other=0.0) - variance * tl.sum(sums, 1) - y
    tl.store(r + rows, factor * out, mask=inside)


@triton.jit
def update(
    X, l, omega, V, adagrad, ell, start, r, change, t_now, n_tilde, pairs, total, scale, amplitude, rate, decay,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """Phi_i^T r and the prior, then AdaGrad on the block's rows; ``change`` keeps by how much they moved."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    good = i < pairs
    at = (tl.load(start) + i) % total
    cosine = tl.zeros((M, N), tl.float32)
    sine = tl.zeros((M, N), tl.float32)
    for q in range(0, n_tilde, M):
        rows = q + tl.arange(0, M)
        inside = rows < n_tilde
        at_row = tl.load(l + rows, mask=inside, other=0)
        t = tl.zeros((M, N), tl.float32)
        for k in tl.static_range(0, D):
            a = tl.load(X + at_row * D + k, mask=inside, other=0.0)
            w = tl.load(omega + k * total + at, mask=good, other=0.0)
            t += (a / tl.load(ell + k))[:, None] * w[None, :]
        s, c = sincos(t, HARDWARE)
        weight = tl.load(r + rows, mask=inside, other=0.0)
        cosine += c * weight[:, None]
        sine += s * weight[:, None]
    now = rate * tl.exp(-decay * tl.load(t_now))
    _move(V, adagrad, change, 2 * at, 2 * i, good, tl.sum(cosine, 0), scale, amplitude, now)
    _move(V, adagrad, change, 2 * at + 1, 2 * i + 1, good, tl.sum(sine, 0), scale, amplitude, now)


@triton.jit
def _move(V, adagrad, change, at, i, good, product, scale, amplitude, rate):
    v = tl.load(V + at, mask=good, other=0.0)
    g = scale * (amplitude * product + v)
    total = tl.load(adagrad + at, mask=good, other=0.0) + g * g
    delta = -rate * g / (tl.sqrt(total) + 1e-10)
    tl.store(adagrad + at, total, mask=good)
    tl.store(V + at, v + delta, mask=good)
    tl.store(change + i, delta, mask=good)


@triton.jit
def support(
    U, omega, ell, start, change, a, t_now, p, pairs, total, amplitude,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """a += Phi_pi change, and the step is counted."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    inside = rows < p
    first = tl.load(start)
    sums = tl.zeros((M, N), tl.float32)
    for q in range(0, pairs, N):
        i = q + tl.arange(0, N)
        good = i < pairs
        at = (first + i) % total
        t = tl.zeros((M, N), tl.float32)
        for k in tl.static_range(0, D):
            b = tl.load(U + rows * D + k, mask=inside, other=0.0)
            w = tl.load(omega + k * total + at, mask=good, other=0.0)
            t += (b / tl.load(ell + k))[:, None] * w[None, :]
        s, c = sincos(t, HARDWARE)
        d_cos = tl.load(change + 2 * i, mask=good, other=0.0)
        d_sin = tl.load(change + 2 * i + 1, mask=good, other=0.0)
        sums += c * d_cos[None, :] + s * d_sin[None, :]
    old = tl.load(a + rows, mask=inside, other=0.0)
    tl.store(a + rows, old + amplitude * tl.sum(sums, 1), mask=inside)
    if tl.program_id(0) == 0:
        tl.store(t_now, tl.load(t_now) + 1.0)


@triton.jit
def kernel_matrix(
    X, l, U, ell, K, n_tilde, p, variance, sharpness,
    D: tl.constexpr, KERNEL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """k(l, U): so few rows and columns that a product with it costs less than never storing it."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    i = tl.program_id(1) * N + tl.arange(0, N)
    inside, good = rows < n_tilde, i < p
    at_row = tl.load(l + rows, mask=inside, other=0)
    square = tl.zeros((M, N), tl.float32)
    for k in tl.static_range(0, D):
        a = tl.load(X + at_row * D + k, mask=inside, other=0.0)
        b = tl.load(U + i * D + k, mask=good, other=0.0)
        gap = (a[:, None] - b[None, :]) * (sharpness / tl.load(ell + k))
        square += gap * gap
    value = variance * profile(square, KERNEL, HARDWARE)
    tl.store(K + rows[:, None] * p + i[None, :], value, mask=inside[:, None] & good[None, :])


@triton.jit
def move_rows(
    V, adagrad, product, change, start, t_now, rows, total, columns, scale, rate, decay,
    M: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """AdaGrad on all columns of the block's rows: ``product`` is Phi_i^T r, ``change`` keeps by how much they moved."""
    i = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.arange(0, COLUMNS)
    good = (i < rows)[:, None] & (column < columns)[None, :]
    here = i[:, None] * columns + column[None, :]
    pair = (tl.load(start) + i // 2) % total
    at = (2 * pair + i % 2)[:, None] * columns + column[None, :]
    v = tl.load(V + at, mask=good, other=0.0)
    g = scale * (tl.load(product + here, mask=good, other=0.0) + v)
    sums = tl.load(adagrad + at, mask=good, other=0.0) + g * g
    delta = -rate * tl.exp(-decay * tl.load(t_now)) * g / (tl.sqrt(sums) + 1e-10)
    tl.store(adagrad + at, sums, mask=good)
    tl.store(V + at, v + delta, mask=good)
    tl.store(change + here, delta, mask=good)


@triton.jit
def split_pairs(
    omega, start, peak, out, pairs, total, plane,
    d: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Frequencies of block i (plane 0) and block j (plane 1) in halves, straight from where they are kept."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    which = tl.program_id(1)
    k = tl.arange(0, D)
    at = (tl.load(start + which) + rows) % total
    inside = (rows < pairs)[:, None] & (k < d)[None, :]
    value = tl.load(omega + k[None, :].to(tl.int64) * total + at[:, None], mask=inside, other=0.0)
    store_halves(out + which * plane, rows, k, value.to(tl.float64) * balance(peak).to(tl.float64), D)


@triton.jit
def split_points(
    X, l, U, factor, peak, out, n_tilde, p,
    d: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Drawn rows, then support points, over their lengthscales, in halves."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, D)
    drawn = (rows < n_tilde)[:, None] & (k < d)[None, :]
    at_row = tl.load(l + rows, mask=rows < n_tilde, other=0)
    value = tl.load(X + at_row[:, None] * d + k[None, :], mask=drawn, other=0.0)
    point = rows - n_tilde
    support = ((point >= 0) & (point < p))[:, None] & (k < d)[None, :]
    value += tl.load(U + point[:, None] * d + k[None, :], mask=support, other=0.0)
    scale = tl.load(factor + k, mask=k < d, other=0.0)[None, :] / balance(peak).to(tl.float64)
    store_halves(out, rows, k, value.to(tl.float64) * scale, D)
