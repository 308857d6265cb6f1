"""What a model does not know of a row whose values are missing: predictions there are less sure.

An input that is missing is taken for its mean. How much of the function is lost by that is measured at rows of the fit:
each input in turn is hidden, and the square of the change of the mean is the variance that is added where it is
missing. Where other inputs tell something of it, less is added the more of it they tell.
Rows of the fit with gaps have taught a noise that holds their share of it, which is taken off again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Shaped
from torch import Tensor

from qsgp.data.scaling import Scaling

Array = np.ndarray
_NUMBERS = 4000  # of the rows kept, times the inputs that are hidden one by one
_ROWS, _MOST_ROWS = 10, 300
_TO_SHARE = 20_000  # rows that tell how much of each input is left on average
_MOST_HIDDEN = 400  # of very many inputs the others are like these on average


@dataclass(frozen=True)
class Gaps:
    """Some rows of the fit without their gaps, and the share of rows in which each input was missing.

    If inputs tell something of each other, ``share`` is what was left of the variance of each input on average, and
    ``missing`` is 1 where the rows had gaps: what hiding an input adds is measured beside them.
    """

    rows: Float64[Array, "r d"]
    share: Float64[Array, " d"]
    missing: Float64[Array, "r d"] | None = None

    @classmethod
    def of(cls, X: Shaped[Array, "n d"], scaling: Scaling) -> "Gaps":
        count = int(np.clip(_NUMBERS // X.shape[1], _ROWS, _MOST_ROWS))
        some = X[np.linspace(0, len(X) - 1, min(count, len(X))).astype(int)].astype(np.float64)
        gaps = np.isnan(some)
        if scaling.precision is None:
            share = np.zeros(X.shape[1]) if np.isfinite(X.sum()) else np.isnan(X).mean(0)
            return cls(np.where(gaps, scaling.x_mean, some), share)
        left = scaling.left(X[np.linspace(0, len(X) - 1, min(_TO_SHARE, len(X))).astype(int)])
        return cls(np.where(gaps, scaling.x_mean, some), left.mean(0), gaps.astype(np.float64))

    @classmethod
    def unknown(cls, mean: Float64[Array, " d"], scale: Float64[Array, " d"]) -> "Gaps":
        """For a model of a file that does not hold them: normal rows."""
        draws = np.random.default_rng(0).normal(size=(_ROWS, len(mean)))
        return cls(mean + scale * draws, np.zeros(len(mean)))

    def variance(
        self, predict: Callable[[Float64[Array, "n d"]], Tensor], groups: Sequence[Sequence[int]], scaling: Scaling
    ) -> Float64[Array, "d o"]:
        """What hiding each input adds, that of a group at its first: inputs of one column are missing together. By the
        variance that is left of an input, if others tell something of it."""
        own = self.rows if self.missing is None else np.where(self.missing > 0, np.nan, self.rows)
        before = predict(own).numpy()
        found = np.zeros((self.rows.shape[1], before.shape[1]))
        hidden = groups[:: 1 + max(0, len(groups) - 1) // _MOST_HIDDEN]
        for group in hidden:
            rows = own.copy()
            rows[:, list(group)] = np.nan
            change = np.square(predict(rows).numpy() - before)
            if self.missing is None:  # where it was missing in the fit nothing changes
                found[group[0]] = change.mean(0) / np.maximum(1 - self.share[group[0]], 1 / len(rows))
            else:
                known = self.missing[:, group[0]] == 0
                left = scaling.left(rows)[known, group[0]].sum()
                found[group[0]] = change[known].sum(0) / left if left > 0 else 0.0
        for group in groups:
            if group not in hidden:
                found[group[0]] = found[[other[0] for other in hidden]].mean(0)
        return found

    def added(self, left: Float64[Array, "n d"], variance: Float64[Array, "d o"]) -> Float64[Array, "n o"]:
        """More than the rows of the fit had on average, or less; ``left`` is that of `Scaling`."""
        return (left - self.share) @ variance
