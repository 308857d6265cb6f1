"""Rows of files as a model takes them, portion by portion."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.data.choosing import picked
from qsgp.data.columns import Columns
from qsgp.data.encoding import Encoded, encode, lacking, unseen_words
from qsgp.data.inputs import types_of
from qsgp.data.reading import batches, check_names, index_columns, schema
from qsgp.data.words import count, listed

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

_NEEDED = "The model was fitted with it."
_PORTION = 2**23  # bytes of numbers in memory at a time


def columns_of(model: Any, path: Path, given: Sequence[str] | None, others: Sequence[str]) -> Columns:
    """How a model's inputs come from a file: as stored by `qsgp fit`, by the names of its inputs, or in order."""
    found = schema(path)
    names = found.names
    if given:
        chosen = picked(given, names, path)
        _check_width(model, chosen, path)
        return Columns.of_numbers(chosen)
    if (known := Columns.known_to(model)) is None:
        inputs = [name for name in names if name not in [*others, *index_columns(found)]]
        _check_width(model, inputs, path)
        known = Columns.of_numbers(inputs)
    check_names(known.names, names, path, _NEEDED)
    return known


def _check_width(model: Any, names: list[str], path: Path) -> None:
    if len(names) != model.n_features_in_:
        raise ValueError(
            f"Expected {count(model.n_features_in_, 'input column')} as in the fit, got {len(names)} in {path}: "
            f"{listed(names)}. Name the inputs with --columns a,b,c in the order of the fit."
        )


@dataclass
class Portion:
    """Some rows: the file's own columns, and those rows that can be predicted as the model's inputs."""

    table: Any
    known: np.ndarray  # True for rows that lack no input
    inputs: Any  # of the known rows; of no known row a single one of zeros, so that results have their columns


@dataclass
class Rows:
    """The rows of ``files`` for ``model``, and what was met on the way."""

    model: Any
    columns: Columns
    files: list[Path]
    missing: str  # "auto" and "mean": up to the model; "error", or "drop": leave such rows out
    others: list[str] = field(default_factory=list)  # columns to hand over beside the inputs
    as_text: list[str] = field(default_factory=list)  # those of them that a text file hands over unchanged
    as_numbers: list[str] = field(default_factory=list)  # those whose first lines may look like something else
    otherwise: str = "--missing drop to leave these rows out"
    unseen: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: int = 0

    def __iter__(self) -> Iterator[Portion]:
        names = list(dict.fromkeys([*self.columns.names, *self.others]))
        types = dict.fromkeys(self.as_text, pa.string()) | dict.fromkeys(self.as_numbers, pa.float64())
        types |= types_of(self.columns)
        rows = max(256, min(65_536, _PORTION // (8 * max(1, len(self.columns.encoded)))))
        for table in batches(self.files, names, types, rows):
            encoded = encode(self.columns, table)
            self.unseen += encoded.unseen
            gaps = np.zeros(len(table), bool)
            if self.missing in ("error", "drop"):
                lacks = lacking(self.columns, table)
                gaps = np.logical_or.reduce(list(lacks.values()))
                if gaps.any() and self.missing == "error":
                    by_column = {name: int(own.sum()) for name, own in lacks.items()}
                    raise ValueError(missing_words(by_column, self.files[0], self.otherwise))
            self.left_out += int(gaps.sum())
            complete = encoded.take(~gaps) if gaps.any() else encoded
            if gaps.all():
                complete = Encoded(np.zeros((1, len(self.columns.encoded))))
            yield Portion(table, ~gaps, complete)

    def notes(self, fate: str) -> list[str]:
        """What a person should know afterwards; ``fate`` of rows that lack an input."""
        found = []
        if self.unseen:
            found.append(f"Note: {unseen_words(self.unseen)}")
        if self.left_out:
            found.append(f"Note: {count(self.left_out)} with missing inputs: {fate}; --missing auto predicts them too.")
        return found


def missing_words(lacking: dict[str, int], path: Path, otherwise: str) -> str:
    """Where values are missing; ``otherwise`` is what can be done but to take them as they are."""
    words = [f"{name!r} ({n})" for name, n in lacking.items() if n]
    more = f" and {len(words) - 8} more columns" if len(words) > 8 else ""
    return (
        f"Expected a value in every row of {path}, got missing ones in {', '.join(words[:8])}{more}. "
        f"Use --missing auto to take them as they are, or {otherwise}."
    )
