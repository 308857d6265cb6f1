"""A block step with one column on an NVIDIA GPU: five launches, no host in between."""

# mypy: disable-error-code="import-not-found, import-untyped"

import math
from typing import Any

import triton

from qsgp.engine import triton_step
from qsgp.engine.cuda_features import INTERPRETED
from qsgp.engine.cuda_kernels import SHARPNESS


def step(blocks: Any, state: Any, batch: Any, rate: float, decay: float, kernel: str) -> None:
    """What `qsgp.blocks.step` does, for state.V of one column; the arguments are those of that file."""
    x, U, omega = blocks.x, blocks.U, blocks.omega
    d, total, p, n_tilde, pairs = x.shape[1], omega.shape[1], len(U), blocks.n_tilde, blocks.pairs
    covariance = blocks.basis.kernel
    ell, scale = covariance.lengthscale, total / pairs
    variance = float(covariance.variance)
    height = math.sqrt(2 * variance / blocks.basis.m)
    f, error, r = x.new_empty(n_tilde + p), x.new_empty(p), x.new_empty(n_tilde)
    change = x.new_empty(2 * pairs)
    options = {"D": d, "HARDWARE": not INTERPRETED}
    l, start = batch.l, batch.start
    M, N = 8, 128
    triton_step.predict[(triton.cdiv(n_tilde + p, M),)](
        x,
        l,
        U,
        omega,
        state.V,
        ell,
        start,
        f,
        n_tilde,
        p,
        pairs,
        total,
        scale * height,
        M=M,
        N=N,
        **options,
    )
    triton_step.krige[(triton.cdiv(p, 8),)](blocks.inverse, f, state.a, error, n_tilde, p, M=8, N=128)
    factor = len(x) / (n_tilde * blocks.sigma2)
    triton_step.residual[(triton.cdiv(n_tilde, 8),)](
        x, blocks.Y, l, U, ell, f, error, r, n_tilde, p, variance, factor, SHARPNESS[kernel],
        KERNEL=kernel, M=8, N=64, **options,
    )  # fmt: skip
    triton_step.update[(triton.cdiv(pairs, 32),)](
        x, l, omega, state.V, state.sums, ell, start, r, change, state.t, n_tilde, pairs, total, scale, height,
        rate, decay, M=32, N=32, **options,
    )  # fmt: skip
    triton_step.support[(triton.cdiv(p, 8),)](
        U, omega, ell, start, change, state.a, state.t, p, pairs, total, height, M=8, N=128, **options
    )
