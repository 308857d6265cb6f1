"""`qsgp demo`: a million rows in a minute, beside two other models and the best that is possible."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from qsgp import datasets, metrics
from qsgp.cli.info import known_rows
from qsgp.cli.progress import train
from qsgp.cli.talk import AsJson, Device, Quiet, aligned, say, show
from qsgp.cli.writing import check_output
from qsgp.data.words import count
from qsgp.models import QSGPRegressor

NOISE = 0.05
TEST_ROWS = 5000
_WATCHED = 1000  # rows whose error is shown while training
_FIRST_TREES, _MOST_TREES = 10, 2000
_TREES_SHARE = 0.5  # of the time for training

Scores = dict[str, float]


def demo(
    rows: Annotated[int, typer.Option(min=100, help="Training rows.")] = 1_000_000,
    seconds: Annotated[float, typer.Option(min=1, help="Time for training the Gaussian process.")] = 60,
    device: Device = "auto",
    folder: Annotated[Path, typer.Option(help="Where the model and the report go.")] = Path("demo"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train on a million robot-arm rows.

    Eight joint angles, the distance of the arm's tip to a point as target, Gaussian noise of deviation 0.05; beside it
    a linear model, boosted trees and the noise floor. The model and a report for the browser go into a folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model_path, report_path = folder / "model.qsgp", folder / "report.html"
    check_output(model_path)
    say(f"Making {count(rows)} of 8 joint angles, and {count(TEST_ROWS)} to judge by.", quiet)
    x, y = datasets.make_robot_arm(rows + TEST_ROWS, NOISE)
    X, y, X_test, y_test = x[:rows], y[:rows], x[rows:], y[rows:]

    def heldout(model: Any) -> str:
        return f"held-out RMSE {metrics.rmse(y_test[:_WATCHED], model.predict(X_test[:_WATCHED])):.3f}"

    say(f"Training a QSGPRegressor for {seconds:.0f} s. Ctrl-C keeps what was learned.", quiet)
    began = time.monotonic()
    model = QSGPRegressor(max_time=seconds, device=device, random_state=0)
    interrupted = train(model, X, y, quiet=quiet, judge=heldout, lines=True)
    found = {"QSGP": _gaussian(y_test, *model.predict(X_test, return_std=True)) | {"seconds": time.monotonic() - began}}
    model.save(model_path)
    if interrupted:
        say(f"Interrupted: the model is fitted as far as it came, and written to {model_path}.")
        show(found, as_json, _table(found, rows))
        raise typer.Exit(130)
    if (known := known_rows(model) or rows) < rows:
        say(f"In this time the mean got to know {known:,} of these rows, drawn at random.", quiet)
    for name, peer in (("linear model", _linear), ("boosted trees", _trees)):
        say(f"For comparison: {name}.", quiet)
        began = time.monotonic()
        predicted = peer(X, y, seconds * _TREES_SHARE)(X_test)
        found[name] = _gaussian(y_test, *predicted) | {"seconds": time.monotonic() - began}
    found["noise floor"] = _gaussian(y_test, *_noise_floor(X_test))
    show(found, as_json, _table(found, rows))
    say("Writing the report.", quiet)
    model.report(X_test, y_test, report_path, target="distance")
    say(f"Model:  {model_path.absolute()}\nReport: {report_path.absolute()}", quiet)


Predict = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def _linear(X: np.ndarray, y: np.ndarray, seconds: float) -> Predict:
    """Least squares; the deviation of its residuals is its uncertainty."""
    return _with_constant_spread(LinearRegression().fit(X, y), X, y)


def _trees(X: np.ndarray, y: np.ndarray, seconds: float) -> Predict:
    """As many trees as fit into ``seconds``; the deviation of the residuals on a tenth of the rows, kept apart.

    A call costs something before its first tree: two calls tell that from the pace of the trees.
    """
    apart, began = max(10, len(y) // 10), time.monotonic()
    trees = HistGradientBoostingRegressor(
        max_iter=_FIRST_TREES, max_leaf_nodes=63, warm_start=True, early_stopping=False, random_state=0
    )
    trees.fit(X[apart:], y[apart:])
    first = time.monotonic() - began
    if 4 * first < seconds:
        trees.max_iter = 4 * _FIRST_TREES
        trees.fit(X[apart:], y[apart:])
        both = time.monotonic() - began
        each = max((both - 2 * first) / (2 * _FIRST_TREES), 0.1 * first / _FIRST_TREES)
        start = max(first - _FIRST_TREES * each, 0.0)
        more = int((seconds - both - start) / each)
        if more > 0:
            trees.max_iter = min(_MOST_TREES, trees.max_iter + more)
            trees.fit(X[apart:], y[apart:])
    return _with_constant_spread(trees, X[:apart], y[:apart])


def _with_constant_spread(model: Any, X: np.ndarray, y: np.ndarray) -> Predict:
    spread = float(np.sqrt(np.mean((y - model.predict(X)) ** 2)))
    return lambda x: (model.predict(x), np.full(len(x), spread))


def _noise_floor(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What knowing the true function would give."""
    distance = np.asarray(datasets.tip_distance(X.astype(np.float64)))
    return (distance - datasets.DISTANCE_MEAN) / datasets.DISTANCE_DEVIATION, np.full(len(X), NOISE)


def _gaussian(y: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> Scores:
    variance = deviation**2
    return {
        "rmse": metrics.rmse(y, mean),
        "mnlp": metrics.mnlp(metrics.gaussian_log_density(y, mean, variance)),
        "coverage95": metrics.coverage(y, mean, variance),
    }


def _table(found: dict[str, Scores], rows: int) -> str:
    lines = [("model", "RMSE", "MNLP", "95 % interval holds", "seconds")]
    for name, s in found.items():
        took = f"{s['seconds']:.0f}" if "seconds" in s else ""
        lines.append((name, f"{s['rmse']:.3f}", f"{s['mnlp']:.3f}", f"{s['coverage95']:.1%}", took))
    return f"{count(TEST_ROWS)} not learned from, after {count(rows)} to learn from; target standardised:\n" + aligned(
        lines
    )
