"""The epochs of the rows road: `epoch` makes the next state, `finished` says when to end, `joined` is the last one.

Each block solved overfits its own rows until the others answer; the mean of A over the visits of an epoch does not, and
is several epochs ahead of the last A.
"""

import math
import time
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.factor import NotPositiveDefinite
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.solvers.dual import relaxation, shuffled
from qsgp.solvers.system import Block
from qsgp.training.held_out import not_worse, scored
from qsgp.training.rows_given import timed
from qsgp.training.rows_state import State, begun_again, with_support
from qsgp.training.task import Task
from qsgp.training.trained import Record

SETTLED = 0.003  # relative change of the held-out error, and absolute change of its density, over three epochs
_SETTLED_CLASSES = 0.01  # relative change of the held-out density: near 0 an absolute one would say nothing
_RESIDUAL = 0.003  # |R - (K + D) A| / |R|: nothing more to find
_OF_ERROR, _LEAST = (
    0.03,
    0.3,
)  # of the error of rows held out, at least so much of the above: of tiny noise more is found
_JOINED_WORSE = 0.2  # nat: draws have moved on since the trust in them was judged
_DIVERGED = 3.0  # times the least residual so far
_STUCK, _STUCK_EPOCHS = 1.2, 4  # times the least residual, for so many epochs: rounding keeps blocks from agreeing
_JOINING = 100  # number of the epoch in which rows held out join: the seed of its order


class Limits(NamedTuple):
    """Of epochs, of those in which draws are solved for beside the mean, and of new beginnings."""

    epochs: int = 100
    draws_epochs: int = 12
    restarts: int = 6


LIMITS = Limits()


class Info(NamedTuple):
    """What is told of an epoch: what it was, and what rows held out say of it; nothing when it came to nothing."""

    record: Record
    scores: Record


class Visits(NamedTuple):
    """Of an epoch: the residual of all rows (None when cut short, infinite without a factor), the mean of A over the
    visits, and the seconds of the longest visit so far."""

    residual: float | None
    A: Float[Tensor, "n c"]
    longest: float


def epoch(task: Task, state: State, limits: Limits = LIMITS) -> tuple[State, Info | None]:
    """Visit all rows once and judge the mean of A over the visits."""
    if state.judged and state.given.fixed and _enough_draws(task, state, limits):
        state = replace(state, system=state.system.first(state.given.outputs))
    started = time.perf_counter()
    visits = visit_all(task, state, state.given.n)
    pace = state.pace._replace(epoch=time.perf_counter() - started, visit=visits.longest)
    state, residual = replace(state, pace=pace, epochs=state.epochs + 1), visits.residual
    lost_its_way = residual is not None and _astray(state, residual)
    if lost_its_way and not task.ranks.agreed(task.halt()):
        lost = not state.given.fixed or state.restarts == limits.restarts
        return replace(state, lost=True) if lost else begun_again(task, state), None
    state, scores = _judged(task, state, visits)
    only_mean = state.system.A.shape[1] == state.given.outputs
    record: Record = {"phase": "mean" if only_mean else "mean and draws", "iteration": state.epochs}
    # an epoch cut short has no residual; NaN could not be stored
    return state, Info(record | ({} if residual is None else {"residual": residual}), scores)


def _astray(state: State, residual: float) -> bool:
    """Whether residuals grow, or have stopped falling far from the end."""
    stuck = state.since_least >= _STUCK_EPOCHS and residual > max(_STUCK * state.least, 10 * _RESIDUAL)
    return not residual < max(_DIVERGED * state.least, _RESIDUAL) or (
        stuck and state.system.ahead is None and state.given.fixed
    )


def _enough_draws(task: Task, state: State, limits: Limits) -> bool:
    return task.ranks.agreed(task.halt.left < state.draws_end) or state.epochs >= limits.draws_epochs


def _judged(task: Task, state: State, visits: Visits) -> tuple[State, Record]:
    """With the posterior of these visits, which is the best if rows held out do not find it worse."""
    residual, given = visits.residual, state.given
    A = torch.cat([visits.A, state.posterior.A[:, visits.A.shape[1] :]], 1)  # draws that are no longer solved for
    known = replace(state.posterior, A=A) if given.fixed else with_support(task, given, state.support, state.sites, A)
    posterior, scores, seconds = given.judged(known)
    kept = not_worse(scores, state.best_scores)
    if kept:
        best_scores = {name: min(value, state.best_scores[name]) for name, value in scores.items()}
        state = replace(state, best=posterior, best_scores=best_scores, best_is_exact=False)
    state = replace(
        state,
        posterior=posterior,
        kept=kept,
        judged=True,
        residual=residual,
        least=state.least if residual is None else min(state.least, residual),
        since_least=0 if residual is None or residual < state.least else state.since_least + 1,
        scores=(*state.scores, scores),
        iterations=state.epochs,
        pace=state.pace._replace(watch=seconds),
    )
    return state, scores


