"""What all benchmark scripts share: one printed table, one JSON file, the machine named."""

import argparse
import json
import os
import platform
import sys
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
    found: dict[str, Any] = {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count()}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def show(rows: list[dict[str, Any]], json_file: str | None, title: str, **extra: Any) -> None:
    """Print ``rows`` as a table and, when asked, write them with machine, versions and command."""
    table = Table(title=title, caption=str(machine()))
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=160).print(table)
    if json_file:
        versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
        command = " ".join(["python", *sys.argv])
        content = {"rows": rows, "machine": machine(), "versions": versions, "command": command, **extra}
        Path(json_file).write_text(json.dumps(content, indent=1) + "\n")
