"""Columns of categories, which are several inputs of a model: one picture for each column."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from qsgp.evaluation import Encoded, input_names
from qsgp.plots.drawing import axes
from qsgp.plots.inputs import interval, short

_MOST = 12  # values drawn, the most frequent ones
_CLASSES = 6


def category_slice(model: Any, X: Any, *, column: str, output: int = 0, ax: Axes | None = None) -> Axes:
    """Predictions for each value of a category, the other inputs at their medians over X, with 95 % bands."""
    ax, rows = axes(ax), model.prepare_inputs(X).astype(float)
    inputs = model.columns_.encoded_by_column[column]
    place = np.array([input_names(model).index(name) for name in inputs])
    labels = category_labels(model, column)
    often = np.sort(np.argsort(-np.nanmean(rows[:, place], 0), kind="stable")[:_MOST])
    grid = np.tile(np.nanmedian(rows, 0), (len(often), 1))
    grid[:, place] = 0.0
    grid[np.arange(len(often)), place[often]] = 1.0
    at, ready = np.arange(len(often)), Encoded(grid)
    if hasattr(model, "classes_"):
        _draw_classes(model, model.predict_proba(ready), ax)
    else:
        mean, band = model.predict(ready), interval(model, ready)
        mean, low, high = (np.reshape(part, (len(often), -1))[:, output] for part in (mean, *band))
        ax.vlines(at, low, high, color="C0", alpha=0.4, linewidth=4)
        ax.plot(at, mean, "o", color="C0", markersize=4)
        ax.set_ylabel("predicted y")
    ax.set_xticks(at, [short(labels[k], 10) for k in often], rotation=35 if len(often) > 3 else 0, ha="right")
    for text in ax.get_xticklabels():
        text.set_parse_math(False)
    ax.set_xlabel(short(column), parse_math=False)
    return ax


def category_labels(model: Any, column: str) -> list[str]:
    """What the inputs of a category stand for: its values, and that none is known."""
    found = next(each for each in model.columns_ if each.name == column)
    return [*found.values, *(["missing"] if found.gaps else [])]


def _draw_classes(model: Any, probability: np.ndarray, ax: Axes) -> None:
    at = np.arange(len(probability))
    shown = [1] if len(model.classes_) == 2 else np.sort(np.argsort(np.ptp(probability, 0))[-_CLASSES:])
    for c in shown:
        ax.plot(at, probability[:, c], "o", markersize=4, label=short(str(model.classes_[c]), 14).lstrip("_"))
    if len(shown) > 1:
        for text in ax.legend(fontsize="small", frameon=False).get_texts():
            text.set_parse_math(False)
    ax.set(ylim=(-0.02, 1.02), ylabel="probability")
