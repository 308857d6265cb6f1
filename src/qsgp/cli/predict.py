"""`qsgp predict`: rows of a file, portion by portion, with what the model says of each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from qsgp.cli.rows import Portion, Rows, columns_of
from qsgp.cli.talk import ColumnList, Device, Files, MaxMemory, ModelFile, Quiet, say
from qsgp.cli.writing import check_table_output, table_writer
from qsgp.data.choosing import picked
from qsgp.data.columns import Columns
from qsgp.data.grouping import Groups
from qsgp.data.reading import READERS, find, schema
from qsgp.data.words import count
from qsgp.models import load

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

_OTHERWISE = "--missing empty to leave their predictions empty"


def predict(
    model_file: ModelFile,
    files: Files,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="CSV, Parquet or Arrow by its ending; - is stdout.")
    ] = "-",
    keep: Annotated[list[str] | None, typer.Option(metavar="NAMES", help="Columns to hand over, with commas.")] = None,
    interval: Annotated[float | None, typer.Option(help="Probability of an interval, for example 0.95.")] = None,
    quantiles: Annotated[str | None, typer.Option(metavar="LEVELS", help="Levels, for example 0.1,0.5,0.9.")] = None,
    columns: ColumnList = None,
    missing: Annotated[
        Literal["auto", "error", "empty", "mean"], typer.Option(help="Rows that lack an input; auto as in the fit.")
    ] = "auto",
    max_memory: MaxMemory = "auto",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Predict every row of a file.

    Results are mean and deviation of the target (noise included), or class and probabilities; columns named by --keep
    stand beside them. Intervals of a model that was calibrated by groups are those of the group of each row. Files are
    read and written in portions: they may be larger than the memory.
    """
    model = load(model_file, device, max_memory).set_params(max_memory=max_memory)
    levels = _levels(model, interval, quantiles)
    paths = find(files)
    check_table_output(output, [model_file, *paths])
    names = schema(paths[0]).names
    kept = picked(keep, names, paths[0])
    column = _group_column(model, names, levels.interval is not None, quiet)
    beside = list(dict.fromkeys([*kept, *([] if column is None else [column])]))
    about = columns_of(model, paths[0], columns, beside)
    rows = Rows(
        model,
        about,
        paths,
        _policy(about, missing),
        beside,
        _unchanged(output, kept, about),
        otherwise=_OTHERWISE,
    )
    done = 0
    with table_writer(output) as write:
        for portion in rows:
            own = None if column is None else _groups_of(portion, column)
            found = _results(model, portion.inputs, levels, own)
            write(_beside(portion, kept, found))
            done += len(portion.known)
        if not done:
            raise ValueError(f"Expected rows in {paths[0]}, got none. Check that it is the right file.")
    for note in rows.notes("predictions left empty"):
        say(note, quiet)
    say(f"Predicted {count(done)}{'' if output == '-' else f' into {output}'}.", quiet)


def _group_column(model: Any, names: list[str], interval: bool, quiet: bool) -> str | None:
    """That intervals were calibrated by, if the file has it."""
    column: str | None = getattr(model.calibration_, "column", None)
    if not interval or column is None:
        return None
    if column not in names:
        say(
            f"Note: intervals were calibrated by {column!r}, which the file lacks: they are those of all groups.", quiet
        )
        return None
    return column


def _groups_of(portion: Portion, column: str) -> Groups | None:
    """Of the rows that are predicted, if there are any."""
    return Groups.of(column, portion.table).take(portion.known) if portion.known.any() else None


@dataclass(frozen=True)
class _Levels:
    """Which quantiles were asked for."""

    interval: float | None
    quantiles: dict[str, float]  # by the name of their column


def _levels(model: Any, interval: float | None, quantiles: str | None) -> _Levels:
    if hasattr(model, "classes_") and (interval is not None or quantiles is not None):
        raise typer.BadParameter("A classifier gives probabilities: --interval and --quantiles are for regression.")
    try:
        found = {f"q{text.strip()}": float(text) for text in quantiles.split(",")} if quantiles else {}
    except ValueError:
        raise typer.BadParameter(f"Expected levels such as 0.1,0.5,0.9, got {quantiles!r}.") from None
    for level in [*found.values(), *([] if interval is None else [interval])]:
        if not 0 < level < 1:
            raise typer.BadParameter(f"Expected probabilities between 0 and 1, got {level}. Write 0.95 for 95 %.")
    return _Levels(interval, found)


def _policy(about: Columns, missing: str) -> str:
    """For rows that lack an input: as in the fit unless said; where it dropped rows, they stay without a prediction."""
    return {"auto": about.missing, "empty": "drop"}.get(missing, missing)


def _unchanged(output: str, kept: list[str], about: Columns) -> list[str]:
    """From text to text, what is handed over stays letter for letter (007 is not 7)."""
    text = output == "-" or READERS[Path(output).suffix.lower()] == "csv"
    return [name for name in kept if text and name not in about.names]


def _results(model: Any, X: Any, levels: _Levels, groups: Groups | None) -> dict[str, np.ndarray]:
    """Columns of results, one entry for each row of inputs."""
    if hasattr(model, "classes_"):
        p = model.predict_proba(X)
        shares = {f"p_{label}": p[:, k] for k, label in enumerate(model.classes_)}
        return {"class": model.classes_[p.argmax(1)], **shares}
    mean, deviation = model.predict(X, return_std=True)
    found = {"mean": mean, "deviation": deviation}
    if levels.interval is not None:
        found["lower"], found["upper"] = model.predict_interval(X, levels.interval, groups)
    if levels.quantiles:
        found |= dict(zip(levels.quantiles, model.predict_quantiles(X, list(levels.quantiles.values())), strict=True))
    if mean.ndim == 1:
        return found
    return {f"{name}_{k}": values[:, k] for k in range(mean.shape[1]) for name, values in found.items()}


def _beside(portion: Portion, kept: list[str], results: dict[str, np.ndarray]) -> Any:
    """Results beside the columns handed over; empty where a row could not be predicted."""
    if clash := sorted(set(results) & set(kept)):
        raise ValueError(f"Expected names in --keep that no result has, got {clash}. Rename these columns.")
    position = pa.array(np.cumsum(portion.known) - 1, mask=~portion.known)
    columns = {name: portion.table.column(name) for name in kept}
    return pa.table(columns | {name: pa.array(values).take(position) for name, values in results.items()})
