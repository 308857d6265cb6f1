"""The pictures of a report, each with what it says and how to read it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from qsgp import plots
from qsgp.evaluation import Classification, Encoded, Evaluation, Regression, area, relevance
from qsgp.plots.drawing import POINTS, some_rows
from qsgp.report import words
from qsgp.report.figures import SIZE, draw
from qsgp.report.page import figure, gallery, number, paragraph, percent
from qsgp.report.subject import Subject

_RESIDUAL_INPUTS, _RESIDUAL_POINTS, _SLICES = 12, 300, 6
_SLICE_ROWS = 20_000  # enough for medians and ranges
_SMALL = (3.7, 2.4)


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


def input_pictures(subject: Subject) -> list[str]:
    model, order = subject.model, subject.order
    says = words.inputs([subject.titles[j] for j in order], relevance(model)[order])
    svg, _ = draw(
        "relevance",
        f"Relevance of inputs. {says}",
        lambda ax: plots.input_relevance(model, columns=order, names=subject.titles, ax=ax),
        (3.7, 0.8 + 0.21 * min(len(order), 12)),
    )
    how = "The reciprocal lengthscale of each input in units of its deviation: a long bar means that the function "
    how += "changes quickly along it. Inputs that say the same thing share their relevance."
    first, figures = figure("Relevance of inputs", svg, says, how), []
    ready = Encoded(subject.X[some_rows(len(subject.X), _SLICE_ROWS)])
    for j in order[:_SLICES]:

        def along(ax: Any, j: int = j) -> None:
            if (column := subject.categories.get(j)) is not None:
                plots.category_slice(model, ready, column=column, output=subject.output, ax=ax)
            else:
                plots.slice_plot(model, ready, column=j, output=subject.output, ax=ax)
            if isinstance(subject.shown, Regression):
                # one scale for all slices: what does not matter must look flat
                low, high = np.quantile(subject.shown.y, [0.005, 0.995])
                ax.set_ylim(min(low, ax.get_ylim()[0]), max(high, ax.get_ylim()[1]))

        alt = f"Predictions along {subject.titles[j]}, the other inputs at their medians"
        svg, ax = draw(f"slice{j}", alt, along, _SMALL)
        moved = max(words.span(line.get_ydata()) for line in ax.lines)
        figures.append(figure(f"Slice along {subject.titles[j]}", svg, f"The prediction moves by {number(moved)}."))
    banded = not isinstance(subject.shown, Classification) or len(subject.shown.classes) == 2
    how = f"Slices follow one input, the others at their medians{'; bands hold 95 %' if banded else ''}."
    return [gallery([first], "pairs"), paragraph(how), gallery(figures)]


def residual_pictures(subject: Subject, found: Regression) -> list[str]:
    left, figures = {}, []
    for j in subject.order[:_RESIDUAL_INPUTS]:
        x, name = subject.along(j), subject.titles[j]
        left[name] = words.trend_left(x, found.residual)
        says = f"Groups along it explain {percent(left[name])} of the residuals' variance beyond chance."

        def against(ax: Any, x: Any = x, name: str = name) -> Any:
            return plots.residuals(found, x, column=name, most=_RESIDUAL_POINTS, ax=ax)

        svg, _ = draw(f"residuals{j}", f"Residuals against {name}. {says}", against, _SMALL)
        figures.append(figure(f"Against {name}", svg, says))
    how = "Observed less predicted. The line of dashes is the mean over groups of all rows: it should stay near zero."
    if len(subject.order) > _RESIDUAL_INPUTS:
        how += f" The {_RESIDUAL_INPUTS} most relevant of {len(subject.order)} inputs are shown."
    return [paragraph(words.trends(left), "says"), paragraph(how, "how"), gallery(figures)]


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
