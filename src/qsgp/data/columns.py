"""What a fit has learned of the columns of a table: stored in the model, so that it can read other tables and files.

A column of the table becomes one input of the model or several (`Column.inputs`), or is left out with a reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from qsgp.data.words import count, listed

NUMBER, BOOLEAN, CATEGORY, ORDERED, DATE, LEVELS, LEFT_OUT = (
    "number",
    "boolean",
    "category",
    "ordered",
    "date",
    "levels",
    "left out",
)
KINDS = (NUMBER, BOOLEAN, CATEGORY, ORDERED, DATE, LEVELS, LEFT_OUT)
PARTS = ("trend", "year", "week", "day")  # of a date; the last three are a sine and a cosine each
MISSING_POLICIES = ("auto", "error", "drop", "mean")


@dataclass(frozen=True)
class Column:
    """One column of the table.

    "number", "boolean"; "category" of few values; "ordered" by a scale; "date"; "levels", an identifier of many values,
    which stands last among the inputs as whole numbers; or "left out", and why.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()  # of categories and levels
    parts: tuple[str, ...] = ()  # of a date
    bend: tuple[float, float] | tuple[()] = ()  # middle and width of a number with long tails
    gaps: bool = False  # that a value is missing says something of the target: an input for that
    why: str = ""  # left out

    @property
    def used(self) -> bool:
        return self.kind != LEFT_OUT

    @property
    def own_inputs(self) -> list[str]:
        """Without that for gaps; what a category's inputs are called may be taken already."""
        if self.kind == CATEGORY:
            return [f"{self.name}={value}" for value in self.values]
        if self.kind == DATE:
            found = [self.name] if "trend" in self.parts else []
            return found + [f"{self.name}: {wave} of {part}" for part in self.parts[len(found) :] for wave in _WAVES]
        return [self.name] if self.used else []

    @property
    def words(self) -> str:
        """What was made of it, for people."""
        said = {
            NUMBER: "number" + (" with long tails, by the logarithm of its size" if self.bend else ""),
            BOOLEAN: "yes or no",
            CATEGORY: f"{_count(self.values, 'category', 'categories')}, one input for each",
            ORDERED: f"{_count(self.values, 'ordered category', 'ordered categories')}, one input",
            DATE: f"date: {', '.join(PART_WORDS[part] for part in self.parts)}",
            LEVELS: f"identifier of {_count(self.values, 'level', 'levels')}",
            LEFT_OUT: f"left out: {self.why}",
        }[self.kind]
        return said + ("; an input says where it is missing" if self.gaps else "")

    def bent(self, values: np.ndarray) -> np.ndarray:
        """A number as the model takes it: with long tails by its logarithm, far from the middle."""
        return np.arcsinh((values - self.bend[0]) / self.bend[1]) if self.bend else values


_OF_CATEGORIES = 0.5  # yes and no are two units apart, as for a category that half of the rows have
_WAVES = ("sine", "cosine")
PART_WORDS = {"trend": "trend", "year": "time of the year", "week": "day of the week", "day": "time of the day"}


