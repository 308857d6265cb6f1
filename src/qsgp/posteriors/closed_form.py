"""The exact GP of small data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from qsgp.bases import Fourier
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels.levels import WithLevels, smooth_part
from qsgp.posteriors.parts import Shapes, describe, tensors_of
from qsgp.posteriors.serving import served_kernel
from qsgp.posteriors.spread import PRIOR_FEATURES
from qsgp.solvers.closed_form import Sites, Solved, solve, threads_worth, tighten_all
from qsgp.solvers.dual import spectral
from qsgp.solvers.pathwise import effect_draws


@dataclass(frozen=True)
class ClosedForm:
    """The exact GP: quadratic sites at the training points, one posterior for each output."""

    kernel: Kernel
    likelihood: Likelihood
    x: Float[Tensor, "n d"]
    Y: Float[Tensor, "n o"]
    weight: Float[Tensor, " n"]
    xi: Float[Tensor, "n o"]  # where the sites touch
    solved: tuple[Solved, ...] = field(repr=False)

    kind: ClassVar[str] = "closed form"

    @classmethod
    def build(
        cls,
        kernel: Kernel,
        likelihood: Likelihood,
        x: Tensor,
        Y: Tensor,
        weight: Tensor,
        xi: Tensor | None = None,
        halt: Callable[[], bool] | None = None,
    ) -> "ClosedForm":
        """Solve for every output; a stored ``xi`` gives the stored posterior back to the last bit."""
        with torch.no_grad(), threads_worth(len(x)):
            Gram = kernel(x, x)
            if xi is None:
                xi = tighten_all(Gram, likelihood, Y, weight, halt)
            sites = [Sites.of(likelihood, y, at, weight) for y, at in zip(Y.mT, xi.mT, strict=True)]
            return cls(kernel, likelihood, x, Y, weight, xi, tuple(solve(Gram, site) for site in sites))

    rows_at_a_time: ClassVar[int] = 512  # kernel values of more leave the cache: three times slower

    def with_rows(self, x: Tensor, Y: Tensor, weight: Tensor) -> "ClosedForm":
        """The same hyperparameters, more rows."""
        x, Y, weight = (
            torch.cat([old, more.to(old)]) for old, more in ((self.x, x), (self.Y, Y), (self.weight, weight))
        )
        return ClosedForm.build(self.kernel, self.likelihood, x, Y, weight)

    def bytes_per_row(self, draws: int = 0) -> int:
        """Memory that one more row at a time costs `latent`, or `sample` with so many draws."""
        return 8 * (6 * len(self.x) + (2 * PRIOR_FEATURES + 2 * draws if draws else 0))

    @property
    def one_variance(self) -> bool:
        first, *others = (solved.sites.root for solved in self.solved)
        return all(torch.equal(first, root) for root in others)

    @torch.no_grad()
    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        """Of f for every output, at O(t n): no more than kernel values."""
        alpha = torch.stack([solved.alpha for solved in self.solved], 1)
        return spectral(self.kernel).product(x.to(self.x), self.x, alpha)

    @torch.no_grad()
    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        """Mean and variance of f for every output. Cost O(t n^2), memory O(t n): give it blocks of rows."""
        x = x.to(self.x)
        # Centred by the rows learned from: about the mean of x, one far row would round what the others differ by.
        k_star, prior, mean = self.kernel(x, self.x).mT, self.kernel.diag(x), self.mean(x)
        variances = []
        for solved in self.solved[: 1 if self.one_variance else None]:
            half = torch.linalg.solve_triangular(solved.factor, solved.sites.root[:, None] * k_star, upper=False)
            variances.append((prior - half.square().sum(0)).clamp_min(1e-12 * prior))
        return mean, torch.stack(variances, 1).expand_as(mean)

    @torch.no_grad()
    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """Draws of f, coherent over x, linear in its length: a prior draw, corrected at the data (Matheron's rule)."""
        x = x.to(self.x)
        generator = torch.Generator().manual_seed(seed)
        kernel, numbers, own_numbers = smooth_part(self.kernel, x, self.x)
        basis = Fourier(spectral(kernel), PRIOR_FEATURES, seed=seed)
        columns = basis.columns(torch.arange(PRIOR_FEATURES, device=x.device))
        at_data, at_x = basis.features(own_numbers, columns), basis.features(numbers, columns)
        k_star = self.kernel(x, self.x)
        draws, of_data, of_x = list[Tensor](), *self._prior_effects(x, count * len(self.solved), seed)
        for number, solved in enumerate(self.solved):
            own = slice(number * count, (number + 1) * count)
            w = torch.randn(PRIOR_FEATURES, count, generator=generator, dtype=torch.float64).to(x)
            noise = torch.randn(len(self.x), count, generator=generator, dtype=torch.float64).to(x)
            root = solved.sites.root[:, None]
            residual = solved.sites.white[:, None] - root * (at_data @ w + of_data[:, own]) - noise
            draws.append((at_x @ w + of_x[:, own] + k_star @ (root * torch.cholesky_solve(residual, solved.factor))).mT)
        return torch.stack(draws, 2)

    def _prior_effects(self, x: Float[Tensor, "t d"], count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Of the levels of the training rows and of ``x``."""
        kernel = self.kernel
        if not isinstance(kernel, WithLevels):
            return self.x.new_zeros(1, count), x.new_zeros(1, count)
        prior = kernel.effects[:, None]
        # that of a training row whose level is not known is part of its noise
        at_data = effect_draws(kernel.codes(self.x), prior, count, seed, unknown=False)
        return at_data.to(x), effect_draws(kernel.codes(x), prior, count, seed).to(x)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header = {"kind": self.kind, **describe(self.kernel, self.likelihood)}
        return header, {
            "x": self.x,
            "Y": self.Y,
            "weight": self.weight,
            "xi": self.xi,
            **tensors_of(self.kernel, self.likelihood),
        }

    @classmethod
    def restore(
        cls, kernel: Kernel, likelihood: Likelihood, header: dict[str, Any], tensors: dict[str, Tensor]
    ) -> "ClosedForm":
        return cls.build(kernel, likelihood, tensors["x"], tensors["Y"], tensors["weight"], tensors["xi"])

    @staticmethod
    def shapes(header: dict[str, Any], tensors: dict[str, Tensor], d: int, outputs: int) -> Shapes:
        n = len(tensors["x"])
        return {"x": (n, d), "Y": (n, outputs), "weight": (n,), "xi": (n, outputs)}

    def serving(self) -> nn.Module:
        return _Closed(self)


class _Closed(nn.Module):
    """The exact GP with the solves done beforehand: k alpha and k(x, x) - k M k^T, M = root B^-1 root, in float64."""

    alpha: Tensor
    halves: Tensor

    def __init__(self, posterior: ClosedForm) -> None:
        super().__init__()
        self.kernel = served_kernel(posterior.kernel, posterior.x)
        self.least = 1e-12 * float(self.kernel.variance)
        self.register_buffer("alpha", torch.stack([s.alpha for s in posterior.solved], 1).double().cpu())
        # root B^-1 root = H^T H with H = factor^-1 root: the sum of squares cannot exceed the prior by rounding
        halves = [
            torch.linalg.solve_triangular(s.factor.double(), torch.diag(s.sites.root.double()), upper=False).mT.cpu()
            for s in posterior.solved
        ]
        self.register_buffer("halves", torch.stack(halves))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        k = self.kernel(z)
        prior = self.kernel.variance
        variance = [prior - (k @ half).square().sum(1) for half in self.halves]
        return k @ self.alpha, torch.stack(variance, 1).clamp_min(self.least)
