"""How training went."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from qsgp.plots.drawing import axes

_CLOCKS = ("seconds", "iteration")
_LOG_RATIO = 100  # positive numbers that spread further are drawn on a logarithmic axis


def training_entries(history: list[dict[str, Any]]) -> list[str]:
    """The numbers that ``history_`` records beside the time, in the order in which they appear."""
    names = dict.fromkeys(name for record in history for name in record if name not in _CLOCKS)
    return [name for name in names if any(_is_number(record.get(name)) for record in history)]


def training_curve(of: Any, entry: str | None = None, *, ax: Axes | None = None) -> Axes:
    """One entry of ``history_`` (the first unless named) over the seconds of training; a model or its history.

    A run of several phases gets a line for each.
    """
    history = getattr(of, "history_", of)
    known = training_entries(history)
    entry = known[0] if entry is None and known else entry
    if entry not in known:
        raise ValueError(
            f"Expected an entry among {known}, got {entry!r}. Models solved in closed form record none: they take "
            "one step."
        )
    clock = next((name for name in _CLOCKS if all(_is_number(record.get(name)) for record in history)), None)
    kept = [(at, record) for at, record in enumerate(history) if _is_number(record.get(entry))]
    phases, ax = list(dict.fromkeys(record.get("phase") for _, record in kept)), axes(ax)
    for phase in phases:
        part = [(at, record) for at, record in kept if record.get("phase") == phase]
        time = [float(record[clock] if clock else at) for at, record in part]
        dots = "o" if len(part) < 30 else None
        ax.plot(time, [float(record[entry]) for _, record in part], marker=dots, markersize=3, label=phase)
    if len(phases) > 1:
        ax.legend(fontsize="small", frameon=False)
    values = np.array([record[entry] for _, record in kept], dtype=float)
    if values.min() > 0 and values.max() > _LOG_RATIO * values.min():
        ax.set_yscale("log")
    ax.set(xlabel={"seconds": "seconds of training", "iteration": "iteration"}.get(clock or "", "record"), ylabel=entry)
    return ax


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))
