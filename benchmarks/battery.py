"""Easy and nasty tables: does `QSGPRegressor().fit(X, y)` ever break, diverge in silence, or overrun its time?

Each problem (`battery_problems.py`) is fitted in another process, so that a crash or a hang costs one row, and scored
on rows with noise beside the closed form on 3,000 of its rows (one thread, no limit of time). `docs/battery.md` has
the rule. A JSON file that exists is gone on with; references are kept in a file of their own and made once.

    python benchmarks/battery.py --json battery.json --seconds-total 600
    python benchmarks/battery.py --json battery.json --only "noise=0 " --part 1/4
    python benchmarks/battery.py --show battery.json
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from battery_problems import Data, Problem, as_row, design, table
from battery_verdict import markdown, summary, verdict
from qsgp import QSGPClassifier, QSGPRegressor
from table import Collected, arguments

REFERENCE_ROWS = 3000
CLASS_ROWS = 1000  # of classes, whose closed form is solved many times over for each output
REFERENCES = Path(__file__).with_name("battery_references.json")
UNLIMITED = 900.0  # seconds after which a fit without max_time is taken for hung
PATIENCE = 120.0  # seconds beyond thrice max_time, for the others

Measure = Callable[[Problem, str], dict[str, Any]]


# --- one problem ------------------------------------------------------------------------------------------------


def fit_and_score(problem: Problem, device: str) -> dict[str, Any]:
    """Seconds, scores, warnings, and the exception if there was one."""
    data = table(problem)
    torch.set_num_threads(problem.threads)
    keywords: Any = {"max_time": problem.max_time, "dtype": problem.dtype, "device": device, "random_state": 0}
    if problem.kind == "Laplace noise":
        keywords["likelihood"] = "laplace"
    model = QSGPClassifier(**keywords) if problem.classes else QSGPRegressor(**keywords)
    found: dict[str, Any] = {"load": os.getloadavg()[0], "exception": None}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        began = time.perf_counter()
        try:
            model.fit(data.x, data.y, sample_weight=data.weight)
            found["seconds"] = time.perf_counter() - began
            found |= class_scores(model, data) if problem.classes else scores(model, data)
        except Exception as error:  # whatever it is, the table names it
            found["exception"] = f"{type(error).__name__}: {error}"[:300]
        found.setdefault("seconds", time.perf_counter() - began)
    return found | {"warnings": [f"{each.category.__name__}: {each.message}"[:300] for each in heard]}


def scores(model: Any, data: Data) -> dict[str, Any]:
    """RMSE over all outputs, in deviations of the target; coverage of those that vary."""
    mean = model.predict(data.x_new)
    lower, upper = model.predict_interval(data.x_new, 0.95)
    inside = (lower <= data.y_new) & (data.y_new <= upper)
    varies = np.ptp(data.y_new, axis=0) > 0
    return {
        "finite": bool(all(np.isfinite(each).all() for each in (mean, lower, upper))),
        "rmse": float(np.sqrt(np.mean(np.square(mean - data.y_new)))) / data.deviation,
        "coverage": float(inside[..., varies].mean() if inside.ndim > 1 else inside.mean()),
    }


def class_scores(model: Any, data: Data) -> dict[str, Any]:
    p = model.predict_proba(data.x_new)
    return {
        "finite": bool(np.isfinite(p).all()),
        "log_loss": float(-model.log_density(data.x_new, data.y_new).mean()),
        "error": float(np.mean(model.predict(data.x_new) != data.y_new)),
    }


def reference_of(problem: Problem, most: int) -> Problem:
    """The closed form on at most so many of the rows."""
    most = min(most, CLASS_ROWS) if problem.classes else most
    return replace(problem, n=min(problem.n, most), max_time=None, threads=1, dtype="float32")


def row(
    problem: Problem, device: str, measure: Measure, known: "References", most: int = REFERENCE_ROWS
) -> dict[str, Any]:
    """Everything of one problem, its reference beside it, and the verdict."""
    reference = known.get(reference_of(problem, most), lambda each: measure(each, "cpu"))
    beside = {f"{name}_ref": reference.get(name) for name in ("rmse", "coverage", "log_loss", "error", "seconds")}
    found = as_row(problem) | {"device": device} | measure(problem, device) | beside
    return found | {"verdict": verdict(problem, found)}


class References:
    """Scores of closed forms, in a JSON file that other parts of a run may be adding to."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._known: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        return json.loads(self._file.read_text()) if self._file and self._file.exists() else {}

    def get(self, problem: Problem, measure: Callable[[Problem], dict[str, Any]]) -> dict[str, Any]:
        if problem.name not in self._known:
            found = measure(problem)
            if str(found["exception"]).startswith(("Hung", "Died")):  # try again another time
                return found
            self._known = {**self._known, **self._read(), problem.name: found}
            if self._file:
                unfinished = self._file.with_suffix(f".{os.getpid()}.unfinished")
                unfinished.write_text(json.dumps(self._known, indent=1) + "\n")
                unfinished.replace(self._file)
        return self._known[problem.name]


