"""Whatever holds a table of numbers as an array, and errors that name the columns at fault."""

import numbers
import re
import warnings
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
import torch

_SHOWN = 5  # columns named in a message
_OTHERS = re.compile(
    r"(str\b|string|large_string|utf8|categor|enum|dictionary|text|date|time|duration|null)", re.IGNORECASE
)
_NUMERIC = re.compile(r"(u?int\d|float|double|half|bool|decimal|number|complex|sparse)", re.IGNORECASE)
LARGEST_INPUT = 1e300
_LEAST_MEAN_WEIGHT = 0.1  # below this weights are more often shares than counts
_MOST_SPREAD = 1000.0  # deviation of all targets, in units of what the middle half of them spans
LARGEST_TARGET = 1e150  # its square is still a number
_ENCODE = "Drop them, or turn them into numbers, texts or dates first."
_AS_TABLE = (
    "Make it a table, for example with pandas.DataFrame(X): columns of texts and dates are taken as they are there."
)


def dense(table: Any, limit: int) -> Any:
    """A sparse table as an array, if this takes at most ``limit`` bytes."""
    need = 8 * int(np.prod(table.shape))
    if need > limit:
        raise ValueError(
            f"Expected a sparse table that fits into max_memory = {limit:,} bytes as an array, got one of shape "
            f"{table.shape}, which takes {need:,}. Reduce its columns first, for example with "
            "sklearn.decomposition.TruncatedSVD, pass fewer rows in one call, or raise max_memory."
        )
    return table.toarray() if hasattr(table, "toarray") else table.sparse.to_dense()


def as_array_like(table: Any) -> Any:
    """What scikit-learn can read: tensors leave their device and their graph, masked entries are missing ones."""
    if isinstance(table, torch.Tensor):
        table = table.detach().cpu()
        table = (table.float() if table.dtype == torch.bfloat16 else table).numpy()
    if np.ma.isMaskedArray(table) and np.ma.getmaskarray(table).any():
        table = np.ma.filled(np.ma.asarray(table, dtype=np.float64), np.nan)
    if isinstance(table, np.ndarray) and (table.dtype.kind in "mM" or table.dtype.names):
        raise ValueError(f"Expected columns of numbers, got an array of {table.dtype}. {_AS_TABLE}")
    if isinstance(table, np.ndarray) and table.dtype.kind in "OU" and table.ndim == 2:
        _refuse_texts(table)
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):
        raise ValueError("Expected a table, got a lazy one. Call .collect() first.")
    return table


def _refuse_texts(array: np.ndarray) -> None:
    """An array has one type: its columns of texts cannot be told from slips of the pen."""
    try:
        array.astype(np.float64)
    except (TypeError, OverflowError):  # entries that nobody took for numbers: scikit-learn says what they are
        return
    except ValueError as error:
        raise ValueError(f"Expected an array of numbers, got one with other entries: {error}. {_AS_TABLE}") from error


