"""A file as rows to learn from: which columns, which task, what to do about missing values."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qsgp.cli.rows import missing_words
from qsgp.cli.targets import LARGEST_WHOLE, decide, known_targets
from qsgp.data.choosing import Chosen, Wanted, choose
from qsgp.data.columns import ON_THE_COMMAND_LINE, Columns, Encoded, encode, lacking_by_column, quoted
from qsgp.data.words import count, listed


@dataclass(frozen=True)
class Prepared:
    """Complete rows, what was decided about them, and the words that say so."""

    columns: Columns
    inputs: Encoded
    y: np.ndarray
    weight: np.ndarray | None
    task: str
    notes: list[str]


def prepare(paths: list[Path], wanted: Wanted, task: str = "auto", missing: str = "error") -> Prepared:
    """Rows of ``paths`` without missing values, as numbers."""
    chosen, target = choose(paths, wanted), str(wanted.target)
    table, notes = chosen.table, _notes(paths, chosen, target)
    task, why = decide(target, table.column(target), task)
    notes.append(f"The target holds {why}.")
    y, known = known_targets(target, table.column(target), labels=task == "classification")
    weight = None
    if wanted.weight is not None:
        weight, weighted = known_targets(wanted.weight, table.column(wanted.weight), labels=False, role="weight")
        known = known & weighted

    columns, empty = Columns.of(table.select(chosen.inputs), chosen.categories, ON_THE_COMMAND_LINE)
    notes += [f"Left out, because empty: {listed(empty)}."] if empty else []
    if not columns.inputs:
        raise ValueError(f"Expected values in the input columns of {paths[0]}, got empty columns. Check the file.")
    encoded = encode(columns, table)
    notes += _column_notes(columns, encoded)
    columns = replace(columns, target=target, missing=missing, means=encoded.means())
    encoded, kept, more = _without_gaps(columns, encoded, known, paths[0])
    return Prepared(
        replace(columns, rows=int(kept.sum())),
        encoded.take(kept),
        y[kept],
        None if weight is None else weight[kept],
        task,
        notes + more,
    )


def _notes(paths: list[Path], chosen: Chosen, target: str) -> list[str]:
    where = paths[0].name if len(paths) == 1 else f"{len(paths)} files"
    rows, inputs = count(len(chosen.table)), count(len(chosen.inputs), "input")
    notes = [f"Read {rows} from {where}: {inputs}, target {target!r}."]
    notes += chosen.left_out("; --columns takes it in")
    return notes + [
        f"Column {name!r} numbers the rows: --drop {quoted(name)} if it means nothing else." for name in chosen.suspects
    ]


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
        elif (value := np.nanmin(encoded.columns[column.name])) == np.nanmax(encoded.columns[column.name]):
            why, more = "never changes", ""
            if abs(value) > LARGEST_WHOLE:  # identifiers, which a float64 rounds to one number
                why, more = (
                    "holds numbers too long to be told apart",
                    f" (--categories {quoted(column.name)} if they are names)",
                )
            notes.append(f"Column {column.name!r} {why}: it cannot help{more}.")
    return notes
