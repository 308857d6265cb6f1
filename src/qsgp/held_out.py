"""What rows held out decide: how variances are blended, whether there is more noise than thought, and the scores."""

from dataclasses import replace
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

from qsgp import metrics
from qsgp.interfaces import Likelihood
from qsgp.likelihoods import Logistic
from qsgp.pathwise import blended
from qsgp.posteriors import FourierWeights, KernelFunctionsAtRows
from qsgp.trained import Record

P = TypeVar("P", KernelFunctionsAtRows, FourierWeights)


def watched(
    posterior: P, likelihood: Likelihood, x: Float[Tensor, "h d"], Y: Float[Tensor, "h o"]
) -> tuple[P, Float[Tensor, "h o"], Float[Tensor, "h g"]]:
    """The posterior with blend and noise that suit these rows, and its mean and variance there.

    ``likelihood`` is the one that was learned.
    """
    mean, draws = posterior.pieces(x)
    support = posterior.spread.support(x)
    blend = posterior.spread.fitted(draws, support)
    variance = blended(draws, support, blend)
    spread = replace(posterior.spread, blend=blend)
    return replace(posterior, spread=spread, likelihood=raised(likelihood, Y, mean, variance)), mean, variance


def raised(
    likelihood: Likelihood, Y: Float[Tensor, "h o"], mean: Float[Tensor, "h o"], variance: Float[Tensor, "h g"]
) -> Likelihood:
    """With the noise under which rows held out are most probable, never less than what the evidence said.

    Evidence of some rows may take a function for noise-free that has jumps, as targets of a few levels have: intervals
    would be far too narrow. The mean does not suffer and keeps its noise.
    """
    if not likelihood.parameters():  # logistic sites have no noise
        return likelihood
    ((name, learned),) = likelihood.parameters().items()

    def with_shift(shift: float) -> Likelihood:
        return likelihood.with_parameters({name: learned + shift})

    return with_shift(min((0.1 * k for k in range(101)), key=lambda shift: _mnlp(with_shift(shift), Y, mean, variance)))


def scores(
    likelihood: Likelihood, Y: Float[Tensor, "h o"], mean: Float[Tensor, "h o"], variance: Float[Tensor, "h g"]
) -> Record:
    """Of standardised targets, over all outputs: ``rmse``, or ``error`` of classes, and ``mnlp``."""
    found: Record = {"mnlp": _mnlp(likelihood, Y, mean, variance)}
    if not isinstance(likelihood, Logistic):
        return {"rmse": metrics.rmse(Y.double().flatten(), mean.double().flatten())} | found
    right = Y * mean > 0 if Y.shape[1] == 1 else Y.argmax(1) == mean.argmax(1)
    return {"error": 1 - float(right.double().mean())} | found


def _mnlp(likelihood: Likelihood, Y: Tensor, mean: Tensor, variance: Tensor) -> float:
    sites = likelihood.with_parameters({name: value.double() for name, value in likelihood.parameters().items()})
    density = sites.log_density(Y.double(), mean.double(), variance.double().expand_as(mean))
    return metrics.mnlp(density.flatten())
