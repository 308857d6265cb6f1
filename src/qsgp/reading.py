"""Rows from files: CSV, Parquet, Arrow / Feather and NPZ, one path, a glob or a list of them.

pyarrow comes with the extra ``qsgp[data]``; NPZ needs nothing. No pickle is ever read.
"""

import glob
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qsgp.tables import check_types

try:
    import pyarrow as pa
    from pyarrow import csv, feather, parquet
except ImportError:  # the extra is not installed
    pa = None

READERS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
}
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


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
        matches = sorted(glob.glob(text, recursive=True)) if glob.has_magic(text) else [text]
        matches = [match for match in matches if os.path.isfile(match)]
        if not matches:
            raise FileNotFoundError(
                f"Expected files at {text}, got none. Check the path; the working folder is the one of the program."
            )
        found += [Path(match) for match in matches]
    return found


def read_table(
    paths: Paths, target: str | None = None, weight: str | None = None, columns: Sequence[str] | None = None
) -> tuple[Any, Any, Any]:
    """(inputs, target or None, weight or None): inputs as an Arrow table with its names, or an array from NPZ.

    ``columns`` are the inputs to keep; all but target and weight unless said.
    """
    files = find(paths)
    kinds = {path.suffix.lower() == ".npz" for path in files}
    if len(kinds) > 1:
        raise ValueError("Expected files of one kind, got NPZ and others. Read them apart.")
    if kinds == {True}:
        y, w = (None if name is None else _read_npz(files, name) for name in (target, weight))
        return _read_npz(files, "X"), y, w
    table = pa_table(files)
    names, special = table.column_names, [name for name in (target, weight) if name is not None]
    wanted = list(columns) if columns is not None else [name for name in names if name not in special]
    for name in [*wanted, *special]:
        if name not in names:
            raise ValueError(
                f"Expected a column {name!r} in {files[0]}, got {', '.join(map(repr, names[:20]))}. "
                "Name one of these; case and blanks count."
            )
    inputs = table.select(wanted)
    check_types(inputs)
    y, w = (None if name is None else table.column(name).to_numpy() for name in (target, weight))
    return inputs, y, w


def pa_table(files: list[Path]) -> Any:
    """All files under each other, as one Arrow table."""
    if pa is None:
        raise ImportError("Expected pyarrow to read files, got none installed. Run pip install 'qsgp[data]'.")
    tables: list[Any] = []
    for path in files:
        kind = READERS.get(path.suffix.lower())
        if kind is None:
            raise ValueError(
                f"Expected a file ending in {', '.join([*READERS, '.npz'])}, got {path.name}. Convert or rename it."
            )
        try:
            table = _READ[kind](path)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise ValueError(
                f"Expected a {kind} file at {path}, got one that cannot be read: {error} Save it anew, text as UTF-8."
            ) from error
        names = table.column_names
        if len(set(names)) < len(names):
            raise ValueError(f"Expected every column of {path} once, got {names}. Rename the columns.")
        if tables and set(names) != set(tables[0].column_names):
            differing = sorted(set(names) ^ set(tables[0].column_names))
            raise ValueError(f"Expected the columns of {files[0]} in {path}, got others: {differing}. Use equal files.")
        tables.append(table)
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"Expected columns of one type in {files[0]} and the others, got {error}") from error
    if not len(whole):
        raise ValueError(f"Expected rows in {files[0]}, got none. Check that it is the right file.")
    return whole


def _read_csv(path: Path) -> Any:
    """The separator is the most frequent of comma, semicolon and tab in the first line; blanks around names go."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first = file.readline()
    separator = max(",;\t", key=re.sub(r'"[^"]*"', "", first).count)
    options = csv.ConvertOptions(strings_can_be_null=True)  # an empty field is no label
    table = csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=separator), convert_options=options)
    return table.rename_columns([name.strip() for name in table.column_names])


def _read_npz(files: list[Path], name: str) -> np.ndarray:
    """The arrays of one name, rows under each other."""
    found = []
    for path in files:
        try:
            with np.load(path, allow_pickle=False) as content:
                there = ", ".join(content.files)
                arrays = {key: content[key] for key in content.files if key == name}
        except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"Expected an NPZ file of numbers at {path}, got one that cannot be read. Write it with numpy.savez."
            ) from error
        if name not in arrays:
            raise ValueError(f"Expected an array {name!r} in {path}, got {there}. Name one of these.")
        found.append(arrays[name])
    if len({array.shape[1:] for array in found}) > 1 or any(array.ndim == 0 for array in found):
        raise ValueError(f"Expected arrays {name!r} of equal width, got {[array.shape for array in found]}.")
    return np.concatenate(found)


_READ = {
    "csv": _read_csv,
    "parquet": lambda path: parquet.read_table(path),
    "arrow": lambda path: feather.read_table(path),
}
