"""Dates and times as inputs: days since 1970, and where the data span them the time of the year, the week and the day.

A time of the year is a sine and a cosine, so that the last of December lies beside the first of January.
"""

import datetime
from typing import Any

import numpy as np

try:
    import pyarrow as pa
    from pyarrow import compute, types
except ImportError:  # the extra is not installed: `reading` says so before anything of this file is needed
    pa = None

_SECONDS = 86_400.0
_PERIODS = {"year": 365.2425, "week": 7.0, "day": 1.0}
PERIODIC = tuple(_PERIODS)
_FIRST = datetime.date(1970, 1, 1).weekday()
PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?$"  # without a zone: 2020-01-31, 2020-01-31 12:30
# a wave that moves less than this stands still; the first of January is up to two days early or late, with leap years
_LEAST = np.array([2 * np.pi * 2 / _PERIODS["year"], 1e-6, 1e-6])


def is_date(kind: Any) -> bool:
    """Of an Arrow type: dates, times, or the time of the day."""
    return bool(types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind))


def as_dates(text: Any) -> Any | None:
    """Texts that are all dates as ISO writes them, as such; None for others."""
    known = text.drop_null()
    if not len(known) or not compute.all(compute.match_substring_regex(known, _ISO)).as_py():
        return None
    try:
        return text.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:  # the 30th of February, or the year 0000
        return None


def days(values: Any) -> np.ndarray:
    """Days since 1970 by the clock on the wall; NaN where a value is missing. The time of the day alone is below 1."""
    kind = values.type
    if types.is_string(kind) or types.is_large_string(kind):  # of a file that was not told what it holds
        values = values.cast(pa.timestamp("us"))
    elif types.is_timestamp(kind) and kind.tz is not None:
        values = compute.local_timestamp(values)
    kind = values.type
    per_day = 1.0
    if types.is_date32(kind):
        values = values.cast(pa.int32())
    elif types.is_date64(kind):
        values, per_day = values.cast(pa.int64()), 1e3 * _SECONDS
    else:
        per_day = PER_SECOND[kind.unit] * _SECONDS
        values = values.cast(pa.int32() if types.is_time32(kind) else pa.int64())
    missing = values.is_null().to_numpy(zero_copy_only=False)
    whole = values.fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(missing, np.nan, whole / per_day)


def waves(value: np.ndarray, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Sine and cosine of the time of the year, the week (from Monday) or the day."""
    angle = 2 * np.pi * ((value + (_FIRST if part == "week" else 0)) / _PERIODS[part] % 1.0)
    return np.sin(angle), np.cos(angle)


def wave_range(value: np.ndarray, so_far: np.ndarray) -> np.ndarray:
    """The least and the largest of each wave of each periodic part, those of portions before included."""
    known = value[~np.isnan(value)]
    if not len(known):
        return so_far
    both = [waves(known, part) for part in PERIODIC]
    found = np.array([[(wave.min(), wave.max()) for wave in pair] for pair in both])
    return np.stack([np.minimum(found, so_far)[..., 0], np.maximum(found, so_far)[..., 1]], -1)


def parts_of(low: float, high: float, ranges: np.ndarray) -> tuple[str, ...]:
    """What to make of dates between these: a periodic part where they span it, and differ in it."""
    moving = (ranges[..., 1] - ranges[..., 0] > _LEAST[:, None]).any(-1)
    spanned = [high - low >= period or part == "day" for part, period in _PERIODS.items()]
    periodic = [part for part, moves, long in zip(PERIODIC, moving, spanned, strict=True) if moves and long]
    return ("trend", *periodic)
