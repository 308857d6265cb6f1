"""The squared exponential kernel with one lengthscale per input (ARD)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.engine.counter_rng import normals
from qsgp.kernels import stationary


@dataclass(frozen=True)
class SquaredExponential:
    """k(x, z) = variance * exp(-r^2 / 2), r = |(x - z) / lengthscale|."""

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]

    name: ClassVar[str] = "rbf"
    words: ClassVar[str] = "squared exponential (rbf): very smooth functions"
    degrees: ClassVar[int] = 0
    shape_of_slope: ClassVar[tuple[str, float, float]] = ("rbf", 1.0, 1.0)

    __call__ = stationary.value
    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters
    product = stationary.product
    unit = stationary.unit

    def __post_init__(self) -> None:
        stationary.check(self)

    @staticmethod
    def profile(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.exp(-0.5 * r.square())

    @staticmethod
    def slope(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.exp(-0.5 * r.square()).mul_(-0.5)

    @staticmethod
    def value_and_slope(squared: Float[Tensor, "*s"]) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
        value = torch.exp(squared.mul_(-0.5))
        return value, value

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
        """The spectral density is a standard normal."""
        return normals(seed, index, len(self.lengthscale))

    def factor(self, dimension: int) -> "SquaredExponential":
        """k / variance is a product over the inputs: its factor for one of them, a kernel of one input."""
        return SquaredExponential(self.lengthscale[dimension : dimension + 1], torch.ones_like(self.variance))
