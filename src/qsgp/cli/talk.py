"""What the program prints: notes on stderr, results on stdout as words or JSON, and the options all commands share."""

import contextlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from qsgp.ranks import leads

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes, no progress: errors and results alone.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="Written by fit, or by save in Python.")]
Files = Annotated[list[str], typer.Argument(metavar="FILES", help="CSV, Parquet, Arrow / Feather or NPZ.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")]
MaxMemory = Annotated[str, typer.Option(metavar="SIZE", help="For example 4GB; auto is half of what is free.")]
ColumnList = Annotated[
    list[str] | None, typer.Option(metavar="NAMES", help="Input columns, separated by commas; all others unless said.")
]
Missing = Literal["auto", "error", "drop", "mean"]


def say(text: str, quiet: bool = False) -> None:
    """A note for the person: never among the results. Of several ranks the first one speaks."""
    if not quiet and leads():
        complain(text)


def complain(text: str) -> None:
    """What every rank says for itself."""
    with contextlib.suppress(OSError):  # a full or vanished stderr is no reason to stop
        print(printable(text), file=sys.stderr, flush=True)


def speak_safely() -> None:
    """Streams that are closed, or cannot show every letter, must neither end the program nor mix their contents."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file that is opened would get its number, and what is said there
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # print takes None for stdout
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names of columns and files may hold any letter


def show(results: Mapping[str, Any], as_json: bool, words: str) -> None:
    """The result itself."""
    if leads():
        print(json.dumps(results, indent=2) if as_json else printable(words), flush=True)


def printable(text: str) -> str:
    """Names come from files of others: what would command the terminal is shown as \\x1b and the like."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def number(value: float) -> str:
    """Four digits that matter."""
    return f"{value:.4g}"


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of words under each other, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = (
        [
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    )
    return "\n".join("  ".join(line).rstrip() for line in cells)


def own_version() -> str:
    try:
        return importlib.metadata.version("qsgp")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (run from the source tree)"
