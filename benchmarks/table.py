"""What all benchmark scripts share: one printed table, one JSON file, the machine named."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from rich.console import Console
from rich.table import Table


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE")
    return parser


def machine() -> dict[str, Any]:
    found: dict[str, Any] = {
        "system": platform.system(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


class Collected:
    """Rows that are written as soon as they are measured, and not measured again when the file has them."""

    def __init__(self, json_file: str | None, title: str) -> None:
        self._file, self._title, self._measured = json_file, title, False
        known = Path(json_file) if json_file else None
        self.rows: list[dict[str, Any]] = json.loads(known.read_text())["rows"] if known and known.exists() else []

    def add(self, key: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> None:
        """The row that begins with ``key``, measured unless it is there."""
        if any(all(row.get(name) == value for name, value in key.items()) for row in self.rows):
            return
        self.rows.append(measure())
        self._measured = True
        print(self.rows[-1], flush=True)
        if self._file:
            _write(self.rows, self._file)

    def show(self) -> None:
        """A file from which nothing was missing keeps the machine and the command it names."""
        show(self.rows, self._file if self._measured else None, self._title)


def show(rows: list[dict[str, Any]], json_file: str | None, title: str, **extra: Any) -> None:
    """Print ``rows`` as a table and, when asked, write them with machine, versions and command."""
    table = Table(title=title, caption=str(machine()))
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=160).print(table)
    if json_file:
        _write(rows, json_file, **extra)


def _write(rows: list[dict[str, Any]], json_file: str, **extra: Any) -> None:
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
    command = " ".join(["python", *sys.argv])
    content = {"rows": rows, "machine": machine(), "versions": versions, "command": command, **extra}
    unfinished = Path(json_file + ".unfinished")
    unfinished.write_text(json.dumps(content, indent=1) + "\n")
    unfinished.replace(json_file)
