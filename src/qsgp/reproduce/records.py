"""Measured rows as JSON and CSV: written as soon as they are there, and not measured again when a file has them."""

import csv
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy
import torch

from qsgp import atomic
from qsgp.reproduce.experiment import Row


class Records:
    """The rows of one file. Without a path they are kept in memory alone."""

    def __init__(self, path: Path | None, **about: Any) -> None:
        """``about``: what the file says beside its rows, machine, versions, command and commit; a seed, for example."""
        self.path, self._about = path, about
        self.rows: list[Row] = read_rows(path) if path is not None and path.exists() else []

    def has(self, key: Row) -> bool:
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def add(self, key: Row, measure: Callable[[], Row]) -> Row | None:
        """The row that begins with ``key``, measured and written, or None where it is there already."""
        if self.has(key):
            return None
        row = {**key, **measure()}
        self.rows.append(row)
        if self.path is not None:
            write(self.path, self.rows, **self._about)
        return row


def read_rows(path: Path) -> list[Row]:
    try:
        return [dict(row) for row in json.loads(path.read_text("utf-8"))["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"Expected measured rows as JSON in {path}, got something else. Move the file away, or name another."
        ) from error


def write(path: Path, rows: Sequence[Row], **about: Any) -> None:
    content = {"rows": rows} | provenance() | about
    with atomic.written(path) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def columns(rows: Sequence[Row]) -> list[str]:
    """The names of a table of ``rows``: all that occur but curves."""
    return [name for name in dict.fromkeys(name for row in rows for name in row) if name != "curves"]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """One column for each name that occurs; what a row does not have is empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns(rows), extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with atomic.written(path) as file:
        file.write(text.getvalue().encode())


def provenance() -> dict[str, Any]:
    """Where rows come from: machine, versions, command and commit of this process."""
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
    return {"machine": machine(), "versions": versions | _own_version(), "command": command(), "commit": commit()}


def command() -> str:
    """As it is typed in a checkout; a program that is no script of it goes by its name."""
    script = Path(sys.argv[0])
    named = f"python benchmarks/{script.name}" if script.parent.name == "benchmarks" else script.stem
    return " ".join(["qsgp" if named == "__main__" else named, *sys.argv[1:]])


def machine() -> dict[str, Any]:
    found: dict[str, Any] = {
        "system": platform.system(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def commit() -> str:
    """Of the checkout this package runs from, with a plus where files differ from it. A copied tree has none:
    QSGP_COMMIT names the commit there, or it is said why none is known."""
    folder = Path(__file__).parents[3]
    try:
        if (folder / ".git").exists():
            named = _git(folder, "rev-parse", "--short", "HEAD")
            return named + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
        why = "no checkout"
    except (OSError, subprocess.SubprocessError) as error:
        why = f"git failed with {type(error).__name__}"
    return os.environ.get("QSGP_COMMIT") or f"unknown: {why}, and QSGP_COMMIT is not set"


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _own_version() -> dict[str, str]:
    try:
        return {"qsgp": version("qsgp")}
    except PackageNotFoundError:  # run from a source tree
        return {}
