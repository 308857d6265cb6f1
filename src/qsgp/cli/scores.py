"""How good a model is on rows with known targets, portion by portion."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from qsgp import metrics
from qsgp.cli.talk import aligned, number
from qsgp.likelihoods import BY_NAME
from qsgp.models.keywords import likelihood_of

Scores = dict[str, int | float]

_LEVELS = [(k + 0.5) / 200 for k in range(200)]  # for the CRPS of a law that is not Gaussian
NAMES = {
    "rows": "rows",
    "rmse": "RMSE",
    "constant_rmse": "RMSE of a constant",
    "mnlp": "MNLP",
    "constant_mnlp": "MNLP of a constant",
    "crps": "CRPS",
    "coverage95": "95 % interval holds",
    "accuracy": "accuracy",
    "constant_accuracy": "accuracy of a constant",
    "log_loss": "log loss",
    "constant_log_loss": "log loss of a constant",
    "calibration_error": "calibration error",
}


def judge(model: Any, portions: Iterable[tuple[Any, np.ndarray]]) -> Scores:
    """Scores over all portions of (inputs, targets)."""
    one = _classified if hasattr(model, "classes_") else _regressed
    parts = [one(model, X, y) for X, y in portions]
    if not parts:
        raise ValueError("Expected rows to judge the model by, got none. Check the file.")
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {"rows": len(whole["y"])} | (_of_classes(whole) if hasattr(model, "classes_") else _of_numbers(whole))


def in_words(scores: Scores) -> str:
    def cell(name: str, value: int | float) -> str:
        if name == "rows":
            return f"{value:,}"
        return f"{value:.1%}" if name in ("coverage95", "accuracy", "constant_accuracy") else number(value)

    return aligned([(NAMES[name], cell(name, value)) for name, value in scores.items()])


def _regressed(model: Any, X: Any, y: np.ndarray) -> dict[str, np.ndarray]:
    mean, deviation = model.predict(X, return_std=True)
    if mean.ndim > 1:
        raise ValueError("Expected a model of one output, got several. Judge it in Python, output by output.")
    lower, upper = model.predict_interval(X, 0.95)
    scaling = model._scaling  # a constant is one normal law with the mean and deviation of the training targets
    constant = metrics.gaussian_log_density(
        y, np.full_like(mean, scaling.y_mean), np.full_like(mean, scaling.y_scale**2)
    )
    found = {"y": y, "mean": mean, "variance": deviation**2, "lower": lower, "upper": upper}
    found |= {"density": model.log_density(X, y), "constant": constant.numpy()}
    if not BY_NAME[likelihood_of(model)].fixed_sites:  # a law that is not Gaussian
        crps = metrics.crps_from_quantiles(y, _LEVELS, model.predict_quantiles(X, _LEVELS).T)
        found["crps"] = np.full(len(y), crps)  # the portion's mean, for each of its rows
    return found


def _of_numbers(rows: dict[str, np.ndarray]) -> Scores:
    y, mean, variance = rows["y"], rows["mean"], rows["variance"]
    return {
        "rmse": metrics.rmse(y, mean),
        "constant_rmse": float(y.std()),
        "mnlp": metrics.mnlp(rows["density"]),
        "constant_mnlp": metrics.mnlp(rows["constant"]),
        "crps": float(rows["crps"].mean()) if "crps" in rows else metrics.crps_gaussian(y, mean, variance),
        "coverage95": metrics.interval_coverage(y, rows["lower"], rows["upper"]),
    }


def _classified(model: Any, X: Any, y: np.ndarray) -> dict[str, np.ndarray]:
    p = model.predict_proba(X)
    codes = model._codes(y)  # labels may be text in one file and numbers in another
    return {
        "y": codes,
        "right": p.argmax(1) == codes,
        "sure": p.max(1),
        "density": np.log(p[np.arange(len(p)), codes].clip(np.finfo(float).tiny)),
    }


def _of_classes(rows: dict[str, np.ndarray]) -> Scores:
    share = np.bincount(rows["y"]) / len(rows["y"])
    return {
        "accuracy": float(rows["right"].mean()),
        "constant_accuracy": float(share.max()),
        "log_loss": metrics.mnlp(rows["density"]),
        "constant_log_loss": float(-(share[share > 0] * np.log(share[share > 0])).sum()),
        "calibration_error": metrics.expected_calibration_error(rows["sure"], rows["right"]),
    }
