"""The pictures of a report, each with what it says and how to read it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from qsgp import plots
from qsgp.evaluation import Classification, Evaluation, Regression, area
from qsgp.plots.drawing import POINTS, some_rows
from qsgp.plots.inputs import draw_histogram, draw_residuals, draw_slice, missing_prediction
from qsgp.plots.views import MOST_VALUES, View, typical_row
from qsgp.report import words
from qsgp.report.figures import SIZE, draw
from qsgp.report.page import figure, gallery, number, paragraph, percent
from qsgp.report.subject import Subject

_RESIDUAL_POINTS, _SLICES, _HISTOGRAMS = 300, 6, 8
_SLICE_ROWS = 20_000  # enough for medians and ranges
_SMALL = (3.7, 2.4)
_NOTHING_LEFT = "Nothing is left along it beyond chance."


def number_pictures(subject: Subject, found: Regression) -> list[str]:
    drawn = f"{POINTS:,} of {len(found.y):,} rows are drawn. " if len(found.y) > POINTS else ""
    pictures = [
        _picture(
            "scatter",
            "Predicted against observed",
            plots.predicted_against_observed,
            found,
            words.predictions(found),
            f"{drawn}Points on the line were predicted exactly; a bend away from it is a bias.",
        ),
        _picture(
            "calibration",
            "Calibration curve",
            plots.calibration_curve,
            found,
            words.coverage(found, subject.calibration_rows),
            "Below the line intervals are too narrow, above it too wide.",
        ),
        _picture(
            "pit",
            "PIT histogram",
            plots.pit_histogram,
            found,
            words.pit(found),
            "Where targets fell within their predicted laws. Flat is honest; full ends mean too narrow, a full middle "
            "too wide, a slope biased. Chance keeps all bars inside the band in 99 of 100 pictures.",
        ),
        _picture(
            "deciles",
            "Coverage by predicted deviation",
            plots.coverage_by_deciles,
            found,
            words.deciles(found, subject.calibration_rows),
            "Rows in groups of equal size by predicted deviation. Each should hold 95 %: a model that knows when it is "
            "unsure is level. Bars are 95 % intervals.",
        ),
    ]
    several = f"Pictures are those of {subject.target}; output=1 and so on shows the other targets."
    return [paragraph(several)] * (len(subject.found) > 1) + [gallery(pictures, "pairs")]


def class_pictures(found: Classification) -> list[str]:
    areas = {str(found.classes[c]): area(found.label == c, found.probability[:, c]) for c in found.shown()}
    several = len(found.classes) > 2
    size = (3.7, 3.4) if several else SIZE
    subject = "the predicted class" if several else str(found.classes[1])
    pictures = [
        _picture(
            "reliability",
            "Reliability diagram",
            plots.reliability_diagram,
            found,
            words.reliability(found),
            f"How often it was {subject} among rows given a like probability. Below the line probabilities are too "
            "bold; bars are 95 % intervals.",
            size,
        ),
        _picture(
            "confusion",
            "Confusion matrix",
            plots.confusion_matrix,
            found,
            words.confusion(found),
            "Rows of the data by observed class (down) and predicted class (across); the diagonal is right.",
            size,
        ),
        _picture(
            "roc",
            "ROC curves, each class against the rest" if several else "ROC curve",
            plots.roc_curves,
            found,
            words.roc(areas),
            "The nearer to the upper left corner the better; the dotted line is chance. The area stands in brackets.",
            size,
        ),
    ]
    return [gallery(pictures)]


def histograms(subject: Subject) -> list[str]:
    """How the target and the most relevant columns lie."""
    if isinstance(subject.shown, Classification):
        says = f"{len(subject.shown.classes):,} classes."
    else:
        says = f"Half of the rows lie between {words.middle(subject.shown.y)}."
    alt = f"Histogram of {subject.target}. {says}"
    svg, _ = draw("target", alt, lambda ax: plots.target_histogram(subject.shown, ax=ax), _SMALL)
    figures = [figure(f"{subject.target} (target)", svg, says)]
    for k, view in enumerate(subject.order[:_HISTOGRAMS]):
        x = view.along(subject.X)
        says = words.values(view, x)
        picture = partial(draw_histogram, view, x)
        svg, _ = draw(f"histogram{k}", f"Histogram of {view.title}. {says}", picture, _SMALL)
        figures.append(figure(view.title, svg, says))
    more = len(subject.order) > _HISTOGRAMS
    how = f"The {_HISTOGRAMS} most relevant of {len(subject.order)} are shown beside the target. " if more else ""
    how += "A column whose bars all stand at one place with a few far away may hold slips."
    return [gallery(figures), paragraph(how, "how")]


def input_pictures(subject: Subject) -> list[str]:
    model, found = subject.model, subject.relevance
    says = words.inputs(found)
    svg, _ = draw(
        "relevance",
        f"Relevance of inputs. {says}",
        lambda ax: plots.input_relevance(model, columns=list(found), ax=ax),
        (3.7, 0.8 + 0.21 * min(len(found), 12)),
    )
    how = "The reciprocal lengthscale of each input in units of its deviation: a long bar means that the function "
    how += "changes quickly along it. Of a category or a date it is the largest of what was made of it. Inputs that "
    how += "say the same thing share their relevance."
    first, figures = figure("Relevance of inputs", svg, says, how), []
    rows = subject.X[some_rows(len(subject.X), _SLICE_ROWS)].astype(float)
    around = typical_row(model, rows)
    for k, view in enumerate(subject.order[:_SLICES]):
        x = view.along(rows)
        svg, ax = draw(
            f"slice{k}",
            f"Predictions along {view.title}, the other inputs as in a row like most",
            partial(_slice, subject, view, x, around),
            _SMALL,
        )
        moved = max(words.span(line.get_ydata()) for line in ax.lines)
        says = f"The prediction moves by {number(moved)}."
        if (gap := missing_prediction(model, view, x, around, subject.output)) is not None:
            says += f" Where it is missing it is {number(gap)}."
        figures.append(figure(f"Slice along {view.title}", svg, says))
    banded = not isinstance(subject.shown, Classification) or len(subject.shown.classes) == 2
    how = "Slices follow one input. The others stay where most rows are: numbers at their medians, categories at the "
    how += (
        f"most frequent one.{' Bands hold 95 %.' if banded else ''} Of many categories the {MOST_VALUES} most frequent "
    )
    how += "are drawn."
    return [gallery([first], "pairs"), paragraph(how), gallery(figures)]


def _slice(subject: Subject, view: View, x: np.ndarray, around: np.ndarray, ax: Any) -> None:
    draw_slice(subject.model, view, x, around, ax, subject.output)
    if isinstance(subject.shown, Regression):
        # one scale for all slices: what does not matter must look flat
        low, high = np.quantile(subject.shown.y, [0.005, 0.995])
        ax.set_ylim(min(low, ax.get_ylim()[0]), max(high, ax.get_ylim()[1]))


def residual_pictures(subject: Subject, found: Regression) -> list[str]:
    figures = []
    for k, view in enumerate(subject.order[: words.MOST_TRENDS]):
        left = subject.left[view.title]
        says = f"Groups along it explain {percent(left)} of the residuals' variance." if left else _NOTHING_LEFT
        picture = partial(_residuals, view, view.along(subject.X), found.residual)
        svg, _ = draw(f"residuals{k}", f"Residuals against {view.title}. {says}", picture, _SMALL)
        figures.append(figure(f"Against {view.title}", svg, says))
    how = "Observed less predicted. The line of dashes is the mean over groups of all rows: it should stay near zero. "
    how += "Each value of a category has its mean, with a 95 % interval."
    if len(subject.order) > words.MOST_TRENDS:
        how += f" The {words.MOST_TRENDS} most relevant of {len(subject.order)} inputs are shown."
    return [paragraph(words.trends(subject.left), "says"), paragraph(how, "how"), gallery(figures)]


def _residuals(view: View, x: np.ndarray, residual: np.ndarray, ax: Any) -> None:
    draw_residuals(view, x, residual, ax, _RESIDUAL_POINTS)


def _picture(
    key: str,
    title: str,
    picture: Callable[..., Any],
    found: Evaluation,
    says: str,
    how: str,
    size: tuple[float, float] = SIZE,
) -> str:
    svg, _ = draw(key, f"{title}. {says}", lambda ax: picture(found, ax=ax), size)
    return figure(title, svg, says, how)
