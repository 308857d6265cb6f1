"""The page from top to bottom: which tables and pictures, in which order."""

import math
from typing import Any

import numpy as np

from qsgp import plots
from qsgp.evaluation import Classification, Regression, largest_surprises
from qsgp.plots.views import Circle, View
from qsgp.report import words
from qsgp.report.baselines import Baselines
from qsgp.report.by_group import by_group_parts
from qsgp.report.figures import draw
from qsgp.report.model import in_words, keywords, plan
from qsgp.report.page import Section, bullets, figure, gallery, paragraph, percent, table
from qsgp.report.pictures import class_pictures, histograms, input_pictures, number_pictures, residual_pictures
from qsgp.report.scores import score_parts
from qsgp.report.subject import Subject
from qsgp.report.verdict import verdict

_SURPRISES = 10


def sections(subject: Subject) -> list[Section]:
    shown, model, baselines = subject.shown, subject.model, Baselines.of(subject)
    said = verdict(subject, baselines)
    about = [
        bullets(in_words(model, subject.target)),
        *([paragraph("The plan that the fit followed:"), bullets(planned)] if (planned := plan(model)) else []),
        table("Keywords of the model", ["keyword", "value", "changed"], keywords(model)),
    ]
    found = [
        Section("summary", "In short", [paragraph(text, "lead") for text in said] + score_parts(subject, baselines)),
        Section("data", "The data", _data(subject)),
        Section("model", f"The model: {type(model).__name__}", about),
        Section("training", "Training", _training(model)),
    ]
    if isinstance(shown, Regression):
        found.append(Section("predictions", "Predictions and their uncertainty", number_pictures(subject, shown)))
    else:
        found.append(Section("predictions", "Predictions and their probabilities", class_pictures(shown)))
    if subject.groups is not None:
        title = "By group" if subject.groups.column is None else f"By {subject.groups.column}"
        found.append(Section("groups", title, by_group_parts(subject, subject.groups)))
    if subject.order:
        found.append(Section("inputs", "The inputs", input_pictures(subject)))
    if subject.order and isinstance(shown, Regression):
        found.append(Section("residuals", "Residuals", residual_pictures(subject, shown)))
    return [*found, Section("surprises", "Largest surprises", _surprises(subject))]


def _data(subject: Subject) -> list[str]:
    X, views = subject.X, [view for view in subject.all_views if not isinstance(view, Circle)]
    constant = [view.title for view in views if view.title not in subject.varying]
    known = len({view.column for view in subject.all_views})
    text = f"{len(X):,} rows of {known:,} {'inputs' if known > 1 else 'input'}; the target is {subject.target}. "
    if constant:
        listed = ", ".join(constant[:5]) + (f" and {len(constant) - 5} more" if len(constant) > 5 else "")
        text += f"Constant over these rows: {listed}. "
    text += "Scores of rows that the model was trained on flatter it: judge it by rows it has not seen."
    head = ["input", "least", "median", "largest", "deviation", "note"]
    inputs = table("Inputs", head, [_input(subject, view) for view in views])
    columns = getattr(subject.model, "columns_", None)
    made = [[column.name, column.words] for column in columns] if columns is not None else []
    about = [table("What was made of the columns", ["column", "became"], made)] if made else []
    return [paragraph(text), *histograms(subject), _target_table(subject), *about, inputs]


def _input(subject: Subject, view: View) -> list[Any]:
    """A row of the table: numbers and dates by where they lie, categories by their most frequent value."""
    x = view.along(subject.X)
    known = x[~np.isnan(x)]
    notes = ["" if view.title in subject.varying else "constant"]
    if view.labels and len(known):
        value, count = np.unique(known, return_counts=True)
        often = int(count.argmax())
        notes.append(
            f"{len(value):,} values, most often {words.one(view, value[often])} ({percent(count[often] / len(x))})"
        )
    if len(known) < len(x):
        notes.append(f"{len(x) - len(known):,} missing")
    note = ", ".join(filter(None, notes))
    if view.labels or not len(known):
        return [view.title, *[math.nan] * 4, note]
    least, median, largest, deviation = _summary(known)
    where = [words.one(view, v) for v in (least, median, largest)] if view.date else [least, median, largest]
    return [view.title, *where, deviation, note + (" (deviation in days)" if view.date else "")]


def _target_table(subject: Subject) -> str:
    shown = subject.shown
    if isinstance(shown, Classification):
        count = np.bincount(shown.label, minlength=len(shown.classes))
        body = [[str(c), int(k), percent(k / count.sum())] for c, k in zip(shown.classes, count, strict=True)]
        return table(f"Classes of {subject.target}", ["class", "rows", "share"], body)
    rows = [
        [name, *_summary(found.y)]
        for name, found in zip(subject.targets, subject.found, strict=True)
        if isinstance(found, Regression)
    ]
    return table("Target", ["target", "least", "median", "largest", "deviation"], rows)


def _summary(values: np.ndarray) -> list[float]:
    return [float(value) for value in (values.min(), np.median(values), values.max(), values.std())]


def _training(model: Any) -> list[str]:
    entries = plots.training_entries(model.history_)
    if not entries:
        return [paragraph("The model was solved in closed form: there are no iterations to show.")]
    if len(model.history_) == 1:
        return [bullets([words.training(entry, [float(model.history_[0][entry])]) for entry in entries])]
    figures = []
    for k, entry in enumerate(entries):

        def picture(ax: Any, entry: str = entry) -> Any:
            return plots.training_curve(model, entry, ax=ax)

        svg, ax = draw(f"training{k}", f"{entry} over the time of training", picture)
        values = [float(value) for value in np.asarray(ax.lines[-1].get_ydata())]  # of the last phase
        how = "Where the curve is level at the end, more time would change little."
        figures.append(figure(entry, svg, words.training(entry, values), how))
    return [gallery(figures)]


def _surprises(subject: Subject) -> list[str]:
    top = subject.order[:3]
    found = largest_surprises(subject.shown, _SURPRISES)
    rows = []
    for record in found:
        own = [value if isinstance(value, int | float) else str(value) for value in record.values()]
        rows.append([*own, *(_value(view, subject.X[[record["row"]]]) for view in top)])
    what = "Surprise is the negative logarithm of the predicted probability (density) of what was observed. "
    what += "Look here for slips in the data and for what the model cannot know. Rows are counted from 0."
    head = [*found[0], *(view.title for view in top)]
    return [paragraph(what), table("Rows with the largest surprise", head, rows)]


def _value(view: View, row: np.ndarray) -> float | str:
    value = float(view.along(row)[0])
    plain = not (view.labels or view.date or isinstance(view, Circle) or math.isnan(value))
    return value if plain else words.one(view, value)
