"""The road from standardised data to a posterior: hyperparameters, then the closed form or a table of features."""

import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from qsgp.bases import KernelFunctions
from qsgp.data.arrays import Arrays
from qsgp.data.rows import Rows, distinct, some_rows
from qsgp.files import FileError
from qsgp.interfaces import Kernel, Likelihood
from qsgp.interrupt import Halt, deferred_interrupt
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import Fit, fit
from qsgp.paper.prediction import relevance_vectors
from qsgp.paper.problem import Problem, at_hyperparameters
from qsgp.paper.starting import start
from qsgp.paper.state import State
from qsgp.paper.support import Support
from qsgp.posteriors.posteriors import (
    ClosedForm,
    Features,
    describe,
    kernel_and_likelihood,
    tensors_of,
)
from qsgp.training.basis import make_basis, make_settings
from qsgp.training.checkpoints import Checkpoints, fingerprint_array
from qsgp.training.exact import affordable
from qsgp.training.learning import learn
from qsgp.training.options import LEARN_POINTS, Options, Sizes
from qsgp.training.road_features import train_features
from qsgp.training.road_rows import train_dual
from qsgp.training.road_weights import train_weights
from qsgp.training.safeguard import (
    BETTER_STEPS,
    MORE_FEATURES,
    MORE_STEPS,
    Shuffled,
    better_than_nothing,
    exact_of_some,
    judges,
    never_worse,
)
from qsgp.training.trained import Report, Trained

_LEARNING = 0.5  # of max_time, at most, for the hyperparameters
_LEARNING_CLOSED_FORM = 0.7  # a factor is all that comes after it


def train(
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n o"],
    weight: Float[Tensor, " n"],
    options: Options,
    sizes: Sizes,
    report: Report | None = None,
    units: Float[Tensor, " d"] | None = None,
) -> Trained:
    """Hyperparameters, then the closed form or the table of features. Rows of weight 0 are left out.

    ``units`` of the inputs before they were standardised: where they are alike, as pixels are, it may pay to know.
    """
    keep = torch.nonzero(weight > 0)[:, 0]
    if len(keep) < len(x):
        x, Y, weight = x[keep], Y[keep], weight[keep]
    with storing(x, Y, weight, options, sizes) as store:
        trained = _train(x, Y, weight, options, sizes, report, units, store)
    if trained.relevant is not None:
        trained.relevant = keep[trained.relevant]
    return trained


def _train(
    x: Tensor,
    Y: Tensor,
    weight: Tensor,
    options: Options,
    sizes: Sizes,
    report: Report | None,
    units: Tensor | None,
    store: "Store | None",
) -> Trained:
    with deferred_interrupt() as pressed:
        halt = Halt(pressed, options.max_time or math.inf)
        if store is not None and store.saved is not None:
            kernel, sites = store.hyperparameters()
        else:
            one_factor = sizes.closed_form or (sizes.dual and len(x) <= sizes.exact_rows)
            share = _LEARNING_CLOSED_FORM if one_factor else _LEARNING
            learning = Halt(pressed, share * options.max_time if options.max_time else math.inf)
            targets = varying(Y)
            kernel, sites = learn(
                x,
                targets,
                weight,
                options,
                sizes.learn_points,
                learning,
                sizes.learn_most,
                lambda: learning.left,
                units,
            )
        if sizes.closed_form:
            trained = closed_form(Rows(x, Y, weight), kernel, sites, options, halt)
            warn_if(pressed)
            return trained
        if halt() and not options.relevance:
            return stopped_early(x, Y, weight, kernel, sites, options, sizes)
        if options.solved:
            return train_features(x, Y, weight, kernel, sites, options, sizes, halt, report)
        if sizes.dual:
            return train_dual(x, Y, weight, kernel, sites, options, sizes, halt, report)
    warn_if(pressed)
    left = replace(options, max_time=1e-3 if halt() else halt.left)
    return train_table(x, Y, weight, kernel, sites, left, sizes, report, store)


def varying(Y: Float[Tensor, "n o"]) -> Float[Tensor, "n v"]:
    """Outputs that vary: one that does not would halve the noise that two share. All where none does."""
    varies = (Y != Y[:1]).any(0)
    return Y[:, varies] if varies.any() else Y