# --- another process --------------------------------------------------------------------------------------------


class Worker:
    """A process that fits one problem after the other; a new one is started when it has died or hung."""

    def __init__(self, device: str, unlimited: float) -> None:
        self._device, self._unlimited = device, unlimited
        self._process: Any = None

    def measure(self, problem: Problem, device: str) -> dict[str, Any]:
        if self._process is None:
            self._start()
        limit = self._unlimited if problem.max_time is None else 3 * problem.max_time + PATIENCE
        began = time.perf_counter()
        try:
            self._pipe.send((problem, device))
            if self._pipe.poll(limit):
                return self._pipe.recv()
            lost = f"Hung: no answer after {limit:g} s"
            self._end()
        except (EOFError, OSError):
            lost = f"Died: exit code {self._end()}"
        return {"load": os.getloadavg()[0], "exception": lost, "seconds": time.perf_counter() - began, "warnings": []}

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._device), daemon=True)
        self._process.start()
        theirs.close()

    def _end(self) -> int | None:
        """Its exit code, after it was killed if it still ran."""
        self._process.join(1)
        self._process.kill()
        self._process.join()
        code, self._process = self._process.exitcode, None
        return code


def serve(pipe: Any, device: str) -> None:
    if device != "cpu":  # compiles its kernels, on no problem's time
        fit_and_score(Problem("mixed", 4000, 0.1, 3, 5.0), device)
    with contextlib.suppress(EOFError, OSError):  # the run is over
        while True:
            pipe.send(fit_and_score(*pipe.recv()))


# --- the run ----------------------------------------------------------------------------------------------------


def main() -> None:
    chosen = options()
    if chosen.show:
        print(markdown([json.loads(Path(each).read_text()) for each in chosen.show]))
        return
    part, parts = (int(each) for each in chosen.part.split("/"))
    problems = [problem for problem in design() if chosen.only in problem.name][part - 1 :: parts]
    collected = Collected(chosen.json, "battery", seed="of each problem, from its kind and d")
    known = References(chosen.references)
    worker = Worker(chosen.device, chosen.unlimited)
    end = time.monotonic() + chosen.seconds_total
    for problem in problems:
        if time.monotonic() > end:
            print(f"Stopped after {chosen.seconds_total:g} s; the same command with --json goes on.")
            break
        key = {"problem": problem.name, "device": chosen.device}
        collected.add(key, lambda problem=problem: row(problem, chosen.device, worker.measure, known))
    summary(collected.rows)


def options() -> argparse.Namespace:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="problems whose name contains it")
    parser.add_argument("--part", default="1/1", metavar="I/K", help="every K-th problem, from the I-th on")
    parser.add_argument("--seconds-total", type=float, default=float("inf"), help="begin no problem after these")
    parser.add_argument("--unlimited", type=float, default=UNLIMITED, help="seconds a fit without max_time may take")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--references", type=Path, default=REFERENCES, metavar="FILE", help="scores of closed forms")
    parser.add_argument("--show", nargs="+", metavar="FILE", help="print these files as Markdown and measure nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
