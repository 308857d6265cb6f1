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
from qsgp.solvers.row_sites import RowSites
from qsgp.solvers.system import Ahead, System
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
    since_least: int = 0  # epochs
    epochs: int = 0
    iterations: int = 1  # the last epoch that was judged
    restarts: int = 0
    judged: bool = False  # since it has begun, or begun again
    lost: bool = False  # what it began with is all there is
    best_is_exact: bool = True  # no epoch was better than what it began with
    kept: bool = False  # the last posterior was not worse than the best before

    def blocks(self, task: Task) -> float:
        return self.given.n / task.sizes.block


def init(task: Task, given: Given, exact: Exact) -> tuple[State, list[Trial]]:
    """Lengthscales for many rows, support points, sites and the system; and what was tried for the lengthscales."""
    learned = given.kernel
    given, trials = _with_trend(task, given)
    draws_end = until_draws_end(task)
    support = _support(task, given)
    sites, posterior, system = _begun(task, given, support, exact if given.kernel is learned else None)
    pace = Pace(watch=exact.watch_seconds)
    best = (exact.posterior, exact.scores, exact.n)
    return State(given, support, sites, system, posterior, *best, draws_end, pace), trials


def _support(task: Task, given: Given) -> Int[Tensor, " p"]:
    """The first rows that differ from all before them; `distinct` looks at four times as many."""
    most = task.sizes.variance_points
    first = given.first(min(given.n, 4 * most)).x
    return distinct(first, torch.arange(len(first)), most).to(first.device)


def until_draws_end(task: Task) -> float:
    return (1 - _DRAWS_TIME) * task.halt.left


def _with_trend(task: Task, given: Given) -> tuple[Given, list[Trial]]:
    rows, sizes, likelihood = given.rows, task.sizes, given.likelihood
    n = given.n + given.held_out.n
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
        Trying(sizes.block, task.options.seed, halt, task.ranks),
    )
    return replace(given, kernel=kernel), trials


def _begun(
    task: Task, given: Given, support: Int[Tensor, " p"], exact: Exact | None
) -> tuple[RowSites, KernelFunctionsAtRows, System]:
    """Sites, the posterior that knows nothing, and the system, from the solution of the ``exact`` GP if it is given."""
    seed, draws, own = task.options.seed, task.sizes.draws, given.rows.n
    sites = RowSites.build(given.kernel, given.likelihood, given.all_rows, draws, seed, given.floor, task.ranks)
    A = given.rows.x.new_zeros(own, given.outputs + sites.prior.shape[1])
    posterior = with_support(task, given, support, sites, A)
    ahead = Ahead.wanted(A, given.n / task.sizes.block) if given.fixed else None
    if exact is not None and ahead is None:
        _start_from_exact(given, sites, exact, A)
    return sites, posterior, system_of(given, sites, A.clone(), ahead)


def system_of(given: Given, sites: RowSites, A: Float[Tensor, "n c"], ahead: Ahead | None) -> System:
    group = None if sites.group is None else sites.group[: A.shape[1]]
    noise = sites.noise[: given.rows.n]  # a view: noises that the sites renew are those of the system
    return System(given.kernel, given.rows.x, noise, A, group, ahead, given.ranks, given.fixed)


def _start_from_exact(given: Given, sites: RowSites, exact: Exact, A: Float[Tensor, "n c"]) -> None:
    """Put the solution for its rows into ``A``; of fixed sites also that of the draws, which share its factor."""
    known, count, ranks = exact.posterior, exact.n, given.ranks
    share, mine = ranks.share(count), ranks.mine(count)
    if not given.fixed:
        A[:mine, : given.outputs] = known.A.to(A)[share]
        return
    every = torch.arange(count, device=A.device)
    R = ranks.collected(sites.right(every[:mine], torch.zeros_like(A[:mine])), every)
    A[:mine] = torch.cholesky_solve(R.double(), known.spread.factor[0]).to(A)[share]


def with_support(
    task: Task, given: Given, support: Int[Tensor, " p"], sites: RowSites, A: Float[Tensor, "n c"]
) -> KernelFunctionsAtRows:
    """The posterior of these weights, with the variance of the support points at the noises the sites have now."""
    x, ranks = given.rows.x, given.ranks
    share = len(support) / float(ranks.total(given.rows.weight.sum()))
    spread = Spread.build(given.kernel, ranks.collected(x, support), share * ranks.collected(sites.unit_noise, support))
    own, seed = (given.kernel, given.likelihood, x, A, given.outputs), task.options.seed
    return KernelFunctionsAtRows(*own, seed, spread, ranks=ranks, n=given.n)


def begun_again(task: Task, state: State) -> State:
    """With products that are steadier against rounding."""
    given = state.given.steadier(task)
    sites, posterior, system = _begun(task, given, state.support, None)
    begun = replace(state, given=given, sites=sites, posterior=posterior, system=system)
    return replace(begun, restarts=state.restarts + 1, least=1.0, since_least=0, judged=False)
