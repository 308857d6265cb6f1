"""What rough kernels, a learned metric and sums of kernels gain: one after another, judged on training rows held out.

A tenth of the training rows of split 0 (4,000 at most) is predicted by a model of the others; the test rows are not
read. ``ard``: Matern-3/2 with a lengthscale for each input; ``metric``: the same with a learned metric where it helps;
``sums``: five kernels and sums of two, with a lengthscale for each input; ``auto``: the default. ``diamonds`` has its
three columns of text as numbers in their order and the logarithm of the price, ``bike`` is without the two inputs whose
sum is the target.

    QSGP_DATA=... python benchmarks/geometry.py --seconds 60 --json geometry.json
"""

import time
from typing import Any

import numpy as np

from qsgp import QSGPRegressor, datasets
from qsgp.datasets import stored
from table import Collected, arguments

SETS = ["kin40k", "protein", "pol", "elevators", "bike", "diamonds"]
MODELS: dict[str, dict[str, str]] = {
    "ard": {"kernel": "matern32", "metric": "ard"},
    "metric": {"kernel": "matern32"},
    "sums": {"metric": "ard"},
    "auto": {},
}
ORDERS = {
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": list("JIHGFED"),
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
}
MOST_JUDGES = 4000


def training_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised inputs and target of split 0."""
    if name == "diamonds":
        X, y = diamonds()
    else:
        data = datasets.load(name, 0)
        X, y = data.x_train.astype(np.float64), data.y_train.astype(np.float64)
        X = np.delete(X, [15, 16], 1) if name == "bike" else X
    spread = X.std(0)
    return (X - X.mean(0)) / np.where(spread > 0, spread, 1.0), (y - y.mean()) / y.std()


def diamonds() -> tuple[np.ndarray, np.ndarray]:
    pandas = __import__("pandas")  # optional, and this set alone needs it
    table = pandas.read_csv(stored("kin40k").parent / "tables" / "diamonds.csv.gz")
    for column, order in ORDERS.items():
        table[column] = table[column].map({level: number for number, level in enumerate(order)})
    y = np.log(table.pop("price").to_numpy(float))
    columns = [name for name in table.columns if not name.lower().startswith(("unnamed", "rownames"))]
    known = np.random.default_rng(0).permutation(len(table)) % 10 != 0
    return table[columns].to_numpy(float)[known], y[known]


def row(name: str, model: str, seconds: float, device: str) -> dict[str, Any]:
    X, y = training_rows(name)
    order = np.random.default_rng(1).permutation(len(X))
    held, known = np.split(order, [min(MOST_JUDGES, len(X) // 10)])
    began = time.perf_counter()
    fitted = QSGPRegressor(max_time=seconds, random_state=0, device=device, **MODELS[model]).fit(X[known], y[known])
    took = time.perf_counter() - began
    mean, deviation = fitted.predict(X[held], return_std=True)
    return {
        "data": name,
        "model": model,
        "seconds": seconds,
        "n": len(known),
        "kernel": fitted.kernel_,
        "metric": fitted.posterior_["metric"],
        "rmse": float(np.sqrt(np.mean((mean - y[held]) ** 2))),
        "mnlp": float(-fitted.log_density(X[held], y[held]).mean()),
        "coverage95": float(np.mean(np.abs(mean - y[held]) < 1.959964 * deviation)),
        "fit_s": took,
        "device": device,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=SETS)
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    found = Collected(chosen.json, "Kernels that learn their geometry, on training rows held out", seed=0)
    for name in chosen.data:
        for model in chosen.models:
            key = {"data": name, "model": model, "seconds": chosen.seconds, "device": chosen.device}
            found.add(key, lambda name=name, model=model: row(name, model, chosen.seconds, chosen.device))
    found.show()


if __name__ == "__main__":
    main()
