"""The linear system of the rows road, (K + D) A = R, visited block by block, on one rank or shared by several."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.factor import NotPositiveDefinite, cholesky
from qsgp.interfaces import SpectralKernel
from qsgp.ranks import ALONE, Ranks

PORTION = 8192  # rows of a block whose kernel values are made at once
MANY_BLOCKS = 32  # from which on their steps are accelerated


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
class Block:
    """Rows whose equations are solved together. All ranks know its inputs, each has the numbers of its own rows."""

    rows: Int[Tensor, " b"]
    at: Int[Tensor, " i"] | slice  # which of them are one's own
    own: Int[Tensor, " i"]  # and where they stand among the own rows
    x: Float[Tensor, "b d"]
    turn: int = 0  # the rank that solves
    noise: Float[Tensor, "b g"] | None = None  # known beforehand, and on that rank the factor it makes
    factor: Float64[Tensor, "b b"] | None = None


@dataclass
class System:
    """(K + diag(noise)) A = R and how far its solution has come; columns of A and R belong together.

    With several ranks x, noise, A and R are those of a rank's own rows. A visit sums b x c numbers over the ranks, one
    of which solves and sends the b x c changes: traffic does not depend on n.
    """

    kernel: SpectralKernel
    x: Float[Tensor, "n d"]
    noise: Float[Tensor, "n g"]
    A: Float[Tensor, "n c"]
    group: Int[Tensor, " c"] | None = None  # which noise a column has; None: there is but one
    ahead: Ahead | None = None  # for many blocks
    ranks: Ranks = ALONE
    fixed: bool = True  # noise stays as it is

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
        return replace(self, A=self.A[:, :columns].contiguous(), group=group, ahead=ahead)

    def block(self, rows: Int[Tensor, " b"], turn: int = 0) -> Block:
        return Block(rows, *self.ranks.split(rows), self.ranks.collected(self.x, rows), turn)

    def blocks(self, parts: Sequence[Tensor]) -> Iterator[Block]:
        """One after another. Of as many as there are ranks each rank makes the factor of one, all at the same time."""
        for begin in range(0, len(parts), self.ranks.size):
            some = [self.block(rows, turn) for turn, rows in enumerate(parts[begin : begin + self.ranks.size])]
            if self.fixed and self.ranks.size > 1:
                self._prepare(some)
            yield from some

    def _prepare(self, some: list[Block]) -> None:
        for block in some:
            block.noise = self.ranks.collected(self.noise, block.rows)
        mine = next((block for block in some if block.turn == self.ranks.rank), None)
        if mine is not None and mine.noise is not None:
            with suppress(NotPositiveDefinite):  # tried again when it is solved, where all ranks hear of it
                mine.factor = _Noisy(self.kernel, mine.x).factor(mine.noise[:, 0])

    def values(self, block: Block) -> Float[Tensor, "b c"]:
        """K A at ``block``, where the next step begins: the terms of the own rows."""
        if self.ahead is not None:
            self.ahead.look(self.A)
        return self.kernel.product(block.x, self.x, self.A)

    def visit(self, block: Block, R: Float[Tensor, "i c"], relax: float = 1.0) -> Float[Tensor, "b c"]:
        """Solve the equations of ``block``, whose right-hand sides are ``R``, exactly; their residual just before."""
        return self.solve(block, self.values(block), R, relax)

    def solve(
        self, block: Block, f: Float[Tensor, "b c"], R: Float[Tensor, "i c"], relax: float = 1.0
    ) -> Float[Tensor, "b c"]:
        """The same for known values ``f``, from which noise and right-hand sides may have been made.

        ``relax`` times that change is made: between 1 and 2 blocks to come are anticipated (successive overrelaxation).
        """
        noise, residual = self.noise[block.own], -f
        residual[block.at] += R
        residual[block.at] -= (noise if self.group is None else noise[:, self.group]) * self.A[block.own]
        residual = self.ranks.total(residual)
        change = (relax * self._exact(block, residual))[block.at]
        self.A[block.own] += change
        if self.ahead is not None:
            self.ahead.follow(self.A, block.own, change)
        return residual

    def _exact(self, block: Block, residual: Float[Tensor, "b c"]) -> Float[Tensor, "b c"]:
        """(K_bb + D_b)^-1 r, a factor for each D, in float64: float32 has none once noise / variance is below 1e-6.

        Jitter does no harm: the residual, which the next visits correct, does not contain it.
        """
        groups, change = self.noise.shape[1], torch.empty_like(residual)
        noise = self.ranks.collected(self.noise, block.rows) if block.noise is None else block.noise
        noisy = cache(lambda: _Noisy(self.kernel, block.x))
        columns = [slice(None) if self.group is None else self.group == number for number in range(groups)]

        def solved(number: int) -> Tensor:
            factor = noisy().factor(noise[:, number]) if block.factor is None else block.factor
            return torch.cholesky_solve(residual[:, columns[number]].double(), factor).to(residual)

        works = [partial(solved, number) for number in range(groups)]
        found = self.ranks.divided(works, [residual[:, own] for own in columns], block.turn)
        for own, part in zip(columns, found, strict=True):
            change[:, own] = part
        return change


class _Noisy:
    """K + D for one D after another, in the same memory."""

    def __init__(self, kernel: SpectralKernel, x: Float[Tensor, "b d"]) -> None:
        self._K = _gram(kernel, x)
        self._prior = self._K.diagonal().clone()

    def factor(self, noise: Float[Tensor, " b"]) -> Float64[Tensor, "b b"]:
        self._K.diagonal().copy_(self._prior + noise.double())
        return cholesky(self._K)[0]


def _gram(kernel: SpectralKernel, x: Float[Tensor, "b d"]) -> Float64[Tensor, "b b"]:
    """K_bb; of a block that may be all there is in float64 from the beginning, a portion at a time."""
    if len(x) <= PORTION:
        return kernel(x, x).double()
    own = kernel.with_parameters({name: value.double() for name, value in kernel.parameters().items()})
    K, x = x.new_empty(len(x), len(x), dtype=torch.float64), x.double()
    for into, part in zip(K.split(PORTION // 4), x.split(PORTION // 4), strict=True):
        into.copy_(own(part, x))
    return K
