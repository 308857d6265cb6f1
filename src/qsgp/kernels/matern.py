"""Matern kernels of smoothness nu = 1/2, 3/2, 5/2 with one lengthscale per input (ARD)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.kernels import stationary


@dataclass(frozen=True)
class Matern12:
    """k(x, z) = variance * exp(-r), r = |(x - z) / lengthscale|."""

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]

    degrees: ClassVar[int] = 1

    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters

    def __post_init__(self) -> None:
        stationary.check(self)

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        return self.variance * torch.exp(-stationary.scaled_distance(self, x, z))

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
        return stationary.student_frequencies(self, seed, index, self.degrees)


@dataclass(frozen=True)
class Matern32:
    """k(x, z) = variance * (1 + s) exp(-s), s = sqrt(3) r."""

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]

    degrees: ClassVar[int] = 3

    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters

    def __post_init__(self) -> None:
        stationary.check(self)

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        s = math.sqrt(3) * stationary.scaled_distance(self, x, z)
        return self.variance * (1 + s) * torch.exp(-s)

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
        return stationary.student_frequencies(self, seed, index, self.degrees)


@dataclass(frozen=True)
class Matern52:
    """k(x, z) = variance * (1 + s + s^2 / 3) exp(-s), s = sqrt(5) r."""

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]

    degrees: ClassVar[int] = 5

    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters

    def __post_init__(self) -> None:
        stationary.check(self)

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        s = math.sqrt(5) * stationary.scaled_distance(self, x, z)
        return self.variance * (1 + s + s.square() / 3) * torch.exp(-s)

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
        return stationary.student_frequencies(self, seed, index, self.degrees)
