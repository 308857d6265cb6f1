"""A block step on an NVIDIA GPU, no host in between: five launches for one column, engine products for several."""

# mypy: disable-error-code="import-not-found, import-untyped"

import math
from typing import Any

import torch
import triton

from qsgp.engine import triton_step
from qsgp.engine.cuda_features import INTERPRETED, Range, phi_v, phit_r
from qsgp.engine.cuda_kernels import SHARPNESS

# Points and pairs of a program's tile, and its warps: the fastest of those tried on an H200.
TILES = {"predict": (8, 256, 8), "update": (128, 16, 4), "support": (4, 128, 4)}

__all__ = ["Range", "step"]


def step(blocks: Any, state: Any, batch: Any, rate: float, decay: float, kernel: str) -> None:
    """What `qsgp.blocks.step` does; the arguments are those of that file."""
    if state.V.shape[1] == 1:
        _one_column(blocks, state, batch, rate, decay, kernel)
    else:
        _columns(blocks, state, batch, rate, decay, kernel)


def _columns(blocks: Any, state: Any, batch: Any, rate: float, decay: float, kernel: str) -> None:
    x, U, omega, ell = blocks.x, blocks.U, blocks.omega, blocks.basis.kernel.lengthscale
    d, total, p, n_tilde, pairs = x.shape[1], omega.shape[1], len(U), blocks.n_tilde, blocks.pairs
    columns, height = state.V.shape[1], math.sqrt(2 * blocks.variance / blocks.basis.m)
    known = blocks.known if blocks.known is not None else Range.of(x, omega, ell)
    pair = (batch.start[:, None] + torch.arange(pairs, device=x.device)) % total
    omega_i, omega_j = omega[:, pair[0]].mT.contiguous(), omega[:, pair[1]].mT.contiguous()
    V_j = state.V.view(total, 2 * columns)[pair[1]].view(2 * pairs, columns)
    x_l = x[batch.l]
    f = (height * total / pairs) * phi_v(torch.cat([x_l, U]), omega_j, V_j, ell, "default", known)
    K = x.new_empty(n_tilde, p)
    triton_step.kernel_matrix[(triton.cdiv(n_tilde, 32), triton.cdiv(p, 64))](
        x, batch.l, U, ell, K, n_tilde, p, blocks.variance, SHARPNESS[kernel],
        D=d, KERNEL=kernel, M=32, N=64, HARDWARE=not INTERPRETED,
    )  # fmt: skip
    factor = len(x) / (n_tilde * blocks.sigma2)
    error = blocks.inverse @ (f[n_tilde:] - state.a)
    residual = torch.addmm(f[:n_tilde], K, error, beta=factor * height, alpha=-factor * height)
    residual[:, : blocks.Y.shape[1]] -= factor * height * blocks.Y[batch.l]
    product = phit_r(x_l, omega_i, residual, ell, "default", known)
    change = torch.empty_like(product)
    triton_step.move_rows[(triton.cdiv(2 * pairs, 16),)](
        state.V, state.sums, product, change, batch.start, state.t, 2 * pairs, total, columns, total / pairs, rate,
        decay, M=16, COLUMNS=triton.next_power_of_2(columns),
    )  # fmt: skip
    state.a.add_(phi_v(U, omega_i, change, ell, "default", known), alpha=height)
    state.t += 1


def _one_column(blocks: Any, state: Any, batch: Any, rate: float, decay: float, kernel: str) -> None:
    x, U, omega = blocks.x, blocks.U, blocks.omega
    d, total, p, n_tilde, pairs = x.shape[1], omega.shape[1], len(U), blocks.n_tilde, blocks.pairs
    ell, scale, variance = blocks.basis.kernel.lengthscale, total / pairs, blocks.variance
    height = math.sqrt(2 * variance / blocks.basis.m)
    f, error, r = x.new_empty(n_tilde + p), x.new_empty(p), x.new_empty(n_tilde)
    change = x.new_empty(2 * pairs)
    options = {"D": d, "HARDWARE": not INTERPRETED}
    l, start = batch.l, batch.start
    M, N, warps = TILES["predict"]
    triton_step.predict[(triton.cdiv(n_tilde + p, M),)](
        x, l, U, omega, state.V, ell, start, f, n_tilde, p, pairs, total, scale * height,
        M=M, N=N, num_warps=warps, **options,
    )  # fmt: skip
    triton_step.krige[(triton.cdiv(p, 8),)](blocks.inverse, f, state.a, error, n_tilde, p, M=8, N=128)
    factor = len(x) / (n_tilde * blocks.sigma2)
    triton_step.residual[(triton.cdiv(n_tilde, 8),)](
        x, blocks.Y, l, U, ell, f, error, r, n_tilde, p, variance, factor, SHARPNESS[kernel],
        KERNEL=kernel, M=8, N=64, **options,
    )  # fmt: skip
    M, N, warps = TILES["update"]
    triton_step.update[(triton.cdiv(pairs, N),)](
        x, l, omega, state.V, state.sums, ell, start, r, change, state.t, n_tilde, pairs, total, scale, height,
        rate, decay, M=M, N=N, num_warps=warps, **options,
    )  # fmt: skip
    M, N, warps = TILES["support"]
    triton_step.support[(triton.cdiv(p, M),)](
        U, omega, ell, start, change, state.a, state.t, p, pairs, total, height, M=M, N=N, num_warps=warps, **options
    )
