"""The dual of the inducing basis at the training points: (K + D) A = Y by exactly solved blocks, K never stored.

With one inducing function at every training point (Phi = S = K, m = n) the optimal mean is the exact GP's, k(x, X) A.
Its primal is badly conditioned, this system is not: block Gauss-Seidel over random blocks of b rows, each solved by a
Cholesky factor of its own b x b part. An epoch costs n^2 kernel values and n b^2 / 3; memory O(n c + b^2).
Columns of Y share the kernel values: targets, and perturbed ones for posterior samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.checks import check_positive, check_rows, check_sample_size
from qsgp.factor import cholesky
from qsgp.interfaces import Kernel, SpectralKernel

MANY_BLOCKS = 32  # from which on their steps are accelerated
RELAX = 1.4


@dataclass
class Ahead:
    """Nesterov's acceleration of random block steps, and a mean of their path that forgets its beginning.

    The constants of Gower, Hanzely, Richtarik and Stich ("Accelerated stochastic matrix inversion", 2018) with
    nu = n / b and mu = (2 b / n)^2. With 125 blocks it was well ahead after sixteen epochs, with ten blocks there was
    no difference (docs/training.md). Single steps overfit their own rows: the mean is what predicts. It is rounded in
    every step and nothing corrects it, and K multiplies noise by sqrt(n): it is kept in float64.
    """

    V: Float[Tensor, "n c"]
    mean: Float64[Tensor, "n c"]
    blocks: float  # n / b
    steps: int = 0

    @classmethod
    def of(cls, A: Float[Tensor, "n c"], blocks: float) -> "Ahead":
        return cls(torch.zeros_like(A), torch.zeros_like(A, dtype=torch.float64), blocks)

    @classmethod
    def wanted(cls, A: Float[Tensor, "n c"], blocks: float) -> "Ahead | None":
        """Of few blocks none."""
        return cls.of(A, blocks) if blocks > MANY_BLOCKS else None

    @property
    def epochs(self) -> float:
        """That acceleration takes to show: errors fall by a constant in sqrt(n / b) of them, with pauses."""
        return self.blocks**0.5

    def first(self, columns: int) -> "Ahead":
        """Of the first ``columns`` alone."""
        return Ahead(self.V[:, :columns].contiguous(), self.mean[:, :columns].contiguous(), self.blocks, self.steps)

    def look(self, A: Float[Tensor, "n c"]) -> None:
        """Where the next step begins."""
        A.lerp_(self.V, 1 / (1 + self.blocks**1.5 / 2))

    def follow(self, A: Float[Tensor, "n c"], rows: Int[Tensor, " b"], change: Float[Tensor, "b c"]) -> None:
        """After A has made ``change`` at ``rows``."""
        forget = 2 * self.blocks**-1.5
        self.V.lerp_(A, forget)
        self.V[rows] += (self.blocks**0.5 / 2 - forget) * change
        self.steps += 1
        new = min(1.0, 4 / (self.steps + 3))
        self.mean.mul_(1 - new).add_(A, alpha=new)


@dataclass
class System:
    """(K + diag(noise)) A = R and how far its solution has come; columns of A and R belong together."""

    kernel: SpectralKernel
    x: Float[Tensor, "n d"]
    noise: Float[Tensor, "n g"]
    A: Float[Tensor, "n c"]
    group: Int[Tensor, " c"] | None = None  # which noise a column has; None: there is but one
    ahead: Ahead | None = None  # for many blocks

    @classmethod
    def start(
        cls, kernel: SpectralKernel, x: Float[Tensor, "n d"], noise: Float[Tensor, " n"], columns: int
    ) -> "System":
        """With one noise for all columns, at A = 0."""
        return cls(kernel, x, noise[:, None], x.new_zeros(len(x), columns))

    def first(self, columns: int) -> "System":
        """Of the first ``columns`` alone."""
        ahead = None if self.ahead is None else self.ahead.first(columns)
        group = None if self.group is None else self.group[:columns]
        return System(self.kernel, self.x, self.noise, self.A[:, :columns].contiguous(), group, ahead)

    def values(self, rows: Int[Tensor, " b"]) -> Float[Tensor, "b c"]:
        """K A at ``rows``, where the next step begins."""
        if self.ahead is not None:
            self.ahead.look(self.A)
        return self.kernel.product(self.x[rows], self.x, self.A)

    def visit(self, rows: Int[Tensor, " b"], R: Float[Tensor, "b c"], relax: float = 1.0) -> Float[Tensor, "b c"]:
        """Solve the equations of ``rows``, whose right-hand sides are ``R``, exactly; their residual just before."""
        return self.solve(rows, self.values(rows), R, relax)

    def solve(
        self, rows: Int[Tensor, " b"], f: Float[Tensor, "b c"], R: Float[Tensor, "b c"], relax: float = 1.0
    ) -> Float[Tensor, "b c"]:
        """The same for known values ``f``, from which noise and right-hand sides may have been made.

        ``relax`` times that change is made: between 1 and 2 blocks to come are anticipated (successive overrelaxation).
        """
        noise = self.noise[rows]
        residual = R - f - (noise if self.group is None else noise[:, self.group]) * self.A[rows]
        change = relax * _exact(self.kernel, self.x[rows], noise, residual, self.group)
        self.A[rows] += change
        if self.ahead is not None:
            self.ahead.follow(self.A, rows, change)
        return residual


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
        blocks = shuffled(n, block, seed * 1_000_003 + epoch, Y.device)
        squares = torch.stack([system.visit(rows, Y[rows]).square().sum() for rows in blocks])
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
    many = len(Y) / block
    for epoch in range(epochs):
        blocks, total = shuffled(len(Y), block, seed * 1_000_003 + epoch, Y.device), torch.zeros_like(Y)
        squares = torch.zeros((), dtype=Y.dtype, device=Y.device)
        for rows in blocks:
            squares += system.visit(rows, Y[rows], relaxation(system, many)).square().sum()
            total += system.A
            if halt():
                return None
    mean = total / len(blocks) if system.ahead is None else system.ahead.mean.to(total)
    return mean, float(squares.sqrt() / Y.norm().clamp_min(1e-30))


def relaxation(system: System, blocks: float) -> float:
    """Steps that are accelerated, and a single block, are taken as they are."""
    return RELAX if system.ahead is None and blocks > 1 else 1.0


def shuffled(n: int, block: int, seed: int, device: torch.device) -> tuple[Int[Tensor, " b"], ...]:
    """All rows in random order, ``block`` at a time."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).to(device).split(block)


def _exact(
    kernel: SpectralKernel,
    x: Float[Tensor, "b d"],
    noise: Float[Tensor, "b g"],
    residual: Float[Tensor, "b c"],
    group: Int[Tensor, " c"] | None,
) -> Float[Tensor, "b c"]:
    """(K_bb + D_b)^-1 r, a factor for each D, in float64: float32 has none once noise / variance is below 1e-6.

    Jitter does no harm: the residual, which the next visits correct, does not contain it.
    """
    K, change = kernel(x, x).double(), torch.empty_like(residual)
    prior = K.diagonal().clone()
    for number, own in enumerate(noise.double().mT):
        columns = slice(None) if group is None else group == number
        K.diagonal().copy_(prior + own)
        change[:, columns] = torch.cholesky_solve(residual[:, columns].double(), cholesky(K)[0]).to(residual)
    return change


def spectral(kernel: Kernel) -> SpectralKernel:
    assert isinstance(kernel, SpectralKernel)
    return kernel
