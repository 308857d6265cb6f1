"""What missing inputs probably were, told by those that are known: the law of standardised inputs as a normal one.

Its correlations come from the rows that have both of two inputs. They are drawn towards none by as much as makes rows
that were not counted most probable. Nothing is learned where inputs say nothing of each other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

Array = np.ndarray
MOST_INPUTS = 50  # the law of more would take longer than it is worth
ROWS = 4000  # that it is learned from, half of them for how far correlations are trusted
_SHRINKAGE = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
FAR = 8.0  # deviations: an input further away says no more of the others
_PATTERNS = 256  # of gaps at a time
_LEAST_GAIN = 0.01  # nats a row
_LEAST_ROWS = 50


class Filled(NamedTuple):
    """Inputs without gaps, and the variance that is left of each input that was missing."""

    inputs: Float64[Array, "n d"]
    left: Float64[Array, "n d"]


@dataclass(frozen=True)
class Filling:
    """Inputs have mean zero and the inverse of ``precision`` as covariance."""

    precision: Float64[Array, "d d"]

    def __call__(self, z: Float64[Array, "n d"]) -> Filled:
        """The mean of what is missing (NaN), given what is known of its row. Cost d^3 for each pattern of gaps."""
        inputs, left = z.copy(), np.zeros(z.shape)
        rows = np.flatnonzero(np.isnan(z).any(1))
        missing = np.isnan(z[rows])
        pull = np.where(missing, 0.0, np.clip(z[rows], -FAR, FAR)) @ self.precision
        for at, gaps, covariance in self._patterns(missing):
            inputs[np.ix_(rows[at], gaps)] = -pull[np.ix_(at, gaps)] @ covariance
            left[np.ix_(rows[at], gaps)] = np.diag(covariance)
        return Filled(inputs, left)

    def _patterns(self, missing: Bool[Array, "n d"]) -> Iterator[tuple[Array, Array, Float64[Array, "g g"]]]:
        """Rows with the same gaps, the inputs that they lack, and the covariance that is left of these."""
        patterns, which = np.unique(missing, axis=0, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        ends = np.searchsorted(which.ravel()[order], np.arange(len(patterns) + 1))
        for k, pattern in enumerate(patterns):
            gaps = np.flatnonzero(pattern)
            if len(gaps):
                yield order[ends[k] : ends[k + 1]], gaps, np.linalg.inv(self.precision[np.ix_(gaps, gaps)])


def learn_filling(z: Float64[Array, "n d"], apart: tuple[int, ...] = ()) -> Filling | None:
    """From rows with gaps in random order; None where the mean is as good. Inputs ``apart`` say nothing of others."""
    if z.shape[1] > MOST_INPUTS or z.shape[1] < 2 or not np.isnan(z).any() or len(z) < _LEAST_ROWS:
        return None
    z = np.clip(z, -FAR, FAR)
    half = len(z) // 2
    first, scale = _pairwise(z[:half], apart)
    found = [_log_density(z[half:] / scale, _shrunk(first, share)) for share in _SHRINKAGE]
    best = int(np.argmax(found))
    if found[best] - found[-1] < _LEAST_GAIN * (len(z) - half):
        return None
    correlation, scale = _pairwise(z, apart)
    covariance = _shrunk(correlation, _SHRINKAGE[best]) * np.outer(scale, scale)
    return Filling(np.linalg.inv(covariance))


def _pairwise(z: Float64[Array, "n d"], apart: tuple[int, ...]) -> tuple[Float64[Array, "d d"], Float64[Array, " d"]]:
    """Correlations of the rows that have both, and deviations."""
    known = ~np.isnan(z)
    known[:, list(apart)] = False
    zero = np.where(known, z, 0.0)
    both = known.astype(np.float64).T @ known
    moments = zero.T @ zero / np.maximum(both, 1.0)
    scale = np.sqrt(np.diag(moments))
    scale = np.where(scale > 1e-6, scale, 1.0)
    found = np.clip(moments / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return found, scale


def _shrunk(correlation: Float64[Array, "d d"], share: float) -> Float64[Array, "d d"]:
    """Positive definite: correlations of pairs need not be those of any law."""
    value, vector = np.linalg.eigh((1 - share) * correlation + share * np.eye(len(correlation)))
    return np.asarray((vector * np.maximum(value, _SHRINKAGE[0])) @ vector.T)


def _log_density(z: Float64[Array, "n d"], covariance: Float64[Array, "d d"]) -> float:
    """Of what is known of each row, but for a constant; rows a few hundred at a time."""
    total = 0.0
    for start in range(0, len(z), _PATTERNS):
        part = z[start : start + _PATTERNS]
        known = ~np.isnan(part)
        both = known[:, :, None] & known[:, None, :]
        factor = np.linalg.cholesky(np.where(both, covariance, np.eye(len(covariance))))  # what is missing stands alone
        white = np.linalg.solve(factor, np.where(known, part, 0.0)[:, :, None])
        total -= 0.5 * float(np.square(white).sum()) + float(np.log(np.diagonal(factor, 0, 1, 2)).sum())
    return total
