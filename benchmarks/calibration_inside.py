"""Intervals that hold what they promise, overall and in every tenth of predicted deviation, without `calibrate`.

A quarter of the training rows of split 0 (10,000 at most) is predicted by a model of the others; the test rows are
not read. ``equal``: Gaussian noise of one size, no map; ``noise``: noise as rows not learned from have it; ``map``: a
map of the target and equal noise; ``auto``: the default. ``worst`` is the largest difference, in any tenth of the rows
by predicted deviation, between the share of targets in the interval and what it promises; ``chance`` is what a perfect
model would show there with as many rows, in one of two runs. ``diamonds`` has the price, not its logarithm, and its
three columns of text as numbers in their order; ``bike`` is without the two inputs whose sum is the target.

    QSGP_DATA=... python benchmarks/calibration_inside.py --seconds 60 --json calibration_inside.json
"""

import time
from typing import Any

import numpy as np

from geometry import diamonds
from qsgp import QSGPRegressor, datasets
from table import Collected, arguments

SETS = ["diamonds", "beijing_pm25", "protein", "bike"]
MODELS: dict[str, dict[str, str]] = {
    "equal": {"noise": "equal", "target_map": "none"},
    "noise": {"target_map": "none"},
    "map": {"noise": "equal", "target_map": "sinh-arcsinh"},
    "auto": {},
}
LEVELS = (0.5, 0.8, 0.95)
MOST_JUDGES, TENTHS = 10_000, 10


def training_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised inputs and target of split 0."""
    if name == "diamonds":
        X, log_price = diamonds()
        y = np.exp(log_price)
    else:
        data = datasets.load(name, 0)
        X, y = data.x_train.astype(np.float64), data.y_train.astype(np.float64)
        X = np.delete(X, [15, 16], 1) if name == "bike" else X
    spread = X.std(0)
    return (X - X.mean(0)) / np.where(spread > 0, spread, 1.0), (y - y.mean()) / y.std()


def row(name: str, model: str, seconds: float, device: str) -> dict[str, Any]:
    X, y = training_rows(name)
    order = np.random.default_rng(1).permutation(len(X))
    held, known = np.split(order, [min(MOST_JUDGES, len(X) // 4)])
    began = time.perf_counter()
    fitted = QSGPRegressor(max_time=seconds, random_state=0, device=device, **MODELS[model]).fit(X[known], y[known])
    took = time.perf_counter() - began
    found = fitted.assess(X[held], y[held])
    about = {"data": name, "model": model, "seconds": seconds, "n": len(known), "judges": len(held)}
    chosen = {"noise": fitted.likelihood_, "map": fitted.target_map_}
    error = float(np.sqrt(np.mean((found["mean"] - y[held]) ** 2)))
    scores = {"rmse": error, "mnlp": float(-found["log_density"].mean())}
    return about | chosen | scores | coverages(found["cdf"], found["std"]) | {"fit_s": took, "device": device}


def coverages(cdf: np.ndarray, deviation: np.ndarray) -> dict[str, float]:
    """In percent: of central intervals, and how far off they are in the worst tenth of predicted deviation."""
    tenths = np.array_split(np.argsort(deviation, kind="stable"), TENTHS)
    found, generator = {}, np.random.default_rng(0)
    for level in LEVELS:
        inside = np.abs(2 * cdf - 1) <= level
        off = [abs(inside[rows].mean() - level) for rows in tenths]
        chance = generator.binomial(len(tenths[0]), level, (1000, TENTHS)) / len(tenths[0])
        found[f"in{100 * level:.0f}"] = 100 * float(inside.mean())
        found[f"worst{100 * level:.0f}"] = 100 * float(max(off))
        found[f"chance{100 * level:.0f}"] = 100 * float(np.median(np.abs(chance - level).max(1)))
    return found


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    found = Collected(chosen.json, "Intervals of regression on training rows held out", seed=0)
    for name in chosen.data:
        for model in chosen.models:
            key = {"data": name, "model": model, "seconds": chosen.seconds, "device": chosen.device}
            found.add(key, lambda name=name, model=model: row(name, model, chosen.seconds, chosen.device))
    found.show()


if __name__ == "__main__":
    main()
