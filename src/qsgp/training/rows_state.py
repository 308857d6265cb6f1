"""The state of the rows road: what the next epoch needs, and the one it begins with."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.data.rows import distinct
from qsgp.hyperparameters import many_inputs
from qsgp.hyperparameters.trend import MANY_MORE, Trial, Trying, followed
from qsgp.interrupt import Halt
from qsgp.likelihoods import Gaussian
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.posteriors.spread import Spread
from qsgp.solvers.dual import Ahead, System
from qsgp.solvers.row_sites import RowSites
from qsgp.training.rows_given import Given
from qsgp.training.rows_start import Exact
from qsgp.training.task import Task
from qsgp.training.trained import Record

_TREND_TIME = 0.25  # of the time after the hyperparameters, at most, for the trend of lengthscales
_DRAWS_TIME = 1 / 3  # of the time after the hyperparameters, at most, for draws beside the mean


class Pace(NamedTuple):
    """Seconds that an epoch, a visit and a look at the rows held out take on this machine now."""

    epoch: float = 0.0
    visit: float = 0.0
    watch: float = 0.0


@dataclass(frozen=True)
class State:
    """What the next epoch needs. The tensors of ``sites`` and ``system`` are those the epochs work on."""

    given: Given
    support: Int[Tensor, " p"]  # rows whose GP gives the variance
    sites: RowSites
    system: System
    posterior: KernelFunctionsAtRows  # of the last epoch
    best: KernelFunctionsAtRows  # that rows held out have seen
    best_scores: Record
    exact_rows: int  # of the exact GP it began with
    draws_end: float  # seconds that are left when draws are no longer solved for
    pace: Pace = Pace()
    scores: tuple[Record, ...] = ()  # of rows held out, epoch by epoch
    residual: float | None = None  # of the last epoch; None when it was cut short
    least: float = 1.0  # residual since the beginning
    epochs: int = 0
    iterations: int = 1  # the last epoch that was judged
    restarts: int = 0
    judged: bool = False  # since it has begun, or begun again
    lost: bool = False  # what it began with is all there is
    best_is_exact: bool = True  # no epoch was better than what it began with
    kept: bool = False  # the last posterior was not worse than the best before

    def blocks(self, task: Task) -> float:
        return self.given.rows.n / task.sizes.block


def init(task: Task, given: Given, exact: Exact) -> tuple[State, list[Trial]]:
    """Lengthscales for many rows, support points, sites and the system; and what was tried for the lengthscales."""
    learned = given.kernel
    given, trials = _with_trend(task, given)
    draws_end = until_draws_end(task)
    support = distinct(given.rows.x, torch.arange(given.rows.n), task.sizes.variance_points).to(given.rows.x.device)
    sites, posterior, system = _begun(task, given, support, exact if given.kernel is learned else None)
    pace = Pace(watch=exact.watch_seconds)
    best = (exact.posterior, exact.scores, exact.n)
    return State(given, support, sites, system, posterior, *best, draws_end, pace), trials


def until_draws_end(task: Task) -> float:
    return (1 - _DRAWS_TIME) * task.halt.left


def _with_trend(task: Task, given: Given) -> tuple[Given, list[Trial]]:
    rows, sizes, likelihood = given.rows, task.sizes, given.likelihood
    n = rows.n + given.held_out.n
    many_more = n >= MANY_MORE * sizes.learn_most and rows.x.shape[1] <= many_inputs.MANY
    if not (likelihood.fixed_sites and task.options.learn_hyperparameters and many_more):
        return given, []
    assert isinstance(likelihood, Gaussian)  # no other noise has fixed sites; that of labels is one
    halt = Halt(task.halt.pressed, _TREND_TIME * task.halt.left)
    kernel, trials = followed(
        given.kernel,
        likelihood,
        rows,
        (likelihood.noise_variance / rows.weight[:, None]).clamp(min=given.floor),
        (sizes.learn_points, sizes.learn_most),
        Trying(sizes.block, task.options.seed, halt),
    )
    return replace(given, kernel=kernel), trials


def _begun(
    task: Task, given: Given, support: Int[Tensor, " p"], exact: Exact | None
) -> tuple[RowSites, KernelFunctionsAtRows, System]:
    """Sites, the posterior that knows nothing, and the system, from the solution of the ``exact`` GP if it is given."""
    seed, draws, n = task.options.seed, task.sizes.draws, given.rows.n
    sites = RowSites.build(given.kernel, given.likelihood, given.all_rows, draws, seed, given.floor)
    A = given.rows.x.new_zeros(n, given.outputs + sites.prior.shape[1])
    posterior = with_support(task, given, support, sites, A)
    ahead = Ahead.wanted(A, n / task.sizes.block) if given.fixed else None
    if exact is not None and ahead is None:
        _start_from_exact(given, sites, exact, A)
    # a view: noises that the sites renew are those of the system
    return sites, posterior, System(given.kernel, given.rows.x, sites.noise[:n], A.clone(), sites.group, ahead)


def _start_from_exact(given: Given, sites: RowSites, exact: Exact, A: Float[Tensor, "n c"]) -> None:
    """Put the solution for its rows into ``A``; of fixed sites also that of the draws, which share its factor."""
    known, count = exact.posterior, exact.n
    if not given.fixed:
        A[:count, : given.outputs] = known.A.to(A)
        return
    R = sites.right(torch.arange(count, device=A.device), torch.zeros_like(A[:count]))
    A[:count] = torch.cholesky_solve(R.double(), known.spread.factor[0]).to(A)


def with_support(
    task: Task, given: Given, support: Int[Tensor, " p"], sites: RowSites, A: Float[Tensor, "n c"]
) -> KernelFunctionsAtRows:
    """The posterior of these weights, with the variance of the support points at the noises the sites have now."""
    x, share = given.rows.x, len(support) / float(given.rows.weight.sum())
    spread = Spread.build(given.kernel, x[support], share * sites.unit_noise[support])
    return KernelFunctionsAtRows(given.kernel, given.likelihood, x, A, given.outputs, task.options.seed, spread)


def begun_again(task: Task, state: State) -> State:
    """With products that are steadier against rounding."""
    given = state.given.steadier(task)
    sites, posterior, system = _begun(task, given, state.support, None)
    begun = replace(state, given=given, sites=sites, posterior=posterior, system=system)
    return replace(begun, restarts=state.restarts + 1, least=1.0, judged=False)
