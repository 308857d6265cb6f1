"""Training by the dual: the GP's mean and posterior draws by blocks of rows, judged on rows held out.

It begins with the exact GP on some rows (`anchor`) and visits all of them from there, block after block. Each block
solved overfits its own rows until the others answer; the mean of A over the visits of an epoch does not, and is several
epochs ahead of the last A. A slice of rows is held out meanwhile. Its scores say when predictions have settled, and
what is kept: the result is never worse there than the exact GP it began with. In the last epoch these rows join.
Posterior draws are further columns of the same system (`pathwise`); after a third of the time the mean goes on alone,
whose epochs take little more than half as long. Sites that are not Gaussian are tightened as their rows are visited
(`row_sites`).
"""

import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from qsgp.data.rows import Rows, distinct
from qsgp.factor import NotPositiveDefinite
from qsgp.hyperparameters import many_inputs
from qsgp.hyperparameters.trend import MANY_MORE, followed
from qsgp.interfaces import Kernel, Likelihood
from qsgp.interrupt import Halt
from qsgp.likelihoods import Gaussian
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.posteriors.spread import Spread
from qsgp.solvers.dual import Ahead, System, relaxation, shuffled, spectral
from qsgp.solvers.row_sites import RowSites, groups_of
from qsgp.training.exact import affordable, exact_gp, solvable
from qsgp.training.held_out import not_worse, scored, watched
from qsgp.training.options import Options, Sizes
from qsgp.training.trained import Record, Report, Trained

P = TypeVar("P", Kernel, Likelihood)

_EPOCHS = 100
_SETTLED = 0.003  # relative change of the held-out error, and absolute change of its density, over three epochs
_SETTLED_CLASSES = 0.01  # relative change of the held-out density: near 0 an absolute one would say nothing
_RESIDUAL = 0.003  # |R - (K + D) A| / |R|: nothing more to find
_JOINED_WORSE = 0.2  # nat: draws have moved on since the trust in them was judged
_DIVERGED = 3.0  # times the least residual so far
_RESTARTS = 6  # after which it is left at that
# Of a kernel value in products; of n rows it looks like a noise of sqrt(n) times that. On a CPU, where float64 takes
# little longer, float32 must also leave the mean more digits than the noise hides: k(x, X) A adds up numbers that are
# 1 / sqrt(noise) as large as f, so errors of 1e-7 each became a tenth of the noise at noise / variance = 3e-5.
_ROUNDING, _ROUNDING_ON_CPU, _ROUNDING_DOUBLE = 3e-7, 1e-6, 1e-13
_TREND_TIME = 0.25  # of the time after the hyperparameters, at most, for the trend of lengthscales
_DRAWS_TIME = 1 / 3  # of the time after the hyperparameters, at most, for draws beside the mean
_DRAWS_EPOCHS = 12  # and epochs
_EXACT_TIME = 0.6  # of the time after the hyperparameters, at most, for the exact GP on some rows
_EXACT_LEAST = 400  # rows it has in any case
_EPOCHS_WANTED = 2.5  # of the rows that are solved for
_MORE_ROWS = 1.2  # times those of the exact GP: fewer are not worth epochs
_DOUBLE_ROWS = 200_000  # that a GPU has time for in float64


def train_dual(
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n o"],
    weight: Float[Tensor, " n"],
    kernel: Kernel,
    likelihood: Likelihood,
    options: Options,
    sizes: Sizes,
    halt: Halt,
    report: Report | None,
) -> Trained:
    """The exact GP on some rows, then epochs over all of them until held-out predictions settle or time is up."""
    run = Run(Rows(x, Y, weight), kernel, likelihood, options, sizes, halt, report)
    stop = run.solve_some_rows()
    if run.exact.n == run.rows.n:
        run.join_exact()
    elif not (stop or halt()) and run.afford_epochs():
        run.get_ready()
        for number in range(_EPOCHS):
            if run.epoch(number):
                break
        run.join()
    run.warn()
    return run.trained


@dataclass(frozen=True)
class Exact:
    """The GP on the first rows, what rows held out say of it, and how long it took."""

    posterior: KernelFunctionsAtRows
    scores: Record
    seconds: float

    @property
    def n(self) -> int:
        return len(self.posterior.x)


