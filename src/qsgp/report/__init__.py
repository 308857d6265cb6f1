"""A model and its predictions as one HTML page that needs nothing but a browser: no network, no script.

`write_report` judges the rows it is given, draws `qsgp.plots` as inline SVG and says in words what they show.
"""

import os
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from qsgp.atomic import place_for, refuse_inputs, written
from qsgp.data.grouping import Groups
from qsgp.data.inputs import without_groups
from qsgp.data.reading import find, is_path
from qsgp.evaluation import evaluate_all
from qsgp.report.page import page
from qsgp.report.sections import sections
from qsgp.report.subject import Subject

__all__ = ["write_report"]


def write_report(
    model: Any,
    X: Any,
    y: Any,
    path: str | os.PathLike[str] = "report.html",
    *,
    target: str | None = None,
    output: int = 0,
    groups: Any = None,
) -> Path:
    """Judge a fitted model by rows X and targets y it has not seen, and write the page; returns its path.

    ``target`` names what is predicted (otherwise the name that y carries), ``output`` picks one of several targets
    for the pictures; the scores are those of all. X may be a table or a path, as in ``predict``. ``groups`` is the name
    of one of its columns or an array: the page then says how good the model is in each group.
    """
    check_is_fitted(model)
    place = place_for(path)
    refuse_inputs(place, find(X) if is_path(X) else [])
    rows = model.prepare_inputs(without_groups(X, groups, getattr(model, "feature_names_in_", None)))
    own = None if groups is None else Groups.of(groups, X).checked(len(rows))
    found = evaluate_all(model, rows, y, own)
    if not 0 <= output < len(found):
        raise ValueError(f"Expected 0 <= output < {len(found)}, got {output}. Outputs are numbered from 0.")
    names = _target_names(y, len(found)) if target is None else _numbered(target, len(found))
    subject = Subject(model, rows, found, names, output, own)
    text = page(f"{names[output]}: report of a {type(model).__name__}", sections(subject))
    with written(place) as file:
        file.write(text.encode("utf-8"))
    return place


def _target_names(y: Any, outputs: int) -> list[str]:
    columns = getattr(y, "column_names", None) if hasattr(y, "column_names") else getattr(y, "columns", None)
    if columns is not None and len(columns) == outputs:
        return [str(name) for name in columns]
    name = getattr(y, "name", None)
    return _numbered("y" if name is None else str(name), outputs)


def _numbered(name: str, outputs: int) -> list[str]:
    return [name] if outputs == 1 else [f"{name} {k}" for k in range(outputs)]
