"""Logistic sites for two classes, labels -1 and +1."""

import bisect
import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from qsgp.interfaces import Parameters, Quadratic
from qsgp.likelihoods.levels import normal_quantile
from qsgp.likelihoods.quadrature import gaussian_nodes

_MOST_POINTS = 401
_SMALL = 1e-2  # a mean that may as well be 0: the quotient below it loses digits
_LEAST = 1e-4  # curvature of a site that tells nothing more


@dataclass(frozen=True)
class Logistic:
    """log g(f) = log sigmoid(y f), y = +-1 (Site Projection Notes); expectations by Gauss-Hermite quadrature.

    A sum of concave functions with positive weights is concave: with any number of ``points`` the bounds of `bounds`
    hold exactly for the quadrature's own h. `sufficient_points` says when that h is the true one.
    """

    points: int = 101

    name: ClassVar[str] = "logistic"
    words: ClassVar[str] = "logistic"
    meaning: ClassVar[str] = "log odds"  # of f
    labels: ClassVar[bool] = True
    fixed_sites: ClassVar[bool] = False
    noise_variance: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.points < 1:
            raise ValueError(f"Expected points >= 1, got {self.points}. Ask sufficient_points how many are needed.")

    def parameters(self) -> Parameters:
        return {}

    def with_parameters(self, parameters: Parameters) -> "Logistic":
        return self

    def check_targets(self, y: Float[Tensor, "*s"]) -> None:
        strange = y[(y != 1) & (y != -1)]
        if strange.numel():
            raise ValueError(
                f"Expected labels -1 and +1, got {strange[0].item()} ({strange.numel()} such labels in all). "
                "Map your two classes to -1 and +1, for example with 2 * (y == positive) - 1."
            )

    def log_site(self, y: Float[Tensor, "*#s"], f: Float[Tensor, "*#s"]) -> Float[Tensor, "*#s"]:
        return logsigmoid(y * f)

    def expected_log_site(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], deviation: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """h(a, s) = sum_k w_k log sigmoid(y a + z_k s). The sign of y z does not matter: the nodes are symmetric."""
        f, log_w = gaussian_nodes(y * mean, deviation, self.points)
        return (logsigmoid(f) * log_w.exp()).sum(-1)

    def quadratic_bound(self, y: Float[Tensor, "*#s"], xi: Float[Tensor, "*#s"]) -> Quadratic:
        """Jaakkola and Jordan: log sigmoid(y f) >= log sigmoid(xi) + (y f - xi) / 2 - lambda(xi) (f^2 - xi^2)."""
        curvature = jaakkola_jordan(xi)
        constant = logsigmoid(xi) - 0.5 * xi + curvature * xi.square()
        return Quadratic(constant, 0.5 * y, -curvature)

    def optimal_xi(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], second_moment: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """xi^2 = E f^2 gives the highest (Q). Detached: at the optimum no gradient passes through xi."""
        return second_moment.detach().clamp_min(0).sqrt()

    def parabola(
        self, y: Float[Tensor, "*s"], mean: Float[Tensor, "*s"], variance: Float[Tensor, "*s"]
    ) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
        """It touches E log g itself, whose optimum is that of the variational objective; bound (Q), touching log g, is
        loose where f is uncertain, and the mean runs away there.

        E log g = y m / 2 - phi(m), phi even. Its curvature falls on both sides of 0, so phi is concave in m^2 and the
        parabola that touches it at m, of curvature phi'(m) / m, lies above: steps of Newton's would overshoot.
        """
        with torch.enable_grad():
            at = torch.where(mean.abs() < _SMALL, _SMALL, mean).detach().requires_grad_()
            value = self.expected_log_site(y, at, variance.detach().sqrt()).sum()
            (slope,) = torch.autograd.grad(value, at)
        return 0.5 * y, ((0.5 * y - slope) / at.detach()).clamp_min(_LEAST)

    def log_density(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """log E sigmoid(y f), averaged over f: the sigmoid of the mean would be overconfident."""
        # A variance of eps changes the value by less than rounding; the square root at 0 has no gradient.
        deviation = (variance + torch.finfo(variance.dtype).eps).sqrt()
        f, log_w = gaussian_nodes(y * mean, deviation, self.points)
        return torch.logsumexp(logsigmoid(f) + log_w, -1)

    def moments(
        self, mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> tuple[Float[Tensor, "*#s"], Float[Tensor, "*#s"]]:
        """p = E sigmoid(f) and p (1 - p), with 1 - p integrated by itself to keep its digits when p is near 1."""
        one = torch.ones_like(mean)
        positive, negative = (self.log_density(y, mean, variance).exp() for y in (one, -one))
        total = positive + negative  # 1 up to rounding
        return positive / total, positive * negative / total.square()

    def quantile(
        self, q: float | Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """Of the probability sigmoid(f), a monotone map of f: what the model does not know of the odds.

        A label has no useful quantiles. The median is sigmoid(mean), not the class probability E sigmoid(f).
        """
        return torch.sigmoid(mean + variance.sqrt() * normal_quantile(q, mean))


def jaakkola_jordan(xi: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """lambda(xi) = tanh(xi / 2) / (4 xi), which is 1/8 at xi = 0."""
    small = xi.abs() < 1e-2
    safe = torch.where(small, 1.0, xi)
    series = 1 / 8 - xi.square() / 96 + xi.square().square() / 960  # next term: 1e-16 at 0.01
    return torch.where(small, series, torch.tanh(safe / 2) / (4 * safe))


@functools.lru_cache(maxsize=64)
def sufficient_points(tolerance: float, largest_deviation: float) -> int:
    """The fewest points for which h(a, s) errs by at most ``tolerance`` at any a and |s| <= ``largest_deviation``.

    Measured, not guessed, against a trapezoidal rule that is exact to rounding. The singularities of log sigmoid at
    +-i pi make the error fall like exp(-2 pi sqrt(points) / s): it grows with s, so the largest deviation decides.
    """
    s = largest_deviation
    a = torch.linspace(-4 * s - 4, 4 * s + 4, 81, dtype=torch.float64, device="cpu")
    step = min(0.25, 0.5 / s) if s > 0 else 0.25
    z = step * torch.arange(-math.ceil(10 / step), math.ceil(10 / step) + 1, dtype=torch.float64, device="cpu")
    density = torch.exp(-0.5 * z.square()) * step / math.sqrt(2 * math.pi)
    exact = (logsigmoid(a[:, None] + s * z) * density).sum(-1)

    def is_enough(points: int) -> bool:
        h = Logistic(points).expected_log_site(torch.ones_like(a), a, torch.full_like(a, s))
        return bool((h - exact).abs().max() <= tolerance)

    candidates = range(1, _MOST_POINTS + 1)
    found = bisect.bisect_left(candidates, True, key=is_enough)
    if found == len(candidates):
        raise ValueError(
            f"Expected a tolerance that {_MOST_POINTS} points can reach for deviations up to {s}, got {tolerance}. "
            "Accept a larger tolerance or use bound (Q), which needs no quadrature."
        )
    return candidates[found]