class Run:
    """One training: the rows, the system that is solved, the last posterior and the best one so far."""

    exact: Exact  # made by `solve_some_rows`
    trained: Trained
    sites: RowSites  # these by `get_ready`
    support: Int[Tensor, " p"]
    system: System
    posterior: KernelFunctionsAtRows
    draws_end: float

    def __init__(
        self,
        data: Rows,
        kernel: Kernel,
        likelihood: Likelihood,
        options: Options,
        sizes: Sizes,
        halt: Halt,
        report: Report | None,
    ) -> None:
        """Rows in random order, as `some_rows` has it: the first were learned from, the last are held out."""
        self.options, self.sizes, self.halt, self.report, self.given = options, sizes, halt, report, data.n
        self.began = time.perf_counter()
        order = torch.randperm(data.n, generator=torch.Generator().manual_seed(options.seed))
        kept = min(sizes.dual_rows, data.n) - sizes.held_out
        dtype, self.floor = resolution(kernel, likelihood, options, kept)
        self.rows = data.take(order[:kept]).to(options.device, dtype)
        self.held_out = data.take(order[data.n - sizes.held_out :]).to(options.device, dtype)
        self.kernel, self.likelihood = spectral(_put(kernel, self.rows.x)), _put(likelihood, self.rows.x)
        self.least, self.took, self.visit_took, self.watch_took = 1.0, 0.0, 0.0, 0.0
        self.kept, self.epochs, self.restarts = False, 0, 0

    @property
    def fixed(self) -> bool:
        """Whether sites stay as they are."""
        return self.likelihood.fixed_sites

    @property
    def timed(self) -> bool:
        """Whether the clock of a CPU decides on sizes: without it equal seeds must give equal models."""
        return self.options.max_time is not None and not self.options.device.startswith("cuda")

    @property
    def outputs(self) -> int:
        return self.rows.Y.shape[1]

    @property
    def blocks(self) -> float:
        return self.rows.n / self.sizes.block

    # --- the exact GP on some rows ------------------------------------------------------------------------------

    def solve_some_rows(self) -> bool:
        """The exact GP on as many of the first rows as are affordable; whether the report says to stop."""
        most = min(self.rows.n, self.sizes.exact_rows)
        count = min(most, self._affordable_rows()) if self.timed else most
        while True:
            began = time.perf_counter()
            posterior = self._exact_gp(self.rows.take(slice(count)))
            took = time.perf_counter() - began
            posterior, self.best = self._watched(posterior)
            if not self.timed or count == most or self.halt():
                break
            # a machine that was busy when it was timed may have time for more
            spent = took + self.watch_took
            more = min(most, int(count * max(_EXACT_TIME * self.halt.left / spent, 0.0) ** (1 / 3)))
            if more < _MORE_ROWS * count:
                break
            count = more
        self.exact = Exact(posterior, self.best, took)
        self.trained = Trained(posterior, iterations=1)
        return self._told({"phase": "exact GP on some rows", "iteration": 0, "rows": count}, self.best)

    def _affordable_rows(self) -> int:
        seconds = min(_EXACT_TIME * self.halt.left, self.halt.left - 0.1)
        return max(_EXACT_LEAST, affordable(seconds, self.likelihood, self.outputs))

    def _exact_gp(self, rows: Rows) -> KernelFunctionsAtRows:
        sites = RowSites.build(self.kernel, self.likelihood, *rows, 0, self.options.seed, self.floor)
        return exact_gp(self.kernel, sites, rows.x, self.options.seed, self.halt)

    def join_exact(self) -> None:
        """All rows fit into the exact GP: those held out join, with the noise and the trust they have asked for."""
        if self.halt() or (self.timed and self.halt.left < 1.3 * self.exact.seconds):
            return
        judged, whole = self.exact.posterior, self._exact_gp(self.rows.followed_by(self.held_out))
        spread = replace(whole.spread, blend=judged.spread.blend, trust=judged.spread.trust)
        self.trained.posterior = replace(whole, spread=spread, likelihood=judged.likelihood)

    def _watched(self, posterior: KernelFunctionsAtRows) -> tuple[KernelFunctionsAtRows, Record]:
        began = time.perf_counter()
        found = watched(posterior, self.likelihood, *self.held_out)
        self.watch_took = time.perf_counter() - began
        return found

    def _told(self, record: Record, scores: Record) -> bool:
        """Keep a record and tell it; True ends the run."""
        told = record | {"seconds": time.perf_counter() - self.began} | scores
        self.trained.history.append(told)
        return bool(self.report and self.report(told, lambda: self.trained.posterior))

    # --- all rows -----------------------------------------------------------------------------------------------

    def afford_epochs(self) -> bool:
        """Take as many rows as some epochs can solve for in the time left; whether they are worth it."""
        if self.timed:
            columns = self.outputs + groups_of(self.likelihood, self.outputs) * self.sizes.draws
            visit = self.exact.seconds * (self.sizes.block / self.exact.n) ** 3
            seconds = self.halt.left / _EPOCHS_WANTED
            most = solvable(seconds, self.exact.posterior, columns, visit / self.sizes.block)
            self.rows = self.rows.take(slice(most))
        return self.rows.n > _MORE_ROWS * self.exact.n

    def get_ready(self) -> None:
        """Lengthscales for many rows, then sites, support points and the system."""
        learned = self.kernel
        self._follow_trend()
        self.draws_end = (1 - _DRAWS_TIME) * self.halt.left
        order = torch.arange(self.rows.n)
        self.support = distinct(self.rows.x, order, self.sizes.variance_points).to(self.rows.x.device)
        self._begin(warm=self.kernel is learned)

    def _follow_trend(self) -> None:
        n, sizes, likelihood = self.rows.n + self.held_out.n, self.sizes, self.likelihood
        many_more = n >= MANY_MORE * sizes.learn_most and self.rows.x.shape[1] <= many_inputs.MANY
        if not (likelihood.fixed_sites and self.options.learn_hyperparameters and many_more):
            return
        assert isinstance(likelihood, Gaussian)  # no other noise has fixed sites
        self.kernel, trials = followed(
            self.kernel,
            likelihood,
            self.rows,
            (likelihood.noise_variance / self.rows.weight[:, None]).clamp(min=self.floor),
            learned=(sizes.learn_points, sizes.learn_most),
            block=sizes.block,
            seed=self.options.seed,
            halt=Halt(self.halt.pressed, _TREND_TIME * self.halt.left),
        )
        for number, trial in enumerate(trials):
            told = {"phase": "lengthscales", "iteration": number + 1, "seconds": time.perf_counter() - self.began}
            self.trained.history.append(told | {"rmse": trial.rmse})

    def _begin(self, warm: bool) -> None:
        """Sites and the system, ``warm``: from the solution of the exact GP."""
        both = self.rows.followed_by(self.held_out)
        self.sites = RowSites.build(
            self.kernel, self.likelihood, *both, self.sizes.draws, self.options.seed, self.floor
        )
        A = self.rows.x.new_zeros(self.rows.n, self.outputs + self.sites.prior.shape[1])
        self.posterior = self._with_support(A)
        ahead = Ahead.wanted(A, self.blocks) if self.fixed else None
        if warm and ahead is None:
            self._start_from_exact(A)
        noise = self.sites.noise[: self.rows.n]
        self.system = System(self.kernel, self.rows.x, noise, A.clone(), self.sites.group, ahead)
        self.least = 1.0

    def _start_from_exact(self, A: Float[Tensor, "n c"]) -> None:
        """Put the solution for its rows into ``A``; of fixed sites also that of the draws, which share its factor."""
        known, count = self.exact.posterior, self.exact.n
        if not self.fixed:
            A[:count, : self.outputs] = known.A.to(A)
            return
        R = self.sites.right(torch.arange(count, device=A.device), torch.zeros_like(A[:count]))
        A[:count] = torch.cholesky_solve(R.double(), known.spread.factor[0]).to(A)

    def _with_support(self, A: Float[Tensor, "n c"]) -> KernelFunctionsAtRows:
        share, seed = len(self.support) / float(self.rows.weight.sum()), self.options.seed
        spread = Spread.build(self.kernel, self.rows.x[self.support], share * self.sites.unit_noise[self.support])
        return KernelFunctionsAtRows(self.kernel, self.likelihood, self.rows.x, A, self.outputs, seed, spread)

    def epoch(self, number: int) -> bool:
        """Visit all rows once and judge the mean of A over the visits; whether that was the last epoch."""
        started = time.perf_counter()
        residual, A = self._visit_all(number)
        self.took, self.epochs = time.perf_counter() - started, number + 1
        if residual is not None and not residual < _DIVERGED * self.least and not self.halt():
            if not self.fixed or self.restarts == _RESTARTS:
                return True
            self._begin_again()
            return False
        self.least = self.least if residual is None else min(self.least, residual)
        A = torch.cat([A, self.posterior.A[:, A.shape[1] :]], 1)  # draws that are no longer solved for
        posterior = replace(self.posterior, A=A) if self.fixed else self._with_support(A)
        self.posterior, found = self._watched(posterior)
        self.trained.iterations = self.epochs
        self._keep_if_not_worse(found)
        phase = "mean" if self.system.A.shape[1] == self.outputs else "mean and draws"
        # an epoch cut short has no residual; NaN could not be stored
        known = {} if residual is None else {"residual": residual}
        stop = self._told({"phase": phase, "iteration": number + 1} | known, found)
        if self.halt.pressed.is_set():
            warnings.warn(f"Interrupted in epoch {number + 1}: the model is fitted as far as that.", stacklevel=4)
        if stop or residual is None or self._finished(number, residual):
            return True
        if self.fixed and (self.halt.left < self.draws_end or number + 1 >= _DRAWS_EPOCHS):
            self.system = self.system.first(self.outputs)
        return False

    def _keep_if_not_worse(self, found: Record) -> None:
        self.kept = not_worse(found, self.best)
        if self.kept:
            self.trained.posterior = self.posterior
            self.best = {name: min(value, self.best[name]) for name, value in found.items()}

    def _finished(self, number: int, residual: float) -> bool:
        """Solved, settled, interrupted, or no time for another epoch and the one of the rows held out."""
        ahead = self.system.ahead
        return (
            self.halt.pressed.is_set()
            or residual < _RESIDUAL
            or (self.fixed and self.blocks <= 1)
            or (_settled(self.trained.history) and (ahead is None or number + 1 >= ahead.epochs))
            or self.halt.left < (2 if ahead is None else 1) * self.took
        )

    def _visit_all(self, number: int) -> tuple[float | None, Float[Tensor, "n c"]]:
        """The residual of all rows, None when cut short, infinite without a factor; the mean of A over the visits."""
        system, squares, total = self.system, list[Tensor](), torch.zeros_like(self.system.A)
        blocks = shuffled(len(system.x), self.sizes.block, self.options.seed * 1_000_003 + number, system.x.device)
        for rows in blocks:
            began = time.perf_counter()
            if squares and (self.halt() or (self.timed and self.halt.left < self.visit_took + self.watch_took)):
                break
            try:
                squares.append(self._visit(rows, relaxation(system, self.blocks)))
            except NotPositiveDefinite:
                return math.inf, total
            total += system.A
            self.visit_took = max(self.visit_took, time.perf_counter() - began)
        if system.ahead is not None:
            mean = system.ahead.mean.to(system.A.dtype, copy=True)
        else:  # of a part of an epoch less than half says little more than its own rows
            enough = 2 * len(squares) >= len(blocks) or number == 0
            mean = total / len(squares) if enough else self.posterior.A[:, : total.shape[1]]
        left, all_ = torch.stack(squares).sum(0).sqrt().tolist()
        return left / max(all_, 1e-30) if len(squares) == len(blocks) else None, mean

    def _visit(self, rows: Int[Tensor, " b"], relax: float) -> Float[Tensor, " two"]:
        """Squares of the residual and of the right-hand side."""
        system, f = self.system, self.system.values(rows)
        untold = not self.sites.draws and not self.fixed
        R = self.sites.right(rows, f, self.posterior.spread.support(system.x[rows]).to(f) if untold else None)
        residual = system.solve(rows, f, R, relax)
        return torch.stack([part[:, : self.outputs].square().sum() for part in (residual, R)])

    def _begin_again(self) -> None:
        """Rounding of the products outweighs the noise: in float64 where there is time for it, else with more noise."""
        self.restarts += 1
        single = self.rows.x.dtype == torch.float32
        if single and (self.timed or not self.rows.x.is_cuda or self.rows.n <= _DOUBLE_ROWS):
            device = self.options.device
            self.rows, self.held_out = (part.to(device, torch.float64) for part in (self.rows, self.held_out))
            self.kernel, self.likelihood = spectral(_put(self.kernel, self.rows.x)), _put(self.likelihood, self.rows.x)
            self.floor = _rounding(self.kernel, self.rows.n, self.rows.x.dtype, self.rows.x.is_cuda)
        else:
            least = _rounding(self.kernel, self.rows.n, torch.float32, self.rows.x.is_cuda)
            self.floor = max(10 * self.floor, least)
        self._begin(warm=False)

    def join(self) -> None:
        """All rows once more, those held out first; of many blocks they are too few to be worth another epoch.

        They are known then: what predicts them worse than before has gone astray and is not taken.
        """
        n, system, before = self.rows.n, self.system, self.posterior
        if system.ahead is not None or not self.kept or self.halt() or self.halt.left < 1.2 * self.took:
            return
        joined = torch.cat([system.A, system.A.new_zeros(self.held_out.n, system.A.shape[1])])
        both = self.rows.followed_by(self.held_out)
        self.system = System(self.kernel, both.x, self.sites.noise, joined, system.group)
        try:
            self._visit(torch.arange(n, both.n, device=both.x.device), 1.0)
        except NotPositiveDefinite:
            return
        residual, A = self._visit_all(_EPOCHS)
        if residual is None or not residual < 1:
            return
        unsolved = before.A[:, A.shape[1] :]
        unsolved = torch.cat([unsolved, unsolved.new_zeros(self.held_out.n, unsolved.shape[1])])
        posterior = replace(before, x=both.x, A=torch.cat([A, unsolved], 1))
        if not_worse(scored(posterior, *self.held_out), self.best, _JOINED_WORSE):
            self.trained.posterior = posterior

    def warn(self) -> None:
        """Say so when most rows had no say."""
        if self.trained.posterior is not self.exact.posterior or self.exact.n >= self.given - self.held_out.n:
            return
        if self.epochs:
            warnings.warn(
                f"Training on {self.rows.n:,} rows predicts rows held out worse than the exact GP on {self.exact.n:,} "
                "of them, so the model is that GP. Give it more time (max_time), or look for rows that contradict "
                "each other.",
                ConvergenceWarning,
                stacklevel=4,
            )
        elif not self.halt.pressed.is_set():
            warnings.warn(
                f"There was time for the exact GP on {self.exact.n:,} of {self.given:,} rows. Fit again with more time "
                "to use all of them.",
                ConvergenceWarning,
                stacklevel=4,
            )
        else:
            warnings.warn(
                f"Interrupted: the model is the exact GP on {self.exact.n:,} of {self.given:,} rows.", stacklevel=4
            )


