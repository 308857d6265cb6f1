"""Recalibration on rows the model has not seen: intervals whose coverage holds whatever the model got wrong.

Split conformal prediction: if calibration and test rows are exchangeable, the next score is equally likely to take each
of the n + 1 ranks among the calibration scores, so an interval cut at the right rank covers with the probability asked
for, on average over calibration sets and test rows. Nothing is assumed of the model, the noise or n.
"""

import bisect
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_finite, check_positive, check_rows, check_shape

# What a file holds at most: one rank in 10,000 is finer than the coverage of any test set can be measured.
MOST_SCORES = 10_001
_TENSORS = {"scores": (torch.float64, 1), "n": (torch.int64, 0), "symmetric": (torch.bool, 0)}
_UNSEEN = "Calibrate on rows that the model was not trained on, one entry per row."


@dataclass(frozen=True)
class Conformal:
    """Sorted scores (y - mean) / deviation of ``n`` calibration rows, absolute ones if ``symmetric``.

    Of more than 10,001 rows only that many scores are kept, at evenly spaced ranks; a rank between two of them is
    rounded to the wider interval, which adds at most 0.0001 to the coverage of each end.
    """

    scores: Float[Tensor, " s"]
    n: int
    symmetric: bool = True

    def __post_init__(self) -> None:
        remedy = "Build it with fit_conformal, or load it from an intact file."
        check_shape("scores", self.scores, (max(min(self.n, MOST_SCORES), 1),), f"n is {self.n}. {remedy}")
        check_finite("scores", self.scores, remedy)
        if (self.scores.diff() < 0).any() or (self.symmetric and self.scores[0] < 0):
            raise ValueError(f"Expected sorted scores, not negative when symmetric, got others. {remedy}")

    def interval(
        self, mean: Float[Tensor, "*s"], deviation: Float[Tensor, "*s"], coverage: float = 0.95
    ) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
        """[mean + low deviation, mean + high deviation] with Pr(y inside) between coverage and coverage + 1 / (n + 1).

        Not symmetric: each end misses (1 - coverage) / 2, so up to coverage + 2 / (n + 1). Ties may cover more.
        Too few rows for the coverage are refused: the only interval with the guarantee would be infinite.
        """
        low, high = self.limits(coverage)
        # Rounded outwards: a target on the very edge, the rule where targets are tied, must not be lost to an ulp.
        slack = 2 * torch.finfo(mean.dtype).eps
        lower, upper = low * deviation, high * deviation
        return (
            mean + lower - slack * (mean.abs() + lower.abs()),
            mean + upper + slack * (mean.abs() + upper.abs()),
        )

    def limits(self, coverage: float) -> tuple[float, float]:
        """Ends of the interval in deviations from the mean."""
        if not 0 < coverage < 1:
            raise ValueError(f"Expected 0 < coverage < 1, got {coverage}. Coverage is a probability, such as 0.95.")
        level = coverage if self.symmetric else (1 + coverage) / 2
        # 100 * 0.55 is 55.00000000000001: without rounding the rank would be one too high.
        rank = math.ceil(round((self.n + 1) * level, 6))
        if rank > self.n:
            needed = math.ceil(round(level / (1 - level), 6))
            most = (self.n if self.symmetric else self.n - 1) / (self.n + 1)
            raise ValueError(
                f"Coverage {coverage} needs at least {needed} rows, got {self.n}. "
                f"Calibrate on more rows or ask for a coverage of at most {math.floor(1e4 * most) / 1e4}."
            )
        high = self.scores[bisect.bisect_left(range(len(self.scores)), rank, key=self._rank)].item()
        if self.symmetric:
            return -high, high
        last = bisect.bisect_right(range(len(self.scores)), self.n + 1 - rank, key=self._rank) - 1
        return self.scores[last].item(), high

    def _rank(self, position: int) -> int:
        return _rank_at(position, self.n, len(self.scores))

    def to_tensors(self) -> dict[str, Tensor]:
        """For a file of tensors."""
        return {"scores": self.scores, "n": torch.tensor(self.n), "symmetric": torch.tensor(self.symmetric)}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "Conformal":
        """What `to_tensors` wrote; anything else is refused."""
        found = {name: (tensor.dtype, tensor.ndim) for name, tensor in tensors.items()}
        if found != _TENSORS:
            raise ValueError(f"Expected the tensors {_TENSORS} (dtype, dimensions), got {found}. The file was altered.")
        return cls(tensors["scores"], int(tensors["n"].item()), bool(tensors["symmetric"].item()))


