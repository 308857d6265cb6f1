"""What rough kernels, a learned metric and sums of kernels gain: one after another, judged on training rows held out.

A tenth of the training rows of split 0 (4,000 at most) is predicted by a model of the others; the test rows are not
read. With --test a model of all training rows predicts the test rows of the ``--splits``: the last figure, after
everything is chosen. ``ard``: Matern-3/2 with a lengthscale for each input; ``metric``: the same with a learned metric
where it helps; ``sums``: five kernels and sums of two, with a lengthscale for each input; ``auto``: the default.
``diamonds`` has its three columns of text as numbers in their order and the logarithm of the price, ``bike`` is without
the two inputs whose sum is the target.

    QSGP_DATA=... python benchmarks/geometry.py --seconds 60 --json geometry.json
"""

import csv
import gzip
import time
from functools import partial
from itertools import product
from typing import Any, NamedTuple

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


class Split(NamedTuple):
    """Inputs and targets in units of the training rows."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray


def training_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Standardised inputs and target of split 0."""
    return split(name, 0)[:2]


def split(name: str, number: int) -> Split:
    if name == "diamonds":
        X, y, X_new, y_new = diamonds()
    else:
        data = datasets.load(name, number)
        X, X_new, y, y_new = (
            each.astype(np.float64) for each in (data.x_train, data.x_test, data.y_train, data.y_test)
        )
        X, X_new = (np.delete(each, [15, 16], 1) if name == "bike" else each for each in (X, X_new))
    middle, spread = X.mean(0), X.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    X, X_new = (X - middle) / spread, (X_new - middle) / spread
    return Split(X, (y - y.mean()) / y.std(), X_new, (y_new - y.mean()) / y.std())


def diamonds() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    with gzip.open(stored("kin40k").parent / "tables" / "diamonds.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    columns = [
        name for name in rows[0] if name != "price" and not name.lower().startswith(("unnamed", "rownames")) and name
    ]
    X = np.array([[float(ORDERS[c].index(row[c]) if c in ORDERS else row[c]) for c in columns] for row in rows])
    y = np.log([float(row["price"]) for row in rows])
    known = np.random.default_rng(0).permutation(len(rows)) % 10 != 0
    return X[known], y[known], X[~known], y[~known]


def held_out(name: str) -> Split:
    """A part of the training rows of split 0 in place of the test rows."""
    X, y = training_rows(name)
    order = np.random.default_rng(1).permutation(len(X))
    held, known = np.split(order, [min(MOST_JUDGES, len(X) // 10)])
    return Split(X[known], y[known], X[held], y[held])


def row(name: str, model: str, seconds: float, device: str, test: int | None = None) -> dict[str, Any]:
    """``test``: the split whose test rows are predicted."""
    X, y, X_new, y_new = held_out(name) if test is None else split(name, test)
    began = time.perf_counter()
    fitted = QSGPRegressor(max_time=seconds, random_state=0, device=device, **MODELS[model]).fit(X, y)
    took = time.perf_counter() - began
    told = fitted.assess(X_new, y_new)
    return {
        "data": name,
        "split": 0 if test is None else test,
        "model": model,
        "seconds": seconds,
        "n": len(X),
        "kernel": fitted.kernel_,
        "metric": fitted.posterior_["metric"],
        "rmse": float(np.sqrt(np.mean((told["mean"] - y_new) ** 2))),
        "mnlp": float(-told["log_density"].mean()),
        "coverage95": float(np.mean(np.abs(2 * told["cdf"] - 1) < 0.95)),
        "fit_s": took,
        "device": device,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=SETS)
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--test", action="store_true", help="score the test rows of --splits instead")
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    chosen = parser.parse_args()
    found = Collected(
        chosen.json,
        f"Kernels that learn their geometry, on {'test rows' if chosen.test else 'training rows held out'}",
        seed=0,
    )
    for name, model, number in product(chosen.data, chosen.models, chosen.splits if chosen.test else [None]):
        key = {"data": name, "model": model, "seconds": chosen.seconds, "device": chosen.device}
        key |= {} if number is None else {"split": number}
        measured = partial(row, name, model, chosen.seconds, chosen.device, number)
        found.add(key, measured)
    found.show()


if __name__ == "__main__":
    main()
