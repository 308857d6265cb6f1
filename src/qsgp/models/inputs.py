"""Arguments of the estimators' methods, checked."""

import os
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from qsgp.data.tables import as_target
from qsgp.files import FileError, read_model
from qsgp.memory import budget
from qsgp.models.callbacks import with_callbacks
from qsgp.models.conformal import Conformal, Temperature, fit_conformal
from qsgp.models.estimator import Estimator, all_or_nothing
from qsgp.models.keywords import device as usable_device
from qsgp.models.stored import restore


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
