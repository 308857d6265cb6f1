"""From standardised data to a posterior as the plan says: hyperparameters, then the road."""

import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.interfaces import Kernel, Likelihood
from qsgp.interrupt import Halt, deferred_interrupt
from qsgp.likelihoods import Gaussian, LabelsAsNumbers
from qsgp.posteriors.posteriors import WithEffects, describe, kernel_and_likelihood, tensors_of
from qsgp.ranks import ALONE, present
from qsgp.training import levels, road_closed_form, road_features, road_rows, road_steps, road_weights
from qsgp.training.learning import learn
from qsgp.training.options import Options
from qsgp.training.plan import Plan, takes_labels_for_numbers
from qsgp.training.sizes import CLOSED_FORM, FEATURES_SOLVED, ROWS, STEPS, WEIGHTS, shares_features
from qsgp.training.store import storing
from qsgp.training.stream import Stream
from qsgp.training.task import Task
from qsgp.training.trained import Report, Trained
from qsgp.training.uneven_noise import judged

_LEARNING, _LEARNING_MOST = 0.5, 0.7  # of max_time, for the hyperparameters; the most where little comes after them
_EPOCHS = 24  # of the rows road: eight of them, for a sum of two kernels and a busy machine
_FIRST_MODEL = 0.15  # of max_time, for the exact GP on some rows


# A road is a file with this function, and a line here; `plan.make_plan` says when it is taken.
ROADS: dict[str, Callable[[Task, Kernel, Likelihood], Trained]] = {
    CLOSED_FORM: road_closed_form.train,
    ROWS: road_rows.train,
    WEIGHTS: road_weights.train,
    FEATURES_SOLVED: road_features.train,
    STEPS: road_steps.train,
}


def train(
    rows: Rows,
    options: Options,
    plan: Plan,
    report: Report | None = None,
    units: Float[Tensor, " d"] | None = None,
    stream: Stream | None = None,
) -> Trained:
    """Hyperparameters, then the road of the plan. Rows of weight 0 are left out; labels that are taken for numbers come
    without the mean of their column.

    ``units`` of the inputs before they were standardised: where they are alike, as pixels are, it may pay to know.
    With a ``stream`` of all rows, ``rows`` are a uniform sample of them.
    """
    if takes_labels_for_numbers(plan, options):
        options = replace(options, likelihood=LabelsAsNumbers.name)
    keep = torch.nonzero(rows.weight > 0)[:, 0]
    if len(keep) < rows.n:
        rows = rows.take(keep)
    # a closed form has nothing to store; the rows road brings its own sizes back
    folder = options if plan.road != CLOSED_FORM else replace(options, checkpoint=None)
    by_rows = plan.road == ROWS
    columns = stream is None and shares_features(plan.sizes, options)
    shared = columns or (by_rows and not options.levels)
    ranks = present() if shared else ALONE
    if not shared and present().rank > 0:
        folder = replace(folder, checkpoint=None)  # every rank trains the same model by itself
    unit = "epoch" if by_rows else "iteration"
    store_of = storing(rows, folder, None if by_rows else plan.sizes, unit, ranks)
    with store_of as store, deferred_interrupt() as pressed:
        halt = Halt(pressed, options.max_time or math.inf)
        task = Task(rows, options, plan.sizes, halt, report, store, stream, ranks)
        kernel, likelihood = hyperparameters(task, units)
        if options.levels:
            trained = levels.train(task, kernel, likelihood, _trained)
        else:
            trained = with_noise(_trained(task, kernel, likelihood))
    if trained.relevant is not None:
        trained.relevant = keep[trained.relevant]
    if stream is not None and trained.history:
        trained.history[-1]["waited"] = stream.waited
    return trained


def with_noise(trained: Trained) -> Trained:
    """Predictions with the noise that rows not learned from ask for."""
    posterior = trained.posterior
    if trained.unseen is None or isinstance(posterior, WithEffects) or type(posterior.likelihood) is not Gaussian:
        return trained  # labels taken for numbers have a scale instead, effects a posterior of two parts
    found = judged(posterior.likelihood, trained.unseen)
    return replace(trained, posterior=replace(posterior, likelihood=found.likelihood))


def hyperparameters(task: Task, units: Float[Tensor, " d"] | None) -> tuple[Kernel, Likelihood]:
    """Learned from some rows, or those that a stored run has begun with."""
    if task.store is not None and task.store.saved is not None:
        return task.store.hyperparameters()
    options, sizes, (x, Y, weight) = task.options, task.sizes, task.rows
    halt = Halt(task.halt.pressed, _share(task) * options.max_time if options.max_time else math.inf)
    if options.levels:
        return levels.learned(Rows(x, Y, weight), options, sizes, halt, units)
    rows = Rows(x, varying(Y), weight)
    if task.ranks.size == 1:
        return learn(rows, options, sizes, halt, units)

    def told() -> tuple[dict[str, Any], dict[str, Tensor]]:
        """As it is stored, and on the CPU: every rank has a device of its own."""
        learned = learn(rows, options, sizes, halt, units)
        return describe(*learned), {name: value.cpu() for name, value in tensors_of(*learned).items()}

    return kernel_and_likelihood(*task.ranks.on_first(told, task.halt.pressed.set))


def _share(task: Task) -> float:
    """Of the time, for hyperparameters: what few rows leave of it, within limits."""
    options, sizes = task.options, task.sizes
    if sizes.road == CLOSED_FORM or (sizes.road == ROWS and task.rows.n <= sizes.exact_rows):
        return _LEARNING_MOST
    if sizes.road != ROWS or options.max_time is None:
        return _LEARNING
    epochs = _EPOCHS * sizes.dual_rows**2 / options.pace.values
    return min(_LEARNING_MOST, max(_LEARNING, 1 - _FIRST_MODEL - epochs / options.max_time))


def _trained(task: Task, kernel: Kernel, likelihood: Likelihood) -> Trained:
    sizes = task.sizes
    if sizes.road != CLOSED_FORM and task.ranks.agreed(task.halt()) and not task.options.relevance:
        return road_closed_form.stopped_early(task, kernel, likelihood)
    early = task.halt.pressed.is_set()
    trained = ROADS[sizes.road](task, kernel, likelihood)
    if early or sizes.road in (CLOSED_FORM, WEIGHTS):  # other roads say themselves where they were interrupted
        warn_if(task.halt.pressed)
    return trained


def varying(Y: Float[Tensor, "n o"]) -> Float[Tensor, "n v"]:
    """Outputs that vary: one that does not would halve the noise that two share. All where none does."""
    varies = (Y != Y[:1]).any(0)
    return Y[:, varies] if varies.any() else Y


def warn_if(pressed: threading.Event) -> None:
    if pressed.is_set():
        warnings.warn("Interrupted early: the model is fitted, with hyperparameters that may be poor.", stacklevel=4)
