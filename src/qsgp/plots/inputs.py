"""What the inputs do: how much they matter, what they leave unexplained, and f along one of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qsgp.evaluation import Encoded, groups, input_names, relevance
from qsgp.plots.drawing import DOTS, axes, regression, some_rows

Array = np.ndarray
_GRID = 80
_CURVES, _NAMES_IN_A_LINE = 6, 3  # classes drawn at most, and how their names stand
_BAND = 0.95


def input_relevance(
    model: Any,
    *,
    columns: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    most: int = 12,
    ax: Axes | None = None,
) -> Axes:
    """1 / lengthscale of the ``most`` relevant inputs, each measured in its own deviations; the largest on top.

    ``columns`` leaves others out, such as those that were constant in training: nothing has taught their lengthscale.
    ``names`` are shown in place of those of the inputs.
    """
    values, names, ax = relevance(model), names or input_names(model), axes(ax)
    among = np.arange(len(values)) if columns is None else np.asarray(columns, dtype=int)
    order = among[np.argsort(-values[among], kind="stable")[:most]][::-1]
    ax.barh(np.arange(len(order)), values[order], 0.7, color="C0", alpha=0.85)
    ax.set(yticks=np.arange(len(order)), xlabel="1 / lengthscale")
    ax.set_yticklabels([short(names[j]) for j in order], parse_math=False)
    return ax


def residuals(
    of: Any, X: Any, y: Any = None, *, column: int | str = 0, output: int = 0, most: int = 500, ax: Axes | None = None
) -> Axes:
    """Observed less predicted over one input, at most ``most`` rows; the line is the mean of groups of all rows.

    ``of`` may be an evaluation; X then is the input itself, one number a row.
    """
    found, ax = regression(of, X, y, output), axes(ax)
    name = str(column)
    if hasattr(of, "prepare_inputs"):
        position = which(of, column)
        x, name = of.prepare_inputs(X)[:, position].astype(float), input_names(of)[position]
    else:
        x = np.asarray(X, dtype=float)
    rows = some_rows(len(x), most)
    ax.plot(x[rows], found.residual[rows], **DOTS)
    ax.axhline(0, color="C1", linewidth=1)
    if len(x) >= 100:
        parts = [part[~np.isnan(x[part])] for part in groups(x, 20, 50)]
        parts = [part for part in parts if len(part)]
        ax.plot([x[part].mean() for part in parts], [found.residual[part].mean() for part in parts], "--", color="C2")
    _label(ax, name)
    ax.set_ylabel("observed - predicted")
    return ax


def slice_plot(
    model: Any, X: Any, *, column: int | str = 0, output: int = 0, around: Any = None, ax: Axes | None = None
) -> Axes:
    """Predictions along one input, the others at their medians over X (or at ``around``), with 95 % bands.

    Regression: mean of y and the interval of y. Two classes: the probability of the second and what the model does
    not know of it. More classes: the probabilities of the six that move most.
    """
    ax = axes(ax)
    rows = model.prepare_inputs(X).astype(float)
    position = which(model, column)
    low, high = np.nanquantile(rows[:, position], [0.005, 0.995])
    line = np.linspace(low, high, _GRID)
    grid = np.tile(np.nanmedian(rows, 0) if around is None else np.asarray(around, dtype=float), (_GRID, 1))
    grid[:, position] = line
    ready = Encoded(grid)
    if hasattr(model, "classes_"):
        _class_curves(model, line, ready, ax)
    else:
        mean, band = model.predict(ready), interval(model, ready)
        mean, lower, upper = (np.reshape(part, (_GRID, -1))[:, output] for part in (mean, *band))
        ax.fill_between(line, lower, upper, color="C0", alpha=0.25, linewidth=0)
        ax.plot(line, mean, color="C0")
        ax.set_ylabel("predicted y")
    _label(ax, input_names(model)[position])
    return ax


def _label(ax: Axes, name: str) -> None:
    """The name as it is, not as mathematics, and few ticks: inputs of small scale have long numbers."""
    ax.set_xlabel(short(name), parse_math=False)
    ax.xaxis.set_major_locator(MaxNLocator(4))


def interval(model: Any, X: Any) -> tuple[Array, Array]:
    """The 95 % interval; the model's own where it was recalibrated on too few rows to promise as much."""
    if model.calibration_ is not None and model.calibration_.n < _BAND / (1 - _BAND):
        lower, upper = model.predict_quantiles(X, [(1 - _BAND) / 2, (1 + _BAND) / 2])
        return lower, upper
    lower, upper = model.predict_interval(X, _BAND)
    return lower, upper


def _class_curves(model: Any, line: Array, grid: Encoded, ax: Axes) -> None:
    probability, room = model.predict_proba(grid), 0.0
    if len(model.classes_) == 2:
        ends = model.predict_proba_quantiles(grid, [(1 - _BAND) / 2, (1 + _BAND) / 2])
        ax.fill_between(line, *ends[..., 0], color="C0", alpha=0.25, linewidth=0)
        ax.plot(line, probability[:, 1], color="C0")
        ax.set_ylabel(f"probability of {short(str(model.classes_[1]), 14)}", parse_math=False)
    else:
        moving = np.argsort(np.ptp(probability, 0), kind="stable")[-_CURVES:]
        for c in np.sort(moving):
            ax.plot(line, probability[:, c], color=f"C{c % 10}", label=short(str(model.classes_[c]), 14).lstrip("_"))
        legend = ax.legend(fontsize="small", frameon=False, loc="upper center", ncols=_NAMES_IN_A_LINE)
        for text in legend.get_texts():
            text.set_parse_math(False)
        ax.set_ylabel("probability")
        # curves may be anywhere between 0 and 1: names stand above, two lines of them at most
        room = 0.17 * -(-len(moving) // _NAMES_IN_A_LINE)
    ax.set(ylim=(-0.02, 1.02 + room), yticks=[0, 0.25, 0.5, 0.75, 1])


def which(model: Any, column: int | str) -> int:
    """The position of a column given by name or number."""
    names = input_names(model)
    if isinstance(column, str) and column in names:
        return names.index(column)
    if not isinstance(column, str) and 0 <= column < len(names):
        return int(column)
    raise ValueError(f"Expected column as a number below {len(names)} or one of {names[:20]}, got {column!r}.")


def short(name: str, most: int = 24) -> str:
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    return name if len(name) <= most else name[: most - 1] + "…"
