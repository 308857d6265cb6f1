"""Regression: predictions, their deviations and what happened."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from qsgp import metrics
from qsgp.evaluation import groups
from qsgp.plots.drawing import DOTS, axes, error_bars, regression, some_rows

LEVELS = np.arange(1, 20) / 20


def predicted_against_observed(
    of: Any, X: Any = None, y: Any = None, *, output: int = 0, ax: Axes | None = None
) -> Axes:
    """Observed targets over predicted means, at most 1,500 rows; on the line the prediction was right."""
    found, ax = regression(of, X, y, output), axes(ax)
    rows = some_rows(len(found.y))
    mean, observed = found.mean[rows], found.y[rows]
    ax.axline(_corner(mean, observed), slope=1, color="C1", linewidth=1)
    ax.plot(mean, observed, **DOTS)
    ax.set(xlabel="predicted", ylabel="observed")
    return ax


def _corner(mean: Any, observed: Any) -> tuple[float, float]:
    middle = float(np.median(np.concatenate([mean, observed])))
    return middle, middle


def pit_histogram(of: Any, X: Any = None, y: Any = None, *, output: int = 0, ax: Axes | None = None) -> Axes:
    """Where the targets fell within their predicted laws: flat for honest ones.

    The band holds all bars of a calibrated model of so many rows in 99 of 100 pictures.
    """
    found, ax = regression(of, X, y, output), axes(ax)
    bars = found.pit_bars()
    bins = len(bars.count)
    ax.axhspan(bars.height(bars.few), bars.height(bars.many), color="C1", alpha=0.25, linewidth=0)
    ax.axhline(1, color="C1", linewidth=1)
    ax.bar((np.arange(bins) + 0.5) / bins, bars.height(bars.count), 0.92 / bins, color="C0", alpha=0.8)
    ax.set(xlim=(0, 1), ylim=(0, None), xlabel="predicted probability of a smaller target", ylabel="relative frequency")
    return ax


def calibration_curve(of: Any, X: Any = None, y: Any = None, *, output: int = 0, ax: Axes | None = None) -> Axes:
    """Share of the targets inside their central intervals over the probability that was promised."""
    found, ax = regression(of, X, y, output), axes(ax)
    # |2 F(y) - 1| is what `central` holds; recalibrated models have one that no F gives
    observed = metrics.central_coverage((1 + found.central.clip(0, 1)) / 2, LEVELS.tolist()).numpy()
    ax.plot([0, 1], [0, 1], color="C1", linewidth=1)
    ax.plot(LEVELS, observed, marker="o", markersize=3)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="promised coverage", ylabel="observed coverage")
    return ax


def coverage_by_deciles(of: Any, X: Any = None, y: Any = None, *, output: int = 0, ax: Axes | None = None) -> Axes:
    """Coverage of the 95 % intervals in ten groups of rows by rising predicted deviation (fewer for few rows)."""
    found, ax = regression(of, X, y, output), axes(ax)
    parts = groups(found.deviation)
    share = np.array([found.inside[rows].mean() for rows in parts])
    ax.axhline(0.95, color="C1", linewidth=1)
    sizes = np.array([float(len(rows)) for rows in parts])
    lowest = error_bars(ax, np.arange(1, len(parts) + 1), share, sizes, color="C0")
    ax.set(
        xlabel="groups of rows, the surest first",
        ylabel="inside 95 % intervals",
        xticks=range(1, len(parts) + 1),
        ylim=(min(0.8, lowest - 0.02), 1.02),
    )
    return ax
