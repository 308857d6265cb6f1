"""`qsgp fit`: a model from a file."""

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
import typer

from qsgp.cli import scores
from qsgp.cli.info import known_rows
from qsgp.cli.large import Large, prepare_large
from qsgp.cli.preparing import Prepared, prepare
from qsgp.cli.progress import train
from qsgp.cli.talk import AsJson, ColumnList, Device, Files, MaxMemory, Missing, Quiet, number, say, show
from qsgp.cli.targets import Task
from qsgp.cli.writing import check_output
from qsgp.data.choosing import Wanted
from qsgp.data.grouping import Groups
from qsgp.data.reading import find
from qsgp.data.words import count
from qsgp.likelihoods import BY_NAME
from qsgp.models import ESTIMATORS
from qsgp.models.keywords import CHOICES, is_kernel, kernels, likelihoods
from qsgp.models.streaming import too_large
from qsgp.ranks import asked_for, leads

_CALIBRATION = 0.1  # share of the rows
_WATCHED = 1000
# inputs, targets and weights, and groups if they were asked for; of files larger than the memory a source alone
Part: TypeAlias = tuple[Any, ...]
if TYPE_CHECKING:
    MetricName: TypeAlias = str
    NoiseName: TypeAlias = str
    MapName: TypeAlias = str
    LikelihoodName: TypeAlias = str
    OptimizerName: TypeAlias = str
else:  # typer reads the choices from the annotation
    _METRICS = "A lengthscale for each input (ard), or for learned directions (full)."
    MetricName = Annotated[Literal[CHOICES["metric"]], typer.Option(help=_METRICS)]
    NoiseName = Annotated[Literal[CHOICES["noise"]], typer.Option(help="Equal, or as rows not learned from have it.")]
    MapName = Annotated[Literal[CHOICES["target_map"]], typer.Option(help="A monotone map of the target.")]
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
GroupColumn: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --calibrate: a column, in each group of which intervals hold.")
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
    missing: Annotated[
        Missing, typer.Option(help="Rows that lack an input: taken as they are, stop, leave out, fill in.")
    ] = "auto",
    holdout: Holdout = 0,
    calibrate: Calibrate = False,
    groups: GroupColumn = None,
    kernel: KernelName = "auto",
    metric: MetricName = "auto",
    features: Annotated[int | None, typer.Option(min=1, help="Number of basis functions.")] = None,
    likelihood: Annotated[LikelihoodName, typer.Option()] = "auto",
    noise: NoiseName = "auto",
    target_map: MapName = "auto",
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
    reading = prepare_large if too_large(paths, max_memory) else prepare
    data = reading(paths, Wanted(target, weight, columns, drop, categories), _task(task, likelihood), missing)
    own = None if groups is None else _groups(paths, groups, data, calibrate=calibrate)
    parts = _apart(data, {"holdout": holdout, "calibration": _CALIBRATION if calibrate else 0.0}, seed, own)
    say("\n".join(data.notes), quiet)
    name = f"QS{'RVM' if rvm else 'GP'}{'Classifier' if data.task == 'classification' else 'Regressor'}"
    how: dict[str, Any] = {"kernel": kernel, "metric": metric, "likelihood": likelihood, "optimizer": optimizer}
    how |= {"noise": noise, "target_map": target_map, "n_features": features or "auto"}
    how |= {"categorical_features": data.categories or "from_dtype", "random_state": seed}
    how |= {"device": device, "max_time": max_time, "max_memory": max_memory}
    model = ESTIMATORS[name](**how, checkpoint=None if checkpoint is None else str(checkpoint))
    with _noted():
        if dry_run:
            _show_plan(model, parts["train"], as_json)
        else:
            _learn(model, data, parts, output, as_json=as_json, quiet=quiet)


@contextmanager
def _noted() -> Iterator[None]:
    """Notes have said already which columns are left out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Left out of the inputs", UserWarning)
        yield


def _learn(
    model: Any, data: Prepared | Large, parts: dict[str, Part], output: Path, *, as_json: bool, quiet: bool
) -> None:
    """Train, calibrate, judge and say how it went; the model is written before anything else can go wrong."""
    X, y, weights = parts["train"][:3]
    name, judged, calibrated = type(model).__name__, len(parts["holdout"][1]) > 0, len(parts["calibration"][1]) > 0
    say(f"Training a {name} on {count(X.n if y is None else len(y))}. Ctrl-C keeps what was learned.", quiet)
    began = time.monotonic()
    # ranks predict together, so that none may look at the unfinished model when it has time for it
    watched = judged and asked_for() == 1
    judge = _watch(data.task, parts["holdout"]) if watched else None
    interrupted = train(model, X, y, weights, quiet=quiet or not leads(), judge=judge)
    seconds, rows = time.monotonic() - began, model.plan_.given if y is None else len(y)
    model.columns_ = replace(model.columns_, target=data.target, missing=data.missing)
    _save(model, output)
    if calibrated and not interrupted:
        held, targets, _, *own = parts["calibration"]
        model.calibrate(held, targets, *own)
        _save(model, output)
    found: dict[str, Any] = {"model": str(output), "estimator": name, "rows": rows, "seconds": round(seconds, 3)}
    found |= {"interrupted": interrupted, "kernel": model.kernel_}
    words = f"Wrote {output}: {name}, kernel {model.kernel_}, {count(rows)} in {number(seconds)} s."
    known = known_rows(model) or rows
    found["rows_known"] = known
    if known < rows:
        words += f"\nThe mean knows {known:,} of them, drawn at random: more with a larger --max-time."
    if judged and not interrupted:
        held, targets, _, *own = parts["holdout"]
        found["holdout"] = scores.judge(model, [(held, targets, *own)])
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


def _groups(paths: list[Path], name: str, data: Prepared | Large, *, calibrate: bool) -> Groups:
    """Of the rows that are learned from, judged or calibrated by."""
    if not calibrate:
        raise typer.BadParameter("--groups says in which groups intervals are to hold: add --calibrate.")
    if data.task == "classification":
        raise typer.BadParameter("--groups is for the intervals of a regression; this is a classification.")
    if isinstance(data, Large):
        raise typer.BadParameter("--groups needs files that fit into --max-memory. Raise it, or calibrate in Python.")
    return Groups.of(name, paths).take(data.rows)


def _show_plan(model: Any, rows: Part, as_json: bool) -> None:
    estimator, plan = type(model).__name__, model.plan(*rows[:3])
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


def _apart(data: Prepared | Large, shares: dict[str, float], seed: int, groups: Groups | None) -> dict[str, Part]:
    if isinstance(data, Large):
        return data.apart(shares, seed)
    found = _split(len(data.y), shares["holdout"], shares["calibration"], seed)
    return {
        name: (*_part(data, rows), *([] if groups is None else [groups.take(rows)])) for name, rows in found.items()
    }


def _watch(task: str, held_out: Part) -> Callable[[Any], str]:
    """What is shown while training: the score on some rows kept apart."""
    few = np.arange(min(_WATCHED, len(held_out[1])))
    X, y = held_out[0].take(few), held_out[1][few]
    if task == "classification":
        return lambda model: f"held-out accuracy {np.mean(model.predict(X) == y):.1%}"
    return lambda model: f"held-out RMSE {number(np.sqrt(np.mean((model.predict(X) - y) ** 2)))}"


def _part(data: Prepared, rows: np.ndarray) -> Part:
    return data.table.take(rows), data.y[rows], None if data.weight is None else data.weight[rows]
