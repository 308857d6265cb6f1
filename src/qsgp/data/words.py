"""Counts and lists of names as messages show them."""

from collections.abc import Sequence


def count(rows: int, thing: str = "row") -> str:
    return f"{rows:,} {thing}{'' if rows == 1 else 's'}"


def listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
