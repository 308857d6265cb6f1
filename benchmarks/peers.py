"""Regression tables beside other libraries, each as it comes and with the same seconds of wall clock.

GPyTorch's SVGP with 512 and 1,024 inducing points, scikit-learn's GaussianProcessRegressor (2,000 rows) and Nystroem
with BayesianRidge, LightGBM and HistGradientBoosting with early stopping and split-conformal intervals, NGBoost, xRFM,
GPBoost (Vecchia) and, for relevance vector machines, fastrvm: `peer_models.py`. A library that is not installed is
skipped with a word (`pip install ".[peers]"` brings all). Each fit has a process of its own; one that takes three
times its seconds is ended, and its row says so. Inputs and target are standardised on the training rows. The test rows
are looked at once, for the row of the table. A JSON file that exists is gone on with.

Scores: RMSE; MNLP and CRPS of a normal distribution with the predicted deviation (of the errors of rows held out, for
trees and xRFM); coverage and interval score of the 95 % interval. ``extra_mb`` is by how much the process grew,
``load`` that of the machine when the fit began.

    QSGP_DATA=... python benchmarks/peers.py --seconds 60 --json peers.json
    QSGP_DATA=... python benchmarks/peers.py --data kin40k --models qsgp lightgbm --seconds 5 20 60
"""

import contextlib
import multiprocessing
import os
import resource
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from peer_models import LIBRARIES, MODELS, SEED, Predicted, Task
from qsgp import datasets, metrics
from small import halves
from table import Collected, arguments

SETS = ["skillcraft", "kin40k", "protein", "keggdirected", "keggundirected", "pol", "elevators", "bike", "beijing_pm25"]
_PATIENCE = 3.0  # times the budget, and half a minute for imports and predictions, until a fit is ended
_OVERHEAD = 30.0
_NORMAL95 = 1.959964


def table_of(name: str, split: int) -> datasets.Dataset:
    """``bike`` without the two inputs whose sum is the target."""
    data = datasets.load(name, split)
    if name != "bike":
        return data
    kept = [column for column in range(data.x_train.shape[1]) if column not in (15, 16)]
    return replace(data, x_train=data.x_train[:, kept], x_test=data.x_test[:, kept])


def scores_of(found: Predicted, y: np.ndarray) -> dict[str, float]:
    variance = np.square(found.deviation)
    lower = found.mean - _NORMAL95 * found.deviation if found.lower is None else found.lower
    upper = found.mean + _NORMAL95 * found.deviation if found.upper is None else found.upper
    missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    mnlp = metrics.mnlp(metrics.gaussian_log_density(y, found.mean, variance))
    crps = metrics.crps_gaussian(y, found.mean, variance)
    if found.assess is not None:
        told = found.assess(y)
        mnlp, crps = float(-told["log_density"].mean()), float(told["crps"].mean())
    return {
        "rmse": metrics.rmse(y, found.mean),
        "mnlp": mnlp,
        "crps": crps,
        "coverage95": metrics.interval_coverage(y, lower, upper),
        "interval95": float(np.mean(upper - lower + 2 / 0.05 * missed)),
    }


def fit(data: str, split: int, model: str, seconds: float, device: str, answer: Connection) -> None:
    """In a process of its own: what is measured, or why it is not."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    (x, y), (x_new, y_new) = halves(table_of(data, split))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    try:
        found = MODELS[model](Task(x, y, x_new, seconds, device))
    except ImportError as error:
        answer.send({"skipped": f"{error.name or error} is not installed"})
        return
    except Exception as error:  # a peer that fails has a row that says how
        answer.send({"failed": f"{type(error).__name__}: {error}"[:200]})
        return
    spent = time.perf_counter() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if device.startswith("cuda"):
        grown = torch.cuda.max_memory_allocated() / 1e3
    times = {"fit_s": found.fit_s, "predict_s": spent - found.fit_s, "extra_mb": grown / 1e3}
    answer.send(scores_of(found, y_new) | times | {"note": found.note})


def measured(key: dict[str, Any]) -> dict[str, Any]:
    load = os.getloadavg()[0]  # seconds of a busy machine buy less
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=fit, kwargs={**key, "answer": sending}, daemon=True)
    child.start()
    sending.close()
    limit = _PATIENCE * key["seconds"] + _OVERHEAD
    found: dict[str, Any]
    try:
        found = receiving.recv() if receiving.poll(limit) else {"failed": f"no result after {limit:.0f} s"}
    except EOFError:
        child.join()
        found = {"failed": f"the process ended with {child.exitcode}"}
    if child.is_alive():
        child.terminate()
    child.join()
    names = ("rmse", "mnlp", "crps", "coverage95", "interval95", "fit_s", "predict_s", "extra_mb")
    note = found.get("failed") or found.get("skipped") or found["note"]
    return key | {name: found.get(name) for name in names} | {"load": load, "note": note}


def libraries() -> dict[str, str]:
    """The version of each peer that is installed."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=SETS, help="names of data sets")
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seconds", nargs="+", type=float, default=[60.0], help="several for a curve")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--note", help="what readers of the file must know, such as other jobs on the machine")
    chosen = parser.parse_args()
    about = {"seed": SEED, "libraries": libraries()} | ({"note": chosen.note} if chosen.note else {})
    collected = Collected(chosen.json, "regression beside other libraries", **about)
    for name in chosen.data:
        for split in chosen.splits:
            for seconds in chosen.seconds:
                for model in chosen.models:
                    key = {"data": name, "split": split, "model": model, "seconds": seconds, "device": chosen.device}
                    collected.add(key, lambda key=key: measured(key))
    collected.show()


if __name__ == "__main__":
    main()