def fit_conformal(
    y: Float[Tensor, " n"], mean: Float[Tensor, " n"], deviation: Float[Tensor, " n"], symmetric: bool = True
) -> Conformal:
    """From rows the model was not trained on; ``deviation`` is that of y, noise included.

    ``symmetric`` intervals are the shorter ones for symmetric residuals and need 19 rows for 95 %; otherwise the two
    ends are found apart, as skewed residuals need, from at least 39. Cost O(n log n), on the host.
    """
    n = check_rows(y=y, mean=mean, deviation=deviation)
    y, mean, deviation = (values.detach().double().cpu() for values in (y, mean, deviation))
    for name, values in {"y": y, "mean": mean, "deviation": deviation}.items():
        check_shape(name, values, (max(n, 1),), _UNSEEN)
        check_finite(name, values, _UNSEEN)
    check_positive("deviation", deviation, "Pass the deviation of y, noise included; 1 everywhere for plain residuals.")
    scores = (y - mean) / deviation
    scores = (scores.abs() if symmetric else scores).sort().values
    kept = min(n, MOST_SCORES)
    positions = [_rank_at(position, n, kept) - 1 for position in range(kept)] if n > kept else slice(None)
    return Conformal(scores[positions].clone(), n, symmetric)


def _rank_at(position: int, n: int, kept: int) -> int:
    """The rank, 1 to n, of the score at ``position`` among ``kept`` evenly spaced ones; position + 1 if all are."""
    return 1 + position * (n - 1) // max(kept - 1, 1)


def fit_temperature(logit: Float[Tensor, " n"], label: Float[Tensor, " n"]) -> float:
    """The T that minimises the log loss of sigmoid(logit / T) on unseen rows; labels are -1 and +1.

    ``logit`` = log p / (1 - p) of the class probability p = E sigmoid(f), so that the variance of f has its say first.
    One parameter keeps the order of the points and cannot overfit as a free-form curve does. Labels that the logits
    part without error would give T = 0; Platt's targets (N + 1) / (N + 2) and 1 / (N + 2) instead of 1 and 0 do not.
    T stays within 0.01 and 100. The loss is convex in 1 / T: its slope is bisected.
    """
    n = check_rows(logit=logit, label=label)
    logit, label = (values.detach().double().cpu() for values in (logit, label))
    for name, values in {"logit": logit, "label": label}.items():
        check_shape(name, values, (max(n, 1),), _UNSEEN)
        check_finite(name, values, "Clip probabilities away from 0 and 1 before taking the logit.")
    if ((label != 1) & (label != -1)).any():
        raise ValueError("Expected labels -1 and +1, got others. Pass 2 * (y == positive_class) - 1.")
    positive = int((label == 1).sum())
    target = torch.where(label == 1, label.new_tensor((positive + 1) / (positive + 2)), 1 / (n - positive + 2))
    low, high = -math.log(100.0), math.log(100.0)  # of log(1 / T)
    for _ in range(60):
        middle = (low + high) / 2
        slope = (logit * (torch.sigmoid(math.exp(middle) * logit) - target)).sum()
        low, high = (low, middle) if slope >= 0 else (middle, high)
    return math.exp(-(low + high) / 2)


@dataclass(frozen=True)
class Temperature:
    """Probabilities p -> sigmoid(logit(p) / temperature), each column alike."""

    temperature: float

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"Expected 0 < temperature, got {self.temperature}. Build it with fit, or load it anew.")

    @classmethod
    def fit(cls, p: Float[Tensor, "n c"], label: Float[Tensor, "n c"]) -> "Temperature":
        """One temperature for all columns of labels -1 and +1."""
        return cls(fit_temperature(_logit(p).flatten(), label.flatten()))

    def __call__(self, p: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        return torch.sigmoid(_logit(p) / self.temperature)

    def to_tensors(self) -> dict[str, Tensor]:
        return {"temperature": torch.tensor(self.temperature, dtype=torch.float64)}


def _logit(p: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    return torch.special.logit(p.clamp(1e-12, 1 - 1e-12))
