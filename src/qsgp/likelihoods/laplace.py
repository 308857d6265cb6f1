"""Laplace noise: robust regression, every expectation in closed form."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_finite, check_positive, check_shape, check_tensor
from qsgp.interfaces import Parameters, Quadratic
from qsgp.likelihoods.levels import read_level

# Bound (Q) curves like 1 / xi: below this fraction of the scale it would gain under 0.0005 nat and stiffen the problem.
_SMALLEST_XI = 1e-3
# 10 reach rounding for a tail of 1e-300 at any ratio of deviation to scale; a tail of 0.001 needs 6.
_NEWTON_STEPS = 12


@dataclass(frozen=True)
class Laplace:
    """log g(f) = -log(2 b) - |y - f| / b, b = scale (Site Projection Notes)."""

    scale: Float[Tensor, ""] = field(default_factory=lambda: torch.tensor(1.0))

    name: ClassVar[str] = "laplace"
    words: ClassVar[str] = "Laplace (heavy tails)"
    labels: ClassVar[bool] = False
    fixed_sites: ClassVar[bool] = False
    first_noise: ClassVar[float] = 0.2

    def __post_init__(self) -> None:
        check_tensor("scale", self.scale, "Write torch.tensor(0.1).")
        check_shape("scale", self.scale, (), "Give one scale for all points.")
        check_positive("scale", self.scale, "Give the scale b of the noise, not its logarithm; its variance is 2 b^2.")

    @classmethod
    def of_noise(cls, variance: Float[Tensor, ""]) -> "Laplace":
        return cls((variance / 2).sqrt())

    @property
    def noise_variance(self) -> Float[Tensor, ""]:
        return 2 * self.scale.square()

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
        """Laplace convolved with N(0, s^2): log [(A + B) / 4b] with A and B of `_parts`."""
        A, B, _ = _parts((y - mean).abs(), variance, self.scale)
        return torch.logaddexp(A, B) - (4 * self.scale).log()

    def moments(
        self, mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> tuple[Float[Tensor, "*#s"], Float[Tensor, "*#s"]]:
        return mean, variance + 2 * self.scale.square()

    def cdf(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """Pr(below y), uniform over calibrated data: the probability integral transform."""
        tail, _ = _log_tail((y - mean).abs(), variance, self.scale)
        return torch.where(y < mean, tail.exp(), -torch.expm1(tail))

    @torch.no_grad()
    def quantile(
        self, q: float | Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """By Newton's method on the logarithm of the tail, in float64; carries no gradient.

        The tail of a log-concave density is log-concave: whatever the start, the first step ends beyond the solution
        and all others come down to it, so that no bracket is needed.
        """
        level, b, v = read_level(q, mean), self.scale.double(), variance.double()
        target = torch.minimum(level, 1 - level).log()  # solved for the tail on one side: the law is symmetric
        R = torch.zeros_like(target + v)
        for _ in range(_NEWTON_STEPS):
            tail, hazard = _log_tail(R, v, b)
            R = (R + (tail - target) / hazard).clamp_min(0)
        return (mean + torch.where(level < 0.5, -R, R)).to(mean.dtype)

    def crps(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """E|y - y'| - E|y' - y''| / 2 for independent draws y', y'' of the prediction; in the unit of y.

        Adding Laplace noise to f takes h(r) = E|r - f| to H = h + b^2 H'', and H'' is twice the density of the sum.
        So E|y - y'| = E|y - f| + 2 b^2 p(y); for E|y' - y''| two noises are added to f' - f'', of variance t^2 = 2 s^2.
        """
        b, t = self.scale, (2 * variance).sqrt()
        to_y = expected_absolute(y - mean, variance.sqrt()) + 2 * b.square() * self.log_density(y, mean, variance).exp()
        # Densities at 0 of f' - f'' with one noise and with both, by integrals of exp(-x / b) and x exp(-x / b).
        half = 0.5 * torch.special.erfcx(t / (math.sqrt(2) * b))
        one = half / b
        two = 0.5 * (half + (t / b) * (1 / math.sqrt(2 * math.pi) - half * t / b)) / b
        return to_y - 0.5 * (t * math.sqrt(2 / math.pi) + 2 * b.square() * (one + two))


def _parts(
    R: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"], b: Float[Tensor, ""]
) -> tuple[Float[Tensor, "*#s"], Float[Tensor, "*#s"], Float[Tensor, "*#s"]]:
    """Logarithms of A = exp(u^2/2 - R/b) erfc(x_-), B = exp(u^2/2 + R/b) erfc(x_+) and 4 Phi(-t) - B, at R >= 0.

    u = s / b, t = R / s, x_+- = (u +- t) / sqrt 2. Written with erfcx(x) = exp(x^2) erfc(x), since exp(u^2/2) and
    erfc(x) leave the range of floats long before their product does. B is at most 2 Phi(-t): nothing cancels.
    """
    eps = torch.finfo(variance.dtype).eps
    s = variance.clamp_min((eps * b.detach()).square()).sqrt()  # 0/0 at s = 0; a deviation of eps b changes nothing
    u, t = s / b, R / s
    x_minus, gaussian = (u - t) / math.sqrt(2), -0.5 * t.square()
    # Each branch sees clamped arguments: the one not taken must not send NaN into the gradient.
    near = gaussian + torch.special.erfcx(x_minus.clamp_min(0)).log()
    far = u * (0.5 * u - t) + torch.special.erfc(x_minus.clamp_max(0)).log()
    B, normal = torch.special.erfcx((u + t) / math.sqrt(2)), 2 * torch.special.erfcx(t / math.sqrt(2))
    return torch.where(x_minus > 0, near, far), gaussian + B.log(), gaussian + (normal - B).log()


def _log_tail(
    R: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"], b: Float[Tensor, ""]
) -> tuple[Float[Tensor, "*#s"], Float[Tensor, "*#s"]]:
    """log Pr(y > mean + R) = log [Phi(-t) + (A - B) / 4] for R >= 0, and its rate of decrease, density over tail."""
    A, B, rest = _parts(R, variance, b)
    tail = torch.logaddexp(A, rest)
    return tail - math.log(4), (torch.logaddexp(A, B) - tail).exp() / b


def expected_absolute(r: Float[Tensor, "*#s"], deviation: Float[Tensor, "*#s"]) -> Float[Tensor, "*#s"]:
    """E|r + s z| = r erf(t / sqrt 2) + |s| sqrt(2 / pi) exp(-t^2 / 2), t = r / |s|; |r| where s is negligible."""
    s = deviation.abs()
    # From 10 deviations on both forms agree to 1e-22. The bound includes r = s = 0, where t would be 0/0.
    far = r.abs() >= 10 * s
    r_near, s_near = torch.where(far, 0.0, r), torch.where(far, 1.0, s)
    t = r_near / s_near
    near = r_near * torch.erf(t / math.sqrt(2)) + s_near * math.sqrt(2 / math.pi) * torch.exp(-0.5 * t.square())
    return torch.where(far, r.abs(), near)
