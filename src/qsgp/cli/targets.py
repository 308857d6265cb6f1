"""The column to predict: numbers or labels, and which of the two was meant."""

from typing import Any, Literal

import numpy as np

from qsgp.data.entries import as_text, is_text, strange_entry
from qsgp.data.words import count

try:
    from pyarrow import compute, types
except ImportError:  # the extra is not installed: `reading` says so
    compute = types = None

LARGEST_WHOLE = 2**53  # up to here every whole number is a float64 of its own
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
        if (strange := strange_entry(values)) is not None:
            raise ValueError(
                f"Expected numbers in the target {name!r}, got {strange}. Correct it, leave it empty where the value "
                "is not known, or use --task classification if these are labels."
            )
        if distinct > _FEW and 2 * distinct > len(known):
            raise ValueError(
                f"Expected numbers or labels in the target {name!r}, got {distinct:,} different texts in "
                f"{count(len(known))}, such as {str(known[0])!r}. Name another column, or use --task classification "
                "if they are labels."
            )
        return "classification", f"texts ({count(distinct, 'label')}), hence classification"
    if types.is_boolean(values.type):
        return "classification", "yes or no, hence classification"
    if not (types.is_integer(values.type) or types.is_floating(values.type) or types.is_decimal(values.type)):
        raise ValueError(f"Expected numbers or labels in the target {name!r}, got {values.type}. Name another column.")
    numbers = np.asarray(known.to_numpy(), dtype=np.float64)
    if types.is_floating(values.type) and distinct <= _FEW:
        _refuse_merged(name, numbers)
    if distinct == 1 or not (numbers == np.floor(numbers)).all():
        return "regression", "numbers, hence regression" if distinct > 1 else "a single value, hence regression"
    if distinct == 2 or (distinct <= _FEW and len(known) >= _EACH * distinct):
        return "classification", (
            f"{distinct} different whole numbers, hence classification (--task regression if they are quantities)"
        )
    return "regression", f"{distinct:,} different whole numbers, hence regression (--task classification for labels)"


def known_targets(name: str, values: Any, *, labels: bool, role: str = "target") -> tuple[np.ndarray, np.ndarray]:
    """Targets, or ``labels``, and which of them are known; ``role`` is what a message calls the column."""
    kind, values = values.type, values.combine_chunks()
    if not labels and not (types.is_integer(kind) or types.is_floating(kind) or _is_plain(kind)):
        wrong = strange_entry(values, least=0.0) if is_text(kind) else None
        remedy = "Correct it, or name another column."
        if role == "target":
            remedy = "Correct it, name another column, or use --task classification for labels."
        raise ValueError(f"Expected numbers in the {role} {name!r}, got {wrong or kind}. {remedy}")
    if is_text(kind):
        text = as_text(values)
        return np.array(text.to_pylist(), dtype=object), _valid(text)
    if labels and types.is_boolean(kind):
        return values.fill_null(False).to_numpy(zero_copy_only=False), _valid(values)
    if labels and types.is_integer(kind):
        return values.fill_null(0).to_numpy(zero_copy_only=False), _valid(values)
    numbers = np.asarray(values.cast("float64", safe=False).to_numpy(zero_copy_only=False))
    known = _valid(values) & ~np.isnan(numbers)
    whole = labels and bool((numbers[known] == np.floor(numbers[known])).all())
    if whole:
        _refuse_merged(name, numbers[known])
    return (np.where(known, numbers, 0).astype(np.int64) if whole else numbers), known


def _refuse_merged(name: str, numbers: np.ndarray) -> None:
    """Whole numbers too long for 64 bits are read as float64, where different ones become one."""
    largest = np.abs(numbers).max(initial=0)
    if largest > LARGEST_WHOLE and (numbers == np.floor(numbers)).all():
        raise ValueError(
            f"Expected labels of at most 18 digits in the target {name!r}, got {largest:.0f}: different labels of that "
            "length cannot be told apart. Shorten them or put a letter before each; --task regression takes them as "
            "quantities."
        )


def _valid(values: Any) -> np.ndarray:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def _is_plain(kind: Any) -> bool:
    return bool(types.is_boolean(kind) or types.is_decimal(kind) or types.is_null(kind))