def closed_form(rows: Rows, kernel: Kernel, sites: Likelihood, options: Options, halt: Halt) -> Trained:
    """The exact GP on all rows; with a limit of time on as many of them as it leaves time for, and a word about it."""
    known = rows.n
    if options.max_time is not None:
        known = min(known, max(LEARN_POINTS, affordable(halt.left, sites, rows.Y.shape[1])))
    if known < rows.n:
        warnings.warn(
            f"There was time for the exact GP on {known:,} of {rows.n:,} rows. Fit again with more time to use all of "
            "them.",
            ConvergenceWarning,
            stacklevel=4,
        )
        rows = rows.take(some_rows(rows.n, known, options.seed))
    rows = rows.to("cpu", torch.float64)
    return Trained(ClosedForm.build(kernel, sites, *rows, halt=halt))


def warn_if(pressed: threading.Event) -> None:
    if pressed.is_set():
        warnings.warn("Interrupted early: the model is fitted, with hyperparameters that may be poor.", stacklevel=3)


def stopped_early(
    x: Tensor, Y: Tensor, weight: Tensor, kernel: Kernel, sites: Likelihood, options: Options, sizes: Sizes
) -> Trained:
    """The closed form on the rows the hyperparameters were learned on: the best that can be had at once."""
    rows = some_rows(len(x), min(sizes.learn_points, LEARN_POINTS), options.seed)
    warnings.warn(
        f"Stopped while the hyperparameters were learned: the model knows {len(rows)} of {len(x)} rows. "
        "Fit again with more time to use all of them.",
        stacklevel=2,
    )
    return Trained(ClosedForm.build(kernel, sites, x[rows].double(), Y[rows].double(), weight[rows].double()))


