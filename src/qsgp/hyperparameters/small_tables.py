"""Small tables: hyperparameters that few rows do not overfit, intervals that rows left out confirm.

A lengthscale for each input wants more rows than small tables have; one for all inputs is too few where inputs differ
much. The prior lets the rows decide: log lengthscales deviate from a common centre by N(0, tau^2), and tau, unknown, is
integrated out. What is left is a Student t: strong near equal lengthscales, weak far from them.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.hyperparameters.screening import first_lengthscales
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels import Tied, gram
from qsgp.solvers.closed_form import Effort, Sites, fit_hyperparameters, solve

# Chosen on 43 tables of R packages (docs/measurements.md).
TAU, FREEDOM = 0.3, 2.0  # of the Student t: log lengthscales are about so far apart; how heavy its tails are
CENTRE = 1.5  # deviation of the common log lengthscale about that of sqrt(d)
NOISE = (math.log(0.1), 2.0)  # mean and deviation of the log noise variance, of targets of variance 1
SIGNAL = (0.0, 1.5)  # and of the log signal variance
FOLDS = 5
QUICK, THOROUGH, OF_A_FOLD = Effort(20, 1e-4), Effort(60, 1e-6), Effort(12, 1e-5)
MOST_OF_ONE = 0.25  # by which one row may raise the variances: how far off it is says little of the others
LEAST_LEFT_OUT = 10  # distinct rows; fewer say too little
LEVELS = 10  # distinct targets at least, of which equal steps are taken for rounding

P = TypeVar("P", Kernel, Likelihood)
_IN_A_HURRY = 4.0  # seconds
_LAST_RATES = 3  # evaluations, the fastest of which tells how long the next one takes
_SMALL_ROWS = 200  # an evaluation on few rows takes as long as if there were so many more


@dataclass
class Watch:
    """Whether there is time for one more evaluation: it takes as long as the last one, in cubes of rows."""

    halt: Callable[[], bool] = lambda: False
    left: Callable[[], float] = lambda: math.inf
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=_LAST_RATES), init=False)

    def allows(self, rows: int, evaluations: int = 1) -> bool:
        rate = min(self._rates, default=0.0)  # the first evaluation of a kernel may compile something
        return not self.halt() and self.left() > evaluations * rate * (rows + _SMALL_ROWS) ** 3

    def within(self, share: float) -> "Watch":
        """That of a part of the work, which may take this share of the time."""
        after = (1 - share) * self.left() if share < 1 else 0.0
        if math.isinf(after):
            return self
        part = Watch(lambda: self.halt() or self.left() <= after, lambda: self.left() - after)
        part._rates = self._rates
        return part

    def over(self, rows: int, others: int = 0) -> Callable[[], bool]:
        """For a search on ``rows`` rows to ask before each of its evaluations, from which the time of one is known.

        It leaves ``others`` that follow, and what comes after these, as much time as it has.
        """
        asked, after = list[float](), self.left() * (1 - 1 / (others + 2)) if others else 0.0

        def stop() -> bool:
            now = time.monotonic()
            if asked:
                self._rates.append((now - asked[0]) / (rows + _SMALL_ROWS) ** 3)
            asked[:] = [now]
            return not self.allows(rows) or self.left() < after

        return stop


@dataclass(frozen=True)
class Shrinking:
    """The log density of hyperparameters: lengthscales near to ``proportions`` of each other."""

    proportions: Float[Tensor, " d"]

    def __call__(self, kernel: Kernel, likelihood: Likelihood) -> Float[Tensor, ""]:
        parameters = kernel.parameters()
        d = len(self.proportions)
        if isinstance(kernel, Tied):
            deviations = self.proportions.new_zeros(d)
            centre = kernel.log_scale + kernel.proportions.log().mean()
        else:
            relative = parameters["log_lengthscale"] - self.proportions.log()
            deviations = relative - relative.mean()
            centre = parameters["log_lengthscale"].mean()
        apart = -0.5 * (FREEDOM + d - 1) * (deviations.square().sum() / (FREEDOM * TAU**2)).log1p()
        expected = float(self.proportions.log().mean()) + 0.5  # the first guess, and a little more
        total = apart - 0.5 * ((centre - expected) / CENTRE).square()
        # What f varies among the rows: with long lengthscales, as of a linear trend, that is little of the variance.
        signal = parameters["log_variance"] - torch.nn.functional.softplus(2 * (centre - expected))
        total = total - 0.5 * ((signal - SIGNAL[0]) / SIGNAL[1]).square()
        return total + _of_noise(likelihood)


def _of_noise(likelihood: Likelihood) -> Float[Tensor, ""] | float:
    variance = likelihood.noise_variance
    if variance is None:
        return 0.0
    return -0.5 * ((variance.log() - NOISE[0]) / NOISE[1]).square()


@dataclass(frozen=True)
class Found:
    """Where a search ended, and its log evidence and prior there."""

    kernel: Kernel
    likelihood: Likelihood
    prior: Shrinking
    value: float = -math.inf


def learned(
    candidates: list[Tied],
    likelihood: Likelihood,
    rows: Callable[[int], Rows],
    counts: list[int],
    watch: Watch,
    free: bool = True,
    least_noise: float = 0.0,
) -> list[Found]:
    """The kernel of the highest evidence and prior, on more and more rows: ``rows(count)`` for each of ``counts``.

    ``candidates`` have lengthscales in given proportions. These are compared first; then, if ``free``, every
    lengthscale is searched for, beginning at those proportions. The best that kept its proportions comes second.
    """
    floor = max(least_noise, rounding(rows(counts[-1]).Y)) if likelihood.fixed_sites else 0.0
    found = [Found(kernel, likelihood, Shrinking(kernel.proportions)) for kernel in candidates]
    found = searched(found, rows(counts[0]), watch, floor, QUICK)
    tied, screened = found[:1], list[Found]()
    if free:
        found = [_untied(each) for each in _best_of_each_kernel(found)]
        found = searched(found, rows(counts[0]), watch, floor, QUICK)
        screened = _screened(found, likelihood, rows(counts[-1]))
        found = [*found[:1], *screened, *(found[1:] if not screened or watch.left() > _IN_A_HURRY else [])]
    for count in counts[1:] or (counts if screened else []):
        found = _best_of_each_kernel(searched(found, rows(count), watch, floor, QUICK))
    found = searched(found[:1], rows(counts[-1]), watch, floor, THOROUGH)
    return found + (searched(tied, rows(counts[-1]), watch, floor, THOROUGH) if free else [])


def searched(starts: list[Found], rows: Rows, watch: Watch, floor: float, effort: Effort) -> list[Found]:
    """Every search goes on from where it was, on ``rows``; the highest value first."""
    found, effort = list[Found](), effort._replace(late=watch.halt)
    for number, each in enumerate(starts):
        if not watch.allows(rows.n, 2):
            return found + starts[len(found) :] if not found else sorted(found, key=lambda done: -done.value)
        over = watch.over(rows.n, len(starts) - number - 1)
        ended = fit_hyperparameters(
            each.kernel, each.likelihood, rows, effort, prior=each.prior, halt=over, least_noise=floor
        )
        found.append(Found(ended[0], ended[1], each.prior, ended[2]))
    return sorted(found, key=lambda done: -done.value)


def _best_of_each_kernel(found: list[Found]) -> list[Found]:
    """In order of their values: one for each formula, in the proportions that suit it best."""
    kinds: dict[type, Found] = {}
    for each in found:
        kinds.setdefault(type(_untied(each).kernel), each)
    return list(kinds.values())


def _screened(found: list[Found], likelihood: Likelihood, rows: Rows) -> list[Found]:
    """Each kernel with the lengthscales that single inputs ask for; none where they all ask for the same."""
    lengthscale = first_lengthscales(rows)
    if lengthscale is None:
        return []
    logs = {"log_lengthscale": lengthscale.log(), "log_variance": lengthscale.new_zeros(())}
    return [replace(each, kernel=each.kernel.with_parameters(logs), likelihood=likelihood) for each in found]


def _untied(found: Found) -> Found:
    return replace(found, kernel=found.kernel.kernel) if isinstance(found.kernel, Tied) else found


def widened(finalists: list[Found], rows: Rows, watch: Watch) -> tuple[Kernel, Likelihood]:
    """Kernel and noise with variances as much larger as the errors of rows left out ask for. Means stay as they are."""
    if not finalists[0].likelihood.fixed_sites:
        return finalists[0].kernel, finalists[0].likelihood
    best, factor = chosen(finalists, rows, watch)
    return scaled(best.kernel, "log_variance", factor), scaled(best.likelihood, "log_noise_variance", factor)


def chosen(finalists: list[Found], rows: Rows, watch: Watch) -> tuple[Found, float]:
    """One of the ``finalists``, and by how much its variances must grow.

    The first has more parameters than the second: it must be better for rows left out by more than its standard error.
    Without time it is the first, as it is.
    """
    best, told = finalists[0], left_out(finalists[0], rows, watch)
    if told is None:
        return best, 1.0
    for simpler in finalists[1:]:
        other = left_out(simpler, rows, watch)
        if other is not None and not surely_better(told[1], other[1], rows.weight):
            best, told = simpler, other
    return best, told[0]


def surely_better(density: Float[Tensor, " n"], other: Float[Tensor, " n"], weight: Float[Tensor, " n"]) -> bool:
    """By more than one standard error of the differences of rows."""
    share, gain = weight / weight.sum(), density - other
    mean = share @ gain
    return bool(mean > (share.square() @ (gain - mean).square()).sqrt())


def left_out(found: Found, rows: Rows, watch: Watch) -> tuple[float, Float[Tensor, " n"]] | None:
    """By how much variances must grow for rows left out, and the log density of each then; None without time.

    Each fifth of the rows is predicted by the others, whose own evidence moves the hyperparameters: what was learned
    from a row must not judge it. Equal inputs stay together, so a row of weight 2 is the row given twice.
    """
    x, Y, weight = rows
    _, group = torch.unique(x, dim=0, return_inverse=True)
    groups = int(group.max()) + 1
    if groups < LEAST_LEFT_OUT:
        return None
    fold = torch.randperm(groups, generator=torch.Generator().manual_seed(0))[group] % FOLDS
    squares, logs = torch.zeros_like(Y), torch.zeros_like(Y)
    for number in range(FOLDS):
        kept, out = fold != number, fold == number
        known = Rows(x[kept], Y[kept], weight[kept])
        if not watch.allows(known.n, 4):
            return None
        ended = searched([found], known, watch, 0.0, OF_A_FOLD)[0]
        error, variance = predicted(ended.kernel, ended.likelihood, known, x[out], Y[out])
        squares[out], logs[out] = error.square() / variance, variance.log()
    share = weight / weight.sum()
    factor = max(1.0, float(share @ squares.minimum(MOST_OF_ONE / share[:, None]).mean(1)))
    return factor, -0.5 * (squares / factor + logs).mean(1) - 0.5 * math.log(2 * math.pi * factor)


@torch.no_grad()
def predicted(
    kernel: Kernel, likelihood: Likelihood, known: Rows, x: Float[Tensor, "h d"], Y: Float[Tensor, "h o"]
) -> tuple[Float[Tensor, "h o"], Float[Tensor, "h o"]]:
    """Errors of the exact GP that knows ``known``, and the variances it gives them."""
    Gram, cross, errors, variances = gram(kernel, known.x), kernel(known.x, x), [], []
    for y, y_new in zip(known.Y.mT, Y.mT, strict=True):
        solved = solve(Gram, Sites.of(likelihood, y, y, known.weight))
        half = torch.linalg.solve_triangular(solved.factor, solved.sites.root[:, None] * cross, upper=False)
        mean, variance = likelihood.moments(cross.mT @ solved.alpha, kernel.diag(x) - half.square().sum(0))
        errors.append(y_new - mean)
        variances.append(variance)
    return torch.stack(errors, 1), torch.stack(variances, 1)


def scaled(part: P, name: str, factor: float) -> P:
    parameters = part.parameters()
    return part.with_parameters(parameters | {name: parameters[name] + math.log(factor)})


def rounding(Y: Float[Tensor, "n o"]) -> float:
    """The variance of what rounding took from the targets: step^2 / 12 where all are multiples of a step, else 0.

    Of several outputs the least; they share their noise. Few levels are no rounding but values of their own.
    """
    floors = []
    for y in Y.mT:
        levels = torch.unique(y)
        if len(levels) < LEVELS or len(levels) == len(y):
            return 0.0
        steps = (levels - levels[0]) / levels.diff().min()
        on_grid = (steps - steps.round()).abs().max() < 1e-3
        floors.append(float(levels.diff().min().square() / 12) if on_grid else 0.0)
    return min(floors)