@dataclass(frozen=True)
class Columns:
    """How rows of a table become rows of numbers. ``print`` says it in words."""

    given: tuple[Column, ...]  # all columns of the table, in its order
    target: str | None = None
    missing: str = "auto"  # or "error", "drop", "mean": what the command line did with missing inputs
    rows: int | None = None  # that were learned from
    named: bool = True  # False: columns of an array, told apart by their position

    def __iter__(self) -> Iterator[Column]:
        return iter(self.given)

    def __str__(self) -> str:
        width = max((len(column.name) for column in self.given), default=0)
        return "\n".join(f"{column.name:<{width}}  {column.words}" for column in self.given)

    @property
    def inputs(self) -> tuple[Column, ...]:
        """The columns that are used."""
        return tuple(column for column in self.given if column.used)

    @property
    def names(self) -> list[str]:
        """Of the table's columns that are used."""
        return [column.name for column in self.inputs]

    @property
    def encoded(self) -> list[str]:
        """Of the model's inputs: codes of levels are the last."""
        by_column, levels = self.encoded_by_column, self.levels
        return [n for names in by_column.values() for n in names if n not in levels] + list(levels)

    @property
    def levels(self) -> dict[str, int]:
        """How many there are of each identifier, by the name of its input."""
        by_column = self.encoded_by_column
        return {by_column[c.name][0]: len(c.values) for c in self.inputs if c.kind == LEVELS}

    @property
    def encoded_by_column(self) -> dict[str, list[str]]:
        """The inputs that each column becomes; a name that is taken already gets a stroke, as in kind=villa'."""
        taken = {column.name for column in self.inputs if column.own_inputs == [column.name]}
        found: dict[str, list[str]] = {}
        for column in self.inputs:
            names = found.setdefault(column.name, [])
            for name in column.own_inputs + ([f"{column.name} is missing"] if column.gaps else []):
                while name in taken and name != column.name:
                    name += "'"
                taken.add(name)
                names.append(name)
        return found

    @property
    def as_they_are(self) -> bool:
        """The inputs are the columns themselves, all of them numbers."""
        return all(c.kind in (NUMBER, BOOLEAN) and not (c.gaps or c.bend) for c in self.given)

    @property
    def scales(self) -> np.ndarray:
        """The unit of each input; NaN where its deviation over the rows is to be one.

        Categories keep theirs: in units of its deviation a rare one would be far from all others.
        """
        fixed = {CATEGORY: _OF_CATEGORIES, LEVELS: 1.0}
        by_column = self.encoded_by_column
        unit: dict[str, float] = {}
        for column in self.inputs:
            names = by_column[column.name]
            unit |= dict.fromkeys(names, fixed.get(column.kind, np.nan))
            unit |= {names[-1]: _OF_CATEGORIES} if column.gaps else {}
        return np.array([unit[name] for name in self.encoded])

    def notes(self) -> list[str]:
        """What a person should know of columns that are not simply taken as numbers."""
        reasons: dict[str, list[str]] = {}
        for column in self.given:
            if not column.used:
                reasons.setdefault(column.why, []).append(column.name)
        return [f"Left out of the inputs, because {why}: {listed(names)}." for why, names in reasons.items()]

    def header(self) -> dict[str, Any]:
        """As a model file holds it."""
        plain = {key: getattr(self, key) for key in ("target", "missing", "rows", "named")}
        return {"given": [_plain(column) for column in self.given]} | plain

    @staticmethod
    def from_header(header: Any) -> "Columns":
        try:
            if "given" not in header:  # of a version that knew numbers, booleans and categories
                header = {"given": header["inputs"], **{key: header[key] for key in ("target", "missing", "rows")}}
            given = tuple(_column(part) for part in header["given"])
            if header["missing"] not in MISSING_POLICIES:
                raise KeyError("a known way with missing values")
            return Columns(given, header["target"], header["missing"], header["rows"], header.get("named", True))
        except (KeyError, TypeError) as error:
            raise ValueError(f"Expected a description of columns in the model, got one without {error}.") from error

    @staticmethod
    def known_to(model: Any) -> "Columns | None":
        """What a model learned, or else its inputs by their names; None for a model without names."""
        if hasattr(model, "columns_"):
            columns: Columns = model.columns_
            return columns
        names = [str(name) for name in getattr(model, "feature_names_in_", [])]
        return Columns.of_numbers(names) if names else None

    @staticmethod
    def of_numbers(names: Sequence[str]) -> "Columns":
        return Columns(tuple(Column(name, NUMBER) for name in names))


def _plain(column: Column) -> dict[str, Any]:
    """Without what is empty: a table may have ten thousand columns."""
    entries = {field.name: getattr(column, field.name) for field in fields(Column)}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in entries.items() if value}


def _column(part: Any) -> Column:
    lists: Any = {key: tuple(part.get(key, ())) for key in ("values", "parts", "bend")}
    found = Column(part["name"], part["kind"], gaps=bool(part.get("gaps")), why=str(part.get("why", "")), **lists)
    texts = (found.name, found.kind, *found.values, *found.parts)
    if found.kind not in KINDS or any(type(text) is not str for text in texts) or not set(found.parts) <= set(PARTS):
        raise KeyError("a known kind")
    if len(found.bend) not in (0, 2) or any(type(part) is not float for part in found.bend):
        raise KeyError("a middle and a width")
    return found


def _count(values: Sequence[str], one: str, many: str) -> str:
    return count(len(values), one) if len(values) == 1 else f"{len(values):,} {many}"
