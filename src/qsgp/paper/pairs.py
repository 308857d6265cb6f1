"""Products with contiguous blocks of Fourier features, at any hyperparameters; no feature is stored."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp import engine
from qsgp.bases import Fourier
from qsgp.interfaces import SpectralKernel


@dataclass(frozen=True)
class Pairs:
    """All frequencies, column by column: ``size`` neighbouring pairs are a slice wherever it starts."""

    omega: Float[Tensor, "d pairs"]
    size: int  # of a block: m_tilde / 2
    m: int  # functions of the basis: cosine and sine of every pair, of ranks that share them those of all

    @classmethod
    def of(cls, basis: Fourier, like: Tensor, size: int) -> "Pairs":
        dtype = engine.kept_dtype(basis.kernel, like.dtype)
        omega = like.new_empty(len(basis.kernel.lengthscale), basis.m // 2, dtype=dtype)
        for part in torch.arange(basis.m // 2, device=like.device).split(1 << 18):
            omega[:, part] = basis.kernel.frequencies(basis.seed, part).mT.to(omega)
        return cls(omega, size, basis.m)

    @property
    def scale(self) -> float:
        """m / m_tilde."""
        return self.omega.shape[1] / self.size

    def block(self, start: Int[Tensor, ""], apart: int = 1) -> tuple[Int[Tensor, " q"], Int[Tensor, " i"]]:
        """Every ``apart``-th pair from ``start`` on, around the end, and their functions."""
        pair = (start + apart * torch.arange(self.size, device=start.device)) % self.omega.shape[1]
        return pair, torch.stack((2 * pair, 2 * pair + 1), 1).flatten()

    @property
    def apart(self) -> int:
        """How far apart pairs can be that are spread over the table."""
        return self.omega.shape[1] // self.size

    def summed(self, part: Tensor) -> Tensor:
        """Over all that know some of the pairs: here, all of them."""
        return part

    def phi_v(
        self, kernel: SpectralKernel, x: Float[Tensor, "t d"], pair: Int[Tensor, " q"], V: Float[Tensor, "i c"]
    ) -> Float[Tensor, "t c"]:
        return engine.phi_v(x, self.omega[:, pair].mT, V, kernel.lengthscale, kernel.variance, total=self.m)

    def phit_r(
        self, kernel: SpectralKernel, x: Float[Tensor, "t d"], pair: Int[Tensor, " q"], R: Float[Tensor, "t c"]
    ) -> Float[Tensor, "i c"]:
        return engine.phit_r(x, self.omega[:, pair].mT, R, kernel.lengthscale, kernel.variance, total=self.m)

    def squares_r(
        self, kernel: SpectralKernel, x: Float[Tensor, "t d"], pair: Int[Tensor, " q"], r: Float[Tensor, " t"]
    ) -> Float[Tensor, " i"]:
        """sum_l phi_li^2 r_l: cos^2 t and sin^2 t are (1 +- cos 2 t) / 2, and halved lengthscales double the angle."""
        double = engine.phit_r(
            x, self.omega[:, pair].mT, r[:, None], kernel.lengthscale / 2, torch.ones_like(kernel.variance), total=2
        )[::2, 0]
        return kernel.variance / self.m * torch.stack((r.sum() + double, r.sum() - double), 1).flatten()

    def squares_v(
        self, kernel: SpectralKernel, x: Float[Tensor, "t d"], pair: Int[Tensor, " q"], v: Float[Tensor, " i"]
    ) -> Float[Tensor, " t"]:
        """sum_i phi_li^2 v_i."""
        cosine, sine = v.unflatten(0, (-1, 2)).unbind(1)
        V = torch.stack((cosine - sine, torch.zeros_like(sine)), 1).reshape(-1, 1)
        double = engine.phi_v(
            x, self.omega[:, pair].mT, V, kernel.lengthscale / 2, torch.ones_like(kernel.variance), total=2
        )[:, 0]
        return kernel.variance / self.m * (v.sum() + double)
