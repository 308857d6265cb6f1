"""Inputs as an estimator is given them, with numbers in place of categories: a file, or any table with names.

What was learned of the columns (`Columns`) is the same for a file, a table of any library and the command line.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from qsgp.data import npz
from qsgp.data.choosing import Wanted, choose
from qsgp.data.columns import Column, Columns, Encoded, encode, lacking_by_column, unseen_words
from qsgp.data.entries import as_text, is_text
from qsgp.data.reading import Paths, check_names, find, pa_table, schema
from qsgp.data.tables import check_types, names_of, text_columns
from qsgp.data.words import listed

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None


class FileRows(NamedTuple):
    """Inputs, target and weight of files; the columns are None for NPZ, whose inputs are one array."""

    inputs: Any
    y: Any
    weight: Any
    columns: Columns | None


def read_rows(paths: Paths, target: str | None = None, weight: str | None = None) -> FileRows:
    """Rows to learn from: inputs as an Arrow table of numbers with its names, or an array from NPZ."""
    files = find(paths)
    if _packed(files):
        y, w = (None if name is None else npz.joined(files, name) for name in (target, weight))
        return FileRows(npz.joined(files, "X"), y, w, None)
    chosen = choose(files, Wanted(target, weight))
    for note in chosen.left_out():
        warnings.warn(note, stacklevel=2)
    table = chosen.table.select(chosen.inputs)
    inputs, columns = learned(table)
    y = None if target is None else _target(chosen.table.column(target))
    w = None if weight is None else chosen.table.column(weight).to_numpy()
    if columns is None:
        columns = Columns.of(table)[0]
    return FileRows(inputs, y, w, Columns(columns.inputs, target, rows=len(table)))


def read_portion(paths: Paths, columns: Columns | None, target: str | None, weight: str | None) -> tuple[Any, Any, Any]:
    """More rows of files for a model that knows its columns: inputs, target and weight."""
    files = find(paths)
    if _packed(files) or columns is None:
        return read_rows(paths, target, weight)[:3]
    special = [name for name in (target, weight) if name is not None]
    check_names([*columns.names, *special], schema(files[0]).names, files[0])
    types = {name: kind for name, kind in columns.types.items() if name not in special}
    table = pa_table(files, [*columns.names, *special], types)
    y = None if target is None else _target(table.column(target))
    return _numbers(columns, table), y, None if weight is None else table.column(weight).to_numpy()


def learned(table: Any) -> tuple[Any, Columns | None]:
    """A table to learn from, with numbers in place of categories, and how they were made.

    The table itself and None if it has no categories, or is an array.
    """
    texts = text_columns(table) if pa is not None else []
    check_types(table, besides=texts)
    if not texts:
        return table, None
    arrow = as_arrow(table, names_of(table))
    columns, empty = Columns.of(arrow)
    if empty:
        raise ValueError(f"Expected values in every column, got none in {listed(empty)}. Drop these columns.")
    encoded = encode(columns, arrow)
    _refuse_missing(columns, encoded)
    return encoded.table(), Columns(columns.inputs, rows=len(arrow))


def applied(columns: Columns | None, X: Any) -> Any:
    """A table to predict as the numbers that the model was fitted with; arrays and tables of these stay as they are.

    Other columns do no harm if the model has learned what its columns are.
    """
    names = names_of(X)
    if columns is None or not names or pa is None:
        check_types(X)
        return X
    if names == columns.encoded:
        if columns.missing != "mean":
            check_types(X)
            return X
        columns = Columns(tuple(Column(name, "number") for name in names), missing="mean", means=columns.means)
    check_names(columns.names, names, "the table", "The model was fitted with it.")
    return _numbers(columns, as_arrow(X, columns.names))


def read_inputs(paths: Paths, columns: Columns | None) -> Any:
    """Rows of files to predict, as numbers."""
    files = find(paths)
    if _packed(files) and "X" in npz.names(files[0]):
        return npz.joined(files, "X")
    if columns is None:
        chosen = choose(files, Wanted())
        for note in chosen.left_out():
            warnings.warn(note, stacklevel=2)
        table = chosen.table.select(chosen.inputs)
        check_types(table)
        return table
    check_names(columns.names, schema(files[0]).names, files[0])
    return _numbers(columns, pa_table(files, columns.names, columns.types))


def as_arrow(table: Any, names: Sequence[str]) -> Any:
    """Some columns of a table of any library as an Arrow table."""
    wanted = set(names)
    every = table.column_names if hasattr(table, "column_names") else table.columns
    part = [name for name in every if str(name) in wanted]
    try:
        if isinstance(table, pa.Table):
            return table.select(part)
        table = table[part] if hasattr(table, "dtypes") else table
        if hasattr(table, "to_arrow"):  # polars
            return table.to_arrow()
        if hasattr(table, "iloc"):  # pandas
            return pa.Table.from_pandas(table, preserve_index=False)
        return pa.table(table).select(part)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"Expected columns of numbers or texts, got entries that are neither or both: {error}. Make each column "
            "one of the two, for example with .astype(str), or drop it."
        ) from error


def _numbers(columns: Columns, table: Any) -> Any:
    """A table of numbers: gaps filled if this was wanted in the fit, unknown categories told."""
    encoded = encode(columns, table)
    if encoded.unseen:
        warnings.warn(f"In X, {unseen_words(encoded.unseen)}", stacklevel=2)
    if columns.missing == "mean" and columns.means:
        encoded = encoded.filled(columns.means)
    _refuse_missing(columns, encoded)
    return encoded.table()


def _refuse_missing(columns: Columns, encoded: Encoded) -> None:
    """Of categories; gaps among numbers are refused where all numbers are checked."""
    kinds = {column.name for column in columns.inputs if column.kind == "category"}
    lacking = {name: n for name, n in lacking_by_column(columns, encoded).items() if n and name in kinds}
    if lacking:
        words = ", ".join(f"{name!r} ({n})" for name, n in list(lacking.items())[:8])
        raise ValueError(
            f"Expected a category in every row of X, got missing values in columns {words}. Drop these rows, or write "
            "a word such as 'unknown' into them before the fit."
        )


def _packed(files: list[Any]) -> bool:
    kinds = {path.suffix.lower() == ".npz" for path in files}
    if len(kinds) > 1:
        raise ValueError("Expected files of one kind, got NPZ and others. Read them apart.")
    return kinds == {True}


def _target(values: Any) -> Any:
    """Texts without the blanks around them, as the command line reads labels."""
    return np.array(as_text(values).to_pylist(), dtype=object) if is_text(values.type) else values.to_numpy()
