"""`qsgp fit`: a model from a file."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
import typer

from qsgp.cli import scores
from qsgp.cli.info import known_rows
from qsgp.cli.preparing import Prepared, prepare
from qsgp.cli.progress import train
from qsgp.cli.talk import AsJson, ColumnList, Device, Files, MaxMemory, Missing, Quiet, number, say, show
from qsgp.cli.targets import Task
from qsgp.cli.writing import check_output
from qsgp.data.choosing import Wanted
from qsgp.data.reading import find
from qsgp.data.words import count
from qsgp.likelihoods import BY_NAME
from qsgp.models import ESTIMATORS
from qsgp.models.keywords import CHOICES, is_kernel, kernels, likelihoods

_CALIBRATION = 0.1  # share of the rows
_WATCHED = 1000
if TYPE_CHECKING:
    MetricName: TypeAlias = str
    LikelihoodName: TypeAlias = str
    OptimizerName: TypeAlias = str
else:  # typer reads the choices from the annotation
    _METRICS = "A lengthscale for each input (ard), or for learned directions (full)."
    MetricName = Annotated[Literal[CHOICES["metric"]], typer.Option(help=_METRICS)]
    LikelihoodName = Literal[(*likelihoods(labels=False), *likelihoods(labels=True)[1:])]
    OptimizerName = Literal[CHOICES["optimizer"]]


def _kernel(name: str) -> str:
    if not is_kernel(name):
        raise typer.BadParameter(f"{name!r} is none of {', '.join(kernels())}, nor a sum of these.")
    return name


_SUMS = f"{', '.join(kernels())}, or a sum: rbf+laplacian."
Holdout: TypeAlias = Annotated[
    float, typer.Option(min=0, max=0.9, help="Share of the rows to judge by, not learned from.")
]
Calibrate: TypeAlias = Annotated[
    bool, typer.Option("--calibrate", help="Correct intervals or probabilities by a tenth of the rows, kept apart.")
]
KernelName: TypeAlias = Annotated[str, typer.Option(callback=_kernel, metavar="NAME", help=_SUMS)]


def fit(
    files: Files,
    target: Annotated[str, typer.Option("--target", "-t", metavar="NAME", help="The column to predict.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The model.")] = Path("model.qsgp"),
    columns: ColumnList = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="NAMES", help="Columns to leave out, with commas.")] = None,
    categories: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Columns of categories, even if they look like numbers.")
    ] = None,
    weight: Annotated[str | None, typer.Option(metavar="NAME", help="A column: how often a row counts.")] = None,
    task: Annotated[Task, typer.Option(help="Decided by the target unless you name it.")] = "auto",
    missing: Annotated[Missing, typer.Option(help="Rows that lack an input: stop, leave out, or fill in.")] = "error",
    holdout: Holdout = 0,
    calibrate: Calibrate = False,
    kernel: KernelName = "auto",
    metric: MetricName = "auto",
    features: Annotated[int | None, typer.Option(min=1, help="Number of basis functions.")] = None,
    likelihood: Annotated[LikelihoodName, typer.Option()] = "auto",
    optimizer: Annotated[OptimizerName, typer.Option(help="adagrad: the steps of the paper.")] = "auto",
    rvm: Annotated[bool, typer.Option("--rvm", help="A relevance vector machine: few rows carry the model.")] = False,
    max_time: Annotated[float | None, typer.Option(help="Seconds for training.")] = None,
    max_memory: MaxMemory = "auto",
    device: Device = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal models.")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A killed run goes on from there.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read the data, say how the model would be trained, and stop.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn to predict a column of a file from the others.

    Texts become one input for each category; the model file remembers how, so that predict can read another file.
    Ctrl-C keeps what was learned: the model is written, and the exit code is 130.
    """
    paths = find(files)
    check_output(output, paths)
    data = prepare(paths, Wanted(target, weight, columns, drop, categories), _task(task, likelihood), missing)
    for note in data.notes:
        say(note, quiet)
    parts = _split(len(data.y), holdout, _CALIBRATION if calibrate else 0.0, seed)
    name = f"QS{'RVM' if rvm else 'GP'}{'Classifier' if data.task == 'classification' else 'Regressor'}"
    how: dict[str, Any] = {"kernel": kernel, "metric": metric, "likelihood": likelihood, "optimizer": optimizer}
    model = ESTIMATORS[name](
        **how,
        device=device,
        n_features=features or "auto",
        max_time=max_time,
        max_memory=max_memory,
        random_state=seed,
        checkpoint=None if checkpoint is None else str(checkpoint),
    )
    if dry_run:
        _show_plan(name, model.plan(*_part(data, parts["train"])), as_json)
    else:
        _learn(model, data, parts, output, as_json=as_json, quiet=quiet)


