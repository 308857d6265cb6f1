"""Small tables: `QSGPRegressor()` and `QSGPClassifier()` as they come beside scikit-learn's exact Gaussian processes.

Every set of fewer than 3,000 rows that `datasets` knows, and those that scikit-learn carries. Five splits, in which
each row is a test row once: the published masks taken two at a time, or five folds. Inputs and target are standardised
on the training rows; RMSE and MNLP are of the standardised target. The peers:

- ``one``: ConstantKernel * k + WhiteKernel with one lengthscale for all inputs, target normalised; k is RBF or
  Matern-3/2, whichever has more evidence on the training rows; restarts where n is small;
- ``separate``: the same with a lengthscale for each input.

The peers take long: measure them once, in a file that a later run reads (``--beside``).

    QSGP_DATA=... python benchmarks/small.py --models one separate --json peers.json
    QSGP_DATA=... python benchmarks/small.py --beside peers.json --json small.json
"""

import json
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets as bundled
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import KFold, StratifiedKFold

from qsgp import QSGPClassifier, QSGPRegressor, datasets
from table import Collected, arguments

SETS = [
    *("challenger", "fertility", "concreteslump", "autos", "servo", "breastcancer", "machine", "yacht", "autompg"),
    *("diabetes", "housing", "forest", "stock", "pendulum", "energy", "concrete", "solar", "wine", "gas"),
]
CLASSES = ["iris", "wine classes", "breast cancer", "digits"]
BUNDLED = {
    "diabetes": bundled.load_diabetes,
    "iris": bundled.load_iris,
    "wine classes": bundled.load_wine,
    "breast cancer": bundled.load_breast_cancer,
    "digits": bundled.load_digits,
}
SPLITS = 5
SEPARATE_ROWS = (
    1000  # 128 lengthscales of `gas` are learned by the peer on so many rows: its gradients take n^2 d bytes
)


