"""Inputs and targets in units the mathematics likes: centred and scaled by the training rows, undone on the way out."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Array = np.ndarray


@dataclass(frozen=True)
class Scaling:
    """x -> (x - x_mean) / x_scale; y -> (y - y_mean) / y_scale - x slope, the slope being 0 without a linear mean."""

    x_mean: Float[Array, " d"]
    x_scale: Float[Array, " d"]
    y_mean: Float[Array, " o"]
    y_scale: Float[Array, " o"]
    slope: Float[Array, "d o"]

    @classmethod
    def of(
        cls, X: Float[Array, "n d"], Y: Float[Array, "n o"], weight: Float[Array, " n"], *, scale_y: bool, linear: bool
    ) -> "Scaling":
        """Weighted statistics, so that a weight of 2 is the row given twice. Constant columns are only centred."""
        x_mean, x_scale = _moments(X, weight)
        y_mean, y_scale = _moments(Y, weight) if scale_y else (np.zeros(Y.shape[1]), np.ones(Y.shape[1]))
        slope = np.zeros((X.shape[1], Y.shape[1]))
        plain = cls(x_mean, x_scale, y_mean, y_scale, slope)
        if not linear:
            return plain
        Z, T = plain.inputs(X), plain.targets(Y, X)
        normal = Z.T @ (weight[:, None] * Z) + 1e-6 * weight.sum() * np.eye(Z.shape[1])
        return cls(x_mean, x_scale, y_mean, y_scale, np.linalg.solve(normal, Z.T @ (weight[:, None] * T)))

    def inputs(self, X: Float[Array, "n d"]) -> Float[Array, "n d"]:
        return (X - self.x_mean) / self.x_scale

    def targets(self, Y: Float[Array, "n o"], X: Float[Array, "n d"]) -> Float[Array, "n o"]:
        return (Y - self.y_mean) / self.y_scale - self.inputs(X) @ self.slope

    def restore(self, values: Float[Array, "*s n o"], X: Float[Array, "n d"]) -> Float[Array, "*s n o"]:
        """Standardised means, quantiles or draws in the unit of y."""
        return (values + self.inputs(X) @ self.slope) * self.y_scale + self.y_mean

    def arrays(self) -> dict[str, Array]:
        return vars(self)


def _moments(A: Float[Array, "n c"], weight: Float[Array, " n"]) -> tuple[Float[Array, " c"], Float[Array, " c"]]:
    """Weighted mean and deviation of every column; the deviation of a constant one is 1.

    Columns are divided by their largest entry first: squares of 1e200 are infinite, those of 1e-200 zero.
    """
    size = np.abs(A).max(0)
    size = np.where(size > 0, size, 1.0)
    share = weight / weight.sum()
    B = A / size
    mean = share @ B
    used = B[weight > 0]
    deviation = np.sqrt(share @ np.square(B - mean))
    # Rounding leaves a constant column a deviation of about 1e-17: what varies less than that is constant.
    varies = (used.max(0) > used.min(0)) & (deviation > 1e-14)
    return mean * size, np.where(varies, deviation * size, 1.0)
