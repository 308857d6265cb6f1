"""The training loop, top to bottom."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from qsgp.problem import Problem
from qsgp.start import start
from qsgp.state import State
from qsgp.step import Settings, step


@dataclass
class Fit:
    """A trained state and what happened on the way: one record in ``history`` for every report."""

    state: State
    history: list[dict[str, float]] = field(default_factory=list)


def fit(
    problem: Problem,
    settings: Settings,
    *,
    state: State | None = None,
    evaluate: Callable[[State], dict[str, float]] | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
    every: int = 100,
    max_seconds: float = float("inf"),
) -> Fit:
    """Steps until ``settings.iterations`` or ``max_seconds``; a given ``state`` goes on where it stopped.

    Every ``every`` steps a record is made: iteration, seconds, the mean sampled ELBO since the last one, and what
    ``evaluate`` adds. Draws depend on (seed, iteration) alone, so an interrupted run ends where a whole one would.
    """
    state = start(problem, settings) if state is None else state
    result = Fit(state)
    began, elbos = time.perf_counter(), []
    while state.t < settings.iterations and time.perf_counter() - began < max_seconds:
        state, info = step(problem, state, settings)
        elbos.append(torch.stack(list(info.terms.values())).sum())
        if state.t % every and state.t < settings.iterations:
            continue
        elbo = -0.5 * float(torch.stack(elbos).mean())
        if elbo != elbo or abs(elbo) == float("inf"):
            raise FloatingPointError(
                f"Training diverged: the sampled ELBO is {elbo} at iteration {state.t}. "
                f"Lower the rate (now {settings.rate}), raise m_tilde (now {settings.m_tilde}) "
                "or use a control variate."
            )
        elbos = []
        record = {"iteration": float(state.t), "seconds": time.perf_counter() - began, "elbo": elbo}
        record |= evaluate(state) if evaluate else {}
        result.history.append(record)
        if report:
            report(record)
    return result
