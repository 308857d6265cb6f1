"""Lengthscales for many more rows than the evidence can take: shorter by the trend that the evidence itself shows.

No function is as smooth as its kernel says. Few rows do not show it, so their evidence takes lengthscales that are too
long for many: with 0.8 of those from 8,000 robot-arm rows (the distance of a tip has a cone) a million rows had a fifth
less error of f (docs/measurements.md). The evidence of more and more rows asks for shorter ones, about as a power of
their number. That law is followed to as many rows as there are, if others confirm it: not every function obeys it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.hyperparameters.prior import is_lengthscale, lengthscale_prior
from qsgp.interfaces import SpectralKernel
from qsgp.likelihoods import Gaussian
from qsgp.ranks import ALONE, Ranks
from qsgp.solvers.closed_form import Effort, fit_hyperparameters
from qsgp.solvers.dual import averaged, spectral
from qsgp.solvers.system import Ahead, System

MANY_MORE = 16  # times the rows of the evidence, from which on it pays to look
APART = 4  # the evidence of all of some rows is compared with that of one in so many
STEEPEST = -0.1  # power of the number of rows
PART = 4  # one row in so many must confirm it, and of the others
JUDGES = 20_000
EPOCHS = 6  # until shorter lengthscales, which take longer, have come as far as they need to show
SURE = 2.0  # standard errors
_EFFORT = Effort(60, 1e-5)


class Trial(NamedTuple):
    kernel: SpectralKernel
    squares: Float[Tensor, " h"]  # errors of the rows that judge
    rmse: float


@dataclass(frozen=True)
class Trying:
    """How the mean of a trial is solved for."""

    block: int
    seed: int
    halt: Callable[[], bool] = lambda: False
    ranks: Ranks = ALONE


def followed(
    kernel: SpectralKernel,
    likelihood: Gaussian,
    known: Rows,
    noise: Float[Tensor, "n one"],
    learned: tuple[int, int],
    trying: Trying,
) -> tuple[SpectralKernel, list[Trial]]:
    """The kernel for all rows of ``known``, and what was tried to confirm it on a part of them.

    ``learned``: rows from whose evidence the trend is taken, and rows from whose evidence the kernel came.
    """
    ranks = trying.ranks
    n = int(ranks.total(torch.tensor(known.n)))
    some, judges = n // PART, _collected(ranks, known, n // PART, min(n, n // PART + JUDGES))
    mine, first = ranks.mine(some), _collected(ranks, known, 0, min(n, learned[0]))
    power = ranks.on_first(lambda: trend(kernel, likelihood, first, trying.halt))
    trials: list[Trial] = []
    for factor in (1.0, (some / learned[1]) ** power) if power else ():
        trial = tried(scaled(kernel, factor), known.take(slice(mine)), noise[:mine], judges, trying)
        if trial is None:
            return kernel, trials
        trials.append(trial)
    if not trials or not ranks.agreed(surely_less(trials[1].squares, trials[0].squares, judges.weight)):
        return kernel, trials
    return scaled(kernel, (n / learned[1]) ** power), trials


def _collected(ranks: Ranks, known: Rows, begin: int, end: int) -> Rows:
    every = torch.arange(begin, end, device=known.x.device)
    return Rows(*(ranks.collected(part, every) for part in known))


def trend(kernel: SpectralKernel, sites: Gaussian, rows: Rows, halt: Callable[[], bool]) -> float:
    """The power of the number of rows that lengthscales follow, by the evidence of ``rows`` and of a part of them."""
    found = []
    kernel = spectral(kernel.with_parameters({name: value.double() for name, value in kernel.parameters().items()}))
    sites = Gaussian(sites.noise_variance.double())
    for count in (rows.n // APART, rows.n):
        part = rows.take(slice(count)).to(rows.x.device, torch.float64)
        found.append(
            effective(fit_hyperparameters(kernel, sites, part, _EFFORT, prior=lengthscale_prior, halt=halt)[0])
        )
    power = math.log(found[1] / found[0]) / math.log(APART)
    return max(STEEPEST, power) if power < 0 and not halt() else 0.0


def effective(kernel: SpectralKernel) -> float:
    """Of all inputs (and terms) together; what is of no use, its lengthscale being large, does not count."""
    logs = torch.cat([value.double() for name, value in kernel.parameters().items() if is_lengthscale(name)])
    return float(logs.exp().pow(-2).sum()) ** -0.5


def scaled(kernel: SpectralKernel, factor: float) -> SpectralKernel:
    moved = {
        name: value + math.log(factor) if is_lengthscale(name) else value for name, value in kernel.parameters().items()
    }
    return spectral(kernel.with_parameters(moved))


def tried(
    kernel: SpectralKernel, known: Rows, noise: Float[Tensor, "n one"], others: Rows, trying: Trying
) -> Trial | None:
    """The mean that these rows give with ``kernel``, and how it predicts others; None when there was no time."""
    A, ranks = torch.zeros_like(known.Y), trying.ranks
    n = int(ranks.total(torch.tensor(known.n)))
    system = System(kernel, known.x, noise, A, None, Ahead.wanted(A, n / trying.block), ranks)
    solution = averaged(system, known.Y, block=trying.block, epochs=EPOCHS, seed=trying.seed, halt=trying.halt)
    if solution is None:
        return None
    x_other, Y_other, weight = others
    mean = ranks.total(kernel.product(x_other, known.x, solution[0]))
    squares = (mean - Y_other).double().square().mean(1)
    return Trial(kernel, squares, float(weight.to(squares) @ squares / weight.sum()) ** 0.5)


def surely_less(found: Float[Tensor, " h"], before: Float[Tensor, " h"], weight: Float[Tensor, " h"]) -> bool:
    """By more than the chance of these rows explains: differences of pairs vary far less than the errors do."""
    share = (weight / weight.sum()).to(found)
    gain = before - found
    mean = share @ gain
    return bool(mean > SURE * (share.square() @ (gain - mean).square()).sqrt())
