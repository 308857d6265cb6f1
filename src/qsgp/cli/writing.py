"""Results to a file or to stdout, portion by portion; a file appears whole or not at all."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from csv import writer
from pathlib import Path
from typing import Any

from qsgp.atomic import place_for, refuse_inputs, written
from qsgp.data.entries import is_text
from qsgp.data.reading import READERS

try:
    import pyarrow as pa
    from pyarrow import compute, csv, parquet
except ImportError:  # the extra is not installed: `reading` says so
    pa = None


def check_output(path: Path, inputs: Iterable[str | Path] = (), endings: list[str] | None = None) -> None:
    """Said before the work begins, not after: a file can be written there, it is no input, and its ending is known."""
    place_for(path)
    refuse_inputs(path, inputs)
    if endings is not None and path.suffix.lower() not in endings:
        raise ValueError(f"Expected a file ending in {', '.join(endings)} to write, got {path.name}. Rename it.")


def check_table_output(output: str, inputs: Iterable[str | Path]) -> None:
    if output != "-":
        check_output(Path(output), inputs, [ending for ending, kind in READERS.items() if kind != "npz"])


@contextmanager
def table_writer(output: str) -> Iterator[Callable[[Any], None]]:
    """What takes one portion after another: ``-`` is CSV on stdout. An older file stays until the new one is whole."""
    if output == "-":
        if sys.stdout is None:
            raise ValueError("Expected stdout to write to, got a closed one. Name a file with -o.")
        with _Portions("csv", ",", sys.stdout.buffer) as portions:
            yield portions.write
        sys.stdout.buffer.flush()
        return
    ending = Path(output).suffix.lower()
    with written(output) as file, _Portions(READERS[ending], "\t" if ending == ".tsv" else ",", file) as portions:
        yield portions.write


class _Portions(ExitStack):
    """One Arrow writer, opened when the first portion says what the columns are; CSV is written piece by piece."""

    def __init__(self, kind: str, separator: str, sink: Any) -> None:
        super().__init__()
        self._kind, self._separator, self._sink = kind, separator, sink
        self._writer: Any = None
        self._first = True

    def write(self, table: Any) -> None:
        if self._kind == "csv":
            self._write_text(table)
            return
        if self._writer is None:
            opener = parquet.ParquetWriter if self._kind == "parquet" else pa.ipc.new_file
            self._writer = self.enter_context(opener(self._sink, table.schema))
        self._writer.write_table(table)

    def _write_text(self, table: Any) -> None:
        if self._first:  # Arrow would quote every name
            line = io.StringIO()
            writer(line, delimiter=self._separator, lineterminator="\n").writerow(table.column_names)
            self._sink.write(line.getvalue().encode())
            self._first = False
        style = "needed" if _needs_quotes(table, self._separator) else "none"
        csv.write_csv(
            table,
            self._sink,
            csv.WriteOptions(include_header=False, delimiter=self._separator, quoting_style=style),
        )


def _needs_quotes(table: Any, separator: str) -> bool:
    """Arrow puts either every text into quotes or none; most portions need none."""
    special = f'["\\r\\n{separator}]'
    texts = (column for column in table.columns if is_text(column.type))
    return any(compute.any(compute.match_substring_regex(c.cast(pa.string()), special)).as_py() for c in texts)
