"""Numbers, tables and sentences of the results page."""

import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]

_LONGEST = 80  # characters of a cell; the file has the rest


def number(value: Any, digits: int | None = None) -> str:
    """A cell: floats with so many decimals, or with four figures; what is missing is empty."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    if isinstance(value, float):
        large = digits is None and 1000 <= abs(value) < 1e9
        text = f"{value:,.0f}" if large else f"{value:.4g}" if digits is None else f"{value:,.{digits}f}"
        return text.replace("-", "−")
    text = " ".join(str(value).split())
    return (text if len(text) <= _LONGEST else text[:_LONGEST] + " …").replace("|", "\\|").replace("<", "&lt;")


def table(names: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """The first ``left`` columns are words, the others numbers."""
    marks = ["---" if place < left else "--:" for place in range(len(names))]
    rows = [" | ".join(names), " | ".join(marks), *(" | ".join(line) for line in lines)]
    return [*(f"| {row} |" for row in rows), ""]


def listed(words: Iterable[str]) -> str:
    """a, b and c"""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def distinct(values: Iterable[Any]) -> list[Any]:
    """In the order they first come in. Values of files may be lists, which no set holds."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def averaged(rows: Sequence[Row], over: str) -> list[Row] | None:
    """Rows that differ in their seed or split, and in what was measured, as one: means and standard deviations.

    What was measured are the columns with decimals; None where that leaves two rows with one seed, since a column with
    decimals must then tell them apart.
    """
    if len(distinct(row.get(over) for row in rows)) < 2:
        return None
    names = {name for row in rows for name, value in row.items() if isinstance(value, float)}
    measured = {name for name in names if all(isinstance(row.get(name), int | float | None) for row in rows)}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        key = {name: value for name, value in row.items() if name not in measured and name != over}
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(row)
    if any(len(distinct(row.get(over) for row in own)) < len(own) for own in groups.values()):
        return None
    found = []
    for own in groups.values():
        one = {
            name: mean_and_spread([row.get(name) for row in own]) if name in measured else own[0][name]
            for name in own[0]
        }
        one[over] = len(own)
        found.append({(f"{over}s" if name == over else name): value for name, value in one.items()})
    return found


def mean_and_spread(values: Sequence[Any], digits: int | None = None) -> Any:
    """A number where there is only one."""
    known = [float(value) for value in values if value is not None]
    if len(distinct(known)) < 2:
        return known[0] if known else None
    return f"{number(statistics.fmean(known), digits)} ± {number(statistics.stdev(known), digits)}"


def plain(rows: Sequence[Row], most: int = 100) -> list[str]:
    """Rows as they are, or their means over seeds or splits. What all of them share is said once."""
    if not rows:
        return ["The file has no rows.", ""]
    curves = {name for row in rows for name, value in row.items() if isinstance(value, list | dict)}
    kept = [{name: value for name, value in row.items() if name not in curves} for row in rows]
    rows = averaged(kept, "split") or averaged(kept, "seed") or kept
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {name: distinct(row.get(name) for row in rows) for name in names}
    shared = [name for name in names if len(rows) > 1 and len(values[name]) == 1 and values[name] != [None]]
    shown = [name for name in names if name not in shared and values[name] != [None]]
    words = [f"{name} {number(values[name][0])}" for name in shared]
    said = [f"In all rows: {', '.join(words)}.", ""] if words else []
    said += [f"In the file alone: {listed(sorted(curves))}.", ""] if curves else []
    if not shown:
        return said
    if len(rows) > most:
        said += [f"The file has {len(rows):,} rows; these are the first {most}.", ""]
    text = [name for name in shown if any(isinstance(value, str) and " ± " not in value for value in values[name])]
    order = [*text, *(name for name in shown if name not in text)]
    return [*said, *table(order, ([number(row.get(name)) for name in order] for row in rows[:most]), len(text))]
