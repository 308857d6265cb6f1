"""Laplace noise: robust regression, every expectation in closed form."""

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_finite, check_positive
from qsgp.interfaces import Parameters, Quadratic

# Bound (Q) curves like 1 / xi: below this fraction of the scale it would gain under 0.0005 nat and stiffen the problem.
_SMALLEST_XI = 1e-3


@dataclass(frozen=True)
class Laplace:
    """log g(f) = -log(2 b) - |y - f| / b, b = scale (Site Projection Notes)."""

    scale: Float[Tensor, ""] = field(default_factory=lambda: torch.tensor(1.0))

    def __post_init__(self) -> None:
        check_positive("scale", self.scale, "Give the scale b of the noise, not its logarithm; its variance is 2 b^2.")

    def parameters(self) -> Parameters:
        return {"log_scale": self.scale.log()}

    def with_parameters(self, parameters: Parameters) -> "Laplace":
        return replace(self, scale=parameters["log_scale"].exp())

    def check_targets(self, y: Float[Tensor, "*s"]) -> None:
        check_finite("y", y, "Drop or impute the rows that lack a target.")

    def log_site(self, y: Float[Tensor, "*#s"], f: Float[Tensor, "*#s"]) -> Float[Tensor, "*#s"]:
        return -(2 * self.scale).log() - (y - f).abs() / self.scale

    def expected_log_site(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], deviation: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """h(a, s) = -log(2 b) - E|y - a + s z| / b."""
        return -(2 * self.scale).log() - expected_absolute(y - mean, deviation) / self.scale

    def quadratic_bound(self, y: Float[Tensor, "*#s"], xi: Float[Tensor, "*#s"]) -> Quadratic:
        """|r| <= (r^2 / xi + xi) / 2 for r = y - f, equality at r = +-xi; ``xi`` is kept above 0.001 b."""
        xi = torch.maximum(xi, _SMALLEST_XI * self.scale.detach())
        curvature = 1 / (self.scale * xi)
        constant = -(2 * self.scale).log() - 0.5 * (curvature * y.square() + xi / self.scale)
        return Quadratic(constant, curvature * y, -0.5 * curvature)

    def optimal_xi(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], second_moment: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """xi^2 = E (f - y)^2 gives the highest (Q). Detached: at the optimum no gradient passes through xi."""
        return (second_moment - 2 * y * mean + y.square()).detach().clamp_min(0).sqrt()

    def log_density(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """Laplace convolved with N(0, s^2): log [exp(u^2/2) (e^-R/b erfc(x_-) + e^R/b erfc(x_+)) / 4b].

        R = |y - mean|, u = s / b, x_+- = (u +- R/s) / sqrt 2. Written with erfcx(x) = exp(x^2) erfc(x), since
        exp(u^2/2) and erfc(x) leave the range of floats long before their product does.
        """
        b, eps = self.scale, torch.finfo(mean.dtype).eps
        s = variance.clamp_min((eps * b.detach()).square()).sqrt()  # 0/0 at s = 0; a deviation of eps b changes nothing
        R, u = (y - mean).abs(), s / b
        x_minus, x_plus = (u - R / s) / math.sqrt(2), (u + R / s) / math.sqrt(2)
        gaussian = -0.5 * (R / s).square()
        # Each branch sees clamped arguments: the one not taken must not send NaN into the gradient.
        near = gaussian + torch.special.erfcx(x_minus.clamp_min(0)).log()
        far = u * (0.5 * u - R / s) + torch.special.erfc(x_minus.clamp_max(0)).log()
        other_side = gaussian + torch.special.erfcx(x_plus).log()
        return torch.logaddexp(torch.where(x_minus > 0, near, far), other_side) - (4 * b).log()

    def moments(
        self, mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> tuple[Float[Tensor, "*#s"], Float[Tensor, "*#s"]]:
        return mean, variance + 2 * self.scale.square()


def expected_absolute(r: Float[Tensor, "*#s"], deviation: Float[Tensor, "*#s"]) -> Float[Tensor, "*#s"]:
    """E|r + s z| = r erf(t / sqrt 2) + |s| sqrt(2 / pi) exp(-t^2 / 2), t = r / |s|; |r| where s is negligible."""
    s = deviation.abs()
    # From 10 deviations on both forms agree to 1e-22. The bound includes r = s = 0, where t would be 0/0.
    far = r.abs() >= 10 * s
    r_near, s_near = torch.where(far, 0.0, r), torch.where(far, 1.0, s)
    t = r_near / s_near
    near = r_near * torch.erf(t / math.sqrt(2)) + s_near * math.sqrt(2 / math.pi) * torch.exp(-0.5 * t.square())
    return torch.where(far, r.abs(), near)
