"""What rows held out decide: how variances are blended and trusted, whether there is more noise, and the scores."""

from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.interfaces import Likelihood
from qsgp.likelihoods import LabelsAsNumbers
from qsgp.posteriors.posteriors import FourierWeights, KernelFunctionsAtRows
from qsgp.solvers.pathwise import blended
from qsgp.training.trained import Record

ENOUGH = 2.0  # nats that rows held out must gain by another number
WORSE_DENSITY = 0.02  # nat
WORSE_ERROR = 1.05

P = TypeVar("P", KernelFunctionsAtRows, FourierWeights)


def watched(posterior: P, likelihood: Likelihood, rows: Rows) -> tuple[P, Record]:
    """The posterior with blend and noise that suit these rows, and its scores there.

    ``likelihood`` is the one that was learned.
    """
    x, Y, weight = rows
    mean, draws = posterior.pieces(x)
    support = posterior.spread.support(x)
    blend = posterior.spread.fitted(draws, support)
    variance = blended(draws, support, blend)
    noisy = raised(likelihood, Y, mean, variance, weight)
    trust = trusted(noisy, Y, mean, variance, weight)
    if trust < 1:
        variance = trust * variance
        noisy = raised(likelihood, Y, mean, variance, weight)
    spread = replace(posterior.spread, blend=blend, trust=trust)
    return replace(posterior, spread=spread, likelihood=noisy), scores(noisy, Y, mean, variance, weight)


def scored(posterior: P, rows: Rows) -> Record:
    """Its scores at these rows, as it is."""
    mean, draws = posterior.pieces(rows.x)
    return scores(posterior.likelihood, rows.Y, mean, posterior.spread.variance(rows.x, draws), rows.weight)


def not_worse(found: Record, best: Record, density: float = WORSE_DENSITY) -> bool:
    """Beyond what chance does to scores of neighbouring epochs; scores that are no numbers are worse."""
    error = found.get("rmse", 0.0) <= WORSE_ERROR * best.get("rmse", 0.0)
    return bool(error and found["mnlp"] <= best["mnlp"] + density)


def trusted(
    likelihood: Likelihood,
    Y: Float[Tensor, "h o"],
    mean: Float[Tensor, "h o"],
    variance: Float[Tensor, "h g"],
    weight: Float[Tensor, " h"],
) -> float:
    """The share of the variance of f that rows held out allow: the largest within 2 nats of the most probable one.

    Draws begin as wide as the prior and narrow as their systems are solved: ended early, they claim too little. Where
    noise outweighs the variance of f, rows say little of it, and the most probable share may be far too small.
    """
    shares = [2.0 ** (-k / 4) for k in range(33)]
    found = [float(weight.sum()) * _mnlp(likelihood, Y, mean, share * variance, weight) for share in shares]
    allowed = [share for share, each in zip(shares, found, strict=True) if each <= min(found) + ENOUGH]
    return max(allowed, default=1.0)  # a density that is no number allows nothing


def raised(
    likelihood: Likelihood,
    Y: Float[Tensor, "h o"],
    mean: Float[Tensor, "h o"],
    variance: Float[Tensor, "h g"],
    weight: Float[Tensor, " h"],
) -> Likelihood:
    """With the noise under which rows held out are most probable, never less than what the evidence said; of labels
    taken for numbers, with the scale of their log odds.

    Evidence of some rows may take a function for noise-free that has jumps, as targets of a few levels have: intervals
    would be far too narrow. The mean does not suffer and keeps its noise.
    """
    if not likelihood.parameters():  # labels have no noise
        return likelihood
    if isinstance(likelihood, LabelsAsNumbers):
        return min(likelihood.candidates(), key=lambda candidate: _doubted(candidate, Y, mean, variance, weight))
    ((name, learned),) = likelihood.parameters().items()
    candidates = [likelihood.with_parameters({name: learned + 0.1 * k}) for k in range(101)]
    return min(candidates, key=lambda candidate: _mnlp(candidate, Y, mean, variance, weight))


def scores(
    likelihood: Likelihood,
    Y: Float[Tensor, "h o"],
    mean: Float[Tensor, "h o"],
    variance: Float[Tensor, "h g"],
    weight: Float[Tensor, " h"],
) -> Record:
    """Of standardised targets, over all outputs: ``rmse``, or ``error`` of classes, and ``mnlp``."""
    found: Record = {"mnlp": _mnlp(likelihood, Y, mean, variance, weight)}
    if not likelihood.labels:
        return {"rmse": _mean((Y.double() - mean.double()).square(), weight) ** 0.5} | found
    if isinstance(likelihood, LabelsAsNumbers):
        Y, mean, _ = likelihood.odds(Y, mean, variance)
    right = Y * mean > 0 if Y.shape[1] == 1 else (Y.argmax(1) == mean.argmax(1))[:, None]
    return {"error": 1 - _mean(right.double(), weight)} | found


def _mnlp(likelihood: Likelihood, Y: Tensor, mean: Tensor, variance: Tensor, weight: Tensor) -> float:
    sites = likelihood.with_parameters({name: value.double() for name, value in likelihood.parameters().items()})
    if isinstance(sites, LabelsAsNumbers):
        density = sites.density_of_class(Y.double(), mean.double(), variance.double().expand_as(mean))
        return -_mean(density[:, None], weight)
    return -_mean(sites.log_density(Y.double(), mean.double(), variance.double().expand_as(mean)), weight)


def _doubted(likelihood: LabelsAsNumbers, Y: Tensor, mean: Tensor, variance: Tensor, weight: Tensor) -> float:
    """The negative log probability of the classes, and of half a row more whose class is another one.

    Where no row held out is wrong, no scale of log odds would be large enough; this is the Krichevsky-Trofimov rule,
    which expects half an error in as many rows.
    """
    right = likelihood.density_of_class(Y.double(), mean.double(), variance.double().expand_as(mean))[:, None]
    wrong = torch.log1p(-right.exp()).clamp_min(-1e3)
    return -_mean(right, weight) - 0.5 * _mean(wrong, weight) / float(weight.sum())


def _mean(values: Float[Tensor, "h o"], weight: Float[Tensor, " h"]) -> float:
    """A row of weight 2 is the row given twice."""
    return float((weight.to(values) @ values).mean() / weight.to(values).sum())
