"""A table of basis functions trained by stochastic steps, the algorithm of the paper."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qsgp.bases import KernelFunctions
from qsgp.data.rows import distinct
from qsgp.interfaces import Kernel, Likelihood, Source
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import Fit, fit
from qsgp.paper.prediction import relevance_vectors
from qsgp.paper.problem import Problem, at_hyperparameters
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start
from qsgp.paper.state import State
from qsgp.paper.support import Support
from qsgp.posteriors.posteriors import Features
from qsgp.training.basis import Table, make_table
from qsgp.training.safeguard import (
    BETTER_STEPS,
    MORE_STEPS,
    better_than_nothing,
    exact_of_some,
    instead,
    judges,
    never_worse,
)
from qsgp.training.step_settings import make_settings
from qsgp.training.store import Store
from qsgp.training.task import Task
from qsgp.training.trained import Trained
from qsgp.training.window import Window

_RECORDS = 50  # of a run
_OF_FUNCTIONS = ("table", "sums")  # what a state has for each function
_AT_ONCE = 1e-3  # seconds that are left to a run when time is up: one step


def train(task: Task, kernel: Kernel, likelihood: Likelihood) -> Trained:
    """Step after step; then compared with the exact GP of some rows, a relevance vector machine with a constant."""
    table = make_table(task, kernel, likelihood)
    known = None
    if not task.options.relevance:
        known = exact_of_some(table.rows, table.kernel, table.likelihood, task.sizes, task.halt)
    problem = make_problem(task, table)
    problem = problem.shared(task.ranks) if task.ranks.size > 1 else problem
    settings = make_settings(problem, task.options, task.sizes)
    settings = replace(settings, every=max(1, settings.iterations // _RECORDS))
    past, early = Fit(start(problem, settings)), task.halt.pressed.is_set()
    try:
        with _moving(problem.source) as after:
            result = _fitted(task, problem, settings, past, (kernel, likelihood), after)
    except FloatingPointError as error:
        if known is None:
            raise
        return instead(Trained(known, past.history, past.state.t), known, str(error))
    if result.interrupted and not early:  # which has been said
        again = " Fit again with the same checkpoint folder to go on." if task.store is not None else ""
        warnings.warn(
            f"Interrupted after {result.state.t} of {settings.iterations} iterations: the model is fitted as far as "
            f"that.{again}",
            stacklevel=4,
        )
    posterior, kept = posterior_of(problem, result.state, task.options.relevance)
    relevant = kept if kept is None or table.centres is None else table.centres[kept]
    trained = Trained(posterior, result.history, result.state.t, relevant)
    held = table.rows.last(judges(task.sizes))
    if known is None:
        return better_than_nothing(trained, held, MORE_STEPS)
    return never_worse(trained, known, held, BETTER_STEPS, problem.agreed)


def make_problem(task: Task, table: Table) -> Problem:
    # Distinct rows in an order of their own: a row given twice must not count as two support points.
    source, order, options = table.rows.source, table.order, task.options
    some = source.x[distinct(source.x, order, task.sizes.support_points).to(options.device)]
    support = Support.build(table.kernel, torch.unique(some, dim=0))
    m = table.basis.m
    k = {"meanfield": 0, "full": m}.get(options.covariance, options.dense_columns)
    if task.stream is not None:
        window = Window(task.stream, source, task.sizes.batch_points, options.seed)
        return Problem(window, table.basis, table.likelihood, Chevron(m, k), support)
    return Problem(source, table.basis, table.likelihood, Chevron(m, k), support)


@dataclass(frozen=True)
class _Watch:
    """What is asked after every record: whether the bound has settled, and whether the user wants to stop."""

    task: Task
    problem: Problem
    past: Fit

    def __call__(self, record: dict[str, float]) -> bool:
        stop = settled([entry["elbo"] for entry in self.past.history], self.task.options.tol)
        return bool(self.task.report and self.task.report(record, self.posterior)) or stop

    def posterior(self) -> Features:
        return posterior_of(self.problem, self.past.state, self.task.options.relevance)[0]


@contextmanager
def _moving(source: Source) -> Iterator[Callable[[], None]]:
    """What comes after every step: a window moves on."""
    if not isinstance(source, Window):
        yield lambda: None
        return
    try:
        yield source.move
    finally:
        source.close()


def _fitted(
    task: Task,
    problem: Problem,
    settings: Settings,
    past: Fit,
    learned: tuple[Kernel, Likelihood],
    after: Callable[[], None],
) -> Fit:
    """The steps, resumed and stored where there is a folder for it."""
    store = task.store
    if store is not None:
        resume(store, past, problem)

    def save(result: Fit) -> None:
        after()
        if store is not None:
            save_state(store, learned, result, problem)

    try:
        result = fit(
            problem,
            settings,
            past=past,
            report=_Watch(task, problem, past),
            save=save,
            max_seconds=_AT_ONCE if problem.agreed(task.halt()) else task.halt.left,
        )
    except FloatingPointError as error:
        raise FloatingPointError(
            f"Training diverged ({str(error).partition('. ')[0]}). Use "
            "dtype='float64', larger batch_points or batch_features, or fewer dense_columns; look for outliers in X."
        ) from error
    if store is not None:
        save_state(store, learned, result, problem, now=True)
    return result


def resume(store: Store, past: Fit, problem: Problem) -> None:
    """Put the stored run into ``past``, if there is one: of ranks that share functions each takes its own."""
    if store.saved is None:
        return
    header, tensors = store.saved
    if problem.shares is not None:
        tensors = tensors | {name: problem.shares.part(tensors[name]) for name in _OF_FUNCTIONS}
    past.state.restore(tensors)
    past.history, past.seconds, past.stopped = header["history"], header["seconds"], header["stopped"]
    past.pending = list(tensors["pending"].unbind())
    store.resumed(past.state.t)


def save_state(
    store: Store, learned: tuple[Kernel, Likelihood], result: Fit, problem: Problem, now: bool = False
) -> None:
    """When it is time, or ``now``. The first rank has the functions of all while it writes."""
    if not problem.agreed(store.wants(result.state.t, now)):
        return
    tensors, shares = result.state.tensors(), problem.shares
    if shares is not None:
        tensors |= {name: shares.whole(tensors[name], shares.ranks.rank == 0) for name in _OF_FUNCTIONS}
    header = {"history": result.history, "seconds": result.seconds, "stopped": result.stopped}
    pending = torch.stack(result.pending) if result.pending else result.state.table.new_zeros(0)
    store.save(result.state.t, learned, header, tensors | {"pending": pending})


def settled(elbo: list[float], tol: float | None, window: int = 5) -> bool:
    """The mean ELBO of the last records gains less than ``tol`` of its size over that of the records before."""
    if tol is None or len(elbo) < 2 * window:
        return False
    before, now = sum(elbo[-2 * window : -window]) / window, sum(elbo[-window:]) / window
    return now - before < tol * abs(before)


def posterior_of(problem: Problem, state: State, relevance: bool) -> tuple[Features, Tensor | None]:
    """What a state predicts with; of a relevance vector machine the functions that are left, and their positions."""
    basis, likelihood = at_hyperparameters(problem, state.theta)
    table, covariance, kept = state.table.detach(), problem.own_covariance, None
    if relevance:
        kept = relevance_vectors(state)
        assert isinstance(basis, KernelFunctions)
        basis = replace(basis, Z=basis.Z[kept])
        table, covariance = table[kept], Chevron(len(kept), 0)
    table = table[:, : state.outputs + covariance.k + 1].clone()
    return Features(
        basis, likelihood, covariance, table, state.outputs, problem.shares
    ), None if kept is None else kept.cpu()
