"""A kernel of linear combinations of the inputs: what a learned metric is."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.checks import check_shape
from qsgp.interfaces import Parameters, SpectralKernel


@dataclass(frozen=True)
class Mapped:
    """k(x, z) = kernel(x map, z map): the inputs of ``kernel``, each with its lengthscale, are columns of ``map``.

    The map is fixed; `qsgp.hyperparameters.metric` finds it. A function of x map has the frequencies map omega, so
    features see nothing but another law of frequencies, of unit lengthscale in the inputs as they are.
    """

    kernel: SpectralKernel
    map: Float[Tensor, "d k"]

    degrees: ClassVar[None] = None
    norm: ClassVar[None] = None  # no distance of its own

    def __post_init__(self) -> None:
        remedy = "The map needs a column for each lengthscale of the kernel."
        check_shape("map", self.map, (len(self.map), len(self.kernel.lengthscale)), remedy)

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        return self.kernel(self.mapped(x), self.mapped(z))

    def diag(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        return self.kernel.diag(x)

    def product(
        self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"], V: Float[Tensor, "b c"]
    ) -> Float[Tensor, "a c"]:
        return self.kernel.product(self.mapped(x), self.mapped(z), V)

    def mapped(self, x: Float[Tensor, "a d"]) -> Float[Tensor, "a k"]:
        """In float64 and then rounded: a row has the same image in any company."""
        return (x.double() @ self.map.double()).to(x.dtype)

    def parameters(self) -> Parameters:
        return self.kernel.parameters()

    def with_parameters(self, parameters: Parameters) -> "Mapped":
        kernel: Any = self.kernel.with_parameters(parameters)
        return Mapped(kernel, self.map.to(kernel.variance))

    def unit(self) -> "Mapped":
        return replace(self, kernel=self.kernel.unit())

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def variance(self) -> Float[Tensor, ""]:
        return self.kernel.variance

    @property
    def lengthscale(self) -> Float[Tensor, " d"]:
        """1: ``frequencies`` have the lengthscales in them."""
        return torch.ones_like(self.map[:, 0])

    @property
    def heavy(self) -> bool:
        return self.kernel.degrees == 1 or getattr(self.kernel, "heavy", False)

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
        return self.in_inputs(self.kernel.frequencies(seed, index))

    def in_inputs(self, own: Float64[Tensor, "p k"]) -> Float64[Tensor, "p d"]:
        """Frequencies of ``kernel`` as those of the inputs in front of the map."""
        return own / self.kernel.lengthscale.detach().double() @ self.map.double().mT
