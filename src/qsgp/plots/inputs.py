"""What the inputs do: how they lie, how much they matter, what they leave unexplained, and f along one of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from qsgp.evaluation import Classification, Encoded, Regression
from qsgp.plots.drawing import DOTS, axes, regression, some_rows
from qsgp.plots.views import Values, View, column_relevance, short, typical_row, view_of, views

Array = np.ndarray
_CURVES, _NAMES_IN_A_LINE = 6, 3  # classes drawn at most, and how their names stand
_BAND = 0.95
_NORMAL = 1.959964
_SPREAD = 0.25  # half the width over which rows of one value are strewn


def input_relevance(
    model: Any, *, columns: Sequence[int | str] | None = None, most: int = 12, ax: Axes | None = None
) -> Axes:
    """1 / lengthscale of the ``most`` relevant columns, each measured in its own deviations; the largest on top.

    Of a column that is several inputs, such as a category, it is the largest. ``columns`` (names or positions) leaves
    others out, such as those that were constant in training: nothing has taught their lengthscale.
    """
    found, ax = column_relevance(model), axes(ax)
    if columns is not None:
        names = list(found)
        found = {name: found[name] for name in (c if isinstance(c, str) else names[c] for c in columns)}
    shown = sorted(found.items(), key=lambda item: -item[1])[:most][::-1]
    ax.barh(np.arange(len(shown)), [value for _, value in shown], 0.7, color="C0", alpha=0.85)
    ax.set(yticks=np.arange(len(shown)), xlabel="1 / lengthscale")
    ax.set_yticklabels([short(name) for name, _ in shown], parse_math=False)
    return ax


def column_histogram(model: Any, X: Any, *, column: int | str = 0, ax: Axes | None = None) -> Axes:
    """How many rows have which values of a column, as the table has them; of a category the most frequent ones."""
    view = view_of(model, column)
    return draw_histogram(view, view.along(model.prepare_inputs(X)), axes(ax))


def draw_histogram(view: View, x: Array, ax: Axes) -> Axes:
    if isinstance(view, Values):
        shown = view.grid(x)
        ax.bar(np.arange(len(shown)), [(x == value).sum() for value in shown], 0.7, color="C0", alpha=0.8)
    else:
        edges = view.edges(x)
        ax.stairs(np.histogram(x[~np.isnan(x)], edges)[0], edges, fill=True, color="C0", alpha=0.8)
    view.label(ax, x)
    ax.set(ylabel="rows", ylim=(0, None))
    return ax


def target_histogram(found: Regression | Classification, *, ax: Axes | None = None) -> Axes:
    """How the targets lie, or how many rows each of the most frequent classes has."""
    if isinstance(found, Classification):
        classes = Values("class", "class", (0,), names=tuple(map(str, found.classes)), coded=True)
        return draw_histogram(classes, found.label.astype(float), axes(ax))
    return draw_histogram(View("target", "target", (0,)), found.y, axes(ax))


def residuals(
    of: Any, X: Any, y: Any = None, *, column: int | str = 0, output: int = 0, most: int = 500, ax: Axes | None = None
) -> Axes:
    """Observed less predicted along a column, at most ``most`` rows, and the means of groups of all rows.

    The line of dashes joins the means along a number; of a category each value has its mean, with a 95 % interval.
    ``of`` may be an evaluation; X then is the input itself, one number a row.
    """
    found = regression(of, X, y, output)
    if hasattr(of, "prepare_inputs"):
        view = view_of(of, column)
        return draw_residuals(view, view.along(of.prepare_inputs(X)), found.residual, axes(ax), most)
    return draw_residuals(View(str(column), str(column), (0,)), np.asarray(X, float), found.residual, axes(ax), most)


def draw_residuals(view: View, x: Array, residual: Array, ax: Axes, most: int) -> Axes:
    rows, parts = some_rows(len(x), most), view.parts(x)
    if isinstance(view, Values):
        at = view.places(x, view.grid(x))
        parts = [part for part in parts if not np.isnan(at[part[0]])]  # of the values that are drawn
    mean = np.array([residual[part].mean() for part in parts])
    if isinstance(view, Values):
        strewn = np.random.default_rng(0).uniform(-_SPREAD, _SPREAD, len(rows))
        ax.plot(at[rows] + strewn, residual[rows], **DOTS)
        ax.axhline(0, color="C1", linewidth=1)
        places = np.array([at[part[0]] for part in parts])
        half = [_NORMAL * residual[p].std(ddof=1) / np.sqrt(len(p)) if len(p) > 1 else 0.0 for p in parts]
        ax.errorbar(places, mean, half, fmt="o", color="C2", markersize=4, elinewidth=1.5, capsize=3)
    else:
        ax.plot(x[rows], residual[rows], **DOTS)
        ax.axhline(0, color="C1", linewidth=1)
        if len(x) >= 100:
            ax.plot([x[part].mean() for part in parts], mean, "--", color="C2")
    view.label(ax, x)
    ax.set_ylabel("observed - predicted")
    return ax


def slice_plot(
    model: Any, X: Any, *, column: int | str = 0, output: int = 0, around: Any = None, ax: Axes | None = None
) -> Axes:
    """Predictions along a column, with 95 % bands; the other inputs as in `typical_row` of X (or at ``around``).

    Of a category at each of its most frequent values. Regression: mean of y and the interval of y. Two classes: the
    probability of the second and what the model does not know of it. More classes: the probabilities of the six that
    move most.
    """
    rows, view = model.prepare_inputs(X).astype(float), view_of(model, column)
    row = typical_row(model, rows) if around is None else np.asarray(around, dtype=float)
    return draw_slice(model, view, view.along(rows), row, axes(ax), output)


def draw_slice(model: Any, view: View, x: Array, around: Array, ax: Axes, output: int) -> Axes:
    line = view.grid(x)
    grid = np.tile(around, (len(line), 1))
    grid[:, view.inputs] = view.inputs_at(line)
    ready, dots = Encoded(grid), isinstance(view, Values)
    at = np.arange(len(line)) if dots else line
    if hasattr(model, "classes_"):
        _class_curves(model, at, ready, ax, dots)
    else:
        mean, band = model.predict(ready), interval(model, ready)
        mean, lower, upper = (np.reshape(part, (len(line), -1))[:, output] for part in (mean, *band))
        _band(ax, at, lower, upper, dots)
        ax.plot(at, mean, "o" if dots else "-", color="C0", markersize=4)
        ax.set_ylabel("predicted y")
    view.label(ax, x)
    return ax


def missing_prediction(model: Any, view: View, x: Array, around: Array, output: int) -> float | None:
    """What a regressor predicts where a number or a date is missing, if it is in any of the rows."""
    known = ~np.isnan(x)
    if known.all() or not known.any() or isinstance(view, Values) or hasattr(model, "classes_"):
        return None
    row = around.copy()
    for other in [each for each in views(model) if each.column == view.column]:
        row[list(other.inputs)] = np.nan
    if view.gap is not None:
        row[view.gap] = 1.0
    return float(np.reshape(model.predict(Encoded(row[None])), -1)[output])


def interval(model: Any, X: Any) -> tuple[Array, Array]:
    """The 95 % interval; the model's own where it was recalibrated on too few rows to promise as much."""
    if model.calibration_ is not None and model.calibration_.n < _BAND / (1 - _BAND):
        lower, upper = model.predict_quantiles(X, [(1 - _BAND) / 2, (1 + _BAND) / 2])
        return lower, upper
    lower, upper = model.predict_interval(X, _BAND)
    return lower, upper


