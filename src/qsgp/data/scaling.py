"""Inputs and targets in units the mathematics likes: centred and scaled by the training rows, undone on the way out."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Shaped

Array = np.ndarray

# Deviations from the training rows beyond which it makes no difference how far away something is.
FAR, FAR_LINEAR, FAR_TARGET = 1e6, 1e12, 1e100


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
        cls, X: Shaped[Array, "n d"], Y: Float[Array, "n o"], weight: Float[Array, " n"], *, scale_y: bool, linear: bool
    ) -> "Scaling":
        """Weighted statistics, so that a weight of 2 is the row given twice. Constant columns are only centred.

        X may be of any type and larger than memory: it is read in blocks.
        """
        x_mean, x_scale = _moments(X, weight)
        y_mean, y_scale = _moments(Y, weight) if scale_y else (np.zeros(Y.shape[1]), np.ones(Y.shape[1]))
        slope = np.zeros((X.shape[1], Y.shape[1]))
        plain = cls(x_mean, x_scale, y_mean, y_scale, slope)
        if not linear:
            return plain
        normal, right = 1e-6 * weight.sum() * np.eye(X.shape[1]), slope.copy()
        for rows in blocks(len(X)):
            Z, w = plain.inputs(X[rows]), weight[rows, None]
            normal += Z.T @ (w * Z)
            right += Z.T @ (w * plain.targets(Y[rows], X[rows]))
        return cls(x_mean, x_scale, y_mean, y_scale, np.linalg.solve(normal, right))

    def inputs(self, X: Shaped[Array, "n d"], most: float = FAR) -> Float64[Array, "n d"]:
        """No entry beyond ``most``: a kernel is 0 there already, and squares stay finite in float32."""
        with np.errstate(over="ignore"):
            return np.clip((X - self.x_mean) / self.x_scale, -most, most)

    def linear(self, X: Shaped[Array, "n d"]) -> Float64[Array, "n o"] | float:
        return self.inputs(X, FAR_LINEAR) @ self.slope if self.slope.any() else 0.0

    def targets(self, Y: Float[Array, "n o"], X: Shaped[Array, "n d"]) -> Float64[Array, "n o"]:
        with np.errstate(over="ignore"):
            return np.clip((Y - self.y_mean) / self.y_scale - self.linear(X), -FAR_TARGET, FAR_TARGET)

    def standardised(
        self, X: Shaped[Array, "n d"], Y: Float[Array, "n o"], dtype: np.dtype
    ) -> tuple[Float[Array, "n d"], Float[Array, "n o"]]:
        """Inputs and targets of all rows in ``dtype``, block by block: no second copy of X in float64."""
        x, y = np.empty(X.shape, dtype), np.empty(Y.shape, dtype)
        for rows in blocks(len(X)):
            x[rows], y[rows] = self.inputs(X[rows]), self.targets(Y[rows], X[rows])
        return x, y

    def restore(self, values: Float[Array, "*s n o"], X: Shaped[Array, "n d"]) -> Float[Array, "*s n o"]:
        """Standardised means, quantiles or draws in the unit of y."""
        return (values + self.linear(X)) * self.y_scale + self.y_mean

    def arrays(self) -> dict[str, Array]:
        return vars(self)


def blocks(n: int, size: int = 65_536) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _moments(A: Shaped[Array, "n c"], weight: Float[Array, " n"]) -> tuple[Float[Array, " c"], Float[Array, " c"]]:
    """Weighted mean and deviation of every column; the deviation of a constant one is 1.

    Columns are divided by their largest entry first: squares of 1e200 are infinite, those of 1e-200 zero.
    """
    total = weight.sum()

    def parts() -> Iterator[tuple[Float[Array, "b c"], Float[Array, " b"]]]:
        """Rows that count, in float64, and their share of the weight."""
        for rows in blocks(len(A)):
            counted = weight[rows] > 0
            yield A[rows][counted].astype(np.float64), weight[rows][counted] / total

    low, high = np.full(A.shape[1], np.inf), np.full(A.shape[1], -np.inf)
    for part, _ in parts():
        low, high = np.minimum(low, part.min(0, initial=np.inf)), np.maximum(high, part.max(0, initial=-np.inf))
    size = np.maximum(np.abs(low), np.abs(high))
    size = np.where(size > 0, size, 1.0)
    mean = sum(share @ (part / size) for part, share in parts())
    deviation = np.sqrt(sum(share @ np.square(part / size - mean) for part, share in parts()))
    # Rounding leaves a constant column a deviation of about 1e-17: what varies less than that is constant.
    varies = (high > low) & (deviation > 1e-14)
    # The mean of equal numbers is that number: one bit off would be many units of a scale of 1.
    return np.where(high == low, low, mean * size), np.where(varies, deviation * size, np.maximum(1.0, 1e-14 * size))
