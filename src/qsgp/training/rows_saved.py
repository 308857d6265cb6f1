"""States of the rows road as checkpoints: what cannot be computed again is stored, the rest is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from qsgp.interfaces import Kernel, Likelihood
from qsgp.posteriors.posteriors import (
    KernelFunctionsAtRows,
    describe,
    kernel_and_likelihood,
    posterior_from,
    tensors_of,
)
from qsgp.solvers.dual import Ahead, System, spectral
from qsgp.solvers.row_sites import RowSites
from qsgp.training.rows_given import Given
from qsgp.training.rows_state import Pace, State, until_draws_end
from qsgp.training.task import Task

Parts = tuple[dict[str, Any], dict[str, Tensor]]  # header and tensors

_NUMBERS = (
    "exact_rows",
    "residual",
    "least",
    "epochs",
    "iterations",
    "restarts",
    "judged",
    "lost",
    "best_is_exact",
    "kept",
)


def parts(state: State) -> Parts:
    """Header and tensors, from which `restored` makes the same state."""
    given, ahead = state.given, state.system.ahead
    header: dict[str, Any] = {name: getattr(state, name) for name in _NUMBERS}
    header |= {"floor": given.floor, "rows": given.rows.n, "pace": list(state.pace)}
    header |= {"scores": list(state.scores), "best_scores": state.best_scores}
    header |= {"given": describe(given.kernel, given.likelihood)}
    tensors = {"support": state.support, "A": state.system.A, "noise": state.sites.noise}
    tensors |= _under("given", tensors_of(given.kernel, given.likelihood))
    if ahead is not None:
        header["steps"] = ahead.steps
        tensors |= {"V": ahead.V, "mean": ahead.mean}
    header["posterior"], own = state.posterior.parts()
    own.pop("x")  # all rows, which the run is given again
    tensors |= _under("posterior", own)
    if state.best is not state.posterior:
        header["best"], own = state.best.parts()
        tensors |= _under("best", own)
    return header, tensors


def restored(task: Task, learned: tuple[Kernel, Likelihood], stored: Parts) -> State:
    """The state that was stored, for the same rows."""
    header, tensors = stored
    given = _given(task, learned, header, tensors)
    support, n = tensors["support"], given.rows.n
    sites = RowSites.build(
        given.kernel, given.likelihood, given.all_rows, task.sizes.draws, task.options.seed, given.floor
    )
    sites.noise.copy_(tensors["noise"])
    A, group = tensors["A"], sites.group
    ahead = Ahead(tensors["V"], tensors["mean"], n / task.sizes.block, header["steps"]) if "V" in tensors else None
    group = None if group is None else group[: A.shape[1]]
    system = System(given.kernel, given.rows.x, sites.noise[:n], A, group, ahead)
    posterior = _posterior(header["posterior"], {"x": given.rows.x, **_of("posterior", tensors)})
    best = _posterior(header["best"], _of("best", tensors)) if "best" in header else posterior
    return State(
        given=given,
        support=support,
        sites=sites,
        system=system,
        posterior=posterior,
        best=best,
        best_scores=header["best_scores"],
        draws_end=until_draws_end(task),
        pace=Pace(*header["pace"]),
        scores=tuple(header["scores"]),
        **{name: header[name] for name in _NUMBERS},
    )


def _given(
    task: Task, learned: tuple[Kernel, Likelihood], header: dict[str, Any], tensors: Mapping[str, Tensor]
) -> Given:
    """In the precision the run had come to, with as many rows and the lengthscales it had chosen."""
    given, dtype = Given.of(task, *learned), tensors["A"].dtype
    rows, held_out = (part.to(part.x.device, dtype) for part in (given.rows, given.held_out))
    kernel, likelihood = kernel_and_likelihood(header["given"], _of("given", tensors))
    rows = rows.take(slice(header["rows"]))
    return replace(
        given, rows=rows, held_out=held_out, kernel=spectral(kernel), likelihood=likelihood, floor=header["floor"]
    )


def _posterior(header: dict[str, Any], tensors: dict[str, Tensor]) -> KernelFunctionsAtRows:
    posterior = posterior_from(header, tensors)
    assert isinstance(posterior, KernelFunctionsAtRows)
    return posterior


def _under(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}/{key}": value for key, value in tensors.items()}


def _of(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
