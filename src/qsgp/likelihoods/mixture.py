"""Noise as rows not learned from have it: of uneven size, and of any shape.

A model is trained with equal Gaussian noise. Its prediction of y is widened or narrowed by a function of the predicted
mean and variance of f, and is a mixture of normal laws about that mean: a few wide ones among narrow ones have the
heavy tails of most tables, some beside the mean are skewed or flat. All moments exist, and densities, distribution
functions and scores are sums of normal ones.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp.checks import check_finite
from qsgp.likelihoods.gaussian import Gaussian
from qsgp.likelihoods.laplace import expected_absolute
from qsgp.likelihoods.levels import read_level

# Normal laws that shapes are made of, in units of the predicted deviation: how far they are beside the mean, how wide.
LAWS = (
    *((0.0, 2.0 ** (k / 2)) for k in range(-5, 6)),
    *((0.4 * k, 0.5) for k in range(-6, 7) if k),
    *((side * shift, scale) for shift, scale in ((2.0, 1.0), (4.0, 1.5), (7.0, 2.5)) for side in (-1, 1)),
)
_HALVINGS = 60
_LEAST_VARIANCE = 1e-30  # whose logarithm is taken


@dataclass(frozen=True)
class Mixture(Gaussian):
    """y ~ sum_k weights_k N(mean + shifts_k sqrt S, scales_k^2 S) with S = (variance + noise_variance) e^(h + g).

    h(mean) and g(log variance) are lines between ``by_mean`` and ``by_variance`` at their knots, constant beyond. There
    is a row of numbers for each output; those of one output serve any number.
    """

    weights: Float64[Tensor, "o k"] = field(default_factory=lambda: torch.ones(1, 1, dtype=torch.float64))
    scales: Float64[Tensor, " k"] = field(default_factory=lambda: torch.ones(1, dtype=torch.float64))
    shifts: Float64[Tensor, " k"] = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    mean_knots: Float64[Tensor, "o p"] = field(default_factory=lambda: torch.zeros(1, 1, dtype=torch.float64))
    by_mean: Float64[Tensor, "o p"] = field(default_factory=lambda: torch.zeros(1, 1, dtype=torch.float64))
    variance_knots: Float64[Tensor, "o q"] = field(default_factory=lambda: torch.zeros(1, 1, dtype=torch.float64))
    by_variance: Float64[Tensor, "o q"] = field(default_factory=lambda: torch.zeros(1, 1, dtype=torch.float64))

    name: ClassVar[str] = "mixture"
    words: ClassVar[str] = "as rows not learned from have it (a mixture of normal laws)"
    predicts_only: ClassVar[bool] = True  # nothing is trained with it

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("weights", "scales", "shifts", "mean_knots", "by_mean", "variance_knots", "by_variance"):
            check_finite(name, getattr(self, name), "Fit the model anew.")
        if (self.weights < 0).any() or (self.scales <= 0).any() or not (self.weights.sum(1) > 0).all():
            raise ValueError("Expected weights and scales of normal laws, got negative ones. Fit the model anew.")
        for name in ("mean_knots", "variance_knots"):
            if (getattr(self, name).diff(dim=1) <= 0).any():
                raise ValueError(f"Expected rising {name}, got others. Fit the model anew.")

    def spread(self, mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]) -> Float[Tensor, "*#s"]:
        """S: the squared deviation in whose units ``scales`` are."""
        by_mean = between(mean, self.mean_knots.to(mean), self.by_mean.to(mean))
        log_variance = variance.clamp_min(_LEAST_VARIANCE).log()
        by_variance = between(log_variance, self.variance_knots.to(mean), self.by_variance.to(mean))
        return (variance + self.noise_variance) * (by_mean + by_variance).exp()

    def log_density(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        root, scales = self.spread(mean, variance).sqrt(), self.scales.to(mean)
        z = self._apart((y - mean) / root) / scales
        logs = self._weights(mean).log() - 0.5 * z.square() - scales.log()
        return logs.logsumexp(-1) - root.log() - 0.5 * math.log(2 * math.pi)

    def moments(
        self, mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> tuple[Float[Tensor, "*#s"], Float[Tensor, "*#s"]]:
        """``mean``, which many rows have told; few have told the law, whose own may differ a little. The variance is
        the expected square of y - ``mean``."""
        squares = self.scales.to(mean).square() + self.shifts.to(mean).square()
        return mean, self.spread(mean, variance) * (self._weights(mean) * squares).sum(-1)

    def cdf(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        return self._below((y - mean) / self.spread(mean, variance).sqrt())

    @torch.no_grad()
    def quantile(
        self, q: float | Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """By halving, for each output once: the law of all rows is the same in units of their deviation."""
        level = read_level(q, mean)
        widest = self.shifts.abs().max() + 40 * self.scales.max()  # no tail of float64 is farther off
        high = torch.ones_like(self.weights[:, 0].to(level) + level) * widest.to(level)
        low = -high
        for _ in range(_HALVINGS):
            z = (low + high) / 2
            below = self._below(z) < level
            low, high = torch.where(below, z, low), torch.where(below, high, z)
        return mean + self.spread(mean, variance).sqrt() * ((low + high) / 2).to(mean)

    def crps(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """E|y - y'| - E|y' - y''| / 2 for independent draws y', y'' of the prediction; in the unit of y."""
        root, weights, scales = self.spread(mean, variance).sqrt(), self._weights(mean), self.scales.to(mean)
        shifts, both = self.shifts.to(mean), (scales.square() + scales.square()[:, None]).sqrt()
        to_y = (weights * expected_absolute(self._apart((y - mean) / root), scales)).sum(-1)
        apart = expected_absolute(shifts - shifts[:, None], both)
        return root * (to_y - 0.5 * (weights[..., None, :] * weights[..., :, None] * apart).sum((-1, -2)))

    def _apart(self, z: Float[Tensor, "*s"]) -> Float[Tensor, "*s k"]:
        """How far standardised targets are from the middle of each law."""
        return z[..., None] - self.shifts.to(z)

    def _below(self, z: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """Pr(below a standardised target)."""
        return (self._weights(z) * 0.5 * torch.erfc(-self._apart(z) / (math.sqrt(2) * self.scales.to(z)))).sum(-1)

    def _weights(self, like: Tensor) -> Float[Tensor, "o k"]:
        weights = self.weights.to(like)
        return weights / weights.sum(1, keepdim=True)


def between(at: Tensor, knots: Float[Tensor, "o p"], values: Float[Tensor, "o p"]) -> Tensor:
    """Lines between the ``values`` at their ``knots``, constant beyond."""
    if knots.shape[1] == 1:
        return values[:, 0].expand_as(at)
    low, width = knots[:, :-1], knots.diff(dim=1)
    share = ((at[..., None] - low) / width).clamp(0, 1)
    return values[:, 0] + (share * values.diff(dim=1)).sum(-1)
