"""The columns of a table as numbers: what a fit learns of them is stored in the model, so that it can read other tables
and files. Numbers stay, booleans become 0 and 1, texts one column for each category."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from qsgp.data.entries import as_text, is_text, strange_entry

try:
    import pyarrow as pa
    from pyarrow import compute, types
except ImportError:  # the extra is not installed: `reading` says so before anything of this file is needed
    pa = None

MOST_CATEGORIES = 50
_SOME = 0.2  # share of numbers among many different texts from which on numbers were meant


class Advice(NamedTuple):
    """What to do about a column, in options of the command line or for a table in Python; {} is the column's name."""

    leave_out: str
    categories: str


IN_PYTHON = Advice("without the column {}", "a categorical type (such as pandas' category)")
ON_THE_COMMAND_LINE = Advice("with --drop {}", "--categories {}")


@dataclass(frozen=True)
class Column:
    """One input column: "number", "boolean" or "category" with its values in order."""

    name: str
    kind: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """How rows of a file become rows of numbers."""

    inputs: tuple[Column, ...]
    target: str | None = None
    missing: str = "error"  # or "drop", "mean": what was done with them in `fit`
    means: tuple[float, ...] = ()  # one for each encoded column
    rows: int | None = None  # that were learned from

    @property
    def names(self) -> list[str]:
        """Of the file's columns."""
        return [column.name for column in self.inputs]

    @property
    def encoded(self) -> list[str]:
        """Of the model's inputs."""
        return [name for names in self.encoded_by_column.values() for name in names]

    @property
    def encoded_by_column(self) -> dict[str, list[str]]:
        """The inputs that each column becomes: itself, or ``column=value`` with strokes where this is taken already."""
        taken = {column.name for column in self.inputs if column.kind != "category"}
        found = {}
        for column in self.inputs:
            found[column.name] = names = [] if column.kind == "category" else [column.name]
            for value in column.values:
                name = f"{column.name}={value}"
                while name in taken:  # by a number called kind=villa, or by a column kind=a of the value b
                    name += "'"
                taken.add(name)
                names.append(name)
        return found

    @property
    def types(self) -> dict[str, Any]:
        """As which a text file must be read, whatever its first lines look like."""
        kinds = {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string()}
        return {column.name: kinds[column.kind] for column in self.inputs}

    def header(self) -> dict[str, Any]:
        """As a model file holds it."""
        found = asdict(self) | {"means": list(self.means)}
        return found | {"inputs": [asdict(column) | {"values": list(column.values)} for column in self.inputs]}

    @staticmethod
    def from_header(header: Any) -> "Columns":
        try:
            inputs = tuple(Column(part["name"], part["kind"], tuple(part["values"])) for part in header["inputs"])
            if not {column.kind for column in inputs} <= {"number", "boolean", "category"}:
                raise KeyError("a known kind")
            return Columns(inputs, header["target"], header["missing"], tuple(header["means"]), header["rows"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"Expected a description of columns in the model, got one without {error}.") from error

    @staticmethod
    def learned_by(model: Any) -> "Columns | None":
        """How a fitted model makes its inputs of a table, if it learned that from a file or from categories."""
        if not hasattr(model, "columns_"):
            return None
        stored = Columns.from_header(model.columns_)
        names = [str(name) for name in getattr(model, "feature_names_in_", [])]
        return stored if stored.encoded == names else None  # it may have been fitted again on other columns

    @staticmethod
    def known_to(model: Any) -> "Columns | None":
        """What it learned, or else its inputs by their names; None for a model without names."""
        names = [str(name) for name in getattr(model, "feature_names_in_", [])]
        return Columns.learned_by(model) or (Columns.of_numbers(names) if names else None)

    @staticmethod
    def of_numbers(names: Sequence[str]) -> "Columns":
        return Columns(tuple(Column(name, "number") for name in names))

    @staticmethod
    def of(table: Any, categories: Collection[str] = (), advice: Advice = IN_PYTHON) -> "tuple[Columns, list[str]]":
        """Kinds and categories of a table's columns, and the names of those that hold nothing and are left out.

        Those named in ``categories`` hold categories whatever they look like, and so do those of a categorical type.
        """
        found = {name: _column(name, table.column(name), name in categories, advice) for name in table.column_names}
        kept = tuple(column for column in found.values() if column is not None)
        return Columns(kept), [name for name, column in found.items() if column is None]


@dataclass
class Encoded:
    """Rows of numbers by name, NaN where a value is missing, and what was met on the way."""

    columns: dict[str, np.ndarray]
    unseen: Counter[tuple[str, str]] = field(default_factory=Counter)  # (column, category) -> rows

    def take(self, rows: np.ndarray) -> "Encoded":
        """Those at these positions, or where a mask is True."""
        return Encoded({name: values[rows] for name, values in self.columns.items()}, self.unseen)

    def table(self) -> Any:
        return pa.table({name: pa.array(values) for name, values in self.columns.items()})

    @property
    def missing(self) -> np.ndarray:
        """Rows that lack a value."""
        return np.logical_or.reduce([np.isnan(values) for values in self.columns.values()])

    def means(self) -> tuple[float, ...]:
        """Of the values that are there; a category's is its share."""
        return tuple(float(np.nanmean(values)) for values in self.columns.values())

    def filled(self, means: Sequence[float]) -> "Encoded":
        pairs = zip(self.columns.items(), means, strict=True)
        return Encoded({name: np.where(np.isnan(v), mean, v) for (name, v), mean in pairs}, self.unseen)


def encode(columns: Columns, table: Any) -> Encoded:
    """Rows of ``table`` as numbers; a category that was not learned is none of the known ones: zeros."""
    found, names = Encoded({}), columns.encoded_by_column
    for column in columns.inputs:
        values = table.column(column.name).combine_chunks()
        if column.kind != "category":
            found.columns[column.name] = _numbers(column.name, values)
            continue
        text = as_text(values)
        position = compute.index_in(text, pa.array(column.values, pa.string())).fill_null(-1).to_numpy()
        missing = text.is_null().to_numpy(zero_copy_only=False)
        for k, name in enumerate(names[column.name]):
            found.columns[name] = np.where(missing, np.nan, (position == k).astype(np.float64))
        strange = text.filter(pa.array((position < 0) & ~missing))
        for entry in strange.value_counts().to_pylist():
            found.unseen[column.name, entry["values"]] += entry["counts"]
    return found


def unseen_words(unseen: Counter[tuple[str, str]]) -> str:
    """For a note about categories that were not there in the fit."""
    words = ", ".join(f"{name}={value} ({n})" for (name, value), n in unseen.most_common(5))
    return f"categories the model has not seen count as none of the known ones: {words}."


def lacking_by_column(columns: Columns, encoded: Encoded) -> dict[str, int]:
    """Rows without a value, for each column of the table."""
    return {name: int(np.isnan(encoded.columns[inputs[0]]).sum()) for name, inputs in columns.encoded_by_column.items()}


def _column(name: str, values: Any, as_category: bool, advice: Advice) -> Column | None:
    """What a column holds; None if it holds nothing."""
    kind = values.type
    if types.is_dictionary(kind):  # a categorical type
        kind = kind.value_type
        as_category = as_category or is_text(kind) or _is_number(kind) or types.is_boolean(kind)
    if values.null_count == len(values):
        return None
    if types.is_boolean(kind) and not as_category:
        return Column(name, "boolean")
    if _is_number(kind) and not as_category:
        return Column(name, "number")
    if not is_text(kind) and not as_category:
        raise ValueError(
            f"Expected numbers or categories in column {name!r}, got {kind}. Fit {_about(advice.leave_out, name)}, "
            "or turn it into numbers first (dates: days since a day, month, weekday)."
        )
    if not as_category and (strange := strange_entry(values)) is not None:
        raise ValueError(
            f"Expected numbers in column {name!r}, got {strange}. Correct it, leave it empty where the value is not "
            f"known, or use {_about(advice.categories, name)} if the column holds categories."
        )
    found = compute.unique(as_text(values)).drop_null().to_pylist()
    if len(found) > MOST_CATEGORIES:
        some = strange_entry(values, least=_SOME)
        why = (
            f"got {len(found)} different texts such as {', '.join(map(repr, found[:3]))}"
            if some is None
            else f"got {some}"
        )
        raise ValueError(
            f"Expected numbers or at most {MOST_CATEGORIES} categories in column {name!r}, {why}. Fit "
            f"{_about(advice.leave_out, name)}, or correct its entries."
        )
    return Column(name, "category", tuple(sorted(found))) if found else None


def _numbers(name: str, values: Any) -> np.ndarray:
    if not (types.is_boolean(values.type) or _is_number(values.type) or types.is_null(values.type)):
        raise ValueError(
            f"Expected numbers in column {name!r}, as in the file of the fit, got {values.type} such as "
            f"{str(values.drop_null()[0]) if len(values.drop_null()) else None!r}. Correct the column."
        )
    values = values.cast(pa.float64(), safe=False) if not types.is_boolean(values.type) else values.cast(pa.int8())
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _is_number(kind: Any) -> bool:
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def _about(advice: str, name: str) -> str:
    return advice.replace("{}", quoted(name))


def quoted(name: str) -> str:
    """As an option takes it."""
    return name if name.isidentifier() else f'"{name}"'
