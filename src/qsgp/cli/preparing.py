"""A file as rows to learn from: which columns, which task, what to do about missing values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.cli.rows import lacking_by_column, missing_words, picked
from qsgp.cli.talk import count, listed
from qsgp.cli.targets import decide, known_targets
from qsgp.data.columns import Columns, Encoded, encode, quoted
from qsgp.data.reading import check_names, index_columns, index_words, pa_table, schema

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

_WITHOUT_NAME = {"column 1", "Unnamed: 0"}  # of a first column, as `dialects` and pandas call it


@dataclass(frozen=True)
class Wanted:
    """What was asked for on the command line."""

    target: str
    weight: str | None = None
    columns: Sequence[str] | None = None
    drop: Sequence[str] | None = None
    categories: Sequence[str] | None = None  # columns that hold categories though they look like numbers
    task: str = "auto"
    missing: str = "error"


@dataclass(frozen=True)
class Prepared:
    """Complete rows, what was decided about them, and the words that say so."""

    columns: Columns
    inputs: Encoded
    y: np.ndarray
    weight: np.ndarray | None
    task: str
    notes: list[str]


def prepare(paths: list[Path], wanted: Wanted) -> Prepared:
    """Rows of ``paths`` without missing values, as numbers."""
    table, inputs, notes = _read(paths, wanted)
    task, why = decide(wanted.target, table.column(wanted.target), wanted.task)
    notes.append(f"The target holds {why}.")
    y, known = known_targets(wanted.target, table.column(wanted.target), labels=task == "classification")
    weight = None
    if wanted.weight is not None:
        weight, weighted = known_targets(wanted.weight, table.column(wanted.weight), labels=False, role="weight")
        known = known & weighted

    columns, empty = Columns.of(table.select(inputs), picked(wanted.categories, inputs, paths[0]))
    notes += [f"Left out, because empty: {listed(empty)}."] if empty else []
    if not columns.inputs:
        raise ValueError(f"Expected values in the input columns of {paths[0]}, got empty columns. Check the file.")
    encoded = encode(columns, table)
    notes += _column_notes(columns, encoded)
    columns = replace(columns, target=wanted.target, missing=wanted.missing, means=encoded.means())
    encoded, kept, more = _without_gaps(columns, encoded, known, paths[0])
    return Prepared(
        replace(columns, rows=int(kept.sum())),
        encoded.take(kept),
        y[kept],
        None if weight is None else weight[kept],
        task,
        notes + more,
    )


def _read(paths: list[Path], wanted: Wanted) -> tuple[Any, list[str], list[str]]:
    """The table, the names of its inputs, and notes."""
    found, path = schema(paths[0]), paths[0]
    names, special = found.names, [wanted.target] if wanted.weight is None else [wanted.target, wanted.weight]
    check_names(special, names, path)
    chosen = picked(wanted.columns, names, path)
    index = [name for name in index_columns(found) if name not in [*special, *chosen]]
    unwanted = [*special, *index, *picked(wanted.drop, names, path)]
    inputs = [name for name in chosen or names if name not in unwanted]
    texts = dict.fromkeys(picked(wanted.categories, inputs, path), pa.string())
    table = pa_table(paths, [*inputs, *special], texts)
    numbered = [name for name in inputs if name in _WITHOUT_NAME and name not in chosen and _counts_rows(table, name)]
    inputs = [name for name in inputs if name not in numbered]
    if not inputs:
        raise ValueError(f"Expected input columns beside the target, got none in {listed(names)}. Drop fewer.")
    where = path.name if len(paths) == 1 else f"{len(paths)} files"
    notes = [f"Read {count(len(table))} from {where}: {count(len(inputs), 'input')}, target {wanted.target!r}."]
    notes += [f"Left out of the inputs: {index_words(index)}; --columns takes it in."] if index else []
    notes += [f"Left out of the inputs: {name!r}, which has no name and numbers the rows." for name in numbered]
    notes += [
        f"Column {name!r} numbers the rows: --drop {quoted(name)} if it means nothing else."
        for name in inputs
        if name not in chosen and _counts_rows(table, name)
    ]
    return table, inputs, notes


def _counts_rows(table: Any, name: str) -> bool:
    """0, 1, 2, ... or 1, 2, 3, ...; from the beginning again, as in several files, only where there is no name."""
    values = table.column(name)
    if not pa.types.is_integer(values.type) or values.null_count or len(values) < 3:
        return False
    numbers = values.to_numpy()
    steps = numbers[1:] == numbers[:-1] + 1
    if name in _WITHOUT_NAME:
        steps |= numbers[1:] == numbers[0]
    return bool(numbers[0] in (0, 1) and numbers[1] == numbers[0] + 1 and steps.all())


def _without_gaps(
    columns: Columns, encoded: Encoded, known: np.ndarray, path: Path
) -> tuple[Encoded, np.ndarray, list[str]]:
    """Inputs with gaps filled if this was wanted, which rows to keep, and notes; ``known`` rows have a target."""
    complete = known & ~encoded.missing
    if complete.all():
        return encoded, complete, []
    lacking = lacking_by_column(columns, encoded)
    if columns.missing == "error":
        lacking = {str(columns.target): int((~known).sum())} | lacking
        raise ValueError(missing_words(lacking, path, "--missing drop to leave these rows out"))
    kept, notes = complete, []
    if columns.missing == "mean":
        kept, encoded = known, encoded.filled(columns.means)
        filled = [f"{name!r} ({n})" for name, n in lacking.items() if n]
        notes += [f"Filled in by the mean: {', '.join(filled)}."] if filled else []
    if not kept.any():
        raise ValueError(f"Expected complete rows in {path}, got none. Drop the columns that lack values.")
    if not kept.all():
        notes.append(f"Left out {count(int((~kept).sum()))} with missing values.")
    return encoded, kept, notes


def _column_notes(columns: Columns, encoded: Encoded) -> list[str]:
    notes = []
    for column in columns.inputs:
        if column.kind == "category":
            kinds = f"{len(column.values)} categor{'y' if len(column.values) == 1 else 'ies'}"
            notes.append(f"Column {column.name!r} holds texts: one input for each of {kinds}.")
        elif np.nanmin(encoded.columns[column.name]) == np.nanmax(encoded.columns[column.name]):
            notes.append(f"Column {column.name!r} never changes: it cannot help.")
    return notes
