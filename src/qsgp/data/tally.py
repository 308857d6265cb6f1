"""What has been met in one column of a table so far: enough to say what it holds, added up portion by portion."""

import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from qsgp.data.dates import PER_SECOND, PERIODIC, days, is_date, wave_range
from qsgp.data.entries import as_text, is_number, is_text

try:
    import pyarrow as pa
    from pyarrow import compute, types
except ImportError:  # the extra is not installed: `reading` says so before anything of this file is needed
    pa = None

_SOME = 4096  # numbers of a portion, for quantiles
_LONG, _LEAST_VALUES = 20.0, 50  # from the middle to the outermost hundredth, in widths of the middle half
SURE, LEAST_SHARE = 26.0, 1e-3  # n R^2 and R^2 of gaps that say something of the target: chance reaches 26 once in 1e7


class Portion(NamedTuple):
    """What the rows of a portion count and are to predict; the first is the ``start``-th of all."""

    start: int
    weight: np.ndarray  # (n,)
    Y: np.ndarray  # (n, o); of no column if nothing is known of the target


class Texts(NamedTuple):
    """Different entries of a column, how many rows have each, and which is the first (from 0)."""

    values: Any
    rows: np.ndarray
    first: np.ndarray


@dataclass
class Tally:
    """Of one column."""

    as_category: bool = False
    kind: Any = None  # the Arrow type of its values, of the entries of a dictionary; None while all are missing
    ordered: Any = None  # the values of an ordered category, in order
    rows: int = 0
    missing: int = 0
    low: float = np.inf
    high: float = -np.inf
    waves: np.ndarray = field(default_factory=lambda: np.full((len(PERIODIC), 2, 2), [np.inf, -np.inf]))
    some: list[np.ndarray] = field(default_factory=list)  # of the numbers, evenly over each portion
    sums: np.ndarray | None = None  # weight, sums of targets and of their squares: of all rows and of those with gaps
    _texts: list[Texts] = field(default_factory=list)
    _hash: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def add(self, values: Any, portion: Portion, *, enum: bool = False) -> None:
        """Entries of an Arrow array, or of a NumPy array of numbers; those of an ``enum`` have an order by chance."""
        if isinstance(values, np.ndarray) and not self.as_category:
            self.kind = np.dtype(np.float64) if self.kind is None else self.kind
            self._add_numbers(values.astype(np.float64), portion)
            return
        values = pa.array(values, from_pandas=True) if isinstance(values, np.ndarray) else values
        self._learn_type(values, enum)
        if self.holds_texts:
            self._add_texts(as_text(values), portion)
        elif self.kind is not None and is_date(self.kind):
            found = days(values)
            self.waves = wave_range(found, self.waves)
            self._add_numbers(found, portion)
        elif self.kind is None or is_number(self.kind) or types.is_boolean(self.kind):
            self._add_numbers(numbers(values), portion)
        else:
            raise NotImplementedError

    @property
    def holds_texts(self) -> bool:
        if self.kind is None or isinstance(self.kind, np.dtype):
            return False
        return self.as_category or is_text(self.kind)

    @property
    def empty(self) -> bool:
        return self.missing == self.rows

    @property
    def digest(self) -> bytes:
        """Equal for columns of equal entries."""
        return bytes(self._hash.digest())

    @property
    def constant(self) -> bool:
        """One value in all rows that have one."""
        return bool(len(self.texts().values) == 1 if self.holds_texts else self.low == self.high)

    @property
    def bend(self) -> tuple[float, float] | tuple[()]:
        """Middle and half the width of the middle half of numbers that reach far beyond it; nothing of others."""
        values = np.concatenate(self.some)
        if len(values) <= _LEAST_VALUES:
            return ()
        lowest, low, middle, high, highest = (float(q) for q in np.quantile(values, [0.01, 0.25, 0.5, 0.75, 0.99]))
        far = max(highest - middle, middle - lowest) > _LONG * (high - low) > 0
        return (middle, (high - low) / 2) if far and len(np.unique(values)) > _LEAST_VALUES else ()

    @property
    def gaps_tell(self) -> bool:
        """Whether rows without a value have other targets than those with one, by more than chance."""
        if self.sums is None or not 0 < self.missing < self.rows:
            return False
        (weight, *whole), (lacking, *some) = self.sums
        total, squares = np.split(np.asarray(whole), 2)
        part, known = np.split(np.asarray(some), 2)[0], weight - lacking
        if not (len(total) and lacking > 0 and known > 0):
            return False
        variance = np.maximum(squares / weight - np.square(total / weight), 1e-300)
        gap = part / lacking - (total - part) / known
        share = float((lacking * known / weight**2 * np.square(gap) / variance).max())
        return bool(share > LEAST_SHARE and weight * share > SURE)

    def texts(self) -> Texts:
        """All different entries, sorted."""
        if len(self._texts) == 1:
            values, count, first = self._texts[0]
        else:
            columns = zip(*self._texts, strict=True) if self._texts else ([], [], [])
            kinds = (pa.string(), pa.int64(), pa.int64())
            parts = [pa.chunked_array(map(_array, column), kind) for column, kind in zip(columns, kinds, strict=True)]
            grouped = pa.table(parts, ["value", "count", "first"]).group_by("value")
            merged = grouped.aggregate([("count", "sum"), ("first", "min")])
            values = merged.column("value").combine_chunks()
            count, first = (merged.column(name).to_numpy() for name in ("count_sum", "first_min"))
        order = compute.sort_indices(values)
        at = order.to_numpy()
        return Texts(values.take(order), np.asarray(count)[at], np.asarray(first)[at])

    def _learn_type(self, values: Any, enum: bool) -> None:
        kind = values.type
        if types.is_dictionary(kind):
            plain = is_text(kind.value_type) or is_number(kind.value_type) or types.is_boolean(kind.value_type)
            self.as_category = self.as_category or plain
            if kind.ordered and plain and not enum:
                self.ordered = as_text(values.dictionary if not hasattr(values, "chunks") else _dictionary(values))
            kind = kind.value_type
        if not types.is_null(kind):
            self.kind = kind

    def _add_numbers(self, values: np.ndarray, portion: Portion) -> None:
        gap = np.isnan(values)
        self._count(gap, portion)
        if not gap.all():
            self.some.append(values[np.isfinite(values)][:: 1 + len(values) // _SOME])
            self.low, self.high = min(self.low, float(np.nanmin(values))), max(self.high, float(np.nanmax(values)))
        self._hash.update(np.where(gap, np.nan, values + 0.0).tobytes())

    def _add_texts(self, text: Any, portion: Portion) -> None:
        encoded = (text.combine_chunks() if hasattr(text, "combine_chunks") else text).dictionary_encode()
        code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self._count(code < 0, portion)
        values = encoded.dictionary
        first = np.full(len(values), 2**62)
        np.minimum.at(first, code[code >= 0], np.flatnonzero(code >= 0) + portion.start)
        self._texts.append(Texts(values, np.bincount(code[code >= 0], minlength=len(values)), first))
        if len(self._texts) > 16:  # of many portions
            self._texts = [self.texts()]
        names = [hashlib.blake2b(v.encode(), digest_size=8).digest() for v in values.to_pylist()]
        self._hash.update(np.frombuffer(b"".join([*names, bytes(8)]), np.int64)[code].tobytes())

    def _count(self, gap: np.ndarray, portion: Portion) -> None:
        self.rows, self.missing = self.rows + len(gap), self.missing + int(gap.sum())
        columns = np.column_stack([np.ones(len(gap)), portion.Y, np.square(portion.Y)])
        own = np.stack([portion.weight @ columns, (portion.weight * gap) @ columns])
        self.sums = own if self.sums is None else self.sums + own


def numbers(values: Any) -> np.ndarray:
    """Of an Arrow array of numbers, booleans or durations, in float64; NaN where a value is missing.

    Durations are in seconds: tables of two libraries rarely have the same unit.
    """
    unit = 1.0
    if types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif types.is_duration(values.type):
        values, unit = values.cast(pa.int64()), PER_SECOND[values.type.unit]
    found = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(found, dtype=np.float64) / unit


def _dictionary(values: Any) -> Any:
    chunks = values.unify_dictionaries().chunks
    return chunks[0].dictionary if chunks else pa.array([], pa.string())


def _array(values: Any) -> Any:
    return values if isinstance(values, pa.Array) else pa.array(values)