def _put(part: P, like: Tensor) -> P:
    """A kernel or likelihood with its parameters beside ``like``."""
    return part.with_parameters({name: value.to(like) for name, value in part.parameters().items()})


def resolution(kernel: Kernel, likelihood: Likelihood, options: Options, rows: int) -> tuple[torch.dtype, float]:
    """In which precision ``rows`` rows are solved, and the least noise that keeps that stable.

    Products in float32 round kernel values; a noise smaller than that would make K + D indefinite, and blocks drive
    each other apart. Float64 has no such limit within reason. On a GPU it takes too long for very many rows: there the
    noise is raised for the solution.
    """
    cuda = options.device.startswith("cuda")
    floor = _rounding(kernel, rows, options.dtype, cuda)
    if options.dtype == torch.float64 or _noise(likelihood) >= floor:
        return options.dtype, floor
    if cuda and rows > _DOUBLE_ROWS:
        return options.dtype, floor
    return torch.float64, _rounding(kernel, rows, torch.float64, cuda)


def _noise(likelihood: Likelihood) -> float:
    """The variance that sites have about their f; a logistic label says no more of it than a noise of 4 does."""
    if likelihood.noise_variance is not None:
        return float(likelihood.noise_variance)
    label, zero = torch.ones(1), torch.zeros(1)
    return float(-0.5 / likelihood.quadratic_bound(label, zero).quadratic)


def _rounding(kernel: Kernel, rows: int, dtype: torch.dtype, cuda: bool) -> float:
    unit = _ROUNDING_DOUBLE if dtype == torch.float64 else _ROUNDING if cuda else _ROUNDING_ON_CPU
    return unit * math.sqrt(rows) * float(spectral(kernel).variance)


def _settled(history: list[Record]) -> bool:
    """Over the last third of the epochs, three at least: two may agree by luck, and many small steps lead far."""
    epochs = [record for record in history if "mnlp" in record and record.get("iteration", 1) > 0]
    if len(epochs) < 3:
        return False
    last = epochs[-max(3, len(epochs) // 3) :]
    mnlp = [record["mnlp"] for record in last]
    if "error" in last[-1]:
        return bool(max(mnlp) - min(mnlp) < _SETTLED_CLASSES * mnlp[-1])
    rmse = [record["rmse"] for record in last]
    return bool(max(rmse) - min(rmse) < _SETTLED * rmse[-1] and max(mnlp) - min(mnlp) < _SETTLED)