def as_target(y: Any, *, numeric: bool) -> Any:
    """Targets or labels as an array without missing ones; ``numeric`` ones as numbers."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None. Pass one target per row.")
    if hasattr(y, "toarray") or isinstance(y, dict | set):
        raise ValueError(f"Expected a list or array of targets, got a {type(y).__name__}. Convert it first.")
    if np.ma.isMaskedArray(y) and np.ma.getmaskarray(y).any():
        _refuse_missing(int(np.ma.getmaskarray(y).sum()), len(y))
    if isinstance(y, np.ndarray) and y.dtype.kind in "mM":
        raise ValueError(
            f"Expected numbers or labels as target, got dates ({y.dtype}). Turn them into numbers of days."
        )
    if numeric or isinstance(y, torch.Tensor):
        y = as_array_like(y)
        check_types(y)
    values = np.asarray(y)
    if values.ndim == 0:
        raise ValueError(f"Expected one target for every row, got the single value {y!r}. Pass a list or array.")
    if values.dtype.kind == "c":
        raise ValueError(
            "Complex data not supported: expected real targets, got complex ones. Pass y.real, for example."
        )
    if values.dtype.kind in "mM":
        raise ValueError(
            f"Expected numbers or labels as target, got dates ({values.dtype}). Turn them into numbers of days."
        )
    if values.dtype.kind == "O":
        _refuse_missing(sum(map(is_missing, values.ravel())), len(values))
        values = values if numeric else _of_one_kind(values)
    if numeric and values.dtype.kind in "OUS":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"Expected numbers as target of a regression, got something else: {error}. Use a classifier for labels."
            ) from error
    if values.dtype.kind == "f":
        check_known(values, "the target y", target=True)
        if float(np.abs(values).max(initial=0)) > LARGEST_TARGET:
            raise ValueError(f"Expected targets of at most {LARGEST_TARGET}, got larger ones. Rescale the target.")
    return values


def _of_one_kind(labels: np.ndarray) -> np.ndarray:
    """Objects that are all numbers, or all yes and no, as such: what is left of a column once its gaps are dropped."""
    flat = labels.ravel().tolist()
    kinds = {_kind_of_label(kind): entry for kind, entry in zip(map(type, flat), flat, strict=True)}
    if len(kinds) > 1:
        raise ValueError(
            f"Expected labels of one kind, got {' and '.join(kinds)}, such as "
            f"{' and '.join(map(repr, kinds.values()))}. Make them all texts, for example with [str(label) for label "
            "in y]."
        )
    plain = kinds.keys() <= {"numbers", "yes and no"}
    return np.array(labels.tolist()) if plain else labels


def _kind_of_label(kind: type) -> str:
    named = {"texts": str, "yes and no": bool | np.bool_, "numbers": int | float | np.number}
    return next((name for name, those in named.items() if issubclass(kind, those)), kind.__name__)


def is_missing(entry: Any) -> bool:
    """None, NaN, and what pandas means by them."""
    return (
        entry is None or type(entry).__name__ in ("NAType", "NaTType") or (isinstance(entry, float) and entry != entry)
    )


def _refuse_missing(count: int, rows: int) -> None:
    if count:
        raise ValueError(
            f"Expected a target for every row, got missing values (NaN or None) ({count} of {rows}). "
            "Drop the rows whose target is not known."
        )


def names_of(table: Any) -> list[str]:
    """Of a table's columns; none of an array."""
    if not hasattr(table, "columns") and not hasattr(table, "column_names"):
        return []
    return [str(name) for name in (table.column_names if hasattr(table, "column_names") else table.columns)]


def types_by_column(table: Any) -> dict[str, str]:
    """Name -> type of each column of a table, none of an array's; objects are "number" or "text"."""
    return {str(name): kind.lower() for name, kind in _types(table).items()} if names_of(table) else {}


def is_other(kind: str) -> bool:
    """Texts, categories, dates or nothing: what a table may hold beside numbers."""
    return _OTHERS.match(kind) is not None


def check_types(table: Any, besides: Collection[Any] = ()) -> None:
    """Data frames are read column by column: name those that hold no numbers, ``besides`` some that need not."""
    names = names_of(table)
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"Expected every column once, got several called {', '.join(twice)}. Rename or drop them.")
    types = _types(table) if names else {}
    strange = {name: kind for name, kind in types.items() if not _NUMERIC.match(kind) and str(name) not in besides}
    if strange:
        listed = ", ".join(f"{name!r} ({kind})" for name, kind in list(strange.items())[:_SHOWN])
        more = f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else ""
        raise ValueError(f"Expected columns of numbers, texts or dates, got {listed}{more}. {_ENCODE}")


def _types(table: Any) -> dict[Any, str]:
    """Column name -> type as the library of the table spells it; pandas, polars and Arrow."""
    if hasattr(table, "schema") and hasattr(table, "column_names"):  # Arrow
        return {name: str(kind) for name, kind in zip(table.column_names, table.schema.types, strict=True)}
    if not hasattr(table, "dtypes"):
        return {}
    # an object column may hold numbers (decimals, for instance): look at what it holds
    return {
        name: ("number" if all(isinstance(v, numbers.Number) or is_missing(v) for v in table[name]) else "text")
        if str(kind) == "object"
        else str(kind)
        for name, kind in zip(table.columns, table.dtypes, strict=True)
    }


