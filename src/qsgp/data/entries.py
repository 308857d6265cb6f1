"""Texts where numbers were meant: one slip of the pen must not turn a column of numbers into categories."""

from dataclasses import dataclass
from typing import Any

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
    plain = compute.match_substring_regex(text, _NUMBER)
    like = compute.match_substring_regex(text, _LIKE_A_NUMBER)
    known, numbers = len(text) - text.null_count, compute.sum(like).as_py() or 0
    if numbers < least * known:
        return None
    # words before numbers of another country: with a decimal comma the latter are right
    wrong = compute.invert(like if numbers < known else plain)
    count = compute.sum(wrong).as_py() or 0
    if not count:
        return None
    first = compute.index(wrong, True).as_py()
    return Strange(text[first].as_py(), first + 1, count, known)


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
