"""Rows that are too many for the memory, read a piece at a time: files, and arrays that are mapped from the disk."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from qsgp.data.choosing import Wanted, choose
from qsgp.data.columns import Columns
from qsgp.data.encoding import encode, lacking
from qsgp.data.entries import as_text, is_text
from qsgp.data.inputs import chosen_categories, types_of
from qsgp.data.row_groups import Part, check_alike, parts_of, tables
from qsgp.data.scaling import blocks
from qsgp.data.tables import as_target, check_inputs
from qsgp.data.witnesses import head, learned_from

try:
    import pyarrow as pa
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

_PIECE_ROWS, _PIECE_BYTES = 8_192, 2**21  # at most; bytes of the inputs as float64
_RANGE = 65_536  # rows of a part of an array


class Piece(NamedTuple):
    """Some rows: their numbers in the whole, inputs, targets or labels, and how often each counts."""

    number: np.ndarray
    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    def take(self, index: Any) -> "Piece":
        return Piece(*(part[index] for part in self))


@runtime_checkable
class RowSource(Protocol):
    """Rows in parts that can be read in any order."""

    @property
    def n(self) -> int:
        """Rows; of text files a guess."""
        ...

    @property
    def names(self) -> list[str] | None:
        """Of the inputs."""
        ...

    @property
    def parts(self) -> list[Any]: ...

    def pieces(self, part: Any) -> Iterator[Piece]:
        """The rows of a part in order, those that do not count left out."""
        ...


def piece_rows(d: int) -> int:
    return max(256, min(_PIECE_ROWS, _PIECE_BYTES // (8 * max(1, d))))


@dataclass(frozen=True)
class ArraySource:
    """Arrays, which may be mapped from the disk: `numpy.load(path, mmap_mode="r")`."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    labels: bool = False

    @property
    def n(self) -> int:
        return len(self.X)

    @property
    def names(self) -> list[str] | None:
        return None

    @property
    def parts(self) -> list[slice]:
        return list(blocks(self.n, _RANGE))

    def pieces(self, part: slice) -> Iterator[Piece]:
        for inner in blocks(part.stop - part.start, piece_rows(self.X.shape[1])):
            rows = slice(part.start + inner.start, part.start + inner.stop)
            X = np.array(self.X[rows], dtype=np.float64)
            check_inputs(X, None)
            y = as_target(np.array(self.y[rows]), numeric=not self.labels)
            weight = np.ones(len(X)) if self.weight is None else np.array(self.weight[rows], dtype=np.float64)
            yield _counted(Piece(np.arange(rows.start, rows.stop), X, y, weight))


@dataclass(frozen=True)
class FileSource:
    """Columns of files, which `Columns` has turned into numbers."""

    files: list[Path]
    columns: Columns
    target: str
    weight: str | None = None
    labels: bool = False
    known: bool = False  # rows without a target or a weight are left out, not refused

    @cached_property
    def _found(self) -> tuple[list[Part], int]:
        return parts_of(self.files, self._read)

    @property
    def n(self) -> int:
        return self._found[1]

    @property
    def names(self) -> list[str] | None:
        return self.columns.encoded

    @property
    def parts(self) -> list[Part]:
        return self._found[0]

    @property
    def _read(self) -> list[str]:
        special = [self.target] if self.weight is None else [self.target, self.weight]
        return list(dict.fromkeys([*self.columns.names, *special]))

    def pieces(self, part: Part) -> Iterator[Piece]:
        numbers = [name for name in self._read if name not in self.columns.names and not self.labels]
        first, types = part.first, types_of(self.columns) | dict.fromkeys(numbers, pa.float64())
        for table in tables(part, self._read, types, piece_rows(len(self.columns.encoded))):
            number = np.arange(first, first + len(table))
            first += len(table)
            try:
                yield _counted(self._piece(number, table))
            except ValueError as error:
                raise ValueError(f"In {part.path}: {error}") from error

    def _piece(self, number: np.ndarray, table: Any) -> Piece:
        if self.known:
            known = _known(table, [name for name in self._read if name not in self.columns.names])
            number, table = number[known], table.filter(known)
        if self.columns.missing in ("error", "drop"):
            gaps = self._gaps(table)
            number, table = number[~gaps], table.filter(~gaps)
        X = encode(self.columns, table).array
        check_inputs(X, self.columns.encoded)
        y = as_target(_plain(table.column(self.target)), numeric=not self.labels)
        weight = np.ones(len(X))
        if self.weight is not None:
            weight = np.asarray(as_target(_plain(table.column(self.weight)), numeric=True), dtype=np.float64)
        return Piece(number, X, y, weight)

    def _gaps(self, table: Any) -> np.ndarray:
        """Rows to leave out because they lack an input, unless that is an error."""
        lacks = lacking(self.columns, table)
        found: np.ndarray = np.logical_or.reduce(list(lacks.values()))
        if self.columns.missing == "error" and found.any():
            words = ", ".join([f"{name!r} ({rows.sum()})" for name, rows in lacks.items() if rows.any()][:8])
            raise ValueError(
                f"Expected a value in every row, got missing ones in columns {words} of {len(found):,}. Use --missing "
                "auto to take these rows as they are, or --missing drop to leave them out."
            )
        return found


@dataclass(frozen=True)
class Without:
    """All rows of a source but those whose numbers are ``left_out``."""

    source: RowSource
    left_out: np.ndarray

    @property
    def n(self) -> int:
        return self.source.n - len(self.left_out)

    @property
    def names(self) -> list[str] | None:
        return self.source.names

    @property
    def parts(self) -> list[Any]:
        return self.source.parts

    def pieces(self, part: Any) -> Iterator[Piece]:
        left_out = np.sort(self.left_out)
        for piece in self.source.pieces(part):
            at = np.searchsorted(left_out, piece.number)
            held = left_out[at.clip(0, len(left_out) - 1)] == piece.number if len(left_out) else np.zeros(len(at), bool)
            yield piece.take(~held) if held.any() else piece


def _counted(piece: Piece) -> Piece:
    if (piece.weight < 0).any() or not np.isfinite(piece.weight).all():
        raise ValueError(f"Expected weights >= 0, got {piece.weight.min()}. A weight says how often a row counts.")
    return piece if (piece.weight > 0).all() else piece.take(piece.weight > 0)


def _known(table: Any, names: list[str]) -> np.ndarray:
    """Rows with an entry in each of these columns."""
    found = np.ones(len(table), bool)
    for name in names:
        values = table.column(name)
        values = as_text(values.combine_chunks()) if is_text(values.type) else values
        found &= np.asarray(values.is_valid())
        if not is_text(values.type) and str(values.type) in ("double", "float"):
            found &= ~np.isnan(np.asarray(values.fill_null(0)))
    return found


def _plain(values: Any) -> np.ndarray:
    """Texts without the blanks around them."""
    if is_text(values.type):
        return np.array(as_text(values.combine_chunks()).to_pylist(), dtype=object)
    return np.asarray(values.to_numpy())


def of_files(
    files: list[Path],
    target: str,
    weight: str | None = None,
    *,
    labels: bool = False,
    categories: Any = None,
) -> FileSource:
    """All columns but the target and the weights, as `fit` takes them; ``categories`` is its keyword for them."""
    chosen = choose(files, Wanted(target, weight), head)
    check_alike(files, chosen.inputs)
    columns = learned_from(files, chosen.inputs, chosen_categories(categories, chosen.inputs))
    for note in [*chosen.left_out(), *columns.notes()]:
        warnings.warn(note, stacklevel=2)
    return FileSource(files, replace(columns, target=target), target, weight, labels)
