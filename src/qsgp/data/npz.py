"""Arrays of NPZ files; never a pickle."""

import zipfile
from pathlib import Path

import numpy as np


def joined(files: list[Path], name: str) -> np.ndarray:
    """The arrays of one name, rows under each other."""
    found = []
    for path in files:
        arrays = _arrays(path, name)
        if name not in arrays:
            raise ValueError(f"Expected an array {name!r} in {path}, got {', '.join(arrays)}. Name one of these.")
        found.append(arrays[name])
    if len({array.shape[1:] for array in found}) > 1 or any(array.ndim == 0 for array in found):
        raise ValueError(f"Expected arrays {name!r} of equal width, got {[array.shape for array in found]}.")
    return np.concatenate(found)


def names(path: Path) -> list[str]:
    return list(_arrays(path, ""))


def columns(path: Path) -> dict[str, np.ndarray]:
    """Arrays as columns: those of two axes as X0, X1, ..., and only arrays as long as X (or the first one)."""
    arrays = {name: array for name, array in _arrays(path).items() if array.ndim in (1, 2)}
    rows = len(arrays.get("X", next(iter(arrays.values()), np.empty(0))))
    parts: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if len(array) == rows:
            parts |= {name: array} if array.ndim == 1 else {f"{name}{k}": array[:, k] for k in range(array.shape[1])}
    return parts


def _arrays(path: Path, name: str | None = None) -> dict[str, np.ndarray]:
    """All arrays, or that one alone with the others named."""
    try:
        with np.load(path, allow_pickle=False) as content:
            return {key: content[key] if name in (None, key) else np.empty(0) for key in content.files}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"Expected an NPZ file of numbers at {path}, got one that cannot be read. Write it with numpy.savez."
        ) from error
