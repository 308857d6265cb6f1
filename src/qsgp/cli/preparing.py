"""A file as rows to learn from: which columns, which task, what to do about missing values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qsgp.cli.rows import lacking_by_column, missing_words, picked
from qsgp.cli.talk import count, listed
from qsgp.cli.targets import decide, known_targets
from qsgp.columns import Columns, Encoded, encode
from qsgp.reading import check_names, pa_table, schema


@dataclass(frozen=True)
class Prepared:
    """Complete rows, what was decided about them, and the words that say so."""

    columns: Columns
    inputs: Encoded
    y: np.ndarray
    weight: np.ndarray | None
    task: str
    notes: list[str]


def prepare(
    paths: list[Path],
    target: str,
    weight: str | None,
    columns: Sequence[str] | None,
    drop: Sequence[str] | None,
    task: str,
    missing: str,
) -> Prepared:
    """Rows of ``paths`` without missing values, as numbers."""
    names = schema(paths[0]).names
    special = [target] if weight is None else [target, weight]
    check_names(special, names, paths[0])
    unwanted = [*special, *picked(drop, names, paths[0])]
    inputs = [name for name in picked(columns, names, paths[0]) or names if name not in unwanted]
    if not inputs:
        raise ValueError(f"Expected input columns beside the target, got none in {listed(names)}. Drop fewer.")
    table = pa_table(paths, [*inputs, *special])
    where = paths[0].name if len(paths) == 1 else f"{len(paths)} files"
    notes = [f"Read {count(len(table))} from {where}: {count(len(inputs), 'input')}, target {target!r}."]
    task, why = decide(target, table.column(target), task)
    notes.append(f"The target holds {why}.")
    y, known = known_targets(target, table.column(target), labels=task == "classification")
    weights = None if weight is None else known_targets(weight, table.column(weight), labels=False)

    learned, empty = Columns.of(table.select(inputs))
    notes += [f"Left out, because empty: {listed(empty)}."] if empty else []
    if not learned.inputs:
        raise ValueError(f"Expected values in the input columns of {paths[0]}, got empty columns. Check the file.")
    encoded = encode(learned, table)
    notes += _column_notes(learned, encoded)

    known = known if weights is None else known & weights[1]
    complete = known & ~encoded.missing
    if not complete.all() and missing == "error":
        lacking = {target: int((~known).sum())} | lacking_by_column(learned, encoded)
        raise ValueError(missing_words(lacking, paths[0], "--missing drop to leave these rows out"))
    means = encoded.means()
    kept = known if missing == "mean" else complete
    if missing == "mean" and not complete.all():
        filled = [f"{name!r} ({n})" for name, n in lacking_by_column(learned, encoded).items() if n]
        notes += [f"Filled in by the mean: {', '.join(filled)}."] if filled else []
        encoded = encoded.filled(means)
    if not kept.all():
        notes.append(f"Left out {count(int((~kept).sum()))} with missing values.")
    if not kept.any():
        raise ValueError(f"Expected complete rows in {paths[0]}, got none. Drop the columns that lack values.")
    return Prepared(
        replace(learned, target=target, missing=missing, means=means, rows=int(kept.sum())),
        encoded.take(kept),
        y[kept],
        None if weights is None else weights[0][kept],
        task,
        notes,
    )


def _column_notes(columns: Columns, encoded: Encoded) -> list[str]:
    notes = []
    for column in columns.inputs:
        if column.kind == "category":
            notes.append(
                f"Column {column.name!r} holds texts: one input for each of {count(len(column.values), 'category')}."
            )
        elif np.nanmin(encoded.columns[column.name]) == np.nanmax(encoded.columns[column.name]):
            notes.append(f"Column {column.name!r} never changes: it cannot help.")
    return [note.replace("categorys", "categories") for note in notes]
