"""Rows from files: CSV, Parquet, Arrow / Feather and NPZ, one path, a glob or a list of them; whole or in portions.

pyarrow comes with the extra ``qsgp[data]``; NPZ needs nothing. No pickle is ever read.
"""

import difflib
import glob
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qsgp.data import npz
from qsgp.data.dialects import dialect_of
from qsgp.data.entries import is_text

try:
    import pyarrow as pa
    from pyarrow import compute, csv, feather, ipc, parquet
except ImportError:  # the extra is not installed
    pa = None

READERS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".npz": "npz",
}
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_PACKED = ".gz"  # CSV may be packed with gzip
_BLOCK = 4 * 2**20  # bytes of text read at a time; types are guessed from the first block when reading in portions
# Beside those that Arrow knows; the trailing ones are a spreadsheet's. Blanks may stand around them.
_BLANKS = ("", " ", "  ", "   ")
_MISSING_WORDS = ["?", "<NA>", "NaT", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?"]


def is_path(X: Any) -> bool:
    """A path, a glob or a list of paths, not a table."""
    if isinstance(X, str | os.PathLike):
        return True
    return isinstance(X, list | tuple) and len(X) > 0 and all(isinstance(part, str | os.PathLike) for part in X)


def find(paths: Paths) -> list[Path]:
    """The files named, globs expanded, in order."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found = []
    for part in given:
        text = os.fspath(part)
        # a file of that very name comes first: [ ] * ? may be part of it
        literal = os.path.isfile(text) or not glob.has_magic(text)
        matches = [text] if literal else sorted(glob.glob(text, recursive=True))
        matches = [match for match in matches if os.path.isfile(match)]
        if not matches and os.path.isdir(text):
            inside = os.path.join(text, "*.csv")
            raise IsADirectoryError(f"Expected files, got the folder {text}. Name those in it, for example {inside}.")
        if not matches:
            raise FileNotFoundError(
                f"Expected files at {text}, got none. Check the path; the working folder is the one of the program."
            )
        found += [Path(match) for match in matches]
    return found


def kind_of(path: Path) -> str | None:
    """Of the file, by its name: "csv", "parquet", "arrow" or "npz"; only CSV may be packed."""
    packed = is_packed(path)
    kind = READERS.get((path.with_suffix("") if packed else path).suffix.lower())
    return None if packed and kind != "csv" else kind


def is_packed(path: Path) -> bool:
    return path.suffix.lower() == _PACKED


def check_names(
    wanted: Sequence[str], names: Sequence[str], path: Path | str, remedy: str = "Name one of these; case counts."
) -> None:
    """Every column asked for is in the file; else what there is, and what may have been meant."""
    for name in wanted:
        if name in names:
            continue
        folded = {other.casefold().strip(): other for other in names}
        close = [folded[match] for match in difflib.get_close_matches(name.casefold().strip(), list(folded), n=3)]
        listed = ", ".join(map(repr, names[:20])) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        remedy = f"Did you mean {' or '.join(map(repr, close))}?" if close else remedy
        if not close and any(_is_decimal(other) for other in names):
            remedy = "The first line seems to hold numbers: put a line of names before it."
        raise ValueError(f"Expected a column {name!r} in {path}, got {listed}. {remedy}")


def pa_table(files: list[Path], columns: Sequence[str] | None = None, types: Mapping[str, Any] | None = None) -> Any:
    """All files under each other, as one Arrow table; of NPZ every array with one entry, or one row, for each row.

    ``types`` says how columns of text files are to be read; the others are guessed from all of their entries.
    """
    tables: list[Any] = []
    for path in files:
        if columns is not None and tables and (lacking := sorted(set(columns) - set(schema(path).names))):
            raise ValueError(
                f"Expected the columns of {files[0]} in {path}, got others: no {lacking}. Use equal files."
            )
        with opening(path) as kind:
            table = _READ[kind](path, columns, types or {})
        _check_columns(path, table.column_names, tables[0].column_names if tables else None, files[0])
        tables.append(table)
    clashing = _text_in_some(tables) - set(types or {})
    if clashing and all(kind_of(path) == "csv" for path in files):
        # numbers here and texts there: read as texts everywhere, the columns are judged as a whole
        return pa_table(files, columns, {**(types or {}), **dict.fromkeys(clashing, pa.string())})
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(_unlike(files, tables) or str(error)) from error
    if not len(whole):
        raise ValueError(f"Expected rows in {files[0]}, got none. Check that it is the right file.")
    return whole


def _unlike(files: list[Path], tables: list[Any]) -> str:
    """Which column of which file cannot stand under those before it."""
    for name in tables[0].column_names:
        known = tables[0].schema.field(name).type
        for path, table in zip(files, tables, strict=True):
            kinds = [pa.schema([(name, kind)]) for kind in (known, table.schema.field(name).type)]
            try:
                known = pa.unify_schemas(kinds, promote_options="permissive").field(0).type
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                return (
                    f"Expected column {name!r} in {path} as in the files before it ({known}), got "
                    f"{kinds[1].field(0).type}. Write the files with one schema."
                )
    return ""


def _text_in_some(tables: list[Any]) -> set[str]:
    """Columns that hold texts in one table and something else in another."""
    kinds = {name: {is_text(t.schema.field(name).type) for t in tables} for name in tables[0].column_names}
    return {name for name, found in kinds.items() if len(found) > 1}


def schema(path: Path) -> Any:
    """Names and types of the columns, from the beginning of the file; only NPZ is read whole."""
    with opening(path) as kind:
        if kind == "parquet":
            found = parquet.read_schema(path)
        elif kind == "npz":
            found = _npz_table(path, None).schema
        else:
            found = (_open_csv(path, None, {}) if kind == "csv" else _open_arrow(path)).schema
    _check_columns(path, found.names, None, path)
    return found


def index_columns(found: Any) -> list[str]:
    """The columns of a schema in which pandas has stored the index of a data frame, whatever their names."""
    try:
        names = json.loads((found.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):  # somebody else's idea of this entry
        names = []
    # an index of plain numbers is described and has no column
    return [name for name in found.names if name == "__index_level_0__" or name in names]


def index_words(names: Sequence[str]) -> str:
    """For a note."""
    return f"{', '.join(map(repr, names))}, the index of a pandas data frame"


def batches(
    files: list[Path], columns: Sequence[str], types: Mapping[str, Any] | None = None, rows: int = 65_536
) -> Iterator[Any]:
    """Portions of at most ``rows`` rows as Arrow tables, in order, no more in memory than a portion and its buffers.

    ``types`` says how columns of a text file are to be read; the others are guessed from its first block.
    """
    for path in files:
        check_names(columns, schema(path).names, path)
        with opening(path) as kind:
            for batch in _BATCHES[kind](path, list(columns), types or {}, rows):
                for start in range(0, batch.num_rows, rows):
                    yield pa.Table.from_batches([batch.slice(start, rows)]).select(list(columns))


@contextmanager
def opening(path: Path) -> Iterator[str]:
    """The kind of a file by its name; what goes wrong while it is read names the file and the remedy."""
    if pa is None:
        raise ImportError("Reading files needs pyarrow. Run pip install 'qsgp[data]'.")
    kind = kind_of(path)
    if kind is None:
        raise ValueError(
            f"Expected a file ending in {', '.join(READERS)} or .csv{_PACKED}, got {path.name}. Convert, unpack or "
            "rename it."
        )
    if not path.exists():
        raise FileNotFoundError(f"Expected {path} to stay while it is read, but it has vanished. Put it back.")
    if path.stat().st_size == 0:
        raise ValueError(f"Expected a {kind} file at {path}, got an empty file. Check that it was written.")
    try:
        yield kind
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"Expected {path} to stay while it is read, but it has vanished. Put it back."
        ) from error
    except PermissionError:
        raise
    except (OSError, EOFError, zlib.error) as error:  # of a part that is damaged, or of the disk
        raise ValueError(
            f"Expected a {kind} file at {path}, got one that cannot be read: {str(error).rstrip('. ')}. "
            "It may be damaged or not have been written to its end: write it anew."
        ) from error
    except (pa.ArrowInvalid, pa.ArrowKeyError, UnicodeDecodeError) as error:
        text, remedy = str(error).rstrip(". "), "Save it anew, text as UTF-8 (spreadsheets call it CSV UTF-8)."
        if found := re.match(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error to (\w+): (.*)", text):
            text, remedy = _wrong_entry(path, int(found[1]), found[2], found[3])
        elif "straddling" in text:
            text = f"a line is longer than {_BLOCK // 2**20} MB, or a quote is never closed"
            remedy = "Correct the line."
        elif "parse error" in text:
            remedy = "Correct the line; every line must have as many entries as the first, which holds the names."
        raise ValueError(f"Expected a {kind} file at {path}, got one that cannot be read: {text}. {remedy}") from error


def _wrong_entry(path: Path, column: int, kind: str, complaint: str) -> tuple[str, str]:
    """What is wrong with an entry, and where; Arrow does not say in which row."""
    name, entry = dialect_of(path, packed=is_packed(path)).names[column], complaint.partition("'")[2].removesuffix("'")
    row, place = 0, ""
    for batch in _open_csv(path, [name], {name: pa.string()}):
        at = compute.index(compute.utf8_trim_whitespace(batch.column(0)), entry).as_py()
        if at >= 0:
            place = f" in row {row + at + 1:,}"
            break
        row += batch.num_rows
    wanted = {"double": "number", "bool": "yes or no (true, false)"}.get(kind, kind)
    remedy = "Correct the entry, or leave it empty where the value is not known."
    return f"in column {name!r} no {wanted} but an {complaint}{place}", remedy


def _check_columns(path: Path, names: list[str], first: list[str] | None, other: Path) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"Expected every column of {path} once, got {names}. Rename the columns.")
    if first is not None and set(names) != set(first):
        differing = sorted(set(names) ^ set(first))
        raise ValueError(f"Expected the columns of {other} in {path}, got others: {differing}. Use equal files.")


def _csv_options(path: Path, columns: Sequence[str] | None, types: Mapping[str, Any], block: int) -> Any:
    found = dialect_of(path, packed=is_packed(path))
    # the names are ours: stripped, and blank ones numbered
    reading = csv.ReadOptions(column_names=found.names, skip_rows=found.header_lines, block_size=block)
    parsing = csv.ParseOptions(delimiter=found.separator, newlines_in_values=True)
    converting = csv.ConvertOptions(
        decimal_point=found.decimal,
        strings_can_be_null=True,  # an empty field is no label
        null_values=_missing_words(),
        include_columns=None if columns is None else list(columns),
        column_types=dict(types),
    )
    return {"read_options": reading, "parse_options": parsing, "convert_options": converting}


def _missing_words() -> list[str]:
    words = [*csv.ConvertOptions().null_values, *_MISSING_WORDS]
    return [f"{left}{word}{right}" for word in words for left in _BLANKS for right in _BLANKS]


def _read_csv(path: Path, columns: Sequence[str] | None, types: Mapping[str, Any]) -> Any:
    return csv.read_csv(_text(path), **_csv_options(path, columns, types, _BLOCK))


def _open_csv(path: Path, columns: Sequence[str] | None, types: Mapping[str, Any]) -> Any:
    return csv.open_csv(_text(path), **_csv_options(path, columns, types, _BLOCK))


def _text(path: Path) -> Any:
    return pa.input_stream(os.fspath(path), compression="gzip") if is_packed(path) else path


def _open_parquet(path: Path, columns: list[str], types: Any, rows: int) -> Iterator[Any]:
    # without pre-buffering: a row group may be larger than the memory
    with parquet.ParquetFile(path, buffer_size=2**16, pre_buffer=False) as file:
        yield from file.iter_batches(batch_size=rows, columns=columns)


def _open_arrow(path: Path) -> Any:
    """The file format in any number of batches, or the stream format; memory-mapped."""
    source = pa.memory_map(os.fspath(path))
    try:
        return ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return ipc.open_stream(source)


def _arrow_batches(path: Path, columns: list[str], types: Any, rows: int) -> Iterator[Any]:
    opened = _open_arrow(path)
    if isinstance(opened, ipc.RecordBatchFileReader):
        yield from (opened.get_batch(k) for k in range(opened.num_record_batches))
    else:
        yield from opened


def _read_arrow(path: Path, columns: Sequence[str] | None, types: Any) -> Any:
    try:
        return feather.read_table(path, columns=None if columns is None else list(columns))
    except pa.ArrowInvalid:
        table = _open_arrow(path).read_all()
        return table if columns is None else table.select(list(columns))


def _npz_table(path: Path, columns: Sequence[str] | None, types: Any = None) -> Any:
    parts = npz.columns(path)
    return pa.table({name: pa.array(parts[name]) for name in (parts if columns is None else columns)})


def _is_decimal(name: str) -> bool:
    try:
        return "." in name and float(name) == float(name)
    except ValueError:
        return False


_READ = {
    "csv": _read_csv,
    "parquet": lambda path, columns, types: parquet.read_table(path, columns=columns),
    "arrow": _read_arrow,
    "npz": _npz_table,
}
_BATCHES = {
    "csv": lambda path, columns, types, rows: _open_csv(path, columns, types),
    "parquet": _open_parquet,
    "arrow": _arrow_batches,
    "npz": lambda path, columns, types, rows: _npz_table(path, columns).to_batches(),
}
