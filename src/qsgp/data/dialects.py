"""How a CSV file is written: its separator, its decimal sign and the names of its columns, told from its beginning."""

import csv
import gzip
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

_SAMPLE = 200  # lines looked at
_LONGEST_FIELD = 2**31 - 1  # the module's own limit is 128 KB
_SEPARATORS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')
_COMMA, _POINT = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?\d*\.\d+")


@dataclass(frozen=True)
class Dialect:
    """What a reader must be told."""

    separator: str
    decimal: str
    names: list[str]
    header_lines: int  # a quoted name may hold a line break, and lines of comments may stand before it


def dialect_of(path: Path, packed: bool = False) -> Dialect:
    """The separator is the most frequent one in the header, the blank if there is no other in any line.

    Blanks around names go, names that are nothing else become "column 3". Files with a comma as separator have a
    decimal point: a quoted "1,234" in them is more often a thousand than a fraction.
    """
    opened = gzip.open if packed else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        lines = list(itertools.islice(file, _SAMPLE))
    comments = _comments(lines)
    lines = lines[comments:]
    header = next((line for line in lines if line.strip()), "")
    counts = {sign: _QUOTED.sub("", header).count(sign) for sign in _SEPARATORS}
    separator = max(counts, key=lambda sign: counts[sign])
    if not counts[separator] and " " in header.strip():
        separator = " " if len({line.strip().count(" ") for line in lines if line.strip()}) == 1 else separator
    first, header_lines, entries = _parsed(lines, separator)
    decimal = "." if separator == "," or any(map(_POINT.fullmatch, entries)) else ","
    return Dialect(
        separator,
        decimal if any(map(_COMMA.fullmatch, entries)) else ".",
        [name.strip() or f"column {k + 1}" for k, name in enumerate(first)],
        comments + header_lines,
    )


def _comments(lines: list[str]) -> int:
    """How many lines at the beginning begin with # and have other numbers of entries than the first that does not.

    A line of names may begin so, too.
    """
    count = next((k for k, line in enumerate(lines) if line.strip() and not line.startswith("#")), 0)
    entries = [[_QUOTED.sub("", line).count(sign) for sign in _SEPARATORS] for line in lines[: count + 1]]
    return count if all(found != entries[-1] for found in entries[:-1]) else 0


def _parsed(lines: list[str], separator: str) -> tuple[list[str], int, list[str]]:
    """The first row that is not empty, the lines it takes, and all entries below it."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        reader = csv.reader(lines, delimiter=separator)
        first = next((row for row in reader if row), [])
        return first, reader.line_num, [entry.strip() for row in reader for entry in row]
    finally:
        csv.field_size_limit(before)
