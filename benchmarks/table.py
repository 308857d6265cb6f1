"""What all benchmark scripts share: one printed table, one JSON file, the machine named."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from qsgp.reproduce.records import Records, machine, write


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    return parser


class Collected:
    """Rows that are written as soon as they are measured, and not measured again when the file has them."""

    def __init__(self, json_file: str | None, title: str, *, seed: Any, **about: Any) -> None:
        """``seed`` of what is drawn, one or several, and ``about``: what the file says beside rows, machine, versions,
        command and commit."""
        self._records, self._title = Records(Path(json_file) if json_file else None, seed=seed, **about), title

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self._records.rows

    def add(self, key: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> None:
        """The row that begins with ``key``, measured unless it is there."""
        if (row := self._records.add(key, measure)) is not None:
            print(row, flush=True)

    def show(self) -> None:
        """A file from which nothing was missing keeps the machine and the command it names."""
        show(self.rows, None, self._title, seed=None)


def show(rows: list[dict[str, Any]], json_file: str | None, title: str, *, seed: Any, **extra: Any) -> None:
    """Print ``rows`` as a table and, when asked, write them with the seed, machine, versions, command and commit."""
    table = Table(title=title, caption=str(machine()))
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=160).print(table)
    if json_file:
        write(Path(json_file), rows, seed=seed, **extra)
