"""Texts where numbers were meant: one slip of the pen must not turn a column of numbers into categories."""

from dataclasses import dataclass
from typing import Any

import numpy as np

try:
    import pyarrow as pa
    from pyarrow import compute, types
except ImportError:  # the extra is not installed: `reading` says so before anything of this file is needed
    pa = None

_NEARLY_ALL = 0.8  # of the entries
_NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|^(?i:[-+]?(inf|infinity|nan))$"
# what a person calls a number: 1,5 and 1,234.50 and 1 000 and $12 and 3 % and 01.02.2020
_LIKE_A_NUMBER = _NUMBER + r"|^[$€£¥]?\s?[-+]?[$€£¥]?\d[\d.,' ]*([eE][-+]?\d+)?\s?[%$€£¥]?$"


@dataclass(frozen=True)
class Strange:
    """The first entry that is no number in a column of numbers."""

    text: str
    row: int  # the first is 1
    count: int  # of such entries
    known: int  # of entries that are there

    def __str__(self) -> str:
        those = "entries is" if self.count == 1 else "entries are"
        return (
            f"{self.text!r} in row {self.row:,} ({self.count:,} of {self.known:,} {those} no plain number like 1234.5)"
        )


def strange_entry(values: Any, least: float = _NEARLY_ALL) -> Strange | None:
    """The first entry that is no number where a share of ``least`` are some; None for categories, and without one."""
    text = as_text(values)
    known = text.is_valid().to_numpy(zero_copy_only=False)
    return strange_among(text, known.astype(np.int64), np.arange(len(text)), least)


def strange_among(text: Any, count: np.ndarray, first: np.ndarray, least: float = _NEARLY_ALL) -> Strange | None:
    """The same of entries that so many rows have, ``first`` the first of them (from 0)."""
    plain = _matches(text, _NUMBER)
    like = _matches(text, _LIKE_A_NUMBER)
    known, numbers = int(count.sum()), int(count[like].sum())
    if numbers < least * known:
        return None
    if numbers < known and _different(text, like) < _different(text, ~like & (count > 0)):
        return None  # 0 %, 1 - 10 %, 11 - 23 %: ranges, one or two of which look like a number
    # words before numbers of another country: with a decimal comma the latter are right
    wrong = ~(like if numbers < known else plain) & (count > 0)
    if not wrong.any():
        return None
    at = int(np.flatnonzero(wrong)[first[wrong].argmin()])
    return Strange(text[at].as_py(), int(first[at]) + 1, int(count[wrong].sum()), known)


def fraction_among(text: Any) -> str | None:
    """The first entry with a fraction or an exponent, where all are plain numbers."""
    text = text.drop_null()
    if not len(text) or not _matches(text, _NUMBER).all():
        return None
    parts = np.flatnonzero(_matches(text, r"[.eE]"))
    return str(text[int(parts[0])].as_py()) if len(parts) else None


def _different(text: Any, where: np.ndarray) -> int:
    return len(compute.unique(text.filter(pa.array(where))))


def _matches(text: Any, pattern: str) -> np.ndarray:
    found = compute.match_substring_regex(text, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False) if isinstance(found, pa.Array) else found.to_numpy())


def as_text(values: Any) -> Any:
    """As texts without blanks around them, nothing but blanks being a missing value; a dictionary is resolved."""
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    text = compute.utf8_trim_whitespace(values.cast(pa.string()))
    return compute.if_else(compute.equal(text, ""), pa.scalar(None, pa.string()), text)


def is_text(kind: Any) -> bool:
    """Of an Arrow type: texts, or a dictionary of them."""
    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_number(kind: Any) -> bool:
    """Of an Arrow type: numbers, and durations, which are numbers of seconds."""
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_duration(kind))
