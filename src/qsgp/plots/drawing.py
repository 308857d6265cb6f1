"""What the pictures share: axes on demand, rows drawn at random, an evaluation from whatever was given."""

from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from matplotlib import pyplot
from matplotlib.axes import Axes

from qsgp.evaluation import Classification, Evaluation, Regression, evaluate

POINTS = 1500  # drawn at most: more only hide each other
DOTS: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 2.5, "markeredgewidth": 0.0, "alpha": 0.45}


def axes(ax: Axes | None) -> Axes:
    return pyplot.subplots()[1] if ax is None else ax


def regression(of: Any, X: Any, y: Any, output: int) -> Regression:
    found = _evaluation(of, X, y, output)
    if not isinstance(found, Regression):
        raise ValueError("Expected a regressor, got a classifier. Draw reliability_diagram or roc_curves instead.")
    return found


def classification(of: Any, X: Any, y: Any) -> Classification:
    found = _evaluation(of, X, y, 0)
    if not isinstance(found, Classification):
        raise ValueError("Expected a classifier, got a regressor. Draw calibration_curve or pit_histogram instead.")
    return found


def _evaluation(of: Any, X: Any, y: Any, output: int) -> Evaluation:
    if isinstance(of, Regression | Classification):
        return of
    if X is None or y is None:
        raise ValueError("Expected rows X and targets y beside a model, got none. Pass them, or what evaluate gave.")
    return evaluate(of, X, y, output=output)


def some_rows(n: int, most: int = POINTS) -> Int64[np.ndarray, " k"]:
    """All rows, or ``most`` of them at random, always the same."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))


def share_interval(
    share: Float64[np.ndarray, " b"], rows: Float64[np.ndarray, " b"]
) -> tuple[Float64[np.ndarray, " b"], Float64[np.ndarray, " b"]]:
    """Wilson's 95 % interval of a share among so many rows: sensible at 0 and 1, where the normal one has no width."""
    z = 1.959964
    centre = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    half = z / (1 + z**2 / rows) * np.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    return centre - half, centre + half


def error_bars(ax: Axes, at: Any, share: Any, rows: Any, **style: Any) -> float:
    """Shares with their intervals; returns where the lowest of them ends."""
    low, high = share_interval(share, rows)
    # the ends of the interval lie around the share except for rounding at 0 and 1
    ends = np.maximum([share - low, high - share], 0)
    ax.errorbar(at, share, ends, fmt="o", markersize=4, elinewidth=1, capsize=2, **style)
    return float(low.min())
