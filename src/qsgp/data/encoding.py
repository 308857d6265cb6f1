"""Rows of a table as the numbers that a model works with, by what was learned of its columns."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qsgp.data.columns import BOOLEAN, CATEGORY, DATE, LEVELS, NUMBER, Column, Columns
from qsgp.data.dates import as_dates, days, is_date, waves
from qsgp.data.entries import as_text, is_number, is_text
from qsgp.data.tally import numbers

try:
    import pyarrow as pa
    from pyarrow import compute, types
except ImportError:  # the extra is not installed: tables of numbers need none of it
    pa = None

UNKNOWN = -1.0  # the code of a level that was not learned, or is missing


@dataclass
class Encoded:
    """Rows of inputs, NaN where one is not known: a model takes its mean and doubts itself more."""

    array: np.ndarray  # (n, inputs)
    unseen: Counter[tuple[str, str]] = field(default_factory=Counter)  # (column, category) -> rows
    __array_ufunc__ = None

    def __len__(self) -> int:
        return len(self.array)

    def take(self, rows: np.ndarray) -> "Encoded":
        """Those at these positions, or where a mask is True."""
        return Encoded(self.array[rows], self.unseen)


@dataclass(frozen=True)
class ArrayTable:
    """Columns of numbers without Arrow: an array, and what its columns are called."""

    array: np.ndarray
    column_names: list[str]
    booleans: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.array)

    def column(self, name: str) -> np.ndarray:
        return np.asarray(self.array[:, self.column_names.index(name)])


def encode(columns: Columns, table: Any) -> Encoded:
    """Rows of an Arrow table or an `ArrayTable` as numbers. A category that was not learned is not known: its mean."""
    names = columns.encoded
    place, by_column = {name: k for k, name in enumerate(names)}, columns.encoded_by_column
    found = Encoded(np.empty((len(table), len(names))))
    at = {name: k for k, name in enumerate(table.column_names)} if isinstance(table, ArrayTable) else {}
    for column in columns.inputs:
        values = table.array[:, at[column.name]] if at else table.column(column.name).combine_chunks()
        for name, own in zip(by_column[column.name], _inputs(column, values, found.unseen), strict=True):
            found.array[:, place[name]] = own
    return found


def _inputs(column: Column, values: Any, unseen: Counter[tuple[str, str]]) -> list[np.ndarray]:
    """The inputs that a column becomes; the last says where it is missing, if the model has an input for that."""
    if column.kind in (NUMBER, BOOLEAN):
        own = _numbers(column.name, values)
        missing, found = np.isnan(own), [column.bent(own)]
    elif column.kind == DATE:
        own = _days(column.name, values)
        missing, found = np.isnan(own), [own] + [wave for part in column.parts[1:] for wave in waves(own, part)]
    else:
        missing, found = _categories(column, values, unseen)
    return [*found, missing.astype(np.float64)] if column.gaps else found


def _categories(column: Column, values: Any, unseen: Counter[tuple[str, str]]) -> tuple[np.ndarray, list[np.ndarray]]:
    text = as_text(values if not isinstance(values, np.ndarray) else pa.array(values, from_pandas=True))
    position = compute.index_in(text, pa.array(column.values, pa.string())).fill_null(-1).to_numpy()
    missing = text.is_null().to_numpy(zero_copy_only=False)
    strange = (position < 0) & ~missing
    for entry in text.filter(pa.array(strange)).value_counts().to_pylist() if strange.any() else []:
        unseen[column.name, entry["values"]] += entry["counts"]
    if column.kind == LEVELS:
        return missing, [np.where(position < 0, UNKNOWN, position).astype(np.float64)]
    if column.kind != CATEGORY:
        return missing, [np.where(position < 0, np.nan, position)]
    own = [(position == k).astype(np.float64) for k in range(len(column.values))]
    # that a category is missing may be an input of its own: then it is none of the others
    unknown = strange if column.gaps else strange | missing
    return missing, [np.where(unknown, np.nan, each) for each in own]


def _numbers(name: str, values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values.astype(np.float64)
    kind = values.type
    if types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if not (types.is_boolean(kind) or is_number(kind) or types.is_null(kind)):
        raise ValueError(
            f"Expected numbers in column {name!r}, as in the fit, got {'texts' if is_text(kind) else kind} such as "
            f"{str(values.drop_null()[0]) if len(values.drop_null()) else None!r}. Correct the column."
        )
    return numbers(values)


def _days(name: str, values: Any) -> np.ndarray:
    found = values
    if isinstance(values, np.ndarray):
        if np.isnan(values).all():
            return values.astype(np.float64)
    else:
        found = as_dates(as_text(values)) if is_text(values.type) else values
        if found is None and values.null_count == len(values):
            return np.full(len(values), np.nan)
        if found is not None and is_date(found.type):
            return days(found)
        if types.is_null(values.type):
            return np.full(len(values), np.nan)
    what = values.dtype if isinstance(values, np.ndarray) else values.type
    raise ValueError(f"Expected dates in column {name!r}, as in the fit, got {what}. Write them as 2020-01-31.")


def unseen_words(unseen: Counter[tuple[str, str]]) -> str:
    """For a note about categories that were not there in the fit."""
    words = ", ".join(f"{name}={value} ({n})" for (name, value), n in unseen.most_common(5))
    return f"categories the model has not seen are taken for the mean of the known ones, with more doubt: {words}."


def lacking(columns: Columns, table: Any) -> dict[str, np.ndarray]:
    """Which rows of an Arrow table lack a value, for each column that is used."""
    return {name: _lacks(table.column(name).combine_chunks()) for name in columns.names}


def _lacks(values: Any) -> np.ndarray:
    values = as_text(values) if is_text(values.type) else values
    missing = values.is_null(nan_is_null=types.is_floating(values.type))
    return np.asarray(missing.to_numpy(zero_copy_only=False))
