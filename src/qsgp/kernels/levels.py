"""Identifiers with many levels: a random effect for every level, added to a kernel of the numbers."""

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.checks import check_shape
from qsgp.interfaces import Kernel, Parameters, SpectralKernel

NAME = "log_effects"


@dataclass(frozen=True)
class WithLevels:
    """k(x, z) = smooth(numbers of x, numbers of z) + sum_j effects_j [x and z have the same level of identifier j].

    The last inputs are the identifiers, as whole numbers from 0; -1 is a level that is not known and equals nothing,
    not even itself: ``diag`` has its variance and k(x, x) has not. Rows learned from have it as noise instead.
    A product with k costs that of ``smooth`` and O(a + b) for each identifier: no matrix of rows and levels is made.
    """

    smooth: SpectralKernel
    effects: Float[Tensor, " q"]  # the variance of the effect of a level

    def __post_init__(self) -> None:
        remedy = "Give one variance for each identifier."
        check_shape("effects", self.effects, (self.effects.numel(),), remedy)

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        return self.smooth(self.numbers(x), self.numbers(z)) + self.same(x, z)

    def same(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        """The part of the identifiers."""
        own, others, total = self.codes(x), self.codes(z), self.effects.new_zeros(len(x), len(z))
        for j, effect in enumerate(self.effects):
            total = total + effect * ((own[:, j, None] == others[:, j]) & (own[:, j, None] >= 0))
        return total

    def diag(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        return self.smooth.diag(self.numbers(x)) + self.effects.sum()

    def product(
        self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"], V: Float[Tensor, "b c"]
    ) -> Float[Tensor, "a c"]:
        return self.smooth.product(self.numbers(x), self.numbers(z), V) + looked_up(self.tables(z, V), self.codes(x))

    def tables(self, z: Float[Tensor, "b d"], V: Float[Tensor, "b c"]) -> Float[Tensor, "q levels c"]:
        """What V at rows ``z`` says of the effect of every level; 0 in the last place, of a level that is not known."""
        codes = self.codes(z)
        levels = int(codes.max()) + 1 if codes.numel() else 0
        sums = V.new_zeros(codes.shape[1], levels + 1, V.shape[1])
        for j, effect in enumerate(self.effects):
            sums[j].index_add_(0, torch.where(codes[:, j] < 0, levels, codes[:, j]), V).mul_(effect)
        sums[:, levels] = 0
        return sums

    def numbers(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a k"]:
        return x[:, : x.shape[1] - len(self.effects)].contiguous()

    def codes(self, x: Float[Tensor, "a d"]) -> Int[Tensor, "a q"]:
        return x[:, x.shape[1] - len(self.effects) :].long()

    def parameters(self) -> Parameters:
        return {**self.smooth.parameters(), NAME: self.effects.log()}

    def with_parameters(self, parameters: Parameters) -> "WithLevels":
        own = dict(parameters)
        effects = own.pop(NAME).exp() if NAME in own else self.effects
        smooth: Any = self.smooth.with_parameters(own)
        return WithLevels(smooth, effects)

    def unit(self) -> "WithLevels":
        total = self.variance
        own = {name: value - total.log() for name, value in self.parameters().items() if name.endswith("log_variance")}
        return replace(self.with_parameters(own), effects=self.effects / total)

    @property
    def name(self) -> str:
        return self.smooth.name

    @property
    def degrees(self) -> int | None:
        return self.smooth.degrees

    @property
    def variance(self) -> Float[Tensor, ""]:
        """Of a row: the smooth function and all effects."""
        return self.smooth.variance + self.effects.sum()

    @property
    def lengthscale(self) -> Float[Tensor, " k"]:
        return self.smooth.lengthscale

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> NoReturn:
        raise ValueError("Effects of levels have no frequencies. Draw those of `smooth`, and a normal for every level.")


def looked_up(tables: Float[Tensor, "q levels *c"], codes: Int[Tensor, "a q"]) -> Float[Tensor, "a *c"]:
    """The sum over identifiers of the entries of each row; what is not in a table finds its last place."""
    total, last = tables.new_zeros(len(codes), *tables.shape[2:]), tables.shape[1] - 1
    for table, code in zip(tables, codes.mT, strict=True):
        total = total + table[torch.where((code < 0) | (code > last), last, code)]
    return total


def smooth_part(kernel: Kernel, *inputs: Tensor) -> tuple[Any, ...]:
    """The kernel of the numbers, and the numbers among ``inputs``; without identifiers all as it is."""
    if isinstance(kernel, WithLevels):
        return kernel.smooth, *(kernel.numbers(x) for x in inputs)
    return kernel, *inputs
