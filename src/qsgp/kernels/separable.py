"""Products of one-dimensional kernels: what a grid needs, and what a radial Matern kernel is not."""

from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.engine.counter_rng import normals
from qsgp.interfaces import Kernel
from qsgp.kernels import stationary


@dataclass(frozen=True)
class Separable:
    """k(x, z) = variance * prod_i rho(|x_i - z_i| / lengthscale_i), rho that of ``kind``, a class of kernels.

    For the squared exponential this is the kernel itself. A product of Matern kernels is another kernel than the Matern
    kernel of one distance: as smooth, and less round. It has no name at the door, and its products are stored; bases
    and `qsgp.paper` take it.
    """

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]
    kind: type[Any]

    name: ClassVar[str] = "separable"
    degrees: ClassVar[None] = None

    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters
    unit = stationary.unit

    def __post_init__(self) -> None:
        stationary.check(self)

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        each = [self.factor(i)(x[:, i : i + 1], z[:, i : i + 1]) for i in range(len(self.lengthscale))]
        return self.variance * reduce(mul, each)

    def product(
        self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"], V: Float[Tensor, "b c"]
    ) -> Float[Tensor, "a c"]:
        return self(x, z) @ V

    @property
    def heavy(self) -> bool:
        return getattr(self.kind, "heavy", False)

    def factor(self, dimension: int) -> Kernel:
        """Of k / variance, a kernel of one input."""
        made: Kernel = self.kind(self.lengthscale[dimension : dimension + 1], torch.ones_like(self.variance))
        return made

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
        """Every input has a frequency of its own: Student t of the degrees of ``kind``, normal for 0 degrees, or what
        ``kind`` draws for one input."""
        d, degrees = len(self.lengthscale), self.kind.degrees
        if degrees is None:
            factor: Any = self.factor(0)
            return torch.cat([factor.frequencies(seed, d * index + i) for i in range(d)], 1)
        z = normals(seed, index, d * (1 + degrees)).unflatten(1, (d, 1 + degrees))
        return z[:, :, 0] * (degrees / z[:, :, 1:].square().sum(2)).sqrt() if degrees else z[:, :, 0]
