"""What the columns of files hold, learned from few rows that show it: the first, one for each further level, and those
of the earliest and the latest dates."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.data.columns import Columns
from qsgp.data.dates import days, is_date
from qsgp.data.entries import as_text, is_text
from qsgp.data.learning import IN_PYTHON, MOST_CATEGORIES, NO_LEVELS, Advice, Learner, check_some_left
from qsgp.data.reading import batches

try:
    import pyarrow as pa
    from pyarrow import compute
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

_ROWS = 16_384
_MOST = 4 * MOST_CATEGORIES  # levels that are looked for: columns of more are left out


def head(files: list[Path], columns: Sequence[str], types: Any = None) -> Any:
    """The first rows, in place of all."""
    for table in batches(files, columns, types, _ROWS):
        if len(table):
            return table
    raise ValueError(f"Expected rows in {files[0]}, got none. Check that it is the right file.")


def learned_from(
    files: list[Path], inputs: Sequence[str], categories: Collection[str], advice: Advice = IN_PYTHON
) -> Columns:
    """As a `Learner` of all rows has it: one pass over columns of texts and dates, none where all hold numbers.

    What few rows cannot show is not concluded from them: that a column never changes, or has long tails.
    """
    types = dict.fromkeys(categories, pa.string())
    first = head(files, inputs, types)
    looked = [name for name in inputs if _open_question(first, name, categories)]
    tables = [first, *_showing_more(files, looked, types)] if looked else [first]
    whole = pa.concat_tables(tables, promote_options="permissive")
    found = Learner(categories, advice, NO_LEVELS["streams"]).add(whole).columns(all_that_vary_later=True)
    check_some_left(found)
    return replace(found, given=tuple(replace(column, bend=()) for column in found.given), rows=None)


def _open_question(first: Any, name: str, categories: Collection[str]) -> bool:
    """Levels, the kind, or how long a time dates span may show later."""
    values = first.column(name)
    kind = values.type
    texts = is_text(kind) or pa.types.is_dictionary(kind) or name in categories
    return texts or is_date(kind) or values.null_count == len(values)


def _showing_more(files: list[Path], names: list[str], types: Any) -> Iterator[Any]:
    """Rows with entries that no row before has; of dates only those before or after all others."""
    known: dict[str, set[Any]] = {name: set() for name in names}
    spans = {name: [np.inf, -np.inf] for name in names}
    for table in batches(files, names, types, _ROWS):
        rows = set[int]()
        for name in names:
            values = table.column(name).combine_chunks()
            if is_date(values.type):
                rows |= _widening(days(values), spans[name])
                continue
            values = as_text(values)
            for entry in compute.unique(values).drop_null().to_pylist():
                if entry not in known[name] and len(known[name]) <= _MOST:
                    known[name].add(entry)
                    rows.add(compute.index(values, entry).as_py())
        if rows:
            yield table.take(sorted(rows))


def _widening(found: np.ndarray, span: list[float]) -> set[int]:
    """Where the first and the last of these dates are, if they lie outside of ``span``, which they widen."""
    known = np.flatnonzero(~np.isnan(found))
    ends = {int(known[found[known].argmin()]), int(known[found[known].argmax()])} if len(known) else set()
    new = {at for at in ends if not span[0] <= found[at] <= span[1]}
    for at in new:
        span[:] = min(span[0], found[at]), max(span[1], found[at])
    return new
