"""Matern kernels of smoothness nu = 1/2, 3/2, 5/2 with one lengthscale per input (ARD)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.kernels import stationary


@dataclass(frozen=True)
class Matern12:
    """k(x, z) = variance * exp(-r), r = |(x - z) / lengthscale|."""

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]

    name: ClassVar[str] = "matern12"
    words: ClassVar[str] = "Matérn 1/2: rough functions"
    degrees: ClassVar[int] = 1
    steep: ClassVar[bool] = True

    __call__ = stationary.value
    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters
    product = stationary.product
    unit = stationary.unit
    frequencies = stationary.student_frequencies

    def __post_init__(self) -> None:
        stationary.check(self)

    @staticmethod
    def profile(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.exp(-r)

    @staticmethod
    def slope(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """There is none at r = 0; its share of a gradient, of order r, is zero."""
        return torch.where(r > 1e-150, -0.5 * torch.exp(-r) / r, 0)

    @staticmethod
    def value_and_slope(squared: Float[Tensor, "*s"]) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
        """There is no slope at r = 0; its share of a gradient, of order r, is zero."""
        r = squared.sqrt_()
        value = torch.exp(-r)
        return value, torch.where(r > 1e-150, value / r, 0)


@dataclass(frozen=True)
class Matern32:
    """k(x, z) = variance * (1 + s) exp(-s), s = sqrt(3) r."""

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]

    name: ClassVar[str] = "matern32"
    words: ClassVar[str] = "Matérn 3/2: functions with a slope"
    degrees: ClassVar[int] = 3
    shape_of_slope: ClassVar[tuple[str, float, float]] = ("matern12", 3.0, 1 / math.sqrt(3))

    __call__ = stationary.value
    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters
    product = stationary.product
    unit = stationary.unit
    frequencies = stationary.student_frequencies

    def __post_init__(self) -> None:
        stationary.check(self)

    @staticmethod
    def profile(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        s = math.sqrt(3) * r
        return (1 + s) * torch.exp(-s)

    @staticmethod
    def slope(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.exp(-math.sqrt(3) * r).mul_(-1.5)

    @staticmethod
    def value_and_slope(squared: Float[Tensor, "*s"]) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
        s = squared.sqrt_().mul_(math.sqrt(3))
        decay = torch.exp(-s)
        return s.add_(1).mul_(decay), decay.mul_(3)


@dataclass(frozen=True)
class Matern52:
    """k(x, z) = variance * (1 + s + s^2 / 3) exp(-s), s = sqrt(5) r."""

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]

    name: ClassVar[str] = "matern52"
    words: ClassVar[str] = "Matérn 5/2: smooth functions"
    degrees: ClassVar[int] = 5
    shape_of_slope: ClassVar[tuple[str, float, float]] = ("matern32", 5 / 3, math.sqrt(3 / 5))

    __call__ = stationary.value
    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters
    product = stationary.product
    unit = stationary.unit
    frequencies = stationary.student_frequencies

    def __post_init__(self) -> None:
        stationary.check(self)

    @staticmethod
    def profile(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        s = math.sqrt(5) * r
        return (1 + s + s.square() / 3) * torch.exp(-s)

    @staticmethod
    def slope(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        s = math.sqrt(5) * r
        return torch.exp(-s).mul_(-5 / 6 * (1 + s))

    @staticmethod
    def value_and_slope(squared: Float[Tensor, "*s"]) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
        s = squared.sqrt_().mul_(math.sqrt(5))
        decay = torch.exp(-s)
        slope = (s + 1).mul_(decay)
        return s.square_().div_(3).mul_(decay).add_(slope), slope.mul_(5 / 3)
