"""Whether a trained model is worth more than the exact GP of the few rows its hyperparameters were learned on."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from qsgp.data.arrays import Arrays
from qsgp.data.rows import Rows
from qsgp.interfaces import Kernel, Likelihood
from qsgp.interrupt import Halt
from qsgp.posteriors.posteriors import ClosedForm, Posterior
from qsgp.posteriors.spread import FEW
from qsgp.training.options import LEARN_POINTS, Sizes
from qsgp.training.trained import Trained

JUDGES = 500  # rows at most that compare two models
_CLEARLY = 0.02  # nats of a row, and two deviations: less may be chance
MORE_TIME = "Give it more time (max_time) or fewer functions (n_features), or leave optimizer at 'auto'."
MORE_FEATURES = "Give it more time (max_time) or more functions (n_features), or leave basis and n_features out."
BETTER_STEPS = (
    "Leave out what is said of steps (optimizer, batch_features, max_iter, checkpoint, tol), or take more of them."
)
MORE_STEPS = "Take more steps (max_iter) or more time (max_time), or use a QSGP estimator."
_SHARE = 0.2  # of the time that is left, at most, for the exact GP of other sites


P = TypeVar("P", Kernel, Likelihood)


@dataclass(frozen=True)
class Shuffled:
    """Shuffled in random order; looked up, not copied."""

    source: Arrays
    order: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.order)

    def part(self, start: int, end: int) -> Rows:
        index = self.order[start:end]
        (x, y), weight = self.source.take(index), self.source.weights(index)
        return Rows(x, y.reshape(len(y), self.source.outputs), x.new_ones(len(x)) if weight is None else weight)

    def last(self, count: int) -> Rows:
        return self.part(len(self) - count, len(self))


def judges(sizes: Sizes) -> int:
    """Shuffled that are held out to compare; 0 when they would be too few to tell anything."""
    held = min(sizes.held_out, JUDGES)
    return held if held >= FEW else 0


def exact_of_some(rows: Shuffled, kernel: Kernel, likelihood: Likelihood, sizes: Sizes, halt: Halt) -> ClosedForm:
    """The closed form of rows that hyperparameters were learned on, those of `judges` left out."""
    known = rows.part(0, min(sizes.learn_points, LEARN_POINTS, len(rows) - judges(sizes)))
    share = Halt(halt.pressed, _SHARE * halt.left)
    x, Y, weight = (part.double() for part in known)
    return ClosedForm.build(_double(kernel), _double(likelihood), x, Y, weight, halt=share)


def never_worse(
    trained: Trained, known: ClosedForm, held: Rows, remedy: str, agreed: Callable[[bool], bool] = bool
) -> Trained:
    """``trained``, or ``known`` and a warning where it clearly predicts the rows ``held`` out better, as all ranks
    have ``agreed``."""
    if not len(held.x):
        return trained
    own, other = log_density(trained.posterior, held), log_density(known, held)
    if not agreed(_clearly_better(other, own, held.weight)):
        return trained
    warnings.warn(
        f"Training has not converged: {len(held.x)} training rows have a mean log density of "
        f"{_mean(own, held.weight):.3g}, and {_mean(other, held.weight):.3g} for the exact GP that knows "
        f"{len(known.x)} rows. That GP is what is returned. {remedy}",
        ConvergenceWarning,
        stacklevel=3,
    )
    return replace(trained, posterior=known, unseen=None)


def instead(trained: Trained, known: ClosedForm, why: str) -> Trained:
    """``known`` and a warning where training has come to nothing."""
    warnings.warn(
        f"{why} The exact GP that knows {len(known.x)} rows is what is returned.", ConvergenceWarning, stacklevel=3
    )
    return replace(trained, posterior=known, unseen=None)


def better_than_nothing(trained: Trained, held: Rows, remedy: str) -> Trained:
    """``trained``, with a warning where one mean and one deviation for all rows, or one probability, predict better."""
    if not len(held.x):
        return trained
    own, Y = log_density(trained.posterior, held), held.Y.double()
    if trained.posterior.likelihood.labels:
        rate = ((Y > 0).double().mean(0) * len(Y) + 1) / (len(Y) + 2)
        constant = torch.where(Y > 0, rate, 1 - rate).log().mean(1)
    else:
        constant = (-0.5 * math.log(2 * math.pi) - 0.5 * Y.square()).mean(1)  # targets are standardised
    if _clearly_better(constant, own, held.weight):
        warnings.warn(
            f"Training has not converged: {len(held.x)} training rows have a mean log density of "
            f"{_mean(own, held.weight):.3g}, and {_mean(constant, held.weight):.3g} if their inputs are not looked at. "
            f"{remedy}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return trained


def log_density(posterior: Posterior, rows: Rows) -> Float[Tensor, " h"]:
    """Of the targets of each row, in units of their deviation; what is not finite counts as impossible."""
    mean, variance = posterior.latent(rows.x)
    found = _double(posterior.likelihood).log_density(rows.Y.double(), mean.double(), variance.double())
    return torch.nan_to_num(found, nan=-math.inf, posinf=-math.inf).mean(1)


def _clearly_better(one: Float[Tensor, " h"], other: Float[Tensor, " h"], weight: Float[Tensor, " h"]) -> bool:
    gain = (one - other).clamp(-1e6, 1e6)
    mean, share = _mean(gain, weight), weight.double() / weight.double().sum()
    error = float((share * (gain - mean)).square().sum().sqrt())
    return mean > max(_CLEARLY, 2 * error)


def _mean(values: Float[Tensor, " h"], weight: Float[Tensor, " h"]) -> float:
    return float(weight.double() @ values.double() / weight.double().sum())


def _double(part: P) -> P:
    return part.with_parameters({name: value.double() for name, value in part.parameters().items()})