def check_known(X: np.ndarray, what: str, names: Any = None, *, target: bool = False, gaps: bool = False) -> None:
    """No infinite value, no missing one unless there may be ``gaps``; else how many, in which columns, what to do."""
    if X.dtype.kind not in "fc" or _all_finite(X):
        return
    columns = X[:, None] if X.ndim == 1 else X
    missing, infinite = np.isnan(columns).sum(0), np.isinf(columns).sum(0)
    kinds = (
        [(infinite, "infinity values")] if gaps else [(missing, "missing values (NaN)"), (infinite, "infinity values")]
    )
    count, kind = next((found for found in kinds if found[0].any()), (missing, ""))
    if not kind:
        return
    where = np.flatnonzero(count)
    label = (lambda c: repr(str(names[c]))) if names is not None else (lambda c: str(c))
    listed = ", ".join(f"{label(c)} ({count[c]})" for c in where[:_SHOWN])
    more = f" and {len(where) - _SHOWN} more" if len(where) > _SHOWN else ""
    place = f"in columns {listed}{more}" if X.ndim == 2 else f"({count[0]} of {len(X)})"
    fill = "Replace them by finite numbers, or leave them missing (NaN)."
    if target:
        fill = "Drop the rows whose target is not known."
    raise ValueError(f"Expected finite numbers in {what}, got {kind} {place}. {fill}")


def check_inputs(X: np.ndarray, names: Any) -> None:
    """No infinite input and none that is too large; NaN is one that is not known."""
    check_known(X, "X", names, gaps=True)
    if X.dtype == np.float64 and max(np.nanmax(X, initial=0), -np.nanmin(X, initial=0)) > LARGEST_INPUT:
        raise ValueError(f"Expected inputs of at most {LARGEST_INPUT}, got larger ones. Rescale the columns.")


def check_weights(weight: np.ndarray) -> None:
    """Weights count rows: none, or means of a thousand million, are a slip."""
    check_known(weight, "sample_weight", target=True)
    used = weight[weight > 0]
    if not len(used):
        raise ValueError("Expected a weight above zero, got none. A weight of zero leaves a row out.")
    mean = float(np.mean(used / used.max()) * used.max())
    if 1e-9 < mean < _LEAST_MEAN_WEIGHT:
        warnings.warn(
            f"The weights sum to {mean * len(used):.3g} for {len(used)} rows. A weight says how often a row counts: a "
            f"model of {len(used)} rows that count {mean:.3g} times each learns little. To say only which rows matter "
            "more, rescale the weights to a mean of one: sample_weight / sample_weight.mean().",
            stacklevel=2,
        )
    if not 1e-9 < mean < 1e9:
        raise ValueError(
            f"Expected weights with a mean between 1e-9 and 1e9, got {used.min():.3g} to {used.max():.3g} around "
            f"{mean:.3g}. A weight says how often a row counts; 0 leaves it out."
        )


def warn_if_few_decide(Y: np.ndarray, deviation: np.ndarray) -> None:
    """A few targets that are far off make the unit of all: what the others say is less than the noise then."""
    low, high = np.quantile(Y, [0.25, 0.75], axis=0)
    for o in np.flatnonzero((high > low) & (deviation / _MOST_SPREAD > high - low)):
        warnings.warn(
            f"A few targets decide the scale of all: the standard deviation is {deviation[o]:.3g}, but half of the "
            f"targets lie between {low[o]:.3g} and {high[o]:.3g}. What these say is lost. Correct or drop targets that "
            "are slips; of targets that vary that much fit the logarithm.",
            stacklevel=2,
        )


def _all_finite(X: np.ndarray, block: int = 65_536) -> bool:
    return all(bool(np.isfinite(X[start : start + block]).all()) for start in range(0, len(X), block))
