"""The page from top to bottom: which tables and pictures, in which order."""

from typing import Any

import numpy as np

from qsgp import plots
from qsgp.evaluation import Classification, Regression, largest_surprises
from qsgp.report import words
from qsgp.report.by_group import by_group_parts
from qsgp.report.figures import draw
from qsgp.report.model import in_words, keywords, plan
from qsgp.report.page import Section, bullets, figure, gallery, paragraph, percent, table
from qsgp.report.pictures import class_pictures, input_pictures, number_pictures, residual_pictures
from qsgp.report.scores import score_table, verdict
from qsgp.report.subject import Subject

_SURPRISES = 10


def sections(subject: Subject) -> list[Section]:
    shown, model = subject.shown, subject.model
    about = [
        bullets(in_words(model, subject.target)),
        *([paragraph("The plan that the fit followed:"), bullets(planned)] if (planned := plan(model)) else []),
        table("Keywords of the model", ["keyword", "value", "changed"], keywords(model)),
    ]
    found = [
        Section("summary", "In short", [paragraph(verdict(subject), "lead"), score_table(subject)]),
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
    X, rows = subject.X, []
    for j, name in enumerate(subject.names):
        known = X[~np.isnan(X[:, j]), j].astype(float)
        gaps = f"{len(X) - len(known):,} missing" if len(known) < len(X) else ""
        note = ", ".join(word for word in ("" if subject.varies[j] else "constant", gaps) if word)
        rows.append([name, *_summary(known if len(known) else np.zeros(1)), note])
    constant = [name for name, moving in zip(subject.names, subject.varies, strict=True) if not moving]
    text = (
        f"{len(X):,} rows of {X.shape[1]:,} {'inputs' if X.shape[1] > 1 else 'input'}; the target is {subject.target}. "
    )
    if constant:
        listed = ", ".join(constant[:5]) + (f" and {len(constant) - 5} more" if len(constant) > 5 else "")
        text += f"Constant over these rows: {listed}. "
    text += "Scores of rows that the model was trained on flatter it: judge it by rows it has not seen."
    inputs = table("Inputs", ["input", "least", "median", "largest", "deviation", "note"], rows)
    columns = getattr(subject.model, "columns_", None)
    made = [[column.name, column.words] for column in columns] if columns is not None else []
    about = [table("What was made of the columns", ["column", "became"], made)] if made else []
    return [paragraph(text), _target_table(subject), *about, inputs]


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
        rows.append([*own, *(float(subject.X[record["row"], j]) for j in top)])
    what = "Surprise is the negative logarithm of the predicted probability (density) of what was observed. "
    what += "Look here for slips in the data and for what the model cannot know. Rows are counted from 0."
    head = [*found[0], *(subject.names[j] for j in top)]
    return [paragraph(what), table("Rows with the largest surprise", head, rows)]
