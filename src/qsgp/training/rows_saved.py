"""States of the rows road as checkpoints: what cannot be computed again is stored, the rest is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from qsgp.interfaces import Kernel, Likelihood
from qsgp.posteriors.posteriors import (
    KernelFunctionsAtRows,
    describe,
    kernel_and_likelihood,
    posterior_from,
    tensors_of,
)
from qsgp.ranks import Ranks
from qsgp.solvers.dual import spectral
from qsgp.solvers.row_sites import RowSites
from qsgp.solvers.system import Ahead
from qsgp.training.rows_given import Given
from qsgp.training.rows_state import Pace, State, system_of, until_draws_end
from qsgp.training.task import Task

Parts = tuple[dict[str, Any], dict[str, Tensor]]  # header and tensors

_NUMBERS = (
    "exact_rows",
    "residual",
    "least",
    "since_least",
    "epochs",
    "iterations",
    "restarts",
    "judged",
    "lost",
    "best_is_exact",
    "kept",
)


def parts(state: State) -> Parts:
    """Header and tensors, from which `restored` makes the same state; all rows of all ranks."""
    given, ahead = state.given, state.system.ahead
    header: dict[str, Any] = {name: getattr(state, name) for name in _NUMBERS}
    header |= {"floor": given.floor, "rows": given.n, "pace": list(state.pace)}
    header |= {"scores": list(state.scores), "best_scores": state.best_scores}
    header |= {"given": describe(given.kernel, given.likelihood)}
    ranks, n = given.ranks, given.n + given.held_out.n
    tensors = {"support": state.support, "A": _all(ranks, state.system.A, given.n)}
    tensors["noise"] = _all(ranks, state.sites.noise, n)
    tensors |= _under("given", tensors_of(given.kernel, given.likelihood))
    if ahead is not None:
        header["steps"] = ahead.steps
        tensors |= {"V": _all(ranks, ahead.V, given.n), "mean": _all(ranks, ahead.mean, given.n)}
    header["posterior"], own = state.posterior.parts()
    own.pop("x")  # all rows, which the run is given again
    own["A"] = _all(ranks, own["A"], given.n)
    tensors |= _under("posterior", own)
    if state.best is not state.posterior:
        header["best"], own = state.best.whole().parts()
        tensors |= _under("best", own)
    return header, tensors


def restored(task: Task, learned: tuple[Kernel, Likelihood], stored: Parts) -> State:
    """The state that was stored, for the same rows."""
    header, tensors = stored
    given = _given(task, learned, header, tensors)
    share, options = task.ranks.share(given.n), task.options
    sites = RowSites.build(
        given.kernel, given.likelihood, given.all_rows, task.sizes.draws, options.seed, given.floor, task.ranks
    )
    sites.noise.copy_(tensors["noise"][task.ranks.share(len(tensors["noise"]))])
    A, ahead = tensors["A"][share].contiguous(), None
    if "V" in tensors:
        V, mean = (tensors[name][share].contiguous() for name in ("V", "mean"))
        ahead = Ahead(V, mean, given.n / task.sizes.block, header["steps"])
    system = system_of(given, sites, A, ahead)
    own = _of("posterior", tensors)
    own |= {"x": given.rows.x, "A": own["A"][share].contiguous()}
    posterior = replace(_posterior(header["posterior"], own), ranks=task.ranks, n=given.n)
    best = _posterior(header["best"], _of("best", tensors)) if "best" in header else posterior
    return State(
        given=given,
        support=tensors["support"],
        sites=sites,
        system=system,
        posterior=posterior,
        best=best,
        best_scores=header["best_scores"],
        draws_end=until_draws_end(task),
        pace=Pace(*header["pace"]),
        scores=tuple(header["scores"]),
        **{name: header[name] for name in _NUMBERS if name in header},  # checkpoints of before lack some
    )


def _given(
    task: Task, learned: tuple[Kernel, Likelihood], header: dict[str, Any], tensors: Mapping[str, Tensor]
) -> Given:
    """In the precision the run had come to, with as many rows and the lengthscales it had chosen."""
    given, dtype = Given.of(task, *learned), tensors["A"].dtype
    rows, held_out, spare = (part.to(part.x.device, dtype) for part in (given.rows, given.held_out, given.spare))
    kernel, likelihood = kernel_and_likelihood(header["given"], _of("given", tensors))
    given = replace(given, rows=rows, held_out=held_out, spare=spare, kernel=spectral(kernel), likelihood=likelihood)
    return replace(given, floor=header["floor"]).fewer(header["rows"])


def _all(ranks: Ranks, own: Tensor, n: int) -> Tensor:
    return own if ranks.size == 1 else ranks.collected(own, torch.arange(n, device=own.device))


def _posterior(header: dict[str, Any], tensors: dict[str, Tensor]) -> KernelFunctionsAtRows:
    posterior = posterior_from(header, tensors)
    assert isinstance(posterior, KernelFunctionsAtRows)
    return posterior


def _under(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}/{key}": value for key, value in tensors.items()}


def _of(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
