"""The exact GP on some rows, with which the rows road begins, and how many rows there is time for after it."""

import time
from dataclasses import dataclass, replace

from qsgp.data.rows import Rows
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.solvers.row_sites import RowSites, groups_of
from qsgp.training.exact import affordable, exact_gp, solvable
from qsgp.training.rows_given import Given, timed
from qsgp.training.task import Task
from qsgp.training.trained import Record

_TIME = 0.6  # of the time after the hyperparameters, at most
_LEAST = 400  # rows it has in any case
_EPOCHS_WANTED = 2.5  # of the rows that are solved for
_MORE_ROWS = 1.2  # times those of the exact GP: fewer are not worth epochs


@dataclass(frozen=True)
class Exact:
    """The GP on the first rows, what rows held out say of it, and how long it and they took."""

    posterior: KernelFunctionsAtRows
    scores: Record
    seconds: float
    watch_seconds: float

    @property
    def n(self) -> int:
        return len(self.posterior.x)


def exact_of_first_rows(task: Task, given: Given) -> Exact:
    """On as many of the first rows as are affordable."""
    most = min(given.n, task.sizes.exact_rows)
    count = task.ranks.agreed(min(most, _affordable_rows(task, given)) if timed(task) else most)
    while True:
        began = time.perf_counter()
        posterior = _exact_gp(task, given, given.first(count))
        took = time.perf_counter() - began
        posterior, scores, watch = given.judged(posterior)
        exact = Exact(posterior, scores, took, watch)
        if not timed(task) or count == most:
            return exact
        # a machine that was busy when it was timed may have time for more
        spent = took + exact.watch_seconds
        more = task.ranks.agreed(min(most, int(count * max(_TIME * task.halt.left / spent, 0.0) ** (1 / 3))))
        if more < _MORE_ROWS * count or task.ranks.agreed(task.halt()):
            return exact
        count = more


def _affordable_rows(task: Task, given: Given) -> int:
    seconds = min(_TIME * task.halt.left, task.halt.left - 0.1)
    return max(_LEAST, affordable(seconds, given.likelihood, given.outputs))


def _exact_gp(task: Task, given: Given, rows: Rows) -> KernelFunctionsAtRows:
    seed = task.options.seed
    sites = RowSites.build(given.kernel, given.likelihood, rows, 0, seed, given.floor)
    return exact_gp(given.kernel, sites, rows.x, seed, task.halt)


def exact_of_all_rows(task: Task, given: Given, exact: Exact) -> KernelFunctionsAtRows:
    """All rows fit into the exact GP: those held out join, with the noise and the trust they have asked for."""
    judged = exact.posterior
    if task.ranks.agreed(task.halt() or (timed(task) and task.halt.left < 1.3 * exact.seconds)):
        return judged
    whole = _exact_gp(task, given, given.first(given.n).followed_by(given.held_out))
    spread = replace(whole.spread, blend=judged.spread.blend, trust=judged.spread.trust)
    return replace(whole, spread=spread, likelihood=judged.likelihood)


def with_affordable_rows(task: Task, given: Given, exact: Exact) -> Given:
    """With as many rows as some epochs can solve for in the time left."""
    if not timed(task):
        return given
    block = task.sizes.block
    columns = given.outputs + groups_of(given.likelihood, given.outputs) * task.sizes.draws
    visit = exact.seconds * (block / exact.n) ** 3
    seconds = task.ranks.size * task.halt.left / _EPOCHS_WANTED  # the ranks work at the same time
    return given.fewer(task.ranks.agreed(solvable(seconds, exact.posterior, columns, visit / block)))


def worth_epochs(given: Given, exact: Exact) -> bool:
    return given.n > _MORE_ROWS * exact.n
