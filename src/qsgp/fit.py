"""The training loop, top to bottom."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import torch
from torch import Tensor

from qsgp.checks import check_positive
from qsgp.problem import Problem
from qsgp.start import check_problem, check_state, start
from qsgp.state import State
from qsgp.step import Settings, step


@dataclass
class Fit:
    """A trained state and what happened on the way: one record in ``history`` for every report."""

    state: State
    history: list[dict[str, float]] = field(default_factory=list)
    interrupted: bool = False


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of tearing a step apart; a second one stops at once, as usual."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed  # signals reach the main thread only
        return

    def press(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def fit(
    problem: Problem,
    settings: Settings,
    *,
    state: State | None = None,
    evaluate: Callable[[State], dict[str, float]] | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
    save: Callable[[State], None] | None = None,
    every: int = 100,
    max_seconds: float = float("inf"),
) -> Fit:
    """Steps until ``settings.iterations`` or ``max_seconds``; a given ``state`` goes on where it stopped.

    Every ``every`` steps a record is made: iteration, seconds, the mean sampled ELBO since the last one, and what
    ``evaluate`` adds. Draws depend on (seed, iteration) alone, so an interrupted run ends where a whole one would.
    ``save`` is called after every step. Ctrl-C ends the loop after the step it falls in, with all that was learned.
    """
    check_positive("every", every, "Ask for a record every 100 steps, for example.")
    if state is None:
        state = start(problem, settings)
    else:
        check_problem(problem, settings)
        check_state(problem, settings, state)
    result = Fit(state)
    began, elbos = time.perf_counter(), []
    with deferred_interrupt() as interrupt:
        while state.t < settings.iterations and time.perf_counter() - began < max_seconds:
            state, info = step(problem, state, settings)
            elbos.append(torch.stack(list(info.terms.values())).sum())
            if save:
                save(state)
            result.interrupted = interrupt.is_set()
            if state.t % every and state.t < settings.iterations and not result.interrupted:
                continue
            record = {"iteration": float(state.t), "seconds": time.perf_counter() - began}
            first = result.history[0]["elbo"] if result.history else 0.0
            record |= {"elbo": _mean_elbo(elbos, first, state, settings)} | (evaluate(state) if evaluate else {})
            elbos = []
            result.history.append(record)
            if report:
                report(record)
            if result.interrupted:
                break
    return result


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
