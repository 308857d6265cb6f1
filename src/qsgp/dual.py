"""The dual of the inducing basis at the training points: (K + D) A = Y by exactly solved blocks, K never stored.

With one inducing function at every training point (Phi = S = K, m = n) the optimal mean is the exact GP's, k(x, X) A.
Its primal is badly conditioned, this system is not: block Gauss-Seidel over random blocks of b rows, each solved by a
Cholesky factor of its own b x b part. An epoch costs n^2 kernel values and n b^2 / 3; memory O(n c + b^2).
Columns of Y share the kernel values: targets, and perturbed ones for posterior samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp import engine
from qsgp.checks import check_positive, check_rows, check_sample_size, check_shape
from qsgp.interfaces import SpectralKernel


@dataclass
class Dual:
    """Weights A of the kernel functions at ``x``, and the relative residual |Y - (K + D) A| / |Y| of each epoch."""

    kernel: SpectralKernel
    x: Float[Tensor, "n d"]
    A: Float[Tensor, "n c"]
    residuals: list[float]

    def mean(self, x: Float[Tensor, "t d"], block_rows: int = 4096) -> Float[Tensor, "t c"]:
        """k(x, X) A."""
        return torch.cat([product(self.kernel, rows, self.x, self.A) for rows in x.split(block_rows)])


def solve(
    kernel: SpectralKernel,
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n c"],
    noise: Float[Tensor, " n"],
    *,
    block: int = 2000,
    epochs: int = 20,
    tolerance: float = 1e-2,
    first: Float[Tensor, "n c"] | None = None,
    seed: int = 0,
    halt: Callable[[], bool] = lambda: False,
) -> Dual:
    """A with (K + diag(noise)) A = Y, from ``first`` or zero, until the residual of an epoch falls below ``tolerance``.

    The residual of a block is taken just before it is solved, so that of an epoch lies above the one it ends with: the
    test errs on the careful side. ``halt`` is asked after every block; what has been learned stays.
    """
    n = check_rows(x=x, Y=Y, noise=noise)
    check_shape("noise", noise, (n,), "Give one noise variance for each row.")
    check_positive("noise", noise, "Without noise the system has no safe solution; use a small one.")
    block = min(block, n)
    check_sample_size("block", block, "n", n)
    A = torch.zeros_like(Y) if first is None else first.clone()
    result, size = Dual(kernel, x, A, []), float(Y.norm())
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        square = 0.0
        for rows in torch.randperm(n, generator=generator).to(x.device).split(block):
            residual = Y[rows] - product(kernel, x[rows], x, A) - noise[rows, None] * A[rows]
            square += float(residual.square().sum())
            A[rows] += _exact(kernel, x[rows], noise[rows], residual)
            if halt():
                return result
        result.residuals.append(square**0.5 / max(size, 1e-30))
        if result.residuals[-1] < tolerance:
            break
    return result


def _exact(kernel: SpectralKernel, x: Tensor, noise: Tensor, residual: Tensor) -> Tensor:
    """(K_bb + D_b)^-1 r in float64: float32 has no factor once noise / variance falls below 1e-6 or so."""
    K = kernel(x, x).double()
    K.diagonal().add_(noise.double())
    return torch.cholesky_solve(residual.double(), torch.linalg.cholesky(K)).to(residual)


def product(kernel: SpectralKernel, x: Tensor, z: Tensor, V: Tensor) -> Tensor:
    return engine.k_v(x, z, V, kernel.lengthscale, kernel.variance, kernel=engine.kernel_name(kernel.degrees))
