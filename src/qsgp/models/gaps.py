"""What a model does not know of a row whose values are missing: predictions there are less sure.

An input that is missing is taken for its mean. How much of the function is lost by that is measured at rows of the fit:
each input in turn is hidden, and the square of the change of the mean is the variance that is added where it is
missing.
Rows of the fit with gaps have taught a noise that holds their share of it, which is taken off again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Shaped
from torch import Tensor

Array = np.ndarray
_NUMBERS = 4000  # of the rows kept, times the inputs that are hidden one by one
_ROWS, _MOST_ROWS = 10, 300
_MOST_HIDDEN = 400  # of very many inputs the others are like these on average


@dataclass(frozen=True)
class Gaps:
    """Some rows of the fit without their gaps, and the share of rows in which each input was missing."""

    rows: Float64[Array, "r d"]
    share: Float64[Array, " d"]

    @classmethod
    def of(cls, X: Shaped[Array, "n d"], mean: Float64[Array, " d"]) -> "Gaps":
        count = int(np.clip(_NUMBERS // X.shape[1], _ROWS, _MOST_ROWS))
        some = X[np.linspace(0, len(X) - 1, min(count, len(X))).astype(int)].astype(np.float64)
        share = np.zeros(X.shape[1]) if np.isfinite(X.sum()) else np.isnan(X).mean(0)
        return cls(np.where(np.isnan(some), mean, some), share)

    @classmethod
    def unknown(cls, mean: Float64[Array, " d"], scale: Float64[Array, " d"]) -> "Gaps":
        """For a model of a file that does not hold them: normal rows."""
        draws = np.random.default_rng(0).normal(size=(_ROWS, len(mean)))
        return cls(mean + scale * draws, np.zeros(len(mean)))

    def variance(
        self, predict: Callable[[Float64[Array, "n d"]], Tensor], groups: Sequence[Sequence[int]]
    ) -> Float64[Array, "d o"]:
        """What hiding each input adds, that of a group at its first: inputs of one column are missing together."""
        before = predict(self.rows).numpy()
        found = np.zeros((self.rows.shape[1], before.shape[1]))
        hidden = groups[:: 1 + max(0, len(groups) - 1) // _MOST_HIDDEN]
        for group in hidden:
            rows = self.rows.copy()
            rows[:, list(group)] = np.nan
            known = np.maximum(1 - self.share[group[0]], 1 / len(rows))  # elsewhere it was hidden before
            found[group[0]] = np.square(predict(rows).numpy() - before).mean(0) / known
        for group in groups:
            if group not in hidden:
                found[group[0]] = found[[other[0] for other in hidden]].mean(0)
        return found

    def added(self, missing: Bool[Array, "n d"], variance: Float64[Array, "d o"]) -> Float64[Array, "n o"]:
        """More than the rows of the fit had on average, or less."""
        return (missing - self.share) @ variance
