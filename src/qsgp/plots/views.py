"""What a picture looks along: a number, the values of a category, the time of the year of a date.

A column of a table is several inputs of a model, or bent, or counted from 1970. A view has it as the table has it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from qsgp.data.columns import BOOLEAN, CATEGORY, DATE, LEVELS, ORDERED, PART_WORDS, Column
from qsgp.evaluation import groups, input_names, relevance

Array = np.ndarray
MOST_VALUES = 12  # of a category that are drawn, the most frequent ones
_GRID, _BINS = 80, 30
_GROUPS, _GROUP_ROWS = 20, 50
_POWERS, _ROOM = 10.0 ** np.arange(-6, 13), 0.16  # ticks, and the share of an axis between two of them
_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November"]
_MONTHS.append("December")
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_TICKS: dict[str, tuple[list[float], list[str]]] = {
    "year": ([0, 3, 6, 9, 12], ["Jan", "Apr", "Jul", "Oct", "Jan"]),
    "week": ([0, 1, 2, 3, 4, 5, 6], [day[:2] for day in _DAYS]),
    "day": ([0, 6, 12, 18, 24], ["0:00", "6:00", "12:00", "18:00", "24:00"]),
}


@dataclass(frozen=True)
class View:
    """A number or the trend of a date, as the table has it: ``along`` rows of inputs, and back by ``inputs_at``."""

    title: str
    column: str  # of the table
    inputs: tuple[int, ...]  # of the model
    gap: int | None = None  # the input that says where the column is missing
    bend: tuple[float, ...] = ()  # middle and width of a number that the model takes by its logarithm
    date: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """What the numbers of ``along`` stand for, where they count values."""
        return ()

    def along(self, X: Array) -> Array:
        """One number a row, NaN where it is not known."""
        return self._unbent(X[:, self.inputs[0]].astype(float))

    def inputs_at(self, values: Array) -> Array:
        """Those of ``inputs`` where the column has these values."""
        return self._bent(np.asarray(values, dtype=float))[:, None]

    def grid(self, x: Array) -> Array:
        """Values to predict at: evenly as the model takes them, without the outermost of these."""
        low, high = np.nanquantile(self.inputs_at(x)[:, 0], [0.005, 0.995])
        return self._unbent(np.linspace(low, high, _GRID))

    def edges(self, x: Array) -> Array:
        """Of the bars of a histogram: evenly as the model takes them."""
        known = self.inputs_at(x[~np.isnan(x)])[:, 0]
        low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
        low, high = (low, high) if low < high else (low - 0.5, high + 0.5)
        return self._unbent(np.linspace(low, high, min(_BINS, max(5, int(np.sqrt(len(known))))) + 1))

    def typical(self, X: Array) -> Array:
        """``inputs`` of a row like most: the median, of what moves together that of one row."""
        known = ~np.isnan(X[:, self.inputs[0]])
        return (
            np.median(X[known][:, self.inputs].astype(float), 0) if known.any() else np.full(len(self.inputs), np.nan)
        )

    def parts(self, x: Array) -> list[Array]:
        """Rows in groups along it, those without a value left out."""
        return [part[~np.isnan(x[part])] for part in groups(x, _GROUPS, _GROUP_ROWS) if not np.isnan(x[part]).all()]

    def label(self, ax: Axes, x: Array) -> None:
        """The axis below: the name as it is, not as mathematics, and few ticks."""
        ax.set_xlabel(short(self.title), parse_math=False)
        if self.date:
            locator = AutoDateLocator(minticks=2, maxticks=6)
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        elif self.bend:
            ax.set_xscale("function", functions=(self._bent, self._unbent))
            ax.xaxis.set_major_locator(FixedLocator(ticks := self._ticks(x)))
            ax.xaxis.set_major_formatter(FixedFormatter([f"{tick:,.10g}" for tick in ticks]))
        else:
            ax.xaxis.set_major_locator(MaxNLocator(4))  # inputs of small scale have long numbers

    def _ticks(self, x: Array) -> list[float]:
        """Zero and powers of ten, so far apart that their names have room; the largest has the first word."""
        ends = self._bent(np.array([np.nanmin(x), np.nanmax(x)]))
        found: list[float] = []
        for tick in (*_POWERS[::-1], 0.0, *-_POWERS):
            at, last = self._bent(np.array([tick, found[-1] if found else np.inf]))
            if ends[0] <= at <= ends[1] and last - at > _ROOM * (ends[1] - ends[0]):
                found.append(float(tick))
        return found[::-1]

    def _bent(self, values: Array) -> Array:
        return np.arcsinh((values - self.bend[0]) / self.bend[1]) if self.bend else values

    def _unbent(self, values: Array) -> Array:
        return self.bend[0] + self.bend[1] * np.sinh(values) if self.bend else values


@dataclass(frozen=True)
class Circle(View):
    """The time of the year in months, of the week in days from Monday, or of the day in hours: two inputs, its wave."""

    part: str = "year"

    @property
    def length(self) -> float:
        return {"year": 12.0, "week": 7.0, "day": 24.0}[self.part]

    def along(self, X: Array) -> Array:
        sine, cosine = X[:, self.inputs].astype(float).T
        # rounded: a day must not lie a hair before itself
        return np.round(self.length * (np.arctan2(sine, cosine) / (2 * np.pi) % 1.0), 4) % self.length

    def inputs_at(self, values: Array) -> Array:
        angle = 2 * np.pi * np.asarray(values, dtype=float) / self.length
        return np.stack([np.sin(angle), np.cos(angle)], 1)

    def grid(self, x: Array) -> Array:
        return np.linspace(0, self.length, _GRID)

    def edges(self, x: Array) -> Array:
        return np.linspace(0, self.length, int(self.length) + 1)

    def typical(self, X: Array) -> Array:
        """Of the row in the middle: the medians of sine and cosine are no time at all."""
        x = self.along(X)
        known = x[~np.isnan(x)]
        return self.inputs_at(np.sort(known)[[len(known) // 2]])[0] if len(known) else np.full(2, np.nan)

    def told(self, value: float) -> str:
        """A month, a day or an hour."""
        hour = f"{int(value % 24)}:{int(60 * (value % 1)):02d}"
        return {"year": _MONTHS[int(value % 12)], "week": _DAYS[int(value % 7)], "day": hour}[self.part]

    def label(self, ax: Axes, x: Array) -> None:
        ax.set_xlabel(short(self.title), parse_math=False)
        ax.set_xticks(*_TICKS[self.part])


@dataclass(frozen=True)
class Values(View):
    """A category, an ordered one, yes and no, or an identifier: values counted from 0."""

    names: tuple[str, ...] = ()
    coded: bool = False  # one input holds the number of the value; else there is one for each

    @property
    def labels(self) -> tuple[str, ...]:
        return self.names

    def along(self, X: Array) -> Array:
        if self.coded:
            code = X[:, self.inputs[0]].astype(float)
            return np.where(code < 0, np.nan, code)
        found = X[:, self.inputs] == 1
        return np.where(found.any(1), found.argmax(1), np.nan)

    def inputs_at(self, values: Array) -> Array:
        values = np.asarray(values, dtype=float)
        return values[:, None] if self.coded else (values[:, None] == np.arange(len(self.inputs))).astype(float)

    def grid(self, x: Array) -> Array:
        value, count = np.unique(x[~np.isnan(x)], return_counts=True)
        return np.sort(value[np.argsort(-count, kind="stable")[:MOST_VALUES]])

    def typical(self, X: Array) -> Array:
        """The most frequent value: there is nothing between two of them."""
        x = self.along(X)
        value, count = np.unique(x[~np.isnan(x)], return_counts=True)
        return self.inputs_at(value[[count.argmax()]])[0] if len(value) else np.full(len(self.inputs), np.nan)

    def parts(self, x: Array) -> list[Array]:
        order = np.argsort(x, kind="stable")[: int((~np.isnan(x)).sum())]
        return np.split(order, np.flatnonzero(np.diff(x[order])) + 1) if len(order) else []

    def places(self, x: Array, drawn: Array) -> Array:
        """Where rows stand when only the values ``drawn`` are, side by side; NaN for the others."""
        if not len(drawn):
            return np.full(len(x), np.nan)
        at = np.searchsorted(drawn, x).clip(max=len(drawn) - 1)
        return np.where(drawn[at] == x, at, np.nan)

    def label(self, ax: Axes, x: Array) -> None:
        drawn = self.grid(x)
        names = [short(self.labels[int(k)], 10) for k in drawn]
        ax.set_xticks(np.arange(len(drawn)), names, rotation=35 if len(drawn) > 3 else 0)
        for text in ax.get_xticklabels():
            text.set_parse_math(False)
            text.set(
                ha="right" if len(drawn) > 3 else "center", rotation_mode="anchor" if len(drawn) > 3 else "default"
            )
        ax.set_xlabel(short(self.title), parse_math=False)
        ax.set_xlim(-0.6, len(drawn) - 0.4)


def views(model: Any) -> list[View]:
    """One for each column that a model uses, in the order of the table; of a date one for each of its parts."""
    names = input_names(model)
    columns = getattr(model, "columns_", None)
    if columns is None:
        return [View(name, name, (j,)) for j, name in enumerate(names)]
    place, by_column = {name: j for j, name in enumerate(names)}, columns.encoded_by_column
    found: list[View] = []
    for column in columns.inputs:
        found += _views_of(column, [place[name] for name in by_column[column.name]])
    return found


def _views_of(column: Column, places: list[int]) -> list[View]:
    own, gap = (places[:-1], places[-1]) if column.gaps else (places, None)
    name = column.name
    if column.kind == CATEGORY:  # that none is known is a value like the others
        values = (*column.values, *(["missing"] if column.gaps else []))
        return [Values(name, name, tuple(places), names=values)]
    if column.kind in (BOOLEAN, ORDERED, LEVELS):
        values = ("no", "yes") if column.kind == BOOLEAN else column.values
        return [Values(name, name, (own[0],), gap, names=values, coded=True)]
    if column.kind != DATE:
        return [View(name, name, (own[0],), gap, bend=column.bend)]
    trend = "trend" in column.parts
    found: list[View] = [View(name, name, (own[0],), gap, date=True)] if trend else []
    waves = iter(own[trend:])
    for part in column.parts[trend:]:
        found.append(Circle(f"{name}: {PART_WORDS[part]}", name, (next(waves), next(waves)), gap, part=part))
    return found


def view_of(model: Any, column: int | str) -> View:
    """Of a column of the table by its name, or of an input by its name or number."""
    known, names = views(model), input_names(model)
    for view in known:
        if isinstance(column, str) and column in (view.title, view.column):
            return view
    if isinstance(column, str) and column in names:
        return View(column, column, (names.index(column),))
    if not isinstance(column, str) and 0 <= column < len(names):
        own = [view for view in known if view.inputs == (column,)]
        return own[0] if own else View(names[column], names[column], (int(column),))
    listed = list(dict.fromkeys(view.column for view in known))[:20]
    raise ValueError(f"Expected column as a number below {len(names)} or one of {listed}, got {column!r}.")


def column_relevance(model: Any) -> dict[str, float]:
    """Of each column: the largest of those of its inputs."""
    values, found = relevance(model), dict[str, float]()
    for view in views(model):
        own = max(float(values[j]) for j in (*view.inputs, *([] if view.gap is None else [view.gap])))
        found[view.column] = max(own, found.get(view.column, 0.0))
    return found


def typical_row(model: Any, X: Array) -> Array:
    """Inputs of a row like most: medians of numbers, the most frequent of categories, and nothing missing."""
    row = np.zeros(X.shape[1])
    for view in views(model):
        row[list(view.inputs)] = view.typical(X)
    return row


def short(name: str, most: int = 24) -> str:
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    return name if len(name) <= most else name[: most - 1] + "…"
