"""A file as rows to learn from: which columns, which task, what to do about missing values."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.cli.rows import missing_words
from qsgp.cli.targets import LARGEST_WHOLE, decide, known_targets
from qsgp.data.choosing import Chosen, Wanted, choose
from qsgp.data.columns import CATEGORY, DATE, LEVELS, ORDERED, Columns
from qsgp.data.encoding import lacking
from qsgp.data.entries import is_number
from qsgp.data.learning import NO_LEVELS, ON_THE_COMMAND_LINE, check_some_left, columns_of, quoted
from qsgp.data.tally import numbers
from qsgp.data.words import count

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None


@dataclass(frozen=True)
class Prepared:
    """Rows whose target is known, what was decided about them, and the words that say so."""

    table: Any  # the columns of the inputs
    categories: list[str]  # that were said to be categories
    y: np.ndarray
    weight: np.ndarray | None
    task: str
    target: str
    missing: str
    notes: list[str]
    rows: np.ndarray  # their positions in the files


def prepare(paths: list[Path], wanted: Wanted, task: str = "auto", missing: str = "auto") -> Prepared:
    """Rows of ``paths``; those without a target are left out if missing values are, else told."""
    chosen, target = choose(paths, wanted), str(wanted.target)
    table, notes = chosen.table, _notes(paths, chosen, target)
    task, why = decide(target, table.column(target), task)
    notes.append(f"The target holds {why}.")
    y, known = known_targets(target, table.column(target), labels=task == "classification")
    weight = None
    if wanted.weight is not None:
        weight, weighted = known_targets(wanted.weight, table.column(wanted.weight), labels=False, role="weight")
        known = known & weighted

    inputs = table.select(chosen.inputs)
    no_levels = NO_LEVELS["classes"] if task == "classification" else ""
    columns = columns_of(inputs, chosen.categories, ON_THE_COMMAND_LINE, no_levels)
    check_some_left(columns)
    notes += _column_notes(columns, inputs)
    inputs, kept, more = _without_gaps(inputs, lacking(columns, inputs), known, missing, paths[0], target)
    rows = np.flatnonzero(kept)
    return Prepared(
        inputs if kept.all() else inputs.take(pa.array(rows)),
        chosen.categories,
        y[kept],
        None if weight is None else weight[kept],
        task,
        target,
        missing,
        notes + more,
        rows,
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
    inputs: Any, lacks: dict[str, np.ndarray], known: np.ndarray, missing: str, path: Path, target: str
) -> tuple[Any, np.ndarray, list[str]]:
    """Inputs, with gaps filled if this was wanted; which rows to keep; notes. ``known`` rows have a target."""
    count_of = {name: int(rows.sum()) for name, rows in lacks.items()}
    gaps = np.logical_or.reduce(list(lacks.values()))
    if missing == "error" and (gaps.any() or not known.all()):
        raise ValueError(
            missing_words({target: int((~known).sum())} | count_of, path, "--missing drop to leave these rows out")
        )
    kept, notes = known & ~gaps if missing == "drop" else known, []
    named = [f"{name!r} ({n})" for name, n in count_of.items() if n]
    if named and missing == "mean":
        inputs = _filled(inputs, [name for name, n in count_of.items() if n])
        notes.append(f"Filled in by the mean: {', '.join(named)}.")
    elif named and missing == "auto":
        shown = ", ".join(named[:8]) + (f" and {len(named) - 8} more columns" if len(named) > 8 else "")
        notes.append(f"Missing values are taken as they are: {shown}.")
    if not kept.any():
        raise ValueError(f"Expected complete rows in {path}, got none. Drop the columns that lack values.")
    if not kept.all():
        notes.append(f"Left out {count(int((~kept).sum()))} with missing values.")
    return inputs, kept, notes


def _filled(inputs: Any, names: list[str]) -> Any:
    """Numbers by their mean; the model does the same with categories."""
    for name in names:
        values = inputs.column(name)
        if is_number(values.type):
            known = numbers(values)
            filled = pa.array(np.where(np.isnan(known), np.nanmean(known), known))
            inputs = inputs.set_column(inputs.column_names.index(name), name, filled)
    return inputs


_HOLD = {CATEGORY: "texts", ORDERED: "texts with an order", LEVELS: "texts", DATE: "dates"}


def _column_notes(columns: Columns, inputs: Any) -> list[str]:
    notes = columns.notes()
    notes += [f"Column {c.name!r} holds {_HOLD[c.kind]}: {c.words}." for c in columns.inputs if c.kind in _HOLD]
    for column in columns.given:
        values = inputs.column(column.name)
        if column.used or not is_number(values.type):
            continue
        if np.fmax.reduce(np.abs(numbers(values)), initial=0.0) > LARGEST_WHOLE:
            # identifiers, which a float64 rounds to one number
            why = f"holds numbers too long to be told apart (--categories {quoted(column.name)} if they are names)"
            notes.append(f"Column {column.name!r} {why}.")
    return notes
