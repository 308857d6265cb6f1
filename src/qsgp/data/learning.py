"""What the columns of a table hold, told from all of its rows, in one portion or in many."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from qsgp.data.columns import BOOLEAN, CATEGORY, DATE, LEFT_OUT, LEVELS, NUMBER, ORDERED, Column, Columns
from qsgp.data.dates import as_dates, days, parts_of, wave_range
from qsgp.data.encoding import ArrayTable
from qsgp.data.entries import fraction_among, is_number, strange_among
from qsgp.data.tally import Portion, Tally, Texts
from qsgp.data.words import listed

try:
    from pyarrow import types
except ImportError:  # the extra is not installed: `reading` says so before anything of this file is needed
    types = None

MOST_CATEGORIES = 50  # with one input for each; more are levels of an identifier
NO_LEVELS = {  # where identifiers of many levels are left out, and why
    "classes": "a classifier takes texts of up to 50 values",
    "portions": "partial_fit takes texts of up to 50 values",
    "streams": "rows that are streamed take texts of up to 50 values",
}
MOST_LEVELS = 1_000_000  # the most frequent ones: codes stay exact in float32
_SOME = 0.2  # share of numbers among many different texts from which on numbers were meant
_EMPTY, _CONSTANT = "they are empty", "they never change"


class Advice(NamedTuple):
    """What to do about a column, in options of the command line or for a table in Python; {} is the column's name."""

    leave_out: str
    categories: str


IN_PYTHON = Advice("without the column {}", "a categorical type (such as pandas' category)")
ON_THE_COMMAND_LINE = Advice("with --drop {}", "--categories {}")


class Learner:
    """Adds up what portions of a table hold; `columns` says what to make of them.

    Columns named in ``categories`` hold categories whatever they look like, and so do those of a categorical type.
    ``no_levels`` says why identifiers of many levels are left out, if they are.
    """

    def __init__(self, categories: Collection[str] = (), advice: Advice = IN_PYTHON, no_levels: str = "") -> None:
        self._categories, self._advice, self._no_levels = set(categories), advice, no_levels
        self._tallies: dict[str, Tally] = {}
        self._rows = 0

    def add(self, table: Any, Y: np.ndarray | None = None, weight: np.ndarray | None = None) -> "Learner":
        """Rows of an Arrow table or an `ArrayTable`; with targets, gaps that say something of them are told."""
        n = len(table)
        Y = np.empty((n, 0)) if Y is None else Y
        portion = Portion(self._rows, np.ones(n) if weight is None else weight, Y)
        for name in table.column_names:
            tally = self._tallies.setdefault(name, Tally(name in self._categories))
            if isinstance(table, ArrayTable) and name in table.booleans:
                tally.kind = np.dtype(bool)
            try:
                tally.add(table.column(name), portion, enum=_is_enum(table, name))
            except NotImplementedError as error:
                raise ValueError(
                    f"Expected numbers, texts or dates in column {name!r}, got {table.column(name).type}. Fit "
                    f"{_about(self._advice.leave_out, name)}, or turn it into numbers first."
                ) from error
        self._rows += n
        return self

    def columns(self, *, all_that_vary_later: bool = False) -> Columns:
        """What was learned. Columns that are empty, never change or repeat another one are left out, unless later
        portions may differ (``all_that_vary_later``)."""
        found = [self._column(name, tally) for name, tally in self._tallies.items()]
        if not all_that_vary_later:
            kept = list(self._without_copies(found))
            found = kept if any(column.used for column in kept) else found
        return Columns(tuple(_beside_levels(found)), rows=self._rows)

    def _without_copies(self, found: list[Column]) -> Iterator[Column]:
        first: dict[bytes, str] = {}
        for column in found:
            tally = self._tallies[column.name]
            own = first.setdefault(tally.digest, column.name)
            if not column.used:
                yield column
            elif tally.constant and not column.gaps:
                yield Column(column.name, LEFT_OUT, why=_CONSTANT)
            elif own != column.name:
                yield Column(column.name, LEFT_OUT, why=f"they repeat {own!r}")
            else:
                yield column

    def _column(self, name: str, tally: Tally) -> Column:
        if tally.empty:
            return Column(name, LEFT_OUT, why=_EMPTY)
        gaps = tally.gaps_tell
        if tally.holds_texts:
            return self._of_texts(name, tally, gaps)
        if tally.kind == np.dtype(bool) if isinstance(tally.kind, np.dtype) else types.is_boolean(tally.kind):
            return Column(name, BOOLEAN, gaps=gaps)
        if isinstance(tally.kind, np.dtype) or is_number(tally.kind):
            return Column(name, NUMBER, bend=tally.bend, gaps=gaps)
        return Column(name, DATE, parts=parts_of(tally.low, tally.high, tally.waves), gaps=gaps)

    def _of_texts(self, name: str, tally: Tally, gaps: bool) -> Column:
        texts = tally.texts()
        if not tally.as_category:
            self._refuse_slips(name, texts)
            if (dates := as_dates(texts.values)) is not None:
                return _of_dates(name, days(dates), gaps)
        values = tuple(texts.values.to_pylist())
        if tally.ordered is not None:
            return Column(name, ORDERED, tuple(dict.fromkeys(tally.ordered.drop_null().to_pylist())), gaps=gaps)
        alone = not tally.as_category and 2 * len(values) > tally.rows - tally.missing
        if alone:
            self._refuse_fractions(name, texts)
        if len(values) <= MOST_CATEGORIES:
            return Column(name, CATEGORY, values, gaps=tally.missing > 0)
        if alone:
            self._refuse_slips(name, texts, _SOME)
            return Column(name, LEFT_OUT, why="nearly every row has a text of its own in them")
        if self._no_levels:
            return Column(name, LEFT_OUT, why=self._no_levels)
        if len(values) > MOST_LEVELS:
            values = tuple(sorted(values[k] for k in np.argsort(-texts.rows, kind="stable")[:MOST_LEVELS]))
        return Column(name, LEVELS, values, gaps=gaps)

    def _refuse_slips(self, name: str, texts: Texts, least: float | None = None) -> None:
        how = () if least is None else (least,)
        if (strange := strange_among(*texts, *how)) is not None:
            raise ValueError(
                f"Expected numbers in column {name!r}, got {strange}. Correct it, leave it empty where the value is "
                f"not known, use {_about(self._advice.categories, name)} if the column holds categories, or fit "
                f"{_about(self._advice.leave_out, name)}."
            )

    def _refuse_fractions(self, name: str, texts: Texts) -> None:
        """Texts such as 1.25, another one in nearly every row, are no names."""
        if (number := fraction_among(texts.values)) is not None:
            raise ValueError(
                f"Expected numbers in column {name!r}, got them as texts, such as {number!r}. Make them numbers, for "
                f"example with pandas.to_numeric, use {_about(self._advice.categories, name)} if the column holds "
                f"categories, or fit {_about(self._advice.leave_out, name)}."
            )