def visit_all(task: Task, state: State, rows: int) -> Visits:
    """Solve all blocks of so many rows, one after another."""
    system, squares, total = state.system, list[Tensor](), torch.zeros_like(state.system.A)
    longest, halt, many, ranks = state.pace.visit, task.halt, state.blocks(task), task.ranks
    seed = task.options.seed * 1_000_003 + state.epochs
    blocks = shuffled(rows, task.sizes.block, seed, system.x.device)
    for block in system.blocks(blocks):
        began = time.perf_counter()
        if len(squares) > 0 and ranks.agreed(halt() or (timed(task) and halt.left < longest + state.pace.watch)):
            break
        try:
            squares.append(visit(state, block, relaxation(system, many)))
        except NotPositiveDefinite:
            return Visits(math.inf, total, longest)
        total += system.A
        longest = max(longest, time.perf_counter() - began)
    if system.ahead is not None:
        mean = system.ahead.mean.to(system.A.dtype, copy=True)
    else:  # of a part of an epoch less than half says little more than its own rows
        enough = 2 * len(squares) >= len(blocks) or state.epochs == 0
        mean = total / len(squares) if enough else state.posterior.A[:, : total.shape[1]]
    left, all_ = ranks.total(torch.stack(squares).sum(0)).sqrt().tolist()
    return Visits(left / max(all_, 1e-30) if len(squares) == len(blocks) else None, mean, longest)


def visit(state: State, block: Block, relax: float) -> Float[Tensor, " two"]:
    """Solve one block; squares of its residual and of its right-hand side, the terms of a rank's own rows."""
    system, sites, given = state.system, state.sites, state.given
    part = system.values(block)
    f = (part if given.fixed else given.ranks.total(part))[block.at]  # what Gaussian sites say does not depend on f
    untold = not sites.draws and not given.fixed
    R = sites.right(block.own, f, state.posterior.spread.support(block.x[block.at]).to(f) if untold else None)
    residual = system.solve(block, part, R, relax)[block.at]
    return torch.stack([part[:, : given.outputs].square().sum() for part in (residual, R)])


def finished(task: Task, state: State, limits: Limits = LIMITS) -> bool:
    """Solved, settled, interrupted, or no time for another epoch and the one of the rows held out."""
    if state.lost or state.epochs >= limits.epochs:
        return True
    if not state.judged:
        return False
    tol, ahead = task.options.tol, state.system.ahead
    return task.ranks.agreed(
        state.residual is None
        or task.halt.pressed.is_set()
        or state.residual < (_solved(state) if tol is None else min(_RESIDUAL, tol))
        or (state.given.fixed and state.blocks(task) <= 1)
        or (settled(state.scores, tol) and (ahead is None or state.epochs >= ahead.epochs))
        or task.halt.left < (2 if ahead is None else 1) * state.pace.epoch
    )


def _solved(state: State) -> float:
    """The residual from which on there is nothing more to find."""
    return min(1.0, max(_OF_ERROR * state.scores[-1].get("rmse", 1.0) / _RESIDUAL, _LEAST)) * _RESIDUAL


def settled(epochs: tuple[Record, ...], tol: float | None = None) -> bool:
    """Over the last third of the epochs, three at least: two may agree by luck, and many small steps lead far.

    ``tol``: relative change of the error of rows held out, and change of their density (relative of classes)."""
    if len(epochs) < 3:
        return False
    last = epochs[-max(3, len(epochs) // 3) :]
    mnlp = [record["mnlp"] for record in last]
    if "error" in last[-1]:
        return bool(max(mnlp) - min(mnlp) < (_SETTLED_CLASSES if tol is None else tol) * mnlp[-1])
    least, rmse = SETTLED if tol is None else tol, [record["rmse"] for record in last]
    return bool(max(rmse) - min(rmse) < least * rmse[-1] and max(mnlp) - min(mnlp) < least)


def joined(task: Task, state: State) -> KernelFunctionsAtRows:
    """All rows once more, those held out first; of many blocks they are too few to be worth another epoch.

    They are known then: what predicts them worse than before has gone astray and is not taken.
    """
    given, system, before, halt = state.given, state.system, state.posterior, task.halt
    late = task.ranks.agreed(halt() or halt.left < 1.2 * state.pace.epoch)
    if system.ahead is not None or not state.kept or late:
        return state.best
    both, n = given.all_rows, given.n + given.held_out.n
    more = both.n - given.rows.n
    A = torch.cat([system.A, system.A.new_zeros(more, system.A.shape[1])])
    system = replace(system, x=both.x, noise=state.sites.noise, A=A)
    state = replace(state, system=system, epochs=_JOINING)
    try:
        visit(state, system.block(torch.arange(given.n, n, device=both.x.device)), 1.0)
    except NotPositiveDefinite:
        return state.best
    residual, A, _ = visit_all(task, state, n)
    if residual is None or not residual < 1:
        return state.best
    unsolved = before.A[:, A.shape[1] :]
    unsolved = torch.cat([unsolved, unsolved.new_zeros(more, unsolved.shape[1])])
    posterior = replace(before, x=both.x, A=torch.cat([A, unsolved], 1), n=n)
    scores = task.ranks.agreed(scored(posterior, given.held_out))
    better = not_worse(scores, state.best_scores, _JOINED_WORSE)
    return posterior if better else state.best
