"""A monotone map of the target, where rows not learned from are predicted better with it.

The map is found by the evidence of some rows with its Jacobian: one kernel, learned on the ranks of the targets, serves
all maps. Whether it is taken other rows say, each predicted by the others with and without it, with the noise that they
ask for: a map mostly makes noise more even, which the noise of `uneven_noise` may do as well. The error of the mean of
y must not grow, since few means far off can outweigh a better density.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from scipy.optimize import minimize
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.data.scaling import normal_nodes
from qsgp.data.target_maps import LEAST_POWER, MOST_POWER, TargetMap
from qsgp.factor import cholesky
from qsgp.hyperparameters.first import first_kernels
from qsgp.interfaces import Kernel, Likelihood
from qsgp.likelihoods import Gaussian, first_guess
from qsgp.posteriors.posteriors import ClosedForm
from qsgp.solvers.closed_form import Effort, fit_hyperparameters, threads_worth
from qsgp.training.options import LEAST_ROWS, Options
from qsgp.training.road_closed_form import left_out
from qsgp.training.uneven_noise import judged, surely_better

LEAST_LEVELS = 20  # different targets; with fewer nothing is sure
_LEARNED, ROWS_OF_A_MAP = 500, 1500  # rows; those after the first judge
_MOST_ALIKE = 0.1  # of the rows: more equal targets are no numbers that vary, and any density grows there without limit
_NARROWEST, _WIDEST = 0.02, 50.0  # widths of the part that is linear, in units of the middle half of the targets
_STARTS = ((0.0, 0.1, 0.1), (0.25, 0.5, 0.3), (0.5, 1.0, 0.7), (0.75, 0.5, 0.3), (1.0, 0.1, 0.1))
_KERNELS = ("matern32", "rbf")  # the first for the ranks; both compete for the targets
_RANKS, _AGAIN = Effort(12, 1e-4), Effort(10, 1e-4)
_ENOUGH = 0.05  # nat of a row, by which the density must be better
_WORSE_ERROR = 1.002  # of the mean of y


def learned(rows: Rows, options: Options) -> TargetMap | None:
    """A map for each output of ``rows`` in random order, standardised; None where all stay as they are."""
    maps = [_of_output(rows._replace(Y=y[:, None]), options) for y in rows.Y.mT]
    if all(found is None for found in maps):
        return None
    each = [TargetMap.identity(1) if found is None else found for found in maps]
    return TargetMap.from_rows(torch.cat([found.rows for found in each], 1))


class _Trial(NamedTuple):
    """What each row was given by the others: the density of its target, and the squared error of its mean."""

    density: Float64[Tensor, " h"]
    square: Float64[Tensor, " h"]


def _of_output(rows: Rows, options: Options) -> TargetMap | None:
    """The map of one output, if there is one worth having."""
    limits = _limits(rows)
    if limits is None:
        return None
    known, judges = rows.take(slice(_LEARNED)), rows.take(slice(_LEARNED, None))
    judges = judges if judges.n >= _LEARNED else rows
    kernels, ranks = first_kernels(known.x, _KERNELS, None), known._replace(Y=_normal_scores(known.Y))
    kernel, noise, _ = fit_hyperparameters(kernels[0], first_guess(Gaussian.name), ranks, _RANKS)
    kernels = [kernel, *(other.with_parameters(kernel.parameters()) for other in kernels[1:])]
    found, gain = _of_most_evidence(known, kernel, noise, limits)
    found = found.standardised(known.Y, known.weight)
    if options.target_map != "auto":
        return found
    if gain < _ENOUGH:
        return None
    with_map, without = (_trial(each, known, judges, (kernels, noise), options) for each in (found, None))
    share = judges.weight / judges.weight.sum()
    no_worse = float(share @ with_map.square) ** 0.5 <= _WORSE_ERROR * float(share @ without.square) ** 0.5
    better = surely_better(with_map.density, without.density, judges.weight, _ENOUGH)
    return found if no_worse and better else None


def _limits(rows: Rows) -> list[tuple[float, float]] | None:
    """Of origin, log width and power; None for targets that no map can help."""
    y = rows.Y[:, 0]
    levels, times = torch.unique(y, return_counts=True)
    if len(y) < LEAST_ROWS or len(levels) < LEAST_LEVELS or int(times.max()) > _MOST_ALIKE * len(y):
        return None
    low, high = (float(value) for value in y.quantile(y.new_tensor([0.25, 0.75])))
    middle = high - low
    if not middle > 1e-9:
        return None
    # of whole numbers, steps are no smaller than they are
    narrow = max(_NARROWEST * middle, float(levels.diff().median()) if len(levels) < len(y) / 2 else 0.0)
    ends = float(levels[0]) - middle, float(levels[-1]) + middle
    return [ends, (math.log(narrow), math.log(max(_WIDEST * middle, 2 * narrow))), (LEAST_POWER, MOST_POWER)]


def _normal_scores(Y: Float64[Tensor, "n o"]) -> Float64[Tensor, "n o"]:
    """Quantiles of N(0, 1) in the order of the targets: the same whatever map stands in front of them."""
    below = (Y[:, None] > Y[None]).double().sum(1)
    ties = (Y[:, None] == Y[None]).double().sum(1)
    return torch.special.ndtri((below + ties / 2) / len(Y))


def _of_most_evidence(
    rows: Rows, kernel: Kernel, noise: Likelihood, limits: list[tuple[float, float]]
) -> tuple[TargetMap, float]:
    """The map that has most of it and by how much for each row, whatever the variance of the function: kernel and
    share of the noise are given."""
    x, Y, weight = rows
    assert noise.noise_variance is not None
    with torch.no_grad(), threads_worth(rows.n):
        factor, _ = cholesky(kernel(x, x) + torch.diag(noise.noise_variance / weight))

    def surprise(bend: TargetMap) -> Tensor:
        """Of a row, without what all maps have in common."""
        t = bend(Y)
        t = t - weight @ t / weight.sum()
        square = torch.linalg.solve_triangular(factor, t, upper=False).square().sum()
        return 0.5 * square.log() - (weight @ bend.log_slope(Y)).sum() / rows.n

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(point, dtype=torch.float64, requires_grad=True)
        value = surprise(_bend(at))
        (slope,) = torch.autograd.grad(value, at)
        return float(value.detach()), slope.numpy()

    low, high = limits[0][0], limits[0][1]
    found = []
    for place, width, power in _STARTS:
        start = np.array([low + place * (high - low), limits[1][0] - math.log(_NARROWEST) + math.log(width), power])
        start = np.clip(start, [each[0] for each in limits], [each[1] for each in limits])
        found.append(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 60}))
    best = min(found, key=lambda each: float(each.fun) if math.isfinite(each.fun) else math.inf)
    gain = float(surprise(TargetMap.identity(1))) - float(best.fun)
    return _bend(torch.tensor(best.x, dtype=torch.float64)), gain if math.isfinite(gain) else 0.0


def _bend(at: Float64[Tensor, " three"]) -> TargetMap:
    identity = TargetMap.identity(1)
    return replace(identity, origin=at[:1], width=at[1:2].exp(), power=at[2:])


def _trial(
    bend: TargetMap | None, known: Rows, judges: Rows, starts: tuple[list[Kernel], Likelihood], options: Options
) -> _Trial:
    """With kernel and hyperparameters of ``known`` each of the ``judges`` predicted by the others."""
    bend = TargetMap.identity(1) if bend is None else bend
    mapped = known._replace(Y=bend(known.Y))
    tried = [fit_hyperparameters(kernel, starts[1], mapped, _AGAIN) for kernel in starts[0]]
    kernel, noise, _ = max(tried, key=lambda each: each[2])
    with torch.no_grad():
        unseen = left_out(ClosedForm.build(kernel, noise, judges.x, bend(judges.Y), judges.weight))
        assert unseen is not None and isinstance(noise, Gaussian)
        plain = noise.log_density(unseen.Y, unseen.mean, unseen.variance)
        found, density = judged(noise, unseen) if options.noise == "auto" else (noise, plain)
        mean, variance = found.moments(unseen.mean, unseen.variance)
        z, share = (torch.tensor(part)[:, None, None] for part in normal_nodes())
        mean_of_y = (share * bend.inverse(mean + z * variance.sqrt())).sum(0)
        mean_of_y = torch.where(bend.plain, mean, mean_of_y)
        density = density + bend.log_slope(judges.Y)
    return _Trial(density[:, 0], (judges.Y - mean_of_y).square()[:, 0])