def train_table(
    x: Tensor,
    Y: Tensor,
    weight: Tensor,
    kernel: Kernel,
    sites: Likelihood,
    options: Options,
    sizes: Sizes,
    report: Report | None,
    store: "Store | None",
) -> Trained:
    """Stochastic training of a table of basis functions, `step` after `step`."""

    def put(tensor: Tensor) -> Tensor:
        return tensor.to(options.device, options.table_dtype)

    kernel = kernel.with_parameters({name: put(value) for name, value in kernel.parameters().items()})
    sites = sites.with_parameters({name: put(value) for name, value in sites.parameters().items()})
    source = Arrays(put(x), put(Y), None if bool((weight == 1).all()) else put(weight))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(options.seed))
    basis, centres = make_basis(kernel, source, order, options, sizes)
    rows = Shuffled(source, order.to(options.device))
    with deferred_interrupt() as pressed:
        halt = Halt(pressed, options.max_time or math.inf)
        known = exact_of_some(rows, kernel, sites, sizes, halt)
        if sizes.summed:
            trained = train_weights(rows, basis, known, options, sizes, halt, report)
            warn_if(pressed)
            return never_worse(trained, known, rows.last(judges(sizes)), MORE_FEATURES)
    # Distinct rows in an order of their own: a row given twice must not count as two support points.
    some = source.x[distinct(source.x, order, sizes.support_points).to(options.device)]
    support = Support.build(kernel, torch.unique(some, dim=0))
    k = {"meanfield": 0, "full": basis.m}.get(options.covariance, options.dense_columns)
    problem = Problem(source, basis, sites, Chevron(basis.m, k), support)
    settings = make_settings(problem, options, sizes)
    past = Fit(start(problem, settings))
    if store is not None:
        store.resume(past)

    def told(record: dict[str, float]) -> bool:
        stop = settled([entry["elbo"] for entry in past.history], options.tol)
        return bool(report and report(record, lambda: posterior_of(problem, past.state, options.relevance)[0])) or stop

    try:
        result = fit(
            problem,
            settings,
            past=past,
            every=max(1, settings.iterations // 50),
            report=told,
            save=None if store is None else lambda result: store.save(result, kernel, sites),
            max_seconds=options.max_time or math.inf,
        )
    except FloatingPointError as error:
        raise FloatingPointError(
            f"Expected training to converge, got a diverging one ({str(error).partition('. ')[0]}). Use "
            "dtype='float64', larger batch_points or batch_features, or fewer dense_columns; look for outliers in X."
        ) from error
    if store is not None:
        store.save(result, kernel, sites, now=True)
    if result.interrupted:
        warnings.warn(
            f"Interrupted after {result.state.t} of {settings.iterations} iterations: the model is fitted as far as "
            "that. Fit again with the same checkpoint folder to go on.",
            stacklevel=2,
        )
    posterior, kept = posterior_of(problem, result.state, options.relevance)
    relevant = kept if kept is None or centres is None else centres[kept]
    trained = Trained(posterior, result.history, result.state.t, relevant)
    held = rows.last(judges(sizes))
    if options.relevance:
        return better_than_nothing(trained, held, MORE_STEPS)
    return never_worse(trained, known, held, BETTER_STEPS)


def settled(elbo: list[float], tol: float | None, window: int = 5) -> bool:
    """The mean ELBO of the last records gains less than ``tol`` of its size over that of the records before."""
    if tol is None or len(elbo) < 2 * window:
        return False
    before, now = sum(elbo[-2 * window : -window]) / window, sum(elbo[-window:]) / window
    return now - before < tol * abs(before)


def posterior_of(problem: Problem, state: State, relevance: bool) -> tuple[Features, Tensor | None]:
    """What a state predicts with; of a relevance vector machine the functions that are left, and their positions."""
    basis, likelihood = at_hyperparameters(problem, state.theta)
    table, covariance, kept = state.table.detach(), problem.covariance, None
    if relevance:
        kept = relevance_vectors(state)
        assert isinstance(basis, KernelFunctions)
        basis = replace(basis, Z=basis.Z[kept])
        table, covariance = table[kept], Chevron(len(kept), 0)
    table = table[:, : state.outputs + covariance.k + 1].clone()
    return Features(basis, likelihood, covariance, table, state.outputs), None if kept is None else kept.cpu()


@contextmanager
def storing(x: Tensor, Y: Tensor, weight: Tensor, options: Options, sizes: Sizes) -> Iterator["Store | None"]:
    """The store of a run that has a checkpoint folder, which no other run may use meanwhile."""
    if sizes.closed_form or options.checkpoint is None:
        yield None
        return
    checkpoints = Checkpoints(options.checkpoint, every_seconds=options.checkpoint_seconds)
    with checkpoints.claimed():
        yield Store(checkpoints, x, Y, weight, options, sizes)


class Store:
    """The checkpoint folder of one run: refuses other data or arguments, brings back what was learned, saves it."""

    def __init__(
        self, checkpoints: Checkpoints, x: Tensor, Y: Tensor, weight: Tensor, options: Options, sizes: Sizes
    ) -> None:
        self._checkpoints = checkpoints
        self._fingerprint = {name: _json(value) for name, value in vars(options).items() if name not in _FREE}
        self._fingerprint |= {f"{name} (auto)": _json(value) for name, value in vars(sizes).items()}
        arrays = {"inputs": x, "targets": Y, "weights": weight}
        self._fingerprint |= {name: fingerprint_array(array) for name, array in arrays.items()}
        self._saved_at = -1
        self.saved = self._checkpoints.latest(options.device)
        if self.saved is not None:
            self._checkpoints.check_same(self.saved[0].get("fingerprint", {}), self._fingerprint)

    def hyperparameters(self) -> tuple[Kernel, Likelihood]:
        """Those the run began with: they are not learned twice."""
        assert self.saved is not None
        return kernel_and_likelihood(self.saved[0], self.saved[1])

    def resume(self, past: Fit) -> None:
        """Put the stored run into ``past``, if there is one."""
        if self.saved is None:
            return
        header, tensors = self.saved
        past.state.restore(tensors)
        past.history, past.seconds, past.stopped = header["history"], header["seconds"], header["stopped"]
        past.pending = list(tensors["pending"].unbind())
        self._saved_at = past.state.t
        warnings.warn(f"Resumed from iteration {past.state.t} in {self._checkpoints.folder}.", stacklevel=4)

    def save(self, result: Fit, kernel: Kernel, sites: Likelihood, now: bool = False) -> None:
        """When it is time, or ``now``; nothing is written twice. What was learned outlives a save that fails."""
        if not (now or self._checkpoints.due()) or result.state.t <= self._saved_at:
            return
        header: dict[str, Any] = {"fingerprint": self._fingerprint, "history": result.history}
        header |= {"seconds": result.seconds, "stopped": result.stopped, **describe(kernel, sites)}
        pending = torch.stack(result.pending) if result.pending else result.state.table.new_zeros(0)
        tensors = result.state.tensors() | tensors_of(kernel, sites) | {"pending": pending}
        try:
            self._checkpoints.save(header, tensors, result.state.t)
        except (OSError, FileError) as error:
            warnings.warn(
                f"The checkpoint of iteration {result.state.t} was not written ({error}). Training goes on: the model "
                "is fitted, but a killed run would go on from an earlier iteration. Make room, or name another folder.",
                stacklevel=2,
            )
        else:
            self._saved_at = result.state.t


# What may differ between a run and its continuation: how long it may take, how much memory, where it is stored.
_FREE = {"max_time", "max_memory", "checkpoint", "checkpoint_seconds"}


def _json(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
