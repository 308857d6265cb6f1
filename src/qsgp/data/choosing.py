"""Which columns of files are inputs: all that are there but the target, the weights and what only numbers the rows."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qsgp.data.reading import check_names, index_columns, index_words, pa_table, schema
from qsgp.data.words import listed

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

_WITHOUT_NAME = {"column 1", "Unnamed: 0"}  # of a first column, as `dialects` and pandas call it


@dataclass(frozen=True)
class Wanted:
    """What was asked for: names of columns; ``columns`` are the inputs if not all others."""

    target: str | None = None
    weight: str | None = None
    columns: Sequence[str] | None = None
    drop: Sequence[str] | None = None
    categories: Sequence[str] | None = None  # columns that hold categories though they look like numbers

    @property
    def special(self) -> list[str]:
        return [name for name in (self.target, self.weight) if name is not None]


@dataclass(frozen=True)
class Chosen:
    """All rows of some files as an Arrow table, and which of its columns are inputs."""

    table: Any
    inputs: list[str]
    categories: list[str]  # inputs that were said to be categories
    index: list[str]  # left out: the index of a pandas data frame
    numbered: list[str]  # left out: columns without a name that number the rows
    suspects: list[str]  # inputs that number the rows

    def left_out(self, index_remedy: str = "") -> list[str]:
        """What a person should know of columns that are no inputs."""
        notes = [f"Left out of the inputs: {index_words(self.index)}{index_remedy}."] if self.index else []
        return notes + [
            f"Left out of the inputs: {name!r}, which has no name and numbers the rows." for name in self.numbered
        ]


def choose(paths: list[Path], wanted: Wanted, read: Callable[..., Any] = pa_table) -> Chosen:
    """Read the columns that are wanted, and those that nobody has spoken of; ``read`` may read the first rows alone."""
    found, path = schema(paths[0]), paths[0]
    names, special = found.names, wanted.special
    check_names(special, names, path)
    chosen = picked(wanted.columns, names, path)
    index = [name for name in index_columns(found) if name not in [*special, *chosen]]
    unwanted = [*special, *index, *picked(wanted.drop, names, path)]
    inputs = [name for name in chosen or names if name not in unwanted]
    categories = picked(wanted.categories, inputs, path)
    table = read(paths, [*inputs, *special], dict.fromkeys(categories, pa.string()))
    counting = [name for name in inputs if name not in chosen and _counts_rows(table, name)]
    numbered = [name for name in counting if name in _WITHOUT_NAME]
    inputs = [name for name in inputs if name not in numbered]
    if not inputs:
        raise ValueError(f"Expected input columns beside the target, got none in {listed(names)}. Drop fewer.")
    return Chosen(table, inputs, categories, index, numbered, [name for name in counting if name in inputs])


def picked(given: Sequence[str] | None, names: Sequence[str], path: Path) -> list[str]:
    """Columns by name: each entry a name, or names separated by commas (quoted if need be)."""
    found: list[str] = []
    for part in given or []:
        found += [part] if part in names else [name.strip() for name in next(csv.reader([part]), [])]
    check_names(found, names, path)
    return list(dict.fromkeys(found))


def _counts_rows(table: Any, name: str) -> bool:
    """0, 1, 2, ... or 1, 2, 3, ...; from the beginning again, as in several files, only where there is no name."""
    values = table.column(name)
    if not pa.types.is_integer(values.type) or values.null_count or len(values) < 3:
        return False
    numbers = values.to_numpy()
    steps = numbers[1:] == numbers[:-1] + 1
    if name in _WITHOUT_NAME:
        steps |= numbers[1:] == numbers[0]
    return bool(numbers[0] in (0, 1) and numbers[1] == numbers[0] + 1 and steps.all())
