"""Identifiers with many levels: variance components beside a mixed model's, errors, coverage, time and memory.

    QSGP_DATA=... PYTHONPATH=FOLDER_OF_LIGHTGBM python benchmarks/levels.py --json levels.json

`insteval` has ratings y of lecturers d by students s; `rwm5yr` visits to doctors, the same person in several years;
`generated` a function of four numbers and two crossed identifiers. Every model runs in a process of its own, whose
largest memory is told. `mixed` is a linear mixed model by the exact restricted likelihood; `lightgbm` needs its
package.
"""

import importlib.util
import multiprocessing
import os
import resource
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from levels_mixed import MixedModel
from qsgp import QSGPRegressor
from table import Collected, arguments

TABLES = {"insteval": ("y", ["s", "d"], ["dept"]), "rwm5yr": ("docvis", ["id"], [])}
EFFECTS = (0.7, 0.5)  # deviations of the generated ones


class Split(NamedTuple):
    """Numbers, then codes; groups of the test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    identifiers: int
    groups: np.ndarray


def read(name: str, held_out_of_training: bool) -> Split:
    """Fold 0, or a part of its training rows to choose by."""
    target, identifiers, categories = TABLES[name]
    frame = pd.read_csv(Path(os.environ["QSGP_DATA"]) / "tables" / f"{name}.csv.gz")
    test = np.random.default_rng(0).permutation(len(frame)) % 10 == 0
    if held_out_of_training:
        frame = frame[~test].reset_index(drop=True)
        test = np.random.default_rng(1).permutation(len(frame)) % 10 == 0
    dummies = pd.get_dummies(frame[categories].astype(str)) if categories else frame[[]]
    numbers = pd.concat([frame.drop(columns=[target, *identifiers, *categories]), dummies], axis=1)
    codes = [frame[one].map({level: at for at, level in enumerate(frame[one][~test].unique())}) for one in identifiers]
    X = np.concatenate([numbers.to_numpy(float), np.stack([code.fillna(-1) for code in codes], 1)], 1)
    y = frame[target].to_numpy(float)
    groups = frame[categories[0]].to_numpy() if categories else np.zeros(len(frame))
    return Split(X[~test], y[~test], X[test], y[test], len(identifiers), groups[test])


def generated(n: int, levels: int, seed: int) -> Split:
    """A tenth more rows to test by; the second identifier has a fiftieth of the levels."""
    rng, total = np.random.default_rng(seed), n + n // 10
    x = rng.normal(size=(total, 4)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=total)
    codes = []
    for deviation, count in zip(EFFECTS, (levels, max(levels // 50, 10)), strict=True):
        codes.append(rng.integers(0, count, total))
        y += deviation * rng.normal(size=count)[codes[-1]]
    X = np.concatenate([x, np.stack(codes, 1).astype(np.float32)], 1)
    return Split(X[:n], y[:n], X[n:], y[n:], 2, np.zeros(total - n))


def measured(model: str, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """In this process, which does nothing else."""
    split = generated(options["n"], options["levels"], 0) if name == "generated" else read(name, options["inner"])
    before = _peak()
    started = time.perf_counter()
    found = {"qsgp": _qsgp, "mixed": _mixed, "lightgbm": _lightgbm}[model](split, options["max_time"])
    mean, deviation = found.pop("mean"), found.pop("std", None)
    row = {"rmse": float(np.sqrt(np.mean((mean - split.y_test) ** 2)))}
    row |= dict.fromkeys(("mnlp", "coverage95", "least_of_group", "most_of_group"), float("nan"))
    if deviation is not None:
        z = (split.y_test - mean) / deviation
        row["mnlp"] = float(np.mean(0.5 * z**2 + np.log(deviation)) + 0.5 * np.log(2 * np.pi))
        row["coverage95"] = float(np.mean(np.abs(z) < 1.96))
        each = [float(np.mean(np.abs(z[split.groups == group]) < 1.96)) for group in np.unique(split.groups)]
        row |= {"least_of_group": min(each), "most_of_group": max(each)}
    row |= {"effects": "", "noise": float("nan")} | found
    return row | {"seconds": time.perf_counter() - started, "data_gb": before, "peak_gb": _peak()}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _qsgp(split: Split, seconds: float) -> dict[str, Any]:
    model, d = QSGPRegressor(random_state=0, max_time=seconds), split.X.shape[1]
    model._levels = tuple(range(d - split.identifiers, d))
    model.fit(split.X, split.y)
    mean, deviation = model.predict(split.X_test, return_std=True)
    effects = _words(model.effect_variance_)
    return {"mean": mean, "std": deviation, "effects": effects, "noise": float(model.noise_variance_)}


def _mixed(split: Split, seconds: float) -> dict[str, Any]:
    q = split.identifiers
    model = MixedModel.fit(split.X[:, :-q], split.X[:, -q:].astype(int), split.y)
    mean = model.predict(split.X_test[:, :-q], split.X_test[:, -q:].astype(int))
    return {"mean": mean, "effects": _words(model.effects), "noise": model.noise}


def _lightgbm(split: Split, seconds: float) -> dict[str, Any]:
    import lightgbm

    d = split.X.shape[1]
    model = lightgbm.LGBMRegressor(verbose=-1, random_state=0)
    model.fit(split.X, split.y, categorical_feature=list(range(d - split.identifiers, d)))
    return {"mean": model.predict(split.X_test)}


def _words(variances: Any) -> str:
    return " ".join(f"{float(variance):.4f}" for variance in variances)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["insteval", "rwm5yr", "generated"])
    parser.add_argument("--models", nargs="+", default=["qsgp", "mixed", "lightgbm"])
    parser.add_argument("--max-time", type=float, default=60.0)
    parser.add_argument("--n", type=int, default=1_000_000, help="rows that are generated")
    parser.add_argument("--levels", type=int, default=100_000, help="of their first identifier")
    parser.add_argument("--inner", action="store_true", help="score training rows held out instead of fold 0")
    options = parser.parse_args()
    rows = Collected(options.json, "Identifiers with many levels", seed=0)
    context = multiprocessing.get_context("spawn")
    for name in options.data:
        for model in options.models:
            if (model == "lightgbm" and importlib.util.find_spec("lightgbm") is None) or (name, model) == (
                "generated",
                "mixed",
            ):
                continue

            def measure(model: str = model, name: str = name) -> dict[str, Any]:
                with context.Pool(1) as pool:
                    return pool.apply(measured, (model, name, vars(options)))

            rows.add({"data": name, "model": model}, measure)
    rows.show()


if __name__ == "__main__":
    main()
