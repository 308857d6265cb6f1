"""Mean and deviation of every column from one pass over the rows, equal to what `Scaling.of` finds with two."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Moments:
    """Of ``columns`` columns. Sums are kept in units of the largest entry so far: squares of 1e200 are infinite.

    Portions are joined by the formula of Chan, Golub and LeVeque (1983), which loses no digits to large means.
    """

    columns: int
    total: float = 0.0  # of the weights of all rows
    known: np.ndarray = field(init=False)  # weight of the rows with a value
    low: np.ndarray = field(init=False)
    high: np.ndarray = field(init=False)
    unit: np.ndarray = field(init=False)
    mean: np.ndarray = field(init=False)  # in units
    square: np.ndarray = field(init=False)  # sum of squares about the mean, in units

    def __post_init__(self) -> None:
        self.low, self.high = np.full(self.columns, np.inf), np.full(self.columns, -np.inf)
        self.known, self.unit, self.mean, self.square = (np.zeros(self.columns) for _ in range(4))

    def add(self, rows: np.ndarray, weight: np.ndarray) -> None:
        """Rows of weights above zero; what is missing (NaN) tells nothing."""
        if not len(rows):
            return
        missing = np.isnan(rows)
        low, high = np.fmin.reduce(rows, initial=np.inf), np.fmax.reduce(rows, initial=-np.inf)
        largest = np.where(low > high, 0.0, np.maximum(np.abs(low), np.abs(high)))
        self._measure_in(np.maximum(self.unit, largest))
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        scaled = np.where(missing, 0.0, rows) / np.where(self.unit > 0, self.unit, 1.0)
        new = weight @ ~missing
        mean = (weight @ scaled) / np.where(new > 0, new, 1.0)
        scaled = np.where(missing, 0.0, scaled - mean)
        square = weight @ np.square(scaled, out=scaled)
        known = self.known + new
        gap, share = mean - self.mean, new / np.where(known > 0, known, 1.0)
        self.mean = self.mean + gap * share
        self.square = self.square + square + gap**2 * (self.known * share)
        self.known, self.total = known, self.total + float(weight.sum())

    def found(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation; the deviation of a constant column is 1, as in `scaling`."""
        unit = np.where(self.unit > 0, self.unit, 1.0)
        deviation = np.sqrt(self.square / np.where(self.known > 0, self.known, 1.0))
        varies = (self.high > self.low) & (deviation > 1e-14)
        mean = np.where(self.high == self.low, self.low, self.mean * unit)
        return mean, np.where(varies, deviation * unit, np.maximum(1.0, 1e-14 * unit))

    def _measure_in(self, unit: np.ndarray) -> None:
        shrink = np.divide(self.unit, unit, out=np.ones_like(unit), where=unit > 0)
        self.mean, self.square, self.unit = self.mean * shrink, self.square * shrink**2, unit
