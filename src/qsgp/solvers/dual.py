"""The dual of the inducing basis at the training points: (K + D) A = Y by exactly solved blocks, K never stored.

With one inducing function at every training point (Phi = S = K, m = n) the optimal mean is the exact GP's, k(x, X) A.
Its primal is badly conditioned, this system is not: block Gauss-Seidel over random blocks of b rows, each solved by a
Cholesky factor of its own b x b part. An epoch costs n^2 kernel values and n b^2 / 3; memory O(n c + b^2).
Columns of Y share the kernel values: targets, and perturbed ones for posterior samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.checks import check_positive, check_rows, check_sample_size
from qsgp.interfaces import Kernel, SpectralKernel
from qsgp.solvers.system import System

RELAX = 1.4


@dataclass
class Dual:
    """Weights A of the kernel functions at ``x``, and the relative residual |Y - (K + D) A| / |Y| of each epoch."""

    kernel: SpectralKernel
    x: Float[Tensor, "n d"]
    A: Float[Tensor, "n c"]
    residuals: list[float]

    def mean(self, x: Float[Tensor, "t d"], block_rows: int = 4096) -> Float[Tensor, "t c"]:
        """k(x, X) A."""
        return torch.cat([self.kernel.product(rows, self.x, self.A) for rows in x.split(block_rows)])


def solve(
    system: System,
    Y: Float[Tensor, "n c"],
    *,
    block: int = 2000,
    epochs: int = 20,
    tolerance: float = 1e-2,
    seed: int = 0,
) -> Dual:
    """A with (K + diag(noise)) A = Y, until the residual of an epoch falls below ``tolerance``; A of ``system`` moves.

    The residual of a block is taken just before it is solved, so that of an epoch lies above the one it ends with: the
    test errs on the careful side.
    """
    n = check_rows(x=system.x, Y=Y, noise=system.noise)
    check_positive("noise", system.noise, "Without noise the system has no safe solution; use a small one.")
    check_sample_size("block", min(block, n), "n", n)
    result, size = Dual(system.kernel, system.x, system.A, []), max(float(Y.norm()), 1e-30)
    for epoch in range(epochs):
        blocks = system.blocks(shuffled(n, block, seed * 1_000_003 + epoch, Y.device))
        squares = torch.stack([system.visit(some, Y[some.own]).square().sum() for some in blocks])
        result.residuals.append(float(squares.sum().sqrt()) / size)
        if result.residuals[-1] < tolerance:
            break
    return result


def averaged(
    system: System,
    Y: Float[Tensor, "n c"],
    *,
    block: int,
    epochs: int,
    seed: int,
    halt: Callable[[], bool] = lambda: False,
) -> tuple[Float[Tensor, "n c"], float] | None:
    """The mean of A over the visits of the last of some epochs, and their relative residual; None when halted."""
    ranks = system.ranks
    n = int(ranks.total(torch.tensor(len(Y))))
    for epoch in range(epochs):
        blocks, total = shuffled(n, block, seed * 1_000_003 + epoch, Y.device), torch.zeros_like(Y)
        squares = torch.zeros((), dtype=Y.dtype, device=Y.device)
        for some in system.blocks(blocks):
            squares += system.visit(some, Y[some.own], relaxation(system, n / block)).square().sum()
            total += system.A
            if ranks.agreed(halt()):
                return None
    mean = total / len(blocks) if system.ahead is None else system.ahead.mean.to(total)
    return mean, float(squares.sqrt() / ranks.total(Y.square().sum()).sqrt().clamp_min(1e-30))


def relaxation(system: System, blocks: float) -> float:
    """Steps that are accelerated, and a single block, are taken as they are."""
    return RELAX if system.ahead is None and blocks > 1 else 1.0


def shuffled(n: int, block: int, seed: int, device: torch.device) -> tuple[Int[Tensor, " b"], ...]:
    """All rows in random order, ``block`` at a time."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).to(device).split(block)


def spectral(kernel: Kernel) -> SpectralKernel:
    assert isinstance(kernel, SpectralKernel)
    return kernel
