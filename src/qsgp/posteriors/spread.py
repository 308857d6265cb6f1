"""How far f may be from its mean: posterior draws, and the GP that knows some support points, blended.

The draws belong to whoever has the mean and come as numbers; the support points are kept here. Their variance is
k(x, x) - k(x, U) (K_UU + noise)^-1 k(U, x), each point counting for n / p rows by its noise.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.factor import cholesky
from qsgp.interfaces import Kernel, SpectralKernel
from qsgp.solvers.pathwise import blended, fit_blend

FEW = 10  # rows that tell nothing of a blend
PRIOR_FEATURES = 4096  # of a prior draw; the support points correct what they get wrong


@dataclass(frozen=True)
class Spread:
    """Support points and how their variance is blended with that of draws; ``g`` variances, one for each noise."""

    kernel: SpectralKernel
    U: Float[Tensor, "p d"]
    noise: Float[Tensor, "p g"]  # (p / n) times that of a row
    blend: Float[Tensor, "g two"]
    factor: Float[Tensor, "g p p"] = field(repr=False)
    trust: float = 1.0  # times the variance: what rows held out say of draws that are not solved to the end

    @classmethod
    @torch.no_grad()
    def build(
        cls, kernel: SpectralKernel, U: Tensor, noise: Tensor, blend: Tensor | None = None, trust: float = 1.0
    ) -> "Spread":
        noise = noise.expand(len(U), 1) if noise.ndim == 0 else noise  # one number in the first files
        K = in_double(kernel)(U.double(), U.double())
        K.diagonal().add_(1e-10 * K[0, 0])
        factor = torch.stack([cholesky(K + torch.diag(own))[0] for own in noise.double().mT])  # jitter only widens
        blend = torch.ones(len(factor), 2, dtype=torch.float64, device=U.device) if blend is None else blend
        return cls(kernel, U, noise, blend.reshape(-1, 2), factor, trust)

    @torch.no_grad()
    def support(self, x: Float[Tensor, "t d"]) -> Float64[Tensor, "t g"]:
        """The variance that the support points leave."""
        # As K_UU in float64: rounded to float32, what nearly cancels here would depend on the rows computed together.
        cross, prior = in_double(self.kernel)(x.double(), self.U.double()).mT, self.kernel.diag(x).double()
        known = [torch.linalg.solve_triangular(own, cross, upper=False).square().sum(0) for own in self.factor]
        return torch.stack([(prior - each).clamp_min(1e-12 * prior) for each in known], 1)

    def fitted(self, draws: Float[Tensor, "h g s"], support: Float[Tensor, "h g"]) -> Float[Tensor, "g two"]:
        """The blend that suits rows like these; without draws, or from few rows, what it was."""
        return fit_blend(draws, support) if draws.shape[2] and len(draws) >= FEW else self.blend

    def variance(self, x: Float[Tensor, "t d"], draws: Float[Tensor, "t g s"]) -> Float64[Tensor, "t g"]:
        """``draws`` about the mean at ``x``."""
        return self.trust * blended(draws, self.support(x), self.blend)

    @torch.no_grad()
    def sample(
        self, mean: Float[Tensor, "t o"], x: Float[Tensor, "t d"], draws: Float[Tensor, "t g s"], count: int, seed: int
    ) -> Float[Tensor, "count t o"]:
        """The mean and a spread whose covariance is the blend's: a mixture of the draws, and a prior draw less what the
        support points know of it."""
        outputs, s = mean.shape[1], draws.shape[2]
        generator = torch.Generator().manual_seed(seed)
        basis = Fourier(self.kernel, PRIOR_FEATURES, seed=seed)
        w = torch.randn(PRIOR_FEATURES, count * outputs, generator=generator, dtype=torch.float64).to(x)
        noise = torch.randn(len(self.U), count * outputs, generator=generator, dtype=torch.float64)
        mixing = torch.randn(s, count * outputs, generator=generator, dtype=torch.float64)
        at_support, at_x = basis.phi_v(self.U, w).double(), basis.phi_v(x, w).double()
        noise, mixing, cross = noise.to(at_x), mixing.to(at_x), self.kernel(x, self.U).double()
        found = []
        for output in range(outputs):
            g, own = output % len(self.factor), slice(output * count, (output + 1) * count)
            known = at_support[:, own] + self.noise[:, g, None].double().sqrt() * noise[:, own]
            draw = at_x[:, own] - cross @ torch.cholesky_solve(known, self.factor[g])
            if s:
                ratio, worth = self.blend[g].to(draw)
                draw = (draws[:, g].double() @ mixing[:, own] + (worth * ratio).sqrt() * draw) / (s + worth).sqrt()
            found.append((mean[:, output, None] + self.trust**0.5 * draw.to(x)).mT)
        return torch.stack(found, 2)

    def bytes_per_row(self, samples: int, outputs: int) -> int:
        """Of `variance`, or of `sample` with so many of them."""
        own = (3 + 2 * len(self.factor)) * len(self.U)
        return 8 * (own + (2 * PRIOR_FEATURES + 3 * samples * outputs if samples else 0))

    def tensors(self) -> dict[str, Tensor]:
        trust = torch.tensor(self.trust, dtype=torch.float64)
        return {"U": self.U, "noise": self.noise.contiguous(), "blend": self.blend, "trust": trust}

    @classmethod
    def restore(cls, kernel: SpectralKernel, tensors: dict[str, Tensor]) -> "Spread":
        trust = float(tensors["trust"]) if "trust" in tensors else 1.0  # earlier files lack it
        return cls.build(kernel, tensors["U"], tensors["noise"], tensors.get("blend"), trust)


def in_double(kernel: Kernel) -> Kernel:
    return kernel.with_parameters({name: value.double() for name, value in kernel.parameters().items()})