def _beside_levels(found: list[Column]) -> list[Column]:
    """Identifiers need an input beside them: if there is no other, where the first is missing."""
    used = [k for k, column in enumerate(found) if column.used]
    if used and all(found[k].kind == LEVELS and not found[k].gaps for k in used):
        found[used[0]] = replace(found[used[0]], gaps=True)
    return found


def _is_enum(table: Any, name: str) -> bool:
    """Of polars, which keeps categories in the order in which they were named."""
    metadata = table.schema.field(name).metadata if hasattr(table, "schema") else None
    return any(key.startswith(b"_PL_ENUM") for key in metadata or {})


def columns_of(
    table: Any, categories: Collection[str] = (), advice: Advice = IN_PYTHON, no_levels: str = ""
) -> Columns:
    """Of a whole table, without its targets."""
    return Learner(categories, advice, no_levels).add(table).columns()


def _of_dates(name: str, found: np.ndarray, gaps: bool) -> Column:
    parts = parts_of(float(found.min()), float(found.max()), wave_range(found, Tally().waves))
    return Column(name, DATE, parts=parts, gaps=gaps)


def check_some_left(columns: Columns) -> None:
    """A model needs an input."""
    if columns.given and not columns.inputs:
        reasons = {column.why for column in columns.given}
        got = "empty columns" if reasons == {_EMPTY} else f"none that can be used, because {'; '.join(sorted(reasons))}"
        raise ValueError(
            f"Expected values in the input columns, got {got}: {listed([c.name for c in columns.given])}. "
            "Check the table."
        )


def _about(advice: str, name: str) -> str:
    return advice.replace("{}", quoted(name))


def quoted(name: str) -> str:
    """As an option takes it."""
    return name if name.isidentifier() else f'"{name}"'
