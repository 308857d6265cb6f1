"""To which group each row belongs: told by an array, or by the name of a column."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qsgp.data.reading import check_names, find, is_path, pa_table, schema
from qsgp.data.tables import as_array_like, is_missing, names_of

_AS_ARRAY = "Pass an array with one group for each row."


@dataclass(frozen=True)
class Groups:
    """Names of groups row by row, None where it is not known, and the column of the table that they came from."""

    names: np.ndarray
    column: str | None = None

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Any) -> "Groups":
        """Those at these positions, in a slice, or where a mask is True."""
        return Groups(self.names[rows], self.column)

    @classmethod
    def joined(cls, parts: Iterable["Groups"]) -> "Groups":
        """Of rows under each other."""
        found = list(parts)
        return cls(np.concatenate([part.names for part in found]), found[0].column)

    def checked(self, rows: int) -> "Groups":
        if len(self) != rows:
            raise ValueError(f"Expected one group for each of the {rows} rows of X, got {len(self)}. {_AS_ARRAY}")
        return self

    @classmethod
    def of(cls, given: Any, X: Any) -> "Groups":
        """``given`` is an array, or the name of a column of the table or the files X."""
        if isinstance(given, Groups):
            return given
        if isinstance(given, str):
            return cls(_as_names(_column(given, X)), given)
        name = getattr(given, "name", None)  # of a column that was taken out of its table
        return cls(_as_names(given), name if isinstance(name, str) and name else None)


def _column(name: str, X: Any) -> Any:
    if is_path(X):
        files = find(X)
        check_names([name], schema(files[0]).names, files[0])
        return pa_table(files, [name]).column(name)
    names = names_of(X)
    if not names:
        raise ValueError(f"Expected groups as an array, got the name {name!r} with inputs without names. {_AS_ARRAY}")
    check_names([name], names, "the table")
    return X.column(name) if hasattr(X, "column_names") else X[list(X.columns)[names.index(name)]]


def _as_names(values: Any) -> np.ndarray:
    """As texts, so that a group has the same name whatever library and file its rows come from."""
    entries = _entries(values)
    known = {entry: _text(entry) for entry in set(entries) if not is_missing(entry)}
    found = np.empty(len(entries), dtype=object)
    found[:] = [None if is_missing(entry) else known[entry] for entry in entries]
    return found


def _entries(values: Any) -> list[Any]:
    if hasattr(values, "to_pylist"):  # Arrow
        return list(values.to_pylist())
    array = np.asarray(as_array_like(values)) if np.ma.isMaskedArray(values) or hasattr(values, "detach") else values
    array = np.asarray(array)
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"Expected groups of one dimension, got shape {array.shape}. {_AS_ARRAY}")
    return list(array.tolist())


def _text(entry: Any) -> str | None:
    """2 and 2.0 are one group, and so are a day and its midnight; blanks around a text do not count."""
    if isinstance(entry, bool):
        return str(entry).lower()
    if isinstance(entry, float) and entry.is_integer():
        return str(int(entry))
    if isinstance(entry, datetime.date):
        return entry.isoformat().removesuffix("T00:00:00")
    return str(entry).strip() or None
