"""The column to predict: numbers or labels, and which of the two was meant."""

from typing import Any, Literal

import numpy as np

from qsgp.cli.talk import count
from qsgp.columns import is_text

try:
    from pyarrow import compute, types
except ImportError:  # the extra is not installed: `reading` says so
    compute = types = None

Task = Literal["auto", "regression", "classification"]
_FEW, _EACH = 10, 5  # whole numbers are labels if there are at most so many, each met so often on average


def decide(name: str, values: Any, task: str) -> tuple[str, str]:
    """("regression" or "classification", why) for a column of Arrow values."""
    known = values.drop_null()
    if not len(known):
        raise ValueError(f"Expected values in the target {name!r}, got none. Name another column.")
    distinct = len(compute.unique(known))
    if task != "auto":
        return task, f"{count(distinct, 'different value')}; {task} was asked for"
    if is_text(values.type):
        if distinct > _FEW and 2 * distinct > len(known):
            raise ValueError(
                f"Expected numbers or labels in the target {name!r}, got {distinct:,} different texts in "
                f"{count(len(known))}, such as {str(known[0])!r}. Correct entries that are no plain numbers, or use "
                "--task classification if they are labels."
            )
        return "classification", f"texts ({count(distinct, 'label')}), hence classification"
    if types.is_boolean(values.type):
        return "classification", "yes or no, hence classification"
    if not (types.is_integer(values.type) or types.is_floating(values.type) or types.is_decimal(values.type)):
        raise ValueError(f"Expected numbers or labels in the target {name!r}, got {values.type}. Name another column.")
    numbers = np.asarray(known.to_numpy(), dtype=np.float64)
    if distinct == 1 or not (numbers == np.floor(numbers)).all():
        return "regression", "numbers, hence regression" if distinct > 1 else "a single value, hence regression"
    if distinct == 2 or (distinct <= _FEW and len(known) >= _EACH * distinct):
        return "classification", (
            f"{distinct} different whole numbers, hence classification (--task regression if they are quantities)"
        )
    return "regression", f"{distinct:,} different whole numbers, hence regression (--task classification for labels)"


def known_targets(name: str, values: Any, *, labels: bool) -> tuple[np.ndarray, np.ndarray]:
    """Targets, or ``labels``, and which of them are known."""
    values = values.combine_chunks()
    text = is_text(values.type)
    if not labels and not (types.is_integer(values.type) or types.is_floating(values.type) or _is_plain(values.type)):
        raise ValueError(
            f"Expected numbers in the target {name!r}, got {values.type} such as {str(values.drop_null()[0])!r}. "
            "Name another column, or use --task classification for labels."
        )
    known = values.is_valid().to_numpy(zero_copy_only=False)
    if text:
        return np.array(compute.utf8_trim_whitespace(values.cast("string")).to_pylist(), dtype=object), known
    if labels and types.is_boolean(values.type):
        return values.fill_null(False).to_numpy(zero_copy_only=False), known
    numbers = np.asarray(values.cast("float64", safe=False).to_numpy(zero_copy_only=False))
    known &= ~np.isnan(numbers)
    whole = labels and bool((numbers[known] == np.floor(numbers[known])).all())
    return (np.where(known, numbers, 0).astype(np.int64) if whole else numbers), known


def _is_plain(kind: Any) -> bool:
    return bool(types.is_boolean(kind) or types.is_decimal(kind) or types.is_null(kind))
