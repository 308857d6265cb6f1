"""Random Fourier features: cosines and sines at frequencies drawn from the kernel's spectral density."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp import engine
from qsgp.checks import check_shape
from qsgp.interfaces import SpectralKernel


class FourierColumns(NamedTuple):
    omega: Float[Tensor, "i d"]  # unit-lengthscale frequencies; heavy tails in float64 whatever the kernel is in
    phase: Float[Tensor, " i"]  # 0 for a cosine, pi / 2 for a sine


@dataclass(frozen=True)
class Fourier:
    """m / 2 pairs cos, sin (w_p^T x / lengthscale), scaled so that Phi Phi^T -> K as m grows; S = I.

    Function 2 p is the cosine and 2 p + 1 the sine of pair p. Frequencies are regenerated from (seed, p), so
    no storage grows with m, and the same pair is the same function whatever m is.

    ``orthogonal`` makes the frequencies of d successive pairs orthogonal and keeps their lengths (Yu et al.,
    "Orthogonal random features", 2016): unbiased too, with less error. A function then depends on the others
    of its group, so the first k functions are no exchangeable sample of the m, and a scattered index
    regenerates whole groups, O(d^3) each: sample uniformly over all m, or read blocks in order.
    """

    kernel: SpectralKernel
    m: int
    seed: int = 0
    orthogonal: bool = False

    diagonal: ClassVar[bool] = True
    learned_precision: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.m < 2 or self.m % 2:
            raise ValueError(
                f"Expected an even m >= 2 (one cosine and one sine per frequency), got m = {self.m}. "
                f"Use m = {max(2, self.m + self.m % 2)}."
            )
        if not hasattr(self.kernel, "frequencies"):
            raise ValueError(
                f"Expected a kernel whose spectral density can be drawn, got {type(self.kernel).__name__}. "
                "Give the kernel that method, or use inducing functions."
            )
        if self.orthogonal and getattr(self.kernel, "norm", 2) != 2:
            raise ValueError(
                f"Expected a kernel of the Euclidean distance for orthogonal frequencies, got {self.kernel.name!r}, "
                "whose frequencies favour the axes. Turned, they would be those of another kernel: use "
                "orthogonal=False."
            )

    @classmethod
    def restore(cls, kernel: SpectralKernel, header: dict[str, Any], tensors: dict[str, Tensor]) -> "Fourier":
        return cls(kernel, header["m"], header["seed"], header["orthogonal"])

    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed, "orthogonal": self.orthogonal}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    @staticmethod
    def shapes(m: int, d: int) -> dict[str, tuple[int | None, ...]]:
        return {}

    @property
    def exchangeable(self) -> bool:
        return not self.orthogonal

    def columns(self, index: Int[Tensor, " i"]) -> FourierColumns:
        dtype = self.kernel.lengthscale.dtype
        pair = index // 2
        omega = self._orthogonal(pair) if self.orthogonal else self.kernel.frequencies(self.seed, pair)
        return FourierColumns(omega.to(engine.kept_dtype(self.kernel, dtype)), (index % 2).to(dtype) * (math.pi / 2))

    def features(self, x: Float[Tensor, "l d"], columns: FourierColumns) -> Float[Tensor, "l i"]:
        """sqrt(2 variance / m) cos(w^T x / lengthscale - phase): one matrix product, one cosine."""
        d = len(self.kernel.lengthscale)
        check_shape("x", x, (len(x), d), f"The kernel has {d} lengthscales: give it inputs of {d} columns.")
        omega, ell = columns.omega, self.kernel.lengthscale
        scaled = (x.to(omega.dtype) if omega.dtype == torch.float64 else x) / ell
        angle = torch.addmm(columns.phase.to(omega.dtype), scaled, omega.mT, beta=-1)
        return (2 / self.m * self.kernel.variance).sqrt() * angle.cos().to(torch.result_type(x, ell))

    def phi_v(self, x: Float[Tensor, "l d"], V: Float[Tensor, "i c"], first: int = 0) -> Float[Tensor, "l c"]:
        """Phi V over the functions from the even number ``first`` on, without storing a feature."""
        return engine.phi_v(
            x, self._pairs(first, len(V)), V, self.kernel.lengthscale, self.kernel.variance, total=self.m
        )

    def phi2_v(self, x: Float[Tensor, "l d"], w: Float[Tensor, " m"]) -> Float[Tensor, " l"]:
        """sum_i phi_i^2 w_i as a product as well: cos^2 t and sin^2 t are (1 +- cos 2 t) / 2, and halved lengthscales
        double the angle. Rounding cannot take it below the sum of the smaller weight of every pair."""
        cosine, sine = w.unflatten(0, (-1, 2)).unbind(1)
        V = torch.stack((cosine - sine, torch.zeros_like(sine)), 1).reshape(-1, 1) / 2
        kernel, unit = self.kernel, torch.ones_like(self.kernel.variance)
        double = engine.phi_v(x, self._pairs(0, self.m), V, kernel.lengthscale / 2, unit, total=2)[:, 0]
        middle, least = (cosine + sine).sum() / 2, torch.minimum(cosine, sine).sum()
        return 2 / self.m * kernel.variance * (middle + double).clamp_min(least)

    def _pairs(self, first: int, count: int) -> engine.Frequencies:
        """Drawn inside the product; orthogonal ones belong to groups and are made beforehand."""
        if not self.orthogonal:
            return engine.drawn(self.kernel, self.seed, first // 2, count // 2)
        device = self.kernel.lengthscale.device
        return self._orthogonal(torch.arange(first // 2, (first + count) // 2, device=device)).to(
            self.kernel.lengthscale
        )

    def precision_diag(self, index: Int[Tensor, " i"]) -> Float[Tensor, " i"]:
        return self.kernel.lengthscale.new_ones(len(index))

    def _orthogonal(self, pair: Int[Tensor, " i"]) -> Float64[Tensor, "i d"]:
        """Rows of each group of d frequencies turned orthogonal, their lengths kept.

        Directions and lengths of an isotropic draw are independent and Gram-Schmidt reads the directions
        alone, so every frequency keeps its distribution: chi(d) lengths for the squared exponential kernel.
        """
        d = len(self.kernel.lengthscale)
        groups, at = torch.unique(pair // d, return_inverse=True)
        members = groups[:, None] * d + torch.arange(d, device=pair.device)
        W = self.kernel.frequencies(self.seed, members.flatten()).unflatten(0, members.shape)
        Q, R = torch.linalg.qr(W.mT)
        signs = R.diagonal(dim1=-2, dim2=-1).sign()  # LAPACK and cuSOLVER may choose different ones
        V = (Q * signs[:, None, :]).mT * W.norm(dim=-1, keepdim=True)
        return V[at, pair % d]
