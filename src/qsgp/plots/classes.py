"""Classification: probabilities, decisions and what happened."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from qsgp.evaluation import area, binned
from qsgp.plots.drawing import axes, classification, error_bars
from qsgp.plots.views import short

_CURVES = 10  # classes drawn at most
_CURVE_POINTS = 200


def reliability_diagram(of: Any, X: Any = None, y: Any = None, *, bins: int = 10, ax: Axes | None = None) -> Axes:
    """How often what was given a probability happened: the second of two classes, else the predicted class."""
    found, ax = classification(of, X, y), axes(ax)
    table = binned(*found.events(), bins)
    ax.plot([0, 1], [0, 1], color="C1", linewidth=1)
    error_bars(ax, table[:, 0], table[:, 1], table[:, 2], color="C0")
    subject = short(str(found.classes[1]), 14) if len(found.classes) == 2 else "the predicted class"
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    ax.set_xlabel(f"probability of {subject}", parse_math=False)
    ax.set_ylabel("share that was so")
    return ax


def confusion_matrix(of: Any, X: Any = None, y: Any = None, *, ax: Axes | None = None) -> Axes:
    """Rows of each class by the class predicted for them; colour is the share of the observed class."""
    found, ax = classification(of, X, y), axes(ax)
    c = len(found.classes)
    counts = np.bincount(found.label * c + found.predicted, minlength=c * c).reshape(c, c)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    size = "medium" if c <= 5 else "small" if counts.max() < 1000 else "xx-small"
    for i in range(c):
        for j in range(c):
            # a rectangle for each cell, not an image: it stays sharp and takes its colour from the page
            if counts[i, j]:
                ax.fill_between([j - 0.5, j + 0.5], i - 0.5, i + 0.5, color="C0", alpha=0.08 + 0.47 * share[i, j], lw=0)
            if c <= 12:
                ax.text(j, i, str(counts[i, j]), ha="center", va="center", fontsize=size)
    names = [short(str(name), 10) for name in found.classes]
    shown = range(0, c, max(1, c // 12))
    ax.set(xlim=(-0.5, c - 0.5), ylim=(c - 0.5, -0.5), xticks=shown, yticks=shown)
    longest = max(len(names[k]) for k in shown)
    ax.set_xticklabels([names[k] for k in shown], rotation=90 if longest * len(shown) > 40 else 0, parse_math=False)
    ax.set_yticklabels([names[k] for k in shown], parse_math=False)
    ax.set(xlabel="predicted", ylabel="observed")
    return ax


def roc_curves(of: Any, X: Any = None, y: Any = None, *, ax: Axes | None = None) -> Axes:
    """True positives over false positives at every threshold; several classes each against the rest."""
    found, ax = classification(of, X, y), axes(ax)
    ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle=":")
    for c in found.shown()[:_CURVES]:
        positive, score = found.label == c, found.probability[:, c]
        value = area(positive, score)
        if np.isnan(value):
            continue
        order = np.argsort(-score, kind="stable")
        last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))  # thresholds between equal scores cannot be
        hits, misses = np.cumsum(positive[order])[last], np.cumsum(~positive[order])[last]
        kept = np.unique(np.linspace(0, len(last) - 1, _CURVE_POINTS).round().astype(int))
        x, t = (np.append(0, part[kept] / part[-1]) for part in (misses, hits))
        ax.plot(x, t, label=f"{short(str(found.classes[c]), 14)} ({value:.3f})".lstrip("_"))
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="false positive rate", ylabel="true positive rate")
    if ax.get_legend_handles_labels()[0]:
        for text in ax.legend(fontsize="small", frameon=False, loc="lower right").get_texts():
            text.set_parse_math(False)
    return ax
