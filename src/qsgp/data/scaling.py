"""Inputs and targets in units the mathematics likes: centred and scaled by the training rows, undone on the way out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float64, Shaped

from qsgp.data.filling import ROWS, Filling, learn_filling
from qsgp.data.target_maps import TargetMap

Array = np.ndarray

# Deviations from the training rows beyond which it makes no difference how far away something is.
FAR, FAR_LINEAR, FAR_TARGET = 1e6, 1e12, 1e100
NODES = 32  # of the quadrature over a normal law of mapped targets


@dataclass(frozen=True)
class Scaling:
    """x -> (x - x_mean) / x_scale; y -> map((y - y_mean) / y_scale) - x slope, the slope being 0 without a linear mean.

    The five rows of ``target_map`` are those of `TargetMap`; without it targets stay as they are. ``precision`` is that
    of a `Filling` of missing inputs; without it they are taken for the mean.
    """

    x_mean: Float[Array, " d"]
    x_scale: Float[Array, " d"]
    y_mean: Float[Array, " o"]
    y_scale: Float[Array, " o"]
    slope: Float[Array, "d o"]
    target_map: Float[Array, "five o"] | None = None
    precision: Float[Array, "d d"] | None = None

    @property
    def map(self) -> TargetMap | None:
        return None if self.target_map is None else TargetMap.from_rows(torch.from_numpy(self.target_map))

    @classmethod
    def of(
        cls,
        X: Shaped[Array, "n d"],
        Y: Float[Array, "n o"],
        weight: Float[Array, " n"],
        *,
        scale_y: bool,
        units: Float[Array, " d"] | None = None,
        levels: tuple[int, ...] = (),
    ) -> "Scaling":
        """Weighted statistics, so that a weight of 2 is the row given twice. Constant columns are only centred.

        X may be of any type and larger than memory: it is read in blocks. Missing entries (NaN) tell nothing. ``units``
        has the scales of inputs that keep theirs, NaN for the others; ``levels`` hold the levels of identifiers as
        whole numbers, which stay as they are.
        """
        x_mean, x_scale = _moments(X, weight)
        if units is not None:
            x_scale = np.where(np.isnan(units), x_scale, units)
        x_mean[list(levels)], x_scale[list(levels)] = 0.0, 1.0
        y_mean, y_scale = _moments(Y, weight) if scale_y else (np.zeros(Y.shape[1]), np.ones(Y.shape[1]))
        return cls(x_mean, x_scale, y_mean, y_scale, np.zeros((X.shape[1], Y.shape[1])))

    def with_map(self, target_map: TargetMap, Y: Float[Array, "n o"], weight: Float[Array, " n"]) -> "Scaling":
        """With a map in front of standardised targets, in units of these rows."""
        u = torch.from_numpy(np.clip((Y - self.y_mean) / self.y_scale, -FAR_TARGET, FAR_TARGET))
        return replace(self, target_map=target_map.standardised(u, torch.from_numpy(weight)).rows.numpy())

    def with_filling(self, X: Shaped[Array, "n d"], apart: tuple[int, ...] = ()) -> "Scaling":
        """With a law of the inputs, if these rows have gaps and their inputs tell something of each other."""
        some = np.random.RandomState(0).permutation(len(X))[:ROWS]
        found = learn_filling(self._scaled(X[some], FAR), apart)
        return self if found is None else replace(self, precision=found.precision)

    def with_trend(self, portions: Iterable[tuple[Array, Array, Array]], levels: tuple[int, ...] = ()) -> "Scaling":
        """The linear mean that fits rows best; ``portions`` of inputs, targets and weights."""
        normal, right, total = np.zeros((len(self.x_mean),) * 2), np.zeros_like(self.slope), 0.0
        for X, Y, weight in portions:
            Z, w = self.inputs(X), weight[:, None]
            Z[:, list(levels)] = 0.0
            normal += Z.T @ (w * Z)
            right += Z.T @ (w * self.targets(Y, X))
            total += weight.sum()
        return replace(self, slope=np.linalg.solve(normal + 1e-6 * total * np.eye(len(normal)), right))

    def inputs(self, X: Shaped[Array, "n d"], most: float = FAR) -> Float64[Array, "n d"]:
        """No entry beyond ``most``: a kernel is 0 there already, and squares stay finite in float32. What is missing is
        taken for its mean, given what is known of the row if inputs tell something of each other."""
        found = self._scaled(X, most)
        return (
            np.where(np.isnan(found), 0.0, found) if self.precision is None else Filling(self.precision)(found).inputs
        )

    def left(self, X: Shaped[Array, "n d"]) -> Float64[Array, "n d"]:
        """The variance of each standardised input that is missing: 1, or less where the others tell something."""
        missing = np.isnan(X)
        return (
            missing.astype(np.float64) if self.precision is None else Filling(self.precision)(self._scaled(X, FAR)).left
        )

    def _scaled(self, X: Shaped[Array, "n d"], most: float) -> Float64[Array, "n d"]:
        with np.errstate(over="ignore"):
            return np.clip((X - self.x_mean) / self.x_scale, -most, most).astype(np.float64)

    def linear(self, X: Shaped[Array, "n d"]) -> Float64[Array, "n o"] | float:
        return self.inputs(X, FAR_LINEAR) @ self.slope if self.slope.any() else 0.0

    def targets(self, Y: Float[Array, "n o"], X: Shaped[Array, "n d"]) -> Float64[Array, "n o"]:
        with np.errstate(over="ignore"):
            u = np.clip((Y - self.y_mean) / self.y_scale, -FAR_TARGET, FAR_TARGET)
            t = u if self.map is None else self.map(torch.from_numpy(u)).numpy()
            return np.clip(t - self.linear(X), -FAR_TARGET, FAR_TARGET)

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
        t = values + self.linear(X)
        u = t if self.map is None else self.map.inverse(torch.from_numpy(t)).numpy()
        return u * self.y_scale + self.y_mean

    def moments(
        self, mean: Float[Array, "n o"], variance: Float[Array, "n o"], X: Shaped[Array, "n d"]
    ) -> tuple[Float64[Array, "n o"], Float64[Array, "n o"]]:
        """Mean and deviation in the unit of y of what has this mean and variance; under a map, of normal laws."""
        if self.map is None:
            return self.restore(mean, X), np.sqrt(variance) * self.y_scale
        z, share = normal_nodes()
        values = self.restore(mean + z[:, None, None] * np.sqrt(variance), X)
        middle = np.einsum("k,kno->no", share, values)
        deviation = np.sqrt(np.einsum("k,kno->no", share, np.square(values - middle)))
        plain = self.map.plain.numpy()  # outputs without a map: the same numbers as ever
        restored, own = self.restore(mean, X), np.sqrt(variance) * self.y_scale
        return np.where(plain, restored, middle), np.where(plain, own, deviation)

    def log_slope(self, Y: Float[Array, "n o"]) -> Float64[Array, "n o"]:
        """The logarithm of how much further apart standardised targets are than those in the unit of y."""
        own = np.broadcast_to(-np.log(self.y_scale), Y.shape)
        if self.map is None:
            return own
        with np.errstate(over="ignore"):
            u = np.clip((Y - self.y_mean) / self.y_scale, -FAR_TARGET, FAR_TARGET)
        return own + self.map.log_slope(torch.from_numpy(u)).numpy()

    def arrays(self) -> dict[str, Array]:
        return {name: value for name, value in vars(self).items() if value is not None}


def normal_nodes() -> tuple[Float64[Array, " k"], Float64[Array, " k"]]:
    """Where a function is evaluated, and how much each value counts, for its mean under N(0, 1)."""
    z, share = np.polynomial.hermite_e.hermegauss(NODES)
    return z, share / share.sum()


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

    low, high, gaps = np.full(A.shape[1], np.inf), np.full(A.shape[1], -np.inf), False
    for part, _ in parts():
        gaps = gaps or bool(np.isnan(part).any())
        low, high = (
            np.fmin(low, np.fmin.reduce(part, initial=np.inf)),
            np.fmax(high, np.fmax.reduce(part, initial=-np.inf)),
        )
    empty = low > high
    low, high = np.where(empty, 0.0, low), np.where(empty, 0.0, high)
    size = np.maximum(np.abs(low), np.abs(high))
    size = np.where(size > 0, size, 1.0)
    known = sum(share @ ~np.isnan(part) for part, share in parts())
    share_of = np.where(known > 0, known, 1.0) if gaps else 1.0

    def sums(value: Callable[[Float[Array, "b c"]], Float[Array, "b c"]]) -> Float[Array, " c"]:
        found = [share @ (np.nan_to_num(value(part)) if gaps else value(part)) for part, share in parts()]
        return np.asarray(sum(found) / share_of)

    mean = sums(lambda part: part / size)
    deviation = np.sqrt(sums(lambda part: np.square(part / size - mean)))
    # Rounding leaves a constant column a deviation of about 1e-17: what varies less than that is constant.
    varies = (high > low) & (deviation > 1e-14)
    # The mean of equal numbers is that number: one bit off would be many units of a scale of 1.
    return np.where(high == low, low, mean * size), np.where(varies, deviation * size, np.maximum(1.0, 1e-14 * size))
