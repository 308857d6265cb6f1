"""Pictures of the results page: error against the seconds of fitting, with the front."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from results_scores import JUDGED, OURS, SCORES, Entry, Score, front

FIT = next(score for score in SCORES if score.field == "fit_s")
DRAWN = JUDGED[:2]  # RMSE and MNLP
UNTIMED = "exact"  # a yardstick at hyperparameters that another model has learned
_COLOURS = [
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#8c6d1f",
    "#56b4e9",
    "#7f3c8d",
    "#e6a100",
    "#aa3333",
    "#777777",
]
_MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "h"]
# The same rows give the same file; text stays text, in a font of the reader.
_STYLE = {"svg.hashsalt": "qsgp", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


def points_of(entries: Sequence[Entry], score: Score) -> dict[str, list[tuple[float, float]]]:
    """Pairs of mean fit seconds and mean error by model, one for each budget."""
    found: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        time, error = entry.mean(FIT), entry.mean(score)
        if time and error is not None:
            found.setdefault(str(entry.model), []).append((time, error))
    return found


def drawable(races: Sequence[Sequence[Entry]]) -> bool:
    """This library beside a peer with the same budgets."""
    timed = [entry for race in races for entry in race if entry.seconds and any(points_of([entry], s) for s in DRAWN)]
    models = {str(entry.model) for entry in timed}
    return bool(models & set(OURS)) and bool(models - set(OURS) - {UNTIMED})


def draw(path: Path, races: Sequence[Sequence[Entry]]) -> None:
    """A row of two panels, RMSE and MNLP, for each data set."""
    entries = [entry for race in races for entry in race]
    sets = list(dict.fromkeys(str(entry.data) for entry in entries))
    models = list(dict.fromkeys(str(entry.model) for entry in entries))
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.4, 2.7 * len(sets) + 0.9), facecolor="white", layout="constrained")
        panels = figure.subplots(len(sets), 2, squeeze=False)
        for name, line in zip(sets, panels, strict=True):
            for axes, score in zip(line, DRAWN, strict=True):
                _panel(axes, points_of([entry for entry in entries if str(entry.data) == name], score), models)
                axes.set_title(f"{name}: {score.title}", fontsize=9, loc="left")
        for axes in panels[-1]:
            axes.set_xlabel("fit seconds")
        shown: dict[str, Any] = {}
        for axes in panels.flat:  # a model may be missing on the first data set
            handles, labels = axes.get_legend_handles_labels()
            shown |= dict(zip(labels, handles, strict=True))
        figure.legend(shown.values(), shown.keys(), loc="outside upper center", ncols=5, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _look(model: str, models: Sequence[str]) -> dict[str, Any]:
    """Black stars for this library, filled for its default; a colour and a marker for each peer."""
    if model in OURS:
        fill = "black" if model == OURS[0] else "white"
        return {"color": "black", "marker": "*", "markersize": 11, "markerfacecolor": fill, "zorder": 4}
    place = [other for other in models if other not in OURS].index(model) % len(_COLOURS)
    return {"color": _COLOURS[place], "marker": _MARKERS[place], "markersize": 6, "zorder": 3}


def _panel(axes: Any, points: dict[str, list[tuple[float, float]]], models: Sequence[str]) -> None:
    for model in models:
        if model in points:
            times, errors = zip(*sorted(points[model]), strict=True)
            axes.plot(times, errors, label=model, linewidth=1, **_look(model, models))
    everyone = [pair for pairs in points.values() for pair in pairs]
    if not everyone:
        return
    fastest, slowest = min(everyone)[0], max(everyone)[0]
    # From each of its points on, the least error that so much time buys.
    times, errors = zip(*front(everyone), strict=True)
    style = {"color": "#999999", "linewidth": 3, "alpha": 0.5, "zorder": 1}
    axes.step([*times, slowest], [*errors, errors[-1]], where="post", label="front", **style)
    axes.set_xscale("log")
    axes.set_xlim(fastest / 1.6, slowest * 1.6)  # a few per cent of time are not drawn as far apart
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
