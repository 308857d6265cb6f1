"""Inputs as an estimator is given them: a file, a table with names of any library, or an array.

What is learned of the columns (`Columns`) is the same for all of them and for the command line.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import _get_feature_names

from qsgp.data import npz
from qsgp.data.choosing import Wanted, choose
from qsgp.data.columns import Columns
from qsgp.data.encoding import ArrayTable, Encoded, encode, unseen_words
from qsgp.data.entries import as_text, is_text
from qsgp.data.learning import Learner, check_some_left
from qsgp.data.reading import Paths, check_names, find, pa_table, schema
from qsgp.data.tables import check_types, is_other, names_of, types_by_column

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

FLOATS = [np.float64, np.float32]


class FileRows(NamedTuple):
    """Inputs, target and weight of files; inputs of NPZ are one array."""

    inputs: Any
    y: Any
    weight: Any


def read_rows(paths: Paths, target: str | None = None, weight: str | None = None) -> FileRows:
    """Rows to learn from: inputs as an Arrow table, or an array from NPZ."""
    files = find(paths)
    if _packed(files):
        y, w = (None if name is None else npz.joined(files, name) for name in (target, weight))
        return FileRows(npz.joined(files, "X"), y, w)
    chosen = choose(files, Wanted(target, weight))
    for note in chosen.left_out():
        warnings.warn(note, stacklevel=2)
    table = chosen.table.select(chosen.inputs)
    y = None if target is None else _target(chosen.table.column(target))
    return FileRows(table, y, None if weight is None else chosen.table.column(weight).to_numpy())


def read_portion(paths: Paths, columns: Columns | None, target: str | None, weight: str | None) -> FileRows:
    """More rows of files for a model that knows its columns."""
    files = find(paths)
    if _packed(files) or columns is None:
        return read_rows(paths, target, weight)
    special = [name for name in (target, weight) if name is not None]
    table = _known_columns(files, columns, special)
    y = None if target is None else _target(table.column(target))
    inputs = table.select(columns.names)
    return FileRows(inputs, y, None if weight is None else table.column(weight).to_numpy())


def read_inputs(paths: Paths, columns: Columns | None) -> Any:
    """Rows of files to predict: a table, or an array from NPZ."""
    files = find(paths)
    if _packed(files) and "X" in npz.names(files[0]):
        return npz.joined(files, "X")
    if columns is None:
        return read_rows(paths).inputs
    return _known_columns(files, columns)


def _known_columns(files: list[Any], columns: Columns, special: Sequence[str] = ()) -> Any:
    check_names([*columns.names, *special], schema(files[0]).names, files[0])
    types = {name: kind for name, kind in types_of(columns).items() if name not in special}
    return pa_table(files, [*columns.names, *special], types)


def types_of(columns: Columns) -> dict[str, Any]:
    """As which columns of a text file must be read, whatever its first lines look like; dates are recognised."""
    kinds = {"number": pa.float64(), "boolean": pa.bool_(), "date": None}
    found = {column.name: kinds.get(column.kind, pa.string()) for column in columns.inputs}
    return {name: kind for name, kind in found.items() if kind is not None}


def opened(X: Any, only: Sequence[str] | None = None) -> Any:
    """A table with names: an `ArrayTable` if it holds numbers alone, else an Arrow table; None for an array."""
    found = types_by_column(X)
    others = {name for name, kind in found.items() if is_other(kind)}
    names = names_of(X)
    if not names and hasattr(X, "columns"):
        raise ValueError("Expected a table with columns, got one without any. Check how it was made.")
    wanted = names if only is None else [name for name in names if name in set(only)]
    check_types(X, besides=others if only is None else others | (set(names) - set(wanted)))
    if not names or (not others and _get_feature_names(X) is None):
        return None
    if others.isdisjoint(wanted):
        part = X if only is None else _selected(X, wanted)
        array = check_array(part, dtype=FLOATS, ensure_all_finite=False)
        return ArrayTable(array, wanted, frozenset(name for name in wanted if found[name].startswith("bool")))
    if pa is None:
        raise ImportError("Tables with texts, categories or dates need pyarrow. Run pip install 'qsgp[data]'.")
    return _as_arrow(X, wanted)


def learned(learner: Learner, table: Any, targets: np.ndarray, weight: np.ndarray, later: bool = False) -> Columns:
    """What to make of the columns of a table to learn from; a warning says what is left out.

    ``later``: more portions will come, in which columns may vary that are constant now.
    """
    columns = learner.add(table, targets, weight).columns(all_that_vary_later=later)
    check_some_left(columns)
    for note in columns.notes():
        warnings.warn(note, stacklevel=2)
    return columns


def as_numbers(columns: Columns, table: Any) -> np.ndarray:
    """A table's rows as the inputs of a model; what has not been seen in the fit is told."""
    if isinstance(table, ArrayTable) and columns.as_they_are and table.column_names == columns.names:
        return table.array
    encoded = encode(columns, table)
    if encoded.unseen:
        warnings.warn(f"In X, {unseen_words(encoded.unseen)}", stacklevel=2)
    return encoded.array


