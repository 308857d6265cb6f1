"""Classifiers on labels: QSGPClassifier at its defaults, boosted trees, and regression on labels with the same kernel.

``qsgp``: the defaults. ``labels``: `QSGPRegressor` on -1 and +1 for each class, the largest prediction wins, one
temperature from a tenth of the training rows. ``histgb``: `HistGradientBoostingClassifier`. A tenth of the training
rows (2,000 at most) is predicted by a model of the others; with --test a model of all training rows predicts the test
rows.

    QSGP_DATA=... python benchmarks/classes.py --data letter --json classes.json
"""

import time
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from qsgp import QSGPClassifier, QSGPRegressor, datasets
from table import Collected, arguments

SETS = ["letter", "mnist", "skin", "kin40k", "elevators"]
ABOVE_MEDIAN = ("kin40k", "elevators")  # numbers, cut at the median of the training rows
MOST_JUDGES = 2000


def rows(name: str, test: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data = datasets.load(name, 0)
    X, y, X_new, y_new = (
        np.asarray(each, np.float64) for each in (data.x_train, data.y_train, data.x_test, data.y_test)
    )
    if name in ABOVE_MEDIAN:
        y, y_new = (each > np.median(y) for each in (y, y_new))
    if test:
        return X, y, X_new, y_new
    order = np.random.default_rng(1).permutation(len(X))
    held, known = np.split(order, [min(MOST_JUDGES, len(X) // 10)])
    return X[known], y[known], X[held], y[held]


class Labels:
    """Regression on labels."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Labels":
        self.classes_, number = np.unique(y, return_inverse=True)
        self.scale = 5.0
        order = np.random.default_rng(2).permutation(len(X))
        some, others = np.split(order, [len(X) // 10])
        Y = 2.0 * np.eye(len(self.classes_))[number] - 1
        self.model = QSGPRegressor(**self.keywords, noise="equal", target_map="none").fit(X[others], Y[others])
        f = self.model.predict(X[some])
        self.scale = min(2.0 ** (np.arange(-4, 25) / 4), key=lambda s: log_loss(probabilities(s * f), number[some]))
        self.kernel_ = self.model.kernel_
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return probabilities(self.scale * self.model.predict(X))


def probabilities(odds: np.ndarray) -> np.ndarray:
    p = np.exp(odds - odds.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def log_loss(p: np.ndarray, number: np.ndarray) -> float:
    return float(-np.log(np.maximum(p[np.arange(len(p)), number], 1e-12)).mean())


def row(name: str, model: str, seconds: float, device: str, test: bool) -> dict[str, Any]:
    X, y, X_new, y_new = rows(name, test)
    keywords = {"max_time": seconds, "device": device, "random_state": 0}
    fresh = {
        "qsgp": lambda: QSGPClassifier(**keywords),
        "labels": lambda: Labels(**keywords),
        "histgb": lambda: HistGradientBoostingClassifier(random_state=0),
    }
    began = time.perf_counter()
    fitted = fresh[model]().fit(X, y)
    fit_s, began = time.perf_counter() - began, time.perf_counter()
    p = fitted.predict_proba(X_new)
    predict_s, number = time.perf_counter() - began, np.searchsorted(fitted.classes_, y_new)
    return {
        "data": name,
        "model": model,
        "seconds": seconds,
        "device": device,
        "n": len(X),
        "kernel": getattr(fitted, "kernel_", None),
        "error": float((p.argmax(1) != number).mean()),
        "nlp": log_loss(p, number),
        "fit_s": fit_s,
        "predict_s": predict_s,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=SETS)
    parser.add_argument("--models", nargs="+", default=["qsgp", "labels", "histgb"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--test", action="store_true", help="score the test rows of split 0 instead")
    chosen = parser.parse_args()
    found = Collected(chosen.json, f"Classes, on {'test rows' if chosen.test else 'training rows held out'}", seed=0)
    for name in chosen.data:
        for model in chosen.models:
            key = {"data": name, "model": model, "seconds": chosen.seconds, "device": chosen.device}
            found.add(key, lambda name=name, model=model: row(name, model, chosen.seconds, chosen.device, chosen.test))
    found.show()


if __name__ == "__main__":
    main()
