"""A block step on an NVIDIA GPU, no host in between: five launches for one column, engine products for several."""

# mypy: disable-error-code="import-not-found, import-untyped"

import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from qsgp.engine import triton_step
from qsgp.engine.cuda_features import INTERPRETED, Operand, Range, launch
from qsgp.engine.cuda_kernels import SHARPNESS
from qsgp.engine.triton_prepare import depth, padded, split
from qsgp.engine.triton_tiles import COLUMNS

# Points and pairs of a program's tile, and its warps: the fastest of those tried on an H200.
MOST_INPUTS = 64  # held whole by these kernels
MOST_NUMBERS = 2**31 - 1  # of any table that they address in 32 bits
TILES = {"predict": (8, 256, 8), "update": (128, 16, 4), "support": (4, 128, 4)}


def suits(blocks: Any, columns: int) -> bool:
    """No more inputs, columns and numbers than these kernels can hold and count."""
    (d, total), p, pairs = blocks.omega.shape, len(blocks.U), padded(blocks.pairs)
    if d > MOST_INPUTS or columns > COLUMNS:
        return False
    halves, width = 2 * depth(d)[0], triton.next_power_of_2(max(columns, 16))
    points = padded(blocks.n_tilde + p) * halves
    sizes = (d * total, points, 2 * pairs * halves, 2 * pairs * width, blocks.n_tilde * p, p * p)
    return max(sizes) <= MOST_NUMBERS


def residual(blocks: Any, state: Any, l: Tensor, start: Tensor, kernel: str) -> Tensor:
    """`qsgp.paper.blocks.residual` of one column and Gaussian noise: the first three launches of `step`."""
    x, U, omega, p, n_tilde = blocks.x, blocks.U, blocks.omega, len(blocks.U), blocks.n_tilde
    total, ell = omega.shape[1], blocks.basis.kernel.lengthscale.contiguous()
    height = math.sqrt(2 * blocks.variance / blocks.basis.m) * total / blocks.pairs
    factor = len(x) / (n_tilde * blocks.sigma2)
    f, error, r = x.new_empty(n_tilde + p), x.new_empty(p), x.new_empty(n_tilde)
    options = {"D": x.shape[1], "HARDWARE": not INTERPRETED}
    M, N, warps = TILES["predict"]
    with torch.cuda.device_of(x):
        triton_step.predict[(triton.cdiv(n_tilde + p, M),)](
            x, l, U, omega, state.V, ell, start, f, n_tilde, p, blocks.pairs, total, height,
            M=M, N=N, num_warps=warps, **options,
        )  # fmt: skip
        triton_step.krige[(triton.cdiv(p, 8),)](blocks.inverse, f, state.a, error, n_tilde, p, M=8, N=128)
        triton_step.residual[(triton.cdiv(n_tilde, 8),)](
            x, blocks.Y, l, U, ell, f, error, r, n_tilde, p, blocks.variance, factor, SHARPNESS[kernel],
            KERNEL=kernel, M=8, N=64, **options,
        )  # fmt: skip
    return r


def step(blocks: Any, state: Any, batch: Any, rate: float, decay: float, kernel: str) -> None:
    """What `qsgp.paper.blocks.step` does; the arguments are those of that file."""
    with torch.cuda.device_of(blocks.x):
        if state.V.shape[1] == 1:
            move(blocks, state, batch, residual(blocks, state, batch.l, batch.start, kernel), rate, decay)
        else:
            _columns(blocks, state, batch, rate, decay, kernel)


class Known(NamedTuple):
    """What every step would look up again: how large the numbers are, and the support points in halves."""

    range: Range
    support: Operand

    @classmethod
    def of(cls, x: Tensor, omega: Tensor, U: Tensor, lengthscale: Tensor) -> "Known":
        found = Range.of(x, omega, lengthscale)
        return cls(found, Operand(split(U, found.peak, factor=found.factor), len(U)))