def _learn(
    model: Any, data: Prepared, parts: dict[str, np.ndarray], output: Path, *, as_json: bool, quiet: bool
) -> None:
    """Train, calibrate, judge and say how it went; the model is written before anything else can go wrong."""
    X, y, weights = _part(data, parts["train"])
    name, judged, calibrated = type(model).__name__, len(parts["holdout"]) > 0, len(parts["calibration"]) > 0
    say(f"Training a {name} on {count(len(y))}. Ctrl-C keeps what was learned.", quiet)
    began = time.monotonic()
    interrupted = train(model, X, y, weights, quiet=quiet, judge=_watch(data, parts["holdout"]) if judged else None)
    seconds = time.monotonic() - began
    model.columns_ = replace(data.columns, rows=len(y)).header()
    _save(model, output)
    if calibrated and not interrupted:
        model.calibrate(*_part(data, parts["calibration"])[:2])
        _save(model, output)
    found: dict[str, Any] = {"model": str(output), "estimator": name, "rows": len(y), "seconds": round(seconds, 3)}
    found |= {"interrupted": interrupted, "kernel": model.kernel_}
    words = f"Wrote {output}: {name}, kernel {model.kernel_}, {count(len(y))} in {number(seconds)} s."
    known = known_rows(model) or len(y)
    found["rows_known"] = known
    if known < len(y):
        words += f"\nThe mean knows {known:,} of them, drawn at random: more with a larger --max-time."
    if judged and not interrupted:
        found["holdout"] = scores.judge(model, [_part(data, parts["holdout"])[:2]])
        words += f"\nOn rows it has not seen:\n{scores.in_words(found['holdout'])}"
    show(found, as_json, words)
    if interrupted:
        say("Interrupted: the model is fitted as far as it came, and written.")
        raise typer.Exit(130)


def _task(task: Task, likelihood: LikelihoodName) -> Task:
    """A likelihood says what the target holds, unless the task is named."""
    if task != "auto" or likelihood == "auto":
        return task
    return "classification" if BY_NAME[likelihood].labels else "regression"


def _show_plan(estimator: str, plan: Any, as_json: bool) -> None:
    found = {"estimator": estimator, "road": plan.road, "rows": plan.given, "rows_known": plan.rows}
    found |= {"held_out": plan.held_out, "memory": plan.memory, "device": plan.device, "plan": list(plan.sentences)}
    show(found, as_json, f"This would train a {estimator} on {count(plan.given)}.\n{plan}")


def _save(model: Any, output: Path) -> None:
    """A disk may be full by now: hours of training are not lost to that."""
    try:
        model.save(output)
    except OSError as error:
        kept = Path(tempfile.mkdtemp(prefix="qsgp-")) / "model.qsgp"
        model.save(kept)
        raise OSError(
            f"{output} cannot be written: {error.strerror or error}. The model is kept at {kept}: move it."
        ) from error


def _split(rows: int, holdout: float, calibration: float, seed: int) -> dict[str, np.ndarray]:
    """Positions of the rows to learn from, to calibrate by and to judge by, drawn at random."""
    order = np.random.default_rng(seed).permutation(rows)
    judged, calibrating = (max(1, round(share * rows)) if share else 0 for share in (holdout, calibration))
    if judged + calibrating and rows - judged - calibrating < 2:
        raise ValueError(f"Expected rows left to learn from, got {rows} in all. Leave out --holdout and --calibrate.")
    ends = {"holdout": judged, "calibration": judged + calibrating, "train": rows}
    starts = dict(zip(ends, [0, *ends.values()], strict=False))
    return {name: np.sort(order[starts[name] : end]) for name, end in ends.items()}


def _watch(data: Prepared, rows: np.ndarray) -> Callable[[Any], str]:
    """What is shown while training: the score on some rows kept apart."""
    X, y, _ = _part(data, rows[:_WATCHED])
    if data.task == "classification":
        return lambda model: f"held-out accuracy {np.mean(model.predict(X) == y):.1%}"
    return lambda model: f"held-out RMSE {number(np.sqrt(np.mean((model.predict(X) - y) ** 2)))}"


def _part(data: Prepared, rows: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray | None]:
    return data.inputs.take(rows).table(), data.y[rows], None if data.weight is None else data.weight[rows]
