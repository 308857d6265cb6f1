"""Inducing functions k(x, z_i): with the training points as centres, those of the exact posterior mean."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.bases.fourier import Fourier
from qsgp.checks import check_shape
from qsgp.factor import cholesky
from qsgp.interfaces import Kernel, SpectralKernel

_JITTER = 1e-8  # of k(z, z): functions that differ by less are one function, and magnify rounding by 1e4 at most


@dataclass(frozen=True)
class Inducing:
    """phi_i(x) = k(x, z_i) with dense prior precision S = K(Z, Z), so Phi S^-1 Phi^T is the Nystrom approximation."""

    kernel: Kernel
    Z: Float[Tensor, "m d"]

    diagonal: ClassVar[bool] = False
    learned_precision: ClassVar[bool] = False
    exchangeable: ClassVar[bool] = False

    @classmethod
    def restore(cls, kernel: Kernel, header: dict[str, Any], tensors: dict[str, Tensor]) -> "Inducing":
        return cls(kernel, tensors["Z"])

    def settings(self) -> dict[str, Any]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {"Z": self.Z}

    @staticmethod
    def shapes(m: int, d: int) -> dict[str, tuple[int | None, ...]]:
        return {"Z": (m, d)}

    @property
    def m(self) -> int:
        return len(self.Z)

    def columns(self, index: Int[Tensor, " i"]) -> Float[Tensor, "i d"]:
        return self.Z[index]

    def features(self, x: Float[Tensor, "l d"], columns: Float[Tensor, "i d"]) -> Float[Tensor, "l i"]:
        return self.kernel(x, columns)

    def precision(self, columns_j: Float[Tensor, "j d"], columns_i: Float[Tensor, "i d"]) -> Float[Tensor, "j i"]:
        return self.kernel(columns_j, columns_i)

    def precision_diag(self, index: Int[Tensor, " i"]) -> Float[Tensor, " i"]:
        return self.kernel.diag(self.Z[index])

    def missing(self, x: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
        return self.whitened.missing(x)

    def projected(self, prior: Fourier, weights: Float[Tensor, "p c"]) -> Float[Tensor, "m c"]:
        white = self.whitened
        scaled = white.projected(prior, weights).double() / white.kernel.variance.double().sqrt()
        return (white.root @ scaled).to(weights.dtype)

    @cached_property
    def whitened(self) -> "Whitened":
        assert isinstance(self.kernel, SpectralKernel)
        return Whitened.build(self.kernel, self.Z)


@dataclass(frozen=True)
class Whitened:
    """The span of k(x, z_i) by functions with S = I: phi(x) = k(x, Z) R with K(Z, Z)^-1 = R R^T.

    The prior, and with it the posterior of f, is that of `Inducing`. Weights are not: over k(x, z_i) they are large and
    cancel, half the Hessian of their loss has the condition number of K^2, and steps do not arrive. Here it is that of
    the data alone. R is float64, since it magnifies rounding; m^2 numbers, so m is some thousand at most.

    The lengthscale is fixed when R is made; the variance may move with ``kernel``.
    """

    kernel: SpectralKernel
    Z: Float64[Tensor, "m d"]
    root: Float64[Tensor, "m m"]  # R for a kernel of unit variance

    diagonal: ClassVar[bool] = True
    learned_precision: ClassVar[bool] = False
    exchangeable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_shape("root", self.root, (len(self.Z), len(self.Z)), "Build it with Whitened.build.")

    @classmethod
    @torch.no_grad()
    def build(cls, kernel: SpectralKernel, Z: Float[Tensor, "m d"]) -> "Whitened":
        Z = Z.double()
        K = _unit(kernel)(Z, Z)
        K.diagonal().add_(_JITTER)
        eye = torch.eye(len(Z), dtype=Z.dtype, device=Z.device)
        root = torch.linalg.solve_triangular(cholesky(K)[0], eye, upper=False).mT.contiguous()
        return cls(kernel, Z, root)

    @classmethod
    def restore(cls, kernel: SpectralKernel, header: dict[str, Any], tensors: dict[str, Tensor]) -> "Whitened":
        return cls(kernel, tensors["centres"], tensors["root"])

    def settings(self) -> dict[str, Any]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {"centres": self.Z, "root": self.root}

    @staticmethod
    def shapes(m: int, d: int) -> dict[str, tuple[int | None, ...]]:
        return {"centres": (m, d), "root": (m, m)}

    @property
    def m(self) -> int:
        return len(self.Z)

    def columns(self, index: Int[Tensor, " i"]) -> Float64[Tensor, "m i"]:
        return self.root[:, index]

    def features(self, x: Float[Tensor, "l d"], columns: Float64[Tensor, "m i"]) -> Float[Tensor, "l i"]:
        Phi = (_unit(self.kernel)(x.detach().double(), self.Z) @ columns).to(x.dtype)
        # The lengthscale is fixed: its gradient exists, so that a step may ask for it, and is zero.
        return (self.kernel.diag(x).sqrt()[:, None] + _nothing(self.kernel)) * Phi

    def precision_diag(self, index: Int[Tensor, " i"]) -> Float[Tensor, " i"]:
        return self.kernel.lengthscale.new_ones(len(index))

    def missing(self, x: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
        taken = (_unit(self.kernel)(x.double(), self.Z) @ self.root).square().sum(1)
        return self.kernel.diag(x) * (1 - taken).clamp_min(0).to(x.dtype)

    def projected(self, prior: Fourier, weights: Float[Tensor, "p c"]) -> Float[Tensor, "m c"]:
        at_centres = prior.phi_v(self.Z.to(weights.dtype), weights).double()
        return (self.root.mT @ at_centres / self.kernel.variance.double().sqrt()).to(weights.dtype)


def _nothing(kernel: Kernel) -> Tensor:
    """0, with a gradient of 0 in all parameters."""
    return torch.stack([0 * value.sum() for value in kernel.parameters().values()]).sum()


def _unit(kernel: Any) -> Kernel:
    """The kernel in float64 with variance 1: fixed numbers, no gradients."""
    fixed = {name: value.detach().double() for name, value in kernel.parameters().items()}
    made: Kernel = kernel.with_parameters(fixed).unit()
    return made
