"""Sums of kernels that can draw frequencies: they have features and products as each of them has."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.engine.counter_rng import normals
from qsgp.interfaces import Parameters, SpectralKernel
from qsgp.kernels.compose import Sum

_STREAM = 2  # of random numbers, beside those that terms draw their frequencies from


@dataclass(frozen=True)
class SpectralSum(Sum):
    """k_1(x, z) + k_2(x, z) + ..., each with its own lengthscales, its own variance and perhaps its own map.

    The spectral density is the mixture of those of the terms, in the proportion of their variances: a frequency belongs
    to one of the terms, drawn for it.
    """

    kernels: tuple[SpectralKernel, ...]

    degrees: ClassVar[None] = None
    norm: ClassVar[None] = None  # no distance of its own

    def with_parameters(self, parameters: Parameters) -> "SpectralSum":
        return SpectralSum(super().with_parameters(parameters).kernels)  # type: ignore[arg-type]

    def product(
        self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"], V: Float[Tensor, "b c"]
    ) -> Float[Tensor, "a c"]:
        first, *others = (kernel.product(x, z, V) for kernel in self.kernels)
        return sum(others, first)

    def unit(self) -> "SpectralSum":
        total = self.variance.log()
        own = {name: value - total for name, value in self.parameters().items() if name.endswith("log_variance")}
        return self.with_parameters(own)

    @property
    def name(self) -> str:
        return "+".join(kernel.name for kernel in self.kernels)

    @property
    def variance(self) -> Float[Tensor, ""]:
        return torch.stack([kernel.variance for kernel in self.kernels]).sum()

    @property
    def lengthscale(self) -> Float[Tensor, " d"]:
        """1: ``frequencies`` have the lengthscales in them."""
        return torch.ones_like(self.kernels[0].lengthscale)

    @property
    def heavy(self) -> bool:
        return any(kernel.degrees == 1 or getattr(kernel, "heavy", False) for kernel in self.kernels)

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
        each = [kernel.frequencies(seed, index) / kernel.lengthscale.detach().double() for kernel in self.kernels]
        return torch.stack(each)[self.chosen(seed, index), torch.arange(len(index), device=index.device)]

    def chosen(self, seed: int, index: Int[Tensor, " p"]) -> Int[Tensor, " p"]:
        """The term that each frequency belongs to."""
        shares = torch.stack([kernel.variance.detach().double() for kernel in self.kernels]).cumsum(0)
        uniform = 0.5 + 0.5 * torch.erf(normals(seed, index, 1, stream=_STREAM)[:, 0] / 2**0.5)
        return torch.searchsorted(shares[:-1] / shares[-1], uniform)
