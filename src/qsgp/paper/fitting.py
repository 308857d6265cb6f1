"""The training loop, top to bottom."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from qsgp.interrupt import deferred_interrupt
from qsgp.paper.block_training import BlockSteps
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.starting import check_problem, check_state, start
from qsgp.paper.state import State
from qsgp.paper.stepping import step


@dataclass
class Fit:
    """A trained state and what happened on the way: one record in ``history`` for every report.

    ``pending`` holds the sampled losses since the last record: with them a resumed run makes the records, and hence
    the decisions to stop, of an undisturbed one.
    """

    state: State
    history: list[dict[str, float]] = field(default_factory=list)
    pending: list[Tensor] = field(default_factory=list)
    interrupted: bool = False
    stopped: bool = False  # by a report: a resumed run must not go on
    seconds: float = 0.0  # of training, those before a resumption included


def fit(
    problem: Problem,
    settings: Settings,
    *,
    past: Fit | State | None = None,
    evaluate: Callable[[State], dict[str, float]] | None = None,
    report: Callable[[dict[str, float]], bool | None] | None = None,
    save: Callable[[Fit], None] | None = None,
    max_seconds: float = float("inf"),
) -> Fit:
    """Steps until ``settings.iterations`` or ``max_seconds``, from the beginning or from a ``past`` run or state.

    Every ``settings.every`` steps a record is made: iteration, seconds, the mean sampled ELBO since the last one, and
    what ``evaluate`` adds; ``report`` is told and may end the run by returning True. Draws depend on (seed, iteration)
    alone, so an interrupted run ends where a whole one would. ``save`` is called after every step. Ctrl-C ends the
    loop after the step it falls in, with all that was learned.
    """
    if past is not None:
        result = past if isinstance(past, Fit) else Fit(past)
        check_problem(problem, settings)
        check_state(problem, settings, result.state)
    else:
        result = Fit(start(problem, settings))
    advance = _stepper(problem, result.state, settings)
    before, began = result.seconds, time.perf_counter()
    with deferred_interrupt() as interrupt:
        while result.state.t < settings.iterations and not result.stopped:
            if problem.agreed(time.perf_counter() - began >= max_seconds):
                break
            result.pending.append(advance())
            result.interrupted = problem.agreed(interrupt.is_set())
            last = result.state.t == settings.iterations or result.interrupted
            if last or result.state.t % settings.every == 0:
                result.seconds = before + time.perf_counter() - began
                _record(result, settings, evaluate)
                result.stopped = problem.agreed(bool(report and report(result.history[-1])))
            if save:
                save(result)
            if result.interrupted:
                break
    return result


def _stepper(problem: Problem, state: State, settings: Settings) -> Callable[[], Tensor]:
    """A step of ``state``, in place, as one call. It returns the sampled -2 ELBO."""

    def scattered() -> Tensor:
        _, info = step(problem, state, settings)
        return torch.stack(list(info.terms.values())).sum().detach()

    return BlockSteps.of(problem, state, settings) if settings.draws == "blocks" else scattered


def _record(result: Fit, settings: Settings, evaluate: Callable[[State], dict[str, float]] | None) -> None:
    state, first = result.state, result.history[0]["elbo"] if result.history else 0.0
    record = {"iteration": float(state.t), "seconds": result.seconds}
    record |= {"elbo": _mean_elbo(result.pending, first, state, settings)} | (evaluate(state) if evaluate else {})
    result.pending = []
    result.history.append(record)


def _mean_elbo(losses: list[Tensor], first: float, state: State, settings: Settings) -> float:
    """Raises where training diverges: not finite, or a million times worse than at ``first``."""
    elbo = -0.5 * float(torch.stack(losses).mean())
    if not math.isfinite(elbo) or (first and elbo < -1e6 * max(1.0, abs(first))):
        remedy = (
            f"Lower the rate (now {settings.rate}), raise m_tilde (now {settings.m_tilde}) or use a control variate."
        )
        if settings.mean_update == "newton":
            remedy = f"Use mean_update='adagrad', or all functions in every step (m_tilde = {settings.m_tilde} now)."
        raise FloatingPointError(f"Training diverged: the sampled ELBO is {elbo} at iteration {state.t}. {remedy}")
    return elbo
