"""`qsgp evaluate` and `qsgp report`: how good a model is on rows whose targets are known."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from qsgp.cli import scores
from qsgp.cli.rows import Rows, columns_of
from qsgp.cli.talk import AsJson, ColumnList, Device, Files, MaxMemory, Missing, ModelFile, Quiet, say, show
from qsgp.cli.targets import known_targets
from qsgp.cli.writing import check_output
from qsgp.data.encoding import Encoded
from qsgp.data.grouping import Groups
from qsgp.data.reading import check_names, find, schema
from qsgp.data.words import count
from qsgp.models import load

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

Target = Annotated[
    str | None, typer.Option("--target", "-t", metavar="NAME", help="The column of targets; as in the fit unless said.")
]
GroupColumn = Annotated[
    str | None, typer.Option("--groups", metavar="NAME", help="A column: say how good the model is in each group.")
]
Gaps = Annotated[Missing | None, typer.Option(help="Rows that lack an input; as in the fit unless said.")]


def evaluate(
    model_file: ModelFile,
    files: Files,
    target: Target = None,
    columns: ColumnList = None,
    missing: Gaps = None,
    groups: GroupColumn = None,
    max_memory: MaxMemory = "auto",
    device: Device = "auto",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Judge a model by rows it has not seen.

    Regression: errors (RMSE), densities (MNLP, CRPS; less is better) and how many targets lie inside their 95 %
    interval. Classification: accuracy, log loss, and how far probabilities are from frequencies.
    """
    model = load(model_file, device, max_memory).set_params(max_memory=max_memory)
    rows, name = _rows(model, files, target, columns, missing, groups)
    portions = list(_portions(rows, name, groups)) if groups else _portions(rows, name)
    whole = scores.predicted(model, portions)
    found: dict[str, Any] = {**scores.scores_of(whole)}
    said = scores.in_words(found)
    if groups is not None:
        found["groups"] = scores.in_groups(whole, Groups.joined(own for *_, own in portions))
        said += f"\n\n{scores.groups_in_words(found['groups'], groups)}"
    for note in rows.notes("left out"):
        say(note, quiet)
    show({"model": model_file, **found}, as_json, said)


def report(
    model_file: ModelFile,
    files: Files,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    target: Target = None,
    columns: ColumnList = None,
    missing: Gaps = None,
    groups: GroupColumn = None,
    max_memory: MaxMemory = "auto",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Write an HTML page about a model.

    It is judged by rows it has not seen: errors, calibration, relevance of inputs, surprises. The page needs no
    network. Open it in a browser.
    """
    check_output(output, [model_file, *find(files)], [".html", ".htm"])
    model = load(model_file, device, max_memory).set_params(max_memory=max_memory)
    rows, name = _rows(model, files, target, columns, missing, groups)
    inputs, y, *own = zip(*_portions(rows, name, groups), strict=True)
    X = Encoded(np.concatenate([part.array for part in inputs]))
    model.report(X, np.concatenate(y), output, target=name, groups=Groups.joined(own[0]) if own else None)
    for note in rows.notes("left out"):
        say(note, quiet)
    say(f"Wrote {output.absolute()} about {count(sum(map(len, y)))}.", quiet)


def _rows(
    model: Any,
    files: list[str],
    target: str | None,
    columns: list[str] | None,
    missing: str | None,
    groups: str | None,
) -> tuple[Rows, str]:
    paths = find(files)
    stored = model.columns_.target if hasattr(model, "columns_") else None
    name = target or stored
    if name is None:
        raise typer.BadParameter("Expected --target: the model file does not say which column it predicts.")
    others = [name, *([] if groups is None else [groups])]
    about = columns_of(model, paths[0], columns, others)
    check_names(others, schema(paths[0]).names, paths[0])
    numbers = not hasattr(model, "classes_") and not pa.types.is_boolean(schema(paths[0]).field(name).type)
    as_numbers = [name] if numbers else []
    return Rows(model, about, paths, missing or about.missing, others=others, as_numbers=as_numbers), name


def _portions(rows: Rows, target: str, groups: str | None = None) -> Iterator[tuple[Any, ...]]:
    """(inputs, targets) of rows that lack neither; with their groups, if a column has them."""
    labels = hasattr(rows.model, "classes_")
    for portion in rows:
        y, known = known_targets(target, portion.table.column(target), labels=labels)
        both = known[portion.known]
        if both.any():
            found = portion.inputs.take(both), y[portion.known][both]
            own = [] if groups is None else [Groups.of(groups, portion.table).take(portion.known).take(both)]
            yield (*found, *own)