def _band(ax: Axes, at: Array, lower: Array, upper: Array, dots: bool) -> None:
    if dots:
        ax.vlines(at, lower, upper, color="C0", alpha=0.4, linewidth=4)
    else:
        ax.fill_between(at, lower, upper, color="C0", alpha=0.25, linewidth=0)


def _class_curves(model: Any, line: Array, grid: Encoded, ax: Axes, dots: bool) -> None:
    probability, room = model.predict_proba(grid), 0.0
    style: Any = {"marker": "o", "markersize": 4, "linestyle": "none"} if dots else {}
    if len(model.classes_) == 2:
        ends = model.predict_proba_quantiles(grid, [(1 - _BAND) / 2, (1 + _BAND) / 2])
        _band(ax, line, ends[0, :, 0], ends[1, :, 0], dots)
        ax.plot(line, probability[:, 1], color="C0", **style)
        ax.set_ylabel(f"probability of {short(str(model.classes_[1]), 14)}", parse_math=False)
    else:
        moving = np.argsort(np.ptp(probability, 0), kind="stable")[-_CURVES:]
        for c in np.sort(moving):
            name = short(str(model.classes_[c]), 14).lstrip("_")
            ax.plot(line, probability[:, c], color=f"C{c % 10}", label=name, **style)
        legend = ax.legend(fontsize="small", frameon=False, loc="upper center", ncols=_NAMES_IN_A_LINE)
        for text in legend.get_texts():
            text.set_parse_math(False)
        ax.set_ylabel("probability")
        # curves may be anywhere between 0 and 1: names stand above, two lines of them at most
        room = 0.17 * -(-len(moving) // _NAMES_IN_A_LINE)
    ax.set(ylim=(-0.02, 1.02 + room), yticks=[0, 0.25, 0.5, 0.75, 1])