def _columns(blocks: Any, state: Any, batch: Any, rate: float, decay: float, kernel: str) -> None:
    x, U, omega, ell = blocks.x, blocks.U, blocks.omega, blocks.basis.kernel.lengthscale.contiguous()
    total, p, n_tilde, pairs, columns = omega.shape[1], len(U), blocks.n_tilde, blocks.pairs, state.V.shape[1]
    d, (D, _) = x.shape[1], depth(x.shape[1])
    (factor, peak), support = blocks.known or Known.of(x, omega, U, ell)
    height, scale = math.sqrt(2 * blocks.variance / blocks.basis.m), total / pairs

    points = x.new_empty((padded(n_tilde + p), 2, D), dtype=torch.float16)
    triton_step.split_points[(len(points) // 64,)](x, batch.l, U, factor, peak, points, n_tilde, p, d=d, D=D, BLOCK=64)
    W = x.new_empty((2, padded(pairs), 2, D), dtype=torch.float16)
    triton_step.split_pairs[(W.shape[1] // 64, 2)](
        omega, batch.start, peak, W, pairs, total, W[0].numel(), d=d, D=D, BLOCK=64
    )
    W_i, W_j = Operand(W[0], pairs), Operand(W[1], pairs)
    pair_j = (batch.start[1] + torch.arange(pairs, device=x.device)) % total
    V_j = state.V.view(total, 2 * columns)[pair_j].view(2 * pairs, columns)
    K = x.new_empty(n_tilde, p)
    triton_step.kernel_matrix[(triton.cdiv(n_tilde, 32), triton.cdiv(p, 64))](
        x, batch.l, U, ell, K, n_tilde, p, blocks.variance, SHARPNESS[kernel],
        D=d, KERNEL=kernel, M=32, N=64, HARDWARE=not INTERPRETED,
    )  # fmt: skip

    f = launch(Operand(points, n_tilde + p), W_j, V_j, 1, "default", d)  # over height * scale
    error = blocks.inverse @ torch.add(state.a, f[n_tilde:], alpha=-height * scale)  # with the sign turned
    weight = height * len(x) / (n_tilde * blocks.sigma2)
    residual = torch.addmm(f[:n_tilde], K, error, beta=weight * height * scale, alpha=weight)
    residual[:, : blocks.Y.shape[1]].sub_(blocks.Y[batch.l], alpha=weight)
    product = launch(W_i, Operand(points, n_tilde), residual, 2, "default", d)
    change = torch.empty_like(product)
    triton_step.move_rows[(triton.cdiv(2 * pairs, 16),)](
        state.V, state.sums, product, change, batch.start, state.t, 2 * pairs, total, columns, scale, rate, decay,
        M=16, COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    state.a.add_(launch(support, W_i, change, 1, "default", d), alpha=height)
    state.t += 1


def move(blocks: Any, state: Any, batch: Any, r: Tensor, rate: float, decay: float) -> None:
    """Block i of one column takes the step that `residual` r asks for: the other two launches. V and sums may be
    columns of tables that are stored column by column."""
    x, U, omega = blocks.x, blocks.U, blocks.omega
    d, total, p, n_tilde, pairs = x.shape[1], omega.shape[1], len(U), blocks.n_tilde, blocks.pairs
    ell, scale = blocks.basis.kernel.lengthscale.contiguous(), total / pairs
    height = math.sqrt(2 * blocks.variance / blocks.basis.m)
    change, options = x.new_empty(2 * pairs), {"D": d, "HARDWARE": not INTERPRETED}
    l, start = batch.l, batch.start
    M, N, warps = TILES["update"]
    with torch.cuda.device_of(x):
        triton_step.update[(triton.cdiv(pairs, N),)](
            x, l, omega, state.V, state.sums, ell, start, r, change, state.t, n_tilde, pairs, total, scale, height,
            rate, decay, M=M, N=N, num_warps=warps, **options,
        )  # fmt: skip
        M, N, warps = TILES["support"]
        triton_step.support[(triton.cdiv(p, M),)](
            U, omega, ell, start, change, state.a, state.t, p, pairs, total, height,
            M=M, N=N, num_warps=warps, **options,
        )  # fmt: skip
