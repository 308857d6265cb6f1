"""Weights of Fourier features, solved for together, and posterior draws about them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from qsgp.bases import Fourier
from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.paper.prediction import columns_of
from qsgp.posteriors.parts import Shapes, describe, tensors_of
from qsgp.posteriors.serving import ServedCosines, ServedSpread
from qsgp.posteriors.spread import Spread
from qsgp.solvers.dual import spectral


@dataclass(frozen=True)
class FourierWeights:
    """Weights of the mean over Fourier features, and of posterior draws about it (`feature_posterior`)."""

    basis: Fourier
    likelihood: Likelihood
    table: Float[Tensor, "m c"]  # of the outputs, then of the draws
    outputs: int
    spread: Spread

    kind: ClassVar[str] = "fourier weights"
    one_variance: ClassVar[bool] = True
    rows_at_a_time: ClassVar[int] = 2048

    @property
    def kernel(self) -> SpectralKernel:
        return self.basis.kernel

    @property
    def draws(self) -> int:
        return self.table.shape[1] - self.outputs

    def bytes_per_row(self, draws: int = 0) -> int:
        return self.spread.bytes_per_row(draws, self.outputs) + 32 * self.table.shape[1]

    @torch.no_grad()
    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        return self.basis.phi_v(x.to(self.table), columns_of(self.table, self.outputs))[:, : self.outputs]

    @torch.no_grad()
    def pieces(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t one s"]]:
        """Mean, and draws about it."""
        products = self.basis.phi_v(x, self.table)
        return products[:, : self.outputs], products[:, None, self.outputs :]

    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        x = x.to(self.table)
        mean, draws = self.pieces(x)
        return mean, self.spread.variance(x, draws).to(mean).expand_as(mean)

    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        x = x.to(self.table)
        mean, draws = self.pieces(x)
        return self.spread.sample(mean, x, draws, count, seed)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header = {"kind": self.kind, **describe(self.kernel, self.likelihood), "outputs": self.outputs}
        header |= {"m": self.basis.m, "seed": self.basis.seed, "orthogonal": self.basis.orthogonal}
        return header, {"table": self.table, **self.spread.tensors(), **tensors_of(self.kernel, self.likelihood)}

    @classmethod
    def restore(
        cls, kernel: Kernel, likelihood: Likelihood, header: dict[str, Any], tensors: dict[str, Tensor]
    ) -> "FourierWeights":
        own = spectral(kernel)
        basis = Fourier.restore(own, header, tensors)
        return cls(basis, likelihood, tensors["table"], header["outputs"], Spread.restore(own, tensors))

    @staticmethod
    def shapes(header: dict[str, Any], tensors: dict[str, Tensor], d: int, outputs: int) -> Shapes:
        return {"table": (header["m"], None)}

    def serving(self) -> nn.Module:
        return _Columns(self)


class _Columns(nn.Module):
    """Phi times the weights of the mean and of the draws."""

    table: Tensor

    def __init__(self, posterior: FourierWeights) -> None:
        super().__init__()
        self.features, self.spread = ServedCosines(posterior.basis), ServedSpread(posterior.spread)
        self.outputs = posterior.outputs
        self.register_buffer("table", posterior.table.cpu())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        products = (self.features(z.to(self.table.dtype)) @ self.table).double()
        mean = products[:, : self.outputs]
        return mean, self.spread(z, products[:, self.outputs :]).expand_as(mean)
