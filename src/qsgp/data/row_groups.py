"""Files in parts that can be read in any order: row groups of Parquet, other files as a whole."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.data.entries import is_text
from qsgp.data.reading import batches, is_packed, kind_of, opening, schema

try:
    import pyarrow as pa
    from pyarrow import ipc, parquet
except ImportError:  # the extra is not installed: `reading` says so
    pa = None

_TEXT_ROW = 8  # bytes of a number written down, about
_MOST_PACKED = 1032  # bytes of text that gzip packs into one


@dataclass(frozen=True)
class Part:
    """Rows ``first`` and following of the whole table; where they lie, and how the file looked when it was found."""

    path: Path
    group: int | None  # of a Parquet file
    first: int
    stamp: tuple[int, int]  # bytes and time of the last change


def parts_of(files: Sequence[Path], columns: Sequence[str]) -> tuple[list[Part], int]:
    """All parts in order, and how many rows they have; of text files the number is a guess."""
    found, rows, first = list[Part](), 0, 0
    check_alike(files, columns)
    for path in files:
        with opening(path) as kind:
            stamp = _stamp(path)
            if kind == "parquet":
                metadata = parquet.read_metadata(path)
                sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
                starts = first + np.cumsum([0, *sizes])
                found += [Part(path, group, int(start), stamp) for group, start in enumerate(starts[:-1])]
                first, rows = int(starts[-1]), rows + sum(sizes)
            else:
                found.append(Part(path, None, first, stamp))
                there = _rows_of(path, kind)
                # a guess must not give two rows one number: a line has a byte at least
                most = stamp[0] * (_MOST_PACKED if is_packed(path) else 1)
                first, rows = first + (most if kind == "csv" else there), rows + there
    return found, rows


def held_bytes(files: Sequence[Path]) -> int:
    """What reading these files whole would take: as an Arrow table, as an array and standardised."""
    total = 0
    for path in files:
        if kind_of(path) == "npz":  # not read in portions, and without pyarrow
            continue
        with opening(path) as kind:
            if kind == "parquet":
                metadata = parquet.read_metadata(path)
                total += 24 * metadata.num_rows * len(metadata.schema.to_arrow_schema().names)
            else:
                total += 3 * _bytes_of(path)
    return total


def tables(part: Part, columns: Sequence[str], types: Mapping[str, Any], rows: int) -> Iterator[Any]:
    """Arrow tables of at most ``rows`` rows of a part, in order; what goes wrong names the file."""
    with opening(part.path):
        if _stamp(part.path) != part.stamp:
            raise ValueError(
                f"Expected {part.path} to stay as it is while it is read, but it has changed. Fit again once it is "
                "complete."
            )
    if part.group is None:
        yield from batches([part.path], columns, types, rows)
        return
    with (
        opening(part.path),
        # without pre-buffering and threads: a row group may be larger than the memory, and training has the cores
        parquet.ParquetFile(part.path, buffer_size=2**16, pre_buffer=False) as file,
    ):
        for batch in file.iter_batches(
            batch_size=rows, row_groups=[part.group], columns=list(columns), use_threads=False
        ):
            yield pa.Table.from_batches([batch]).select(list(columns))


def check_alike(files: Sequence[Path], columns: Sequence[str]) -> None:
    """Every file has the columns of the first, with entries of the same kind."""
    wanted = schema(files[0])
    for path in files[1:]:
        found = schema(path)
        if lacking := sorted(set(columns) - set(found.names)):
            raise ValueError(
                f"Expected the columns of {files[0]} in {path}, got others: no {lacking}. Use equal files."
            )
        for name in columns:
            kinds = wanted.field(name).type, found.field(name).type
            if kind_of(path) != "csv" and _kind(kinds[0]) != _kind(kinds[1]):
                raise ValueError(
                    f"Expected column {name!r} in {path} as in {files[0]} ({kinds[0]}), got {kinds[1]}. Write the "
                    "files with one schema."
                )


def _kind(kind: Any) -> str:
    if is_text(kind):
        return "text"
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "number" if numbers else str(kind)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _bytes_of(path: Path) -> int:
    """Of a text; one that is packed says so at its end, modulo 2^32."""
    size = path.stat().st_size
    if not is_packed(path) or size < 4:
        return size
    with open(path, "rb") as file:
        file.seek(-4, os.SEEK_END)
        said = int.from_bytes(file.read(4), "little")
    return said + -(-max(0, size - said) // 2**32) * 2**32


def _rows_of(path: Path, kind: str) -> int:
    if kind == "csv":
        return max(1, _bytes_of(path) // (_TEXT_ROW * max(1, len(schema(path).names))))
    with pa.memory_map(str(path)) as source:
        try:
            file = ipc.open_file(source)
        except pa.ArrowInvalid:
            source.seek(0)
            return sum(batch.num_rows for batch in ipc.open_stream(source))
        return sum(file.get_batch(k).num_rows for k in range(file.num_record_batches))