def split_of(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs and targets to train on, and to test with."""
    if name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
        folds = (StratifiedKFold if name in CLASSES else KFold)(SPLITS, shuffle=True, random_state=0)
        train, test = list(folds.split(X, y))[split]
        return X[train], y[train], X[test], y[test]
    first, second = (datasets.load(name, 2 * split + k) for k in range(2))
    X, y = np.concatenate([first.x_test, second.x_test]), np.concatenate([first.y_test, second.y_test])
    # What the first trains on, less one copy of every test row of the second.
    tested = Counter(row.tobytes() for row in np.column_stack([second.x_test, second.y_test]))
    keep = []
    for row in np.column_stack([first.x_train, first.y_train]):
        keep.append(tested[row.tobytes()] == 0)
        tested[row.tobytes()] -= not keep[-1]
    return first.x_train[keep], first.y_train[keep], X, y


def standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, scale = train.mean(0, dtype=np.float64), train.std(0, dtype=np.float64)
    scale = np.where(scale > 1e-12, scale, 1.0)
    return (train - mean) / scale, (test - mean) / scale


Half = tuple[np.ndarray, np.ndarray]


def halves(data: datasets.Dataset) -> tuple[Half, Half]:
    """Inputs and targets of the training rows and of the test rows, standardised on the training rows."""
    x, x_new = standardised(data.x_train, data.x_test)
    y, y_new = standardised(data.y_train, data.y_test)
    return (x, y), (x_new, y_new)


def peer(model: str, x: np.ndarray, y: np.ndarray) -> Any:
    """scikit-learn's GP with the kernel of the greater evidence."""
    start = 1.0 if model == "one" else np.ones(x.shape[1])
    restarts = 2 if len(x) < 400 and x.shape[1] < 15 else 0
    kernels = [ConstantKernel() * RBF(start), ConstantKernel() * Matern(start, nu=1.5)]
    fitted = []
    for kernel in kernels:
        if y.dtype.kind in "iu":
            fitted.append(GaussianProcessClassifier(kernel, random_state=0, n_jobs=1).fit(x, y))
            continue
        keywords: dict[str, Any] = {"normalize_y": True, "random_state": 0}
        gp = GaussianProcessRegressor(kernel + WhiteKernel(0.1, (1e-8, 1e3)), n_restarts_optimizer=restarts, **keywords)
        if model == "separate" and len(x) > SEPARATE_ROWS and x.shape[1] > 100:
            some = np.random.default_rng(0).permutation(len(x))[:SEPARATE_ROWS]
            found = gp.fit(x[some], y[some]).kernel_
            gp = GaussianProcessRegressor(found, optimizer=None, **keywords)
        fitted.append(gp.fit(x, y))
    return max(fitted, key=lambda gp: gp.log_marginal_likelihood_value_)


def row(name: str, split: int, model_name: str) -> dict[str, Any]:
    x, y, x_new, y_new = split_of(name, split)
    if model_name != "qsgp":  # which standardises inputs itself
        x, x_new = standardised(x, x_new)
    if name not in CLASSES:
        y, y_new = standardised(y, y_new)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # length scales of useless inputs reach their bound
        if model_name == "qsgp":
            model = (QSGPClassifier if name in CLASSES else QSGPRegressor)(random_state=0).fit(x, y)
        else:
            model = peer(model_name, x, y)
    taken = time.perf_counter() - began
    key = {"data": name, "split": split, "model": model_name, "n": len(x), "d": x.shape[1], "tested": len(y_new)}
    return key | (judged_classes if name in CLASSES else judged)(model, x_new, y_new) | {"fit_s": taken}


def judged(model: Any, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """A model of ours by its own densities and intervals, scikit-learn's by normal ones."""
    mean, deviation = model.predict(x, return_std=True)
    if isinstance(model, QSGPRegressor):
        told = model.assess(x, y)
        return {
            "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
            "mnlp": float(-told["log_density"].mean()),
            "coverage95": float(np.mean(np.abs(2 * told["cdf"] - 1) < 0.95)),
        }
    surprise = (y - mean) / deviation
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "mnlp": float(np.mean(0.5 * surprise**2 + np.log(deviation) + 0.5 * np.log(2 * np.pi))),
        "coverage95": float(np.mean(np.abs(surprise) < 1.959964)),
    }


def judged_classes(model: Any, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    probability = model.predict_proba(x)
    right = np.searchsorted(model.classes_, y)
    loss = -np.log(np.clip(probability[np.arange(len(y)), right], 1e-15, 1))
    return {"log_loss": float(loss.mean()), "error": float((probability.argmax(1) != right).mean())}


def summary(rows: list[dict[str, Any]], names: Iterable[str]) -> list[str]:
    """One line a set, a row of which counts as much as any other of it, and one of all sets."""
    lines, gaps, coverages = [], [], []

    def mean(name: str, model: str, what: str) -> float:
        own = [r for r in rows if r["data"] == name and r["model"] == model]
        values, weights = [r[what] for r in own], [r["tested"] for r in own]
        if what == "rmse":
            return float(np.sqrt(np.average(np.square(values), weights=weights))) if own else np.nan
        return float(np.average(values, weights=weights)) if own else np.nan

    def all_of(name: str, what: str, digits: int) -> str:
        return " / ".join(f"{mean(name, model, what):.{digits}f}" for model in ("qsgp", "one", "separate"))

    lines.append("| data | n | inputs | MNLP: qsgp / one / separate | above | 95 % coverage | RMSE | fit seconds |")
    lines.append("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name in (name for name in names if name not in CLASSES):
        n, d = next(((r["n"], r["d"]) for r in rows if r["data"] == name), (0, 0))
        better = np.nanmin([mean(name, "one", "mnlp"), mean(name, "separate", "mnlp"), np.inf])
        gaps.append(mean(name, "qsgp", "mnlp") - better)
        coverages.append(mean(name, "qsgp", "coverage95"))
        lines.append(
            f"| {name} | {n:,} | {d} | {all_of(name, 'mnlp', 3)} | {gaps[-1]:+.3f} | {all_of(name, 'coverage95', 3)} | "
            f"{all_of(name, 'rmse', 3)} | {all_of(name, 'fit_s', 1)} |"
        )
    if gaps:
        lines.append(
            f"\nMNLP above the better peer: mean {np.mean(gaps):+.3f}, most {np.max(gaps):+.3f}. "
            f"95 % coverage: mean {np.mean(coverages):.3f}, least {np.min(coverages):.3f}.\n"
        )
    if any(name in CLASSES for name in names):
        lines.append("| classes | n | inputs | log loss: qsgp / one / separate | error | fit seconds |")
        lines.append("|---|--:|--:|--:|--:|--:|")
    for name in (name for name in names if name in CLASSES):
        n, d = next(((r["n"], r["d"]) for r in rows if r["data"] == name), (0, 0))
        figures = [all_of(name, what, digits) for what, digits in (("log_loss", 3), ("error", 4), ("fit_s", 1))]
        lines.append(f"| {name} | {n:,} | {d} | {' | '.join(figures)} |")
    return lines


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=[*SETS, *CLASSES], help="names of data sets")
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(SPLITS)))
    parser.add_argument("--models", nargs="*", default=["qsgp"], help="qsgp, one, separate")
    parser.add_argument("--beside", nargs="*", default=[], help="files of earlier runs whose rows are shown as well")
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    collected = Collected(chosen.json, "small tables, defaults", seed=0)
    for name in chosen.data:
        for split in chosen.splits:
            for model in chosen.models:
                key = {"data": name, "split": split, "model": model}
                collected.add(key, lambda key=key: row(key["data"], key["split"], key["model"]))
    beside = [r for file in chosen.beside for r in json.loads(Path(file).read_text())["rows"]]
    print("\n".join(summary(collected.rows + beside, chosen.data)))


if __name__ == "__main__":
    main()
