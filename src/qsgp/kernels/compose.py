"""Sums and products of kernels. They have a value but no spectral draw: use them with inducing functions."""

from dataclasses import dataclass
from functools import reduce
from operator import add, mul

from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Kernel, Parameters


@dataclass(frozen=True)
class Sum:
    """k_1(x, z) + k_2(x, z) + ..."""

    kernels: tuple[Kernel, ...]

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        return reduce(add, (kernel(x, z) for kernel in self.kernels))

    def diag(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        return reduce(add, (kernel.diag(x) for kernel in self.kernels))

    def parameters(self) -> Parameters:
        return _joined(self.kernels)

    def with_parameters(self, parameters: Parameters) -> "Sum":
        return Sum(_split(self.kernels, parameters))


@dataclass(frozen=True)
class Product:
    """k_1(x, z) k_2(x, z) ..."""

    kernels: tuple[Kernel, ...]

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        return reduce(mul, (kernel(x, z) for kernel in self.kernels))

    def diag(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        return reduce(mul, (kernel.diag(x) for kernel in self.kernels))

    def parameters(self) -> Parameters:
        return _joined(self.kernels)

    def with_parameters(self, parameters: Parameters) -> "Product":
        return Product(_split(self.kernels, parameters))


def _joined(kernels: tuple[Kernel, ...]) -> Parameters:
    """All parameters, named "0.log_variance" after the position of their kernel."""
    return {f"{at}.{name}": value for at, kernel in enumerate(kernels) for name, value in kernel.parameters().items()}


def _split(kernels: tuple[Kernel, ...], parameters: Parameters) -> tuple[Kernel, ...]:
    shares: list[Parameters] = [{} for _ in kernels]
    for name, value in parameters.items():
        at, _, own = name.partition(".")
        if not at.isdigit() or int(at) >= len(kernels):
            raise ValueError(f"Expected names such as '0.log_variance', got {name!r}. Use the names of parameters().")
        shares[int(at)][own] = value
    return tuple(kernel.with_parameters(share) for kernel, share in zip(kernels, shares, strict=True))