def applied(columns: Columns, X: Any) -> np.ndarray:
    """A table, or an array with the columns of the fit in their order, as a model's inputs. Other columns of a table do
    no harm."""
    if isinstance(X, Encoded):
        return X.array
    if isinstance(X, np.ndarray):
        if columns.named and not all(column.kind in ("number", "boolean") for column in columns.inputs):
            raise ValueError(
                "Expected a table with the columns of the fit, got an array, which has no names, texts or dates. Pass "
                f"a data frame with {', '.join(columns.names[:8])}{' and others' if len(columns.names) > 8 else ''}."
            )
        return as_numbers(columns, ArrayTable(X, [column.name for column in columns.given]))
    check_names(columns.names, names_of(X), "the table", "The model was fitted with it.")
    return as_numbers(columns, opened(X, columns.names))


def without_groups(X: Any, groups: Any, inputs: Any) -> Any:
    """A table without the column that names ``groups``, unless it is one of the ``inputs`` of the model too."""
    names = names_of(X) if isinstance(groups, str) else []
    if groups not in names or inputs is None or groups in inputs:
        return X
    return _selected(X, [name for name in names if name != groups])


def chosen_categories(asked: Any, names: Sequence[str]) -> list[str]:
    """The columns that the keyword ``categorical_features`` names, besides those of a categorical type."""
    if asked is None or (isinstance(asked, str) and asked == "from_dtype"):
        return []
    given = np.asarray(asked)
    if isinstance(asked, str) or given.ndim != 1 or given.dtype.kind not in "bifOUS" or not _fits(given, names):
        raise ValueError(
            "Expected categorical_features 'from_dtype', names of columns, their positions, or a mask with one entry "
            f"for each of the {len(names)} columns, got {asked!r}. The columns are {', '.join(map(repr, names[:8]))}"
            f"{' and others' if len(names) > 8 else ''}."
        )
    if given.dtype.kind == "b":
        return [name for name, yes in zip(names, given, strict=True) if yes]
    return [str(entry) if given.dtype.kind in "OUS" else names[int(entry)] for entry in given.tolist()]


def _fits(given: np.ndarray, names: Sequence[str]) -> bool:
    if given.dtype.kind == "b":
        return len(given) == len(names)
    if given.dtype.kind in "OUS":
        return set(given.tolist()) <= set(names)
    return bool((given == np.floor(given)).all() and (given >= -len(names)).all() and (given < len(names)).all())


def _selected(X: Any, names: Sequence[str]) -> Any:
    every = X.column_names if hasattr(X, "column_names") else X.columns
    part = [name for name in every if str(name) in set(names)]
    return X.select(part) if hasattr(X, "select") and not hasattr(X, "iloc") else X[part]


def _as_arrow(X: Any, names: Sequence[str]) -> Any:
    """Some columns of a table of any library as an Arrow table."""
    table = _selected(X, names)
    try:
        if isinstance(table, pa.Table):
            return table
        if hasattr(table, "to_arrow"):  # polars
            return table.to_arrow()
        if hasattr(table, "iloc"):  # pandas
            return pa.Table.from_pandas(table, preserve_index=False).rename_columns(list(map(str, table.columns)))
        return pa.table(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise ValueError(
            f"Expected columns of numbers, texts or dates, got entries that are neither or of several kinds: {error}. "
            "Make each column one of these, for example with .astype(str), or drop it."
        ) from error


def _packed(files: list[Any]) -> bool:
    kinds = {path.suffix.lower() == ".npz" for path in files}
    if len(kinds) > 1:
        raise ValueError("Expected files of one kind, got NPZ and others. Read them apart.")
    return kinds == {True}


def _target(values: Any) -> Any:
    """Texts without the blanks around them, as the command line reads labels."""
    return np.array(as_text(values).to_pylist(), dtype=object) if is_text(values.type) else values.to_numpy()
