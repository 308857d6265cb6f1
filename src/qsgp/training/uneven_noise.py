"""What rows not learned from say of the noise: how large it is where, and whether its shape is normal.

Where a prediction is off by more than it says, it often is so for a range of predicted means (prices: noise grows with
them) or of predicted variances. Both functions are learned with the shape, by the density of rows that the model does
not know. Folds of these rows decide how smooth the functions are, and whether anything but equal Gaussian noise is
worth having.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from qsgp.interfaces import Likelihood
from qsgp.likelihoods import Gaussian, Mixture
from qsgp.likelihoods.mixture import LAWS
from qsgp.training.options import LEAST_ROWS
from qsgp.training.trained import Unseen

_KNOTS = (12, 8)  # of functions of mean and variance
# Deviations that means at two knots are apart at least. The mean of a row that is left out knows a little of its
# target: where all means are nearly equal, the highest ones are those of the rows with the lowest targets.
_APART = 0.25
_STEPS = (0.1, 0.3, 1.0)  # deviations of a function from knot to knot, of which folds choose
_LEVEL = 3.0  # deviation of what a function is anywhere
_NORMAL = 10.0  # rows that the normal shape is worth beforehand
_NEAR_NORMAL = 0.25  # deviation of the logarithms of scales, beforehand
_BESIDE = 0.1  # weight of laws beside the mean, beforehand
_FOLDS, _ROUNDS, _ROUNDS_OF_A_FOLD = 5, 40, 12
_SURELY, _ENOUGH = 2.0, 0.005  # standard errors, and nat of a row, by which folds must be better
_MIDDLE, _LEAST_LEVEL = 0.455, 1e-6  # median of the square of a standard normal number; the least that errors have
_FAR = 40.0  # deviations; what is off by more counts as being off by so much


class Judged(NamedTuple):
    """A likelihood, and the log density that folds of the rows have found for each row and output."""

    likelihood: Likelihood
    density: Float64[Tensor, "h o"]


def judged(likelihood: Gaussian, unseen: Unseen) -> Judged:
    """The noise that these rows ask for; ``likelihood`` as it is where nothing else is surely better."""
    noise = Gaussian(likelihood.noise_variance.detach().double().cpu())
    Y, mean, variance, weight = unseen.double()
    plain = noise.log_density(Y, mean, variance)
    if len(Y) < LEAST_ROWS or not torch.isfinite(plain).all():
        return Judged(likelihood, plain)
    outputs = [
        _of_output(Unseen(Y[:, o], mean[:, o], variance[:, o], weight), noise, plain[:, o]) for o in range(Y.shape[1])
    ]
    if all(found is None for found, _ in outputs):
        return Judged(likelihood, plain)
    parts = [
        _Noise.equal(mean[:, o], variance[:, o]) if found is None else found for o, (found, _) in enumerate(outputs)
    ]
    numbers = {name: torch.stack([getattr(part, name) for part in parts]) for name in _Noise.__dataclass_fields__}
    shifts, scales = _laws()
    mixture = Mixture(likelihood.noise_variance, scales=scales, shifts=shifts, **numbers)
    return Judged(mixture, torch.stack([density for _, density in outputs], 1))


@dataclass(frozen=True)
class _Noise:
    """The numbers of a `Mixture` for one output."""

    weights: Float64[Tensor, " k"]
    mean_knots: Float64[Tensor, " p"]
    by_mean: Float64[Tensor, " p"]
    variance_knots: Float64[Tensor, " q"]
    by_variance: Float64[Tensor, " q"]

    @classmethod
    def equal(cls, mean: Tensor, variance: Tensor) -> "_Noise":
        """Equal Gaussian noise, with as many numbers as other outputs have."""
        knots = [_knots(values, count) for values, count in zip((mean, _log(variance)), _KNOTS, strict=True)]
        weights = (_laws().eq(_laws().new_tensor([[0.0], [1.0]]))).all(0).double()
        return cls(weights, knots[0], torch.zeros_like(knots[0]), knots[1], torch.zeros_like(knots[1]))


def _of_output(unseen: Unseen, noise: Gaussian, plain: Float64[Tensor, " h"]) -> tuple[_Noise | None, Tensor]:
    """The noise of one output and the density that folds found with it; None for equal Gaussian noise."""
    Y, mean, variance, weight = unseen
    if Y.max() == Y.min():  # nothing to be wrong about
        return None, plain
    total = variance + noise.noise_variance
    error = (Y - mean) / total.sqrt()
    level = float(error.square().median().clamp_min(_LEAST_LEVEL) / _MIDDLE)  # the laws have scales about 1
    total = level * total
    error = (error / math.sqrt(level)).clamp(-_FAR, _FAR)
    apart = _APART * float(total.median()) ** 0.5
    knots = _knots(mean, _KNOTS[0], apart), _knots(_log(variance), _KNOTS[1])
    A = torch.cat([_hats(mean, knots[0]), _hats(_log(variance), knots[1])], 1)
    fold = torch.randperm(len(Y), generator=torch.Generator().manual_seed(0)) % _FOLDS
    best: tuple[float, tuple[Tensor, Tensor], Tensor, Tensor] | None = None
    for step in _STEPS:
        precision = _precision([len(each) for each in knots], step)
        h, density, whole = torch.zeros_like(Y), torch.zeros_like(Y), _fitted(A, error, weight, precision)
        for number in range(_FOLDS):
            out = fold == number
            values, shape = _fitted(A[~out], error[~out], weight[~out], precision, whole)
            h[out] = A[out] @ values
            density[out] = _logs(error[out], h[out], shape).logsumexp(1)
        score = float(weight @ density)
        if best is None or score > best[0]:
            best = (score, whole, h, density - 0.5 * (total.log() + math.log(2 * math.pi)))
    assert best is not None
    if not surely_better(best[3], plain, weight):
        return None, plain
    shape = _shape(error, best[2], weight, best[1][1])  # of deviations that rows had no part in
    by_mean, by_variance = best[1][0].split([len(each) for each in knots])
    return _Noise(shape, knots[0], by_mean + math.log(level), knots[1], by_variance), best[3]


def surely_better(density: Tensor, other: Tensor, weight: Tensor, enough: float = _ENOUGH) -> bool:
    """By two standard errors of the differences of rows, and by ``enough`` on average."""
    share, gain = weight / weight.sum(), (density - other).clamp(-20, 20)
    mean = share @ gain
    error = (share.square() @ (gain - mean).square()).sqrt()
    return bool(mean > _SURELY * error and mean > enough)


def _fitted(
    A: Float64[Tensor, "h p"],
    error: Float64[Tensor, " h"],
    weight: Float64[Tensor, " h"],
    precision: Tensor,
    start: tuple[Tensor, Tensor] | None = None,
) -> tuple[Float64[Tensor, " p"], Float64[Tensor, " k"]]:
    """Values at the knots and weights of the shape, by turns: most probable for these errors in units of deviations.

    Given the shares that the normal laws have in each row, what is left is a regression of a scale and a Newton step.
    """
    shifts, scales = _laws()
    values, shape = (A.new_zeros(A.shape[1]), _near_normal()) if start is None else start
    for _ in range(_ROUNDS if start is None else _ROUNDS_OF_A_FOLD):
        h = A @ values
        share = _logs(error, h, shape).softmax(1)
        shape = (weight @ share + _NORMAL * _near_normal()) / (weight.sum() + _NORMAL)
        z = (error * (-0.5 * h).exp())[:, None]
        told = (share * z * (z - shifts) / scales.square()).sum(1)
        slope = A.mT @ (0.5 * weight * (told - 1)) - precision @ values
        curvature = (A.mT * (0.5 * weight * (0.5 + 0.5 * told).clamp(0.5, 10))) @ A + precision
        move = torch.linalg.solve(curvature, slope).clamp(-1, 1)
        values = values + move
        values = values - 0.5 * (weight @ (A @ values)) / weight.sum()  # the level is up to the shape
        if float(move.abs().max()) < 1e-3:
            break
    return values, shape


def _shape(error: Tensor, h: Tensor, weight: Tensor, shape: Tensor) -> Float64[Tensor, " k"]:
    """Weights of the normal laws for errors in units of exp(h / 2), from a first guess."""
    for _ in range(2 * _ROUNDS):
        share = _logs(error, h, shape).softmax(1)
        shape = (weight @ share + _NORMAL * _near_normal()) / (weight.sum() + _NORMAL)
    return shape


def _logs(error: Tensor, h: Tensor, shape: Tensor) -> Float64[Tensor, "h k"]:
    """Log weights and densities of the normal laws, without the constant."""
    shifts, scales = _laws()
    z = ((error * (-0.5 * h).exp())[:, None] - shifts) / scales
    return shape.clamp_min(1e-300).log() - scales.log() - 0.5 * (h[:, None] + z.square())


@functools.cache
def _laws() -> Float64[Tensor, "two k"]:
    return torch.tensor(LAWS, dtype=torch.float64).mT


@functools.cache
def _near_normal() -> Float64[Tensor, " k"]:
    """Weights of a shape that is nearly normal: little of the laws beside the mean."""
    shifts, scales = _laws()
    beside = (-0.5 * shifts.square()).softmax(0) * (shifts != 0)
    middle = torch.where(shifts == 0, -0.5 * (scales.log() / _NEAR_NORMAL).square(), -torch.inf).softmax(0)
    return (middle + _BESIDE * beside) / (middle + _BESIDE * beside).sum()


def _log(variance: Tensor) -> Tensor:
    return variance.clamp_min(1e-30).log()


def _knots(values: Float64[Tensor, " h"], count: int, apart: float = 0.0) -> Float64[Tensor, " p"]:
    """Quantiles of ``values``, moved ``apart`` where they are nearly equal: every output has as many."""
    levels = torch.linspace(0.01, 0.99, count, dtype=torch.float64)
    knots = values.quantile(levels)
    least = max(apart, 1e-6 * float(knots[-1] - knots[0]) + 1e-9)
    rising = torch.arange(count, dtype=torch.float64)
    return (knots - least * rising).cummax(0).values + least * rising


def _hats(values: Float64[Tensor, " h"], knots: Float64[Tensor, " p"]) -> Float64[Tensor, "h p"]:
    """Shares of the two knots next to each value."""
    share = ((values[:, None] - knots[:-1]) / knots.diff()).clamp(0, 1)
    ones = torch.ones_like(values[:, None])
    return torch.cat([ones, share], 1) - torch.cat([share, 0 * ones], 1)


def _precision(sizes: list[int], step: float) -> Float64[Tensor, "p p"]:
    """Of values at knots that wander from one to the next."""
    blocks = []
    for size in sizes:
        D = torch.eye(size, dtype=torch.float64).diff(dim=0)
        blocks.append(D.mT @ D / step**2 + torch.eye(size, dtype=torch.float64) / (size * _LEVEL**2))
    return torch.block_diag(*blocks)
