"""Fourier features shared by ranks: who owns which, and the sums over them of a step over blocks.

A step draws from the whole table, as a process alone does: draws are functions of (seed, step), so they do not depend
on the number of ranks. In steps over blocks each rank makes the features of its own, and what `block_gradient` sums
over functions is summed over the ranks: vectors of the batch and of the support points. In steps over scattered
functions (`State.gather`) ranks exchange the rows of the table that are touched, and each computes the whole step.
Either way traffic depends on neither n nor m.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from qsgp import engine
from qsgp.bases import Fourier
from qsgp.interfaces import SpectralKernel
from qsgp.paper.pairs import Pairs
from qsgp.ranks import Ranks

_GOLDEN, _WORD = 0x9E3779B1, 0xFFFFFFFF  # multiplier and width of the hash
_PART = 1 << 20  # pairs that are moved or streamed at a time


@dataclass(frozen=True)
class Shares:
    """Which of ``pairs`` belong to a rank and where they stand there, in O(1): no list of them is kept.

    Of R neighbouring pairs every rank owns one; which one turns with a hash of the group. So neighbours are shared
    evenly, and so are pairs at any distance from each other: a rank would else own all of block j or none of it.
    """

    pairs: int
    ranks: Ranks

    @property
    def m(self) -> int:
        """Functions of all ranks: cosine and sine of each pair."""
        return 2 * self.pairs

    @property
    def own(self) -> int:
        """Functions of this rank: rows of its table."""
        groups, left = divmod(self.pairs, self.ranks.size)
        last = (self.ranks.rank - int(self._turn(torch.tensor(groups)))) % self.ranks.size
        return 2 * (groups + (last < left))

    def split(self, pair: Int[Tensor, " q"]) -> tuple[Bool[Tensor, " q"], Int[Tensor, " own"]]:
        """Which of them are own ones, and where these stand among the own pairs."""
        group = pair // self.ranks.size
        mine = (pair + self._turn(group)) % self.ranks.size == self.ranks.rank
        return mine, group[mine]

    def places(self, function: Int[Tensor, " u"]) -> tuple[Bool[Tensor, " u"], Int[Tensor, " own"]]:
        """Which of these functions are own ones, and which rows of the own table are theirs."""
        mine, at = self.split(function // 2)
        return mine, 2 * at + function[mine] % 2

    def functions(self, row: Int[Tensor, " u"]) -> Int[Tensor, " u"]:
        """Which functions own rows of the table belong to."""
        group = row // 2
        pair = group * self.ranks.size + (self.ranks.rank - self._turn(group)) % self.ranks.size
        return 2 * pair + row % 2

    def part(self, whole: Float[Tensor, "m w"]) -> Float[Tensor, "own w"]:
        """Own rows of a table of all functions."""
        return whole[self.functions(torch.arange(self.own, device=whole.device))]

    def whole(self, own: Float[Tensor, "own w"], here: bool = True) -> Float[Tensor, "m w"]:
        """The table of all functions; where it is not wanted ``here``, one without rows."""
        found = own.new_empty(self.m if here else 0, own.shape[1])
        for pair in torch.arange(self.pairs, device=own.device).split(_PART):
            mine, at = self.split(pair)
            part = own.new_zeros(len(pair), 2, own.shape[1])
            part[mine] = own.unflatten(0, (-1, 2))[at]
            part = self.ranks.total(part).flatten(0, 1)
            if here:
                found[2 * int(pair[0]) : 2 * int(pair[0]) + len(part)] = part
        return found

    def _turn(self, group: Int[Tensor, "*g"]) -> Int[Tensor, "*g"]:
        return (((group * _GOLDEN) & _WORD) * self.ranks.size) >> 32


class Total(torch.autograd.Function):
    """The sum over the ranks. What follows is the same on every rank, so a gradient goes back to each as it is."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, ranks: Ranks) -> Tensor:
        return ranks.total(part)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class Common(torch.autograd.Function):
    """What all ranks have in common and each multiplies with its own: gradients of it are summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.total(gradient), None


@dataclass(frozen=True)
class SharedPairs:
    """`Pairs` of a rank: draws are those of all pairs, products those of its own, sums over functions of all ranks.

    Frequencies are drawn anew for every block; the last two blocks, i and j of a step, are remembered.
    """

    basis: Fourier
    size: int  # of a block of all ranks: m_tilde / 2
    shares: Shares
    drawn: list[tuple[Tensor, tuple[Pairs, Tensor]]] = field(default_factory=list)

    @property
    def m(self) -> int:
        return self.basis.m

    @property
    def scale(self) -> float:
        """m / m_tilde."""
        return self.shares.pairs / self.size

    @property
    def apart(self) -> int:
        return self.shares.pairs // self.size

    def block(self, start: Int[Tensor, ""], apart: int = 1) -> tuple[Int[Tensor, " q"], Int[Tensor, " i"]]:
        """Own pairs of the block, and the rows of their functions in the own table."""
        pair = (start + apart * torch.arange(self.size, device=start.device)) % self.shares.pairs
        mine, at = self.shares.split(pair)
        return pair[mine], torch.stack((2 * at, 2 * at + 1), 1).flatten()

    def summed(self, part: Tensor) -> Tensor:
        return self.shares.ranks.total(part)

    def phi_v(
        self, kernel: SpectralKernel, x: Float[Tensor, "t d"], pair: Int[Tensor, " q"], V: Float[Tensor, "i c"]
    ) -> Float[Tensor, "t c"]:
        local, every = self.local(pair, x)
        found: Tensor = Total.apply(local.phi_v(kernel, x, every, V), self.shares.ranks)
        return found

    def phit_r(
        self, kernel: SpectralKernel, x: Float[Tensor, "t d"], pair: Int[Tensor, " q"], R: Float[Tensor, "t c"]
    ) -> Float[Tensor, "i c"]:
        local, every = self.local(pair, x)
        return local.phit_r(kernel, x, every, R)

    def squares_r(
        self, kernel: SpectralKernel, x: Float[Tensor, "t d"], pair: Int[Tensor, " q"], r: Float[Tensor, " t"]
    ) -> Float[Tensor, " i"]:
        local, every = self.local(pair, x)
        return local.squares_r(kernel, x, every, Common.apply(r, self.shares.ranks))

    def squares_v(
        self, kernel: SpectralKernel, x: Float[Tensor, "t d"], pair: Int[Tensor, " q"], v: Float[Tensor, " i"]
    ) -> Float[Tensor, " t"]:
        local, every = self.local(pair, x)
        return self.summed(local.squares_v(kernel, x, every, v))

    def local(self, pair: Int[Tensor, " q"], like: Tensor) -> tuple[Pairs, Int[Tensor, " q"]]:
        for of, known in self.drawn:
            if of is pair:
                return known
        made = pairs_of(self.basis, pair, like)
        self.drawn[:] = [*self.drawn[-1:], (pair, made)]
        return made


def pairs_of(basis: Fourier, pair: Int[Tensor, " q"], like: Tensor) -> tuple[Pairs, Int[Tensor, " q"]]:
    """These pairs with frequencies drawn for them, and their numbers among these."""
    omega = basis.kernel.frequencies(basis.seed, pair).mT
    omega = omega.to(like.device, engine.kept_dtype(basis.kernel, like.dtype))
    return Pairs(omega, len(pair), basis.m), torch.arange(len(pair), device=pair.device)
