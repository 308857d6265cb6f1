"""Arguments of the estimators' methods, checked."""

from typing import Any

import numpy as np

from qsgp.models.estimator import Estimator


def takes_portions(estimator: Estimator) -> bool:
    return not estimator._relevance


def check_length(targets: np.ndarray, rows: int) -> None:
    if len(targets) != rows:
        raise ValueError(f"Expected one target for each of the {rows} rows of X, got {len(targets)}. Check y.")


def probabilities(values: Any, name: str, remedy: str) -> np.ndarray:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if isinstance(values, str) or found.size == 0 or found.ndim > 1 or not ((found > 0) & (found < 1)).all():
        raise ValueError(f"Expected 0 < {name} < 1, got {values!r}. {remedy}")
    return np.ravel(found)
