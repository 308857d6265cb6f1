"""The law of y that is predicted for some rows, in the unit of y."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor

from qsgp.data.scaling import Scaling

Array = np.ndarray
_LEVELS = (torch.arange(200).double() + 0.5) / 200  # of quantiles that stand for a law under a map of targets


@dataclass(frozen=True)
class Law:
    """Standardised mean and variance of f at ``rows``, and what becomes of them: noise, scales, a map."""

    scaling: Scaling
    sites: Any
    rows: Shaped[Array, "n d"]
    mean: Float[Tensor, "n o"]
    variance: Float[Tensor, "n o"]

    def moments(self) -> tuple[Float64[Array, "n o"], Float64[Array, "n o"]]:
        """Mean and deviation."""
        mean, variance = self.sites.moments(self.mean, self.variance)
        return self.scaling.moments(mean.numpy(), variance.numpy(), self.rows)

    def quantile(self, q: Any) -> Float64[Array, "*s n o"]:
        """At one level, or at several whose two last axes are of length 1."""
        return self.scaling.restore(self.sites.quantile(q, self.mean, self.variance).numpy(), self.rows)

    def beside(self, Y: Float64[Array, "n o"]) -> dict[str, Float64[Array, "n o"]]:
        """What it says of the targets that were observed."""
        latent, targets = (self.mean, self.variance), torch.tensor(self.scaling.targets(Y, self.rows))
        mean, deviation = self.moments()
        middle, variance = self.sites.moments(*latent)
        return {
            "mean": mean,
            "std": deviation,
            "cdf": self.sites.cdf(targets, *latent).numpy(),
            "log_density": self.sites.log_density(targets, *latent).numpy() + self.scaling.log_slope(Y),
            "crps": self._crps(Y, targets),
            "deviations_off": ((targets - middle) / variance.sqrt()).numpy(),
        }

    def _crps(self, Y: Float64[Array, "n o"], targets: Float64[Tensor, "n o"]) -> Float64[Array, "n o"]:
        own: Array = self.sites.crps(targets, self.mean, self.variance).numpy() * self.scaling.y_scale
        if self.scaling.map is None:
            return own
        total = np.zeros_like(own)
        for some in _LEVELS[:, None, None].split(20):  # twice the mean pinball loss of all quantiles
            below, level = Y - self.quantile(some), some.numpy()
            total += 2 * np.maximum(level * below, (level - 1) * below).sum(0)
        return np.where(self.scaling.map.plain.numpy(), own, total / len(_LEVELS))
