"""Rows from Parquet that are too many for the memory, beside the same rows in memory; and a stream that drifts.

Rows of eight inputs and a smooth function of six of them, with noise of deviation 0.3, are generated a chunk at a time.
Each fit runs in a process of its own: once with --max-memory, so that
rows are streamed, and once with all rows in memory. peak_mb: the largest resident memory of that process, the
interpreter and PyTorch included. rate: steps, or rows added up, in a second of training; for the road by blocks of
rows, rows the mean knows (its work is the same in both cases: a sample is in memory). waited: the share of the training
time spent waiting for rows. cpu_s: of the whole fit, all threads, reading included; other load of the machine changes
it less than the rates. rmse of f and mnlp are of 20,000 rows that no model has seen, scored once for each line.

The drift task feeds --stream rows through partial_fit, with and without a half-life, and compares the error on the
last window with that of a model trained on that window alone.

    python benchmarks/sources.py --rows 20000000 --json sources.json
    python benchmarks/sources.py --tasks drift --stream 5000000
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from qsgp import QSGPRegressor, metrics
from table import Collected, arguments

INPUTS = 8
NAMES = [f"x{k}" for k in range(INPUTS)]
NOISE, GROUP, FILE_ROWS = 0.3, 131_072, 2_097_152
IN_MEMORY = "100TB"
WINDOW = 20_000  # rows over which the drifting function stays as it is


def function(X: np.ndarray, angle: float = 0.0) -> np.ndarray:
    """Of six inputs; its phases turn with ``angle``."""
    found = np.sin(2 * X[:, 0] + angle) + np.cos(1.5 * X[:, 1] - angle)
    found += 0.5 * math.cos(angle) * X[:, 2] * X[:, 3]
    return np.asarray(found + 0.3 * np.tanh(X[:, 4] - X[:, 5]))


def drawn(rows: int, seed: int, angle: float = 0.0, noise: float = NOISE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, the function and targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, INPUTS)).astype(np.float32)
    f = function(X, angle)
    return X, f, f + noise * rng.normal(size=rows)


def generate(folder: Path, rows: int) -> None:
    """Files of 2 million rows, in row groups of 131,072; never more than a group in memory."""
    schema = pa.schema([(name, pa.float32()) for name in [*NAMES, "y"]])
    for first in range(0, rows, FILE_ROWS):
        with parquet.ParquetWriter(folder / f"rows_{first // FILE_ROWS:03d}.parquet", schema) as file:
            for start in range(first, min(first + FILE_ROWS, rows), GROUP):
                X, _, y = drawn(min(GROUP, rows - start), start)
                table = dict(zip(NAMES, X.T, strict=True)) | {"y": y.astype(np.float32)}
                file.write_table(pa.table(table, schema=schema))


def keywords(task: str, options: argparse.Namespace) -> dict[str, Any]:
    if task == "rows":
        return {"max_time": options.max_time}
    if task == "sums":
        return {"n_features": 500}
    return {"n_features": 500, "batch_points": 1000, "max_iter": options.steps}


def trained(options: argparse.Namespace) -> dict[str, Any]:
    """One fit, in this process."""
    task, memory = options.child.split(":")
    model = QSGPRegressor(random_state=0, max_memory=memory, **keywords(task, options))
    began, busy = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(f"{options.folder}/*.parquet", target="y")
    seconds, last = time.perf_counter() - began, model.history_[-1]
    busy = time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    X, f, y = drawn(20_000, 2**31)
    mean, deviation = model.predict(pa.table(dict(zip(NAMES, X.T, strict=True))), return_std=True)
    work = {"rows": model.plan_.rows, "sums": last.get("rows", 0), "steps": last["iteration"]}[task]
    training = float(last["seconds"])
    return {
        "peak_mb": round(peak),
        "fit_s": seconds,
        "cpu_s": busy,
        "rate": work / training,
        "waited": last.get("waited", 0.0) / training,
        "rmse_of_f": metrics.rmse(f, mean),
        "mnlp": metrics.mnlp(metrics.gaussian_log_density(y, mean, deviation**2)),
    }


def in_child(task: str, memory: str, options: argparse.Namespace, folder: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", f"{task}:{memory}", "--folder", folder]
    command += ["--steps", str(options.steps), "--max-time", str(options.max_time)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def drift(rows: int, half_life: float | None, alone: bool = False) -> dict[str, Any]:
    """Error on further rows of the last window's function."""
    windows, turn = max(2, rows // WINDOW), 3.0  # radians over the whole stream
    began, model = time.perf_counter(), QSGPRegressor(n_features=300, random_state=0)
    for number in [windows - 1] if alone else range(windows):
        X, _, y = drawn(WINDOW, number, turn * number / (windows - 1), 0.1)
        model.partial_fit(X, y, half_life=half_life)
    seconds = time.perf_counter() - began
    X, f, y = drawn(WINDOW, 2**31, turn, 0.1)
    mean, deviation = model.predict(X, return_std=True)
    return {
        "rows_per_s": (WINDOW if alone else windows * WINDOW) / seconds,
        "rmse": metrics.rmse(y, mean),
        "rmse_of_f": metrics.rmse(f, mean),
        "coverage95": metrics.coverage(y, mean, deviation**2),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--stream", type=int, default=500_000, help="rows of the drift task")
    parser.add_argument("--tasks", nargs="+", default=["rows", "steps", "sums", "drift"])
    parser.add_argument("--half-lives", nargs="+", type=float, default=[50_000, 10_000, 5_000])
    parser.add_argument("--max-memory", default="1GB", help="of the streamed fits")
    parser.add_argument("--max-time", type=float, default=20.0, help="seconds of the rows task")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--folder", help="of the Parquet files, which are kept; otherwise a temporary one")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(trained(options)))
        return
    collected = Collected(options.json, "Rows beyond the memory", seed=0)
    tasks = [task for task in options.tasks if task != "drift"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or temporary
        if tasks and not list(Path(folder).glob("rows_*.parquet")):
            Path(folder).mkdir(parents=True, exist_ok=True)
            generate(Path(folder), options.rows)
        for task in tasks:
            for held, memory in (("streamed", options.max_memory), ("in memory", IN_MEMORY)):
                key = {"task": task, "rows": options.rows, "held": held, "max_memory": memory}
                collected.add(key, lambda task=task, memory=memory: in_child(task, memory, options, folder))
    if "drift" in options.tasks:
        for half_life in (None, *options.half_lives):
            key = {"task": "drift", "rows": options.stream, "held": f"half-life {half_life}"}
            collected.add(key, lambda half_life=half_life: drift(options.stream, half_life))
        key = {"task": "drift", "rows": options.stream, "held": "last window alone"}
        collected.add(key, lambda: drift(options.stream, None, alone=True))


if __name__ == "__main__":
    main()
