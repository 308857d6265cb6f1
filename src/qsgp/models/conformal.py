"""Recalibration on rows the model has not seen: intervals whose coverage holds whatever the model got wrong.

Split conformal prediction: if calibration and test rows are exchangeable, the next score is equally likely to take each
of the n + 1 ranks among the calibration scores, so an interval cut at the right rank covers with the probability asked
for, on average over calibration sets and test rows. Nothing is assumed of the model, the noise or n. The same holds in
each group of rows if the scores are those of the group (Mondrian conformal prediction).
"""

import bisect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp.checks import check_finite, check_positive, check_rows, check_shape
from qsgp.data.grouping import Groups
from qsgp.data.words import count, listed

# What a file holds at most: one rank in 10,000 is finer than the coverage of any test set can be measured.
MOST_SCORES = 10_001
_TENSORS = {"scores": (torch.float64, 1), "n": (torch.int64, 0), "symmetric": (torch.bool, 0)}
_GROUP_TENSORS = {"group_scores": (torch.float64, 1), "group_n": (torch.int64, 1)}
_UNSEEN = "Calibrate on rows that the model was not trained on, one entry per row."


@dataclass(frozen=True)
class Conformal:
    """Sorted scores (y - mean) / deviation of ``n`` calibration rows, absolute ones if ``symmetric``.

    Of more than 10,001 rows only that many scores are kept, at evenly spaced ranks; a rank between two of them is
    rounded to the wider interval, which adds at most 0.0001 to the coverage of each end.

    ``groups`` has the same of the rows of each group, by its name; ``column`` is the one their names stood in.
    """

    scores: Float[Tensor, " s"]
    n: int
    symmetric: bool = True
    groups: Mapping[str, "Conformal"] = field(default_factory=dict)
    column: str | None = None

    def __post_init__(self) -> None:
        remedy = "Build it with fit_conformal, or load it from an intact file."
        check_shape("scores", self.scores, (max(min(self.n, MOST_SCORES), 1),), f"n is {self.n}. {remedy}")
        check_finite("scores", self.scores, remedy)
        if (self.scores.diff() < 0).any() or (self.symmetric and self.scores[0] < 0):
            raise ValueError(f"Expected sorted scores, not negative when symmetric, got others. {remedy}")

    def interval(
        self,
        mean: Float[Tensor, "*s"],
        deviation: Float[Tensor, "*s"],
        coverage: float = 0.95,
        groups: Groups | None = None,
    ) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
        """[mean + low deviation, mean + high deviation] with Pr(y inside) between coverage and coverage + 1 / (n + 1).

        Not symmetric: each end misses (1 - coverage) / 2, so up to coverage + 2 / (n + 1). Ties may cover more.
        Too few rows for the coverage are refused: the only interval with the guarantee would be infinite. With
        ``groups`` (of a mean with one entry a row) it holds in each group that has rows enough; rows of other groups
        have the interval of all rows.
        """
        low, high = self.limits(coverage) if groups is None else self._limits_by_row(mean, coverage, groups)
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
        rank = self._rank_of(coverage)
        if rank > self.n:
            most = (self.n if self.symmetric else self.n - 1) / (self.n + 1)
            raise ValueError(
                f"Coverage {coverage} needs at least {self._rows_for(coverage)} rows, got {self.n}. "
                f"Calibrate on more rows or ask for a coverage of at most {math.floor(1e4 * most) / 1e4}."
            )
        high = self.scores[bisect.bisect_left(range(len(self.scores)), rank, key=self._rank)].item()
        if self.symmetric:
            return -high, high
        last = bisect.bisect_right(range(len(self.scores)), self.n + 1 - rank, key=self._rank) - 1
        return self.scores[last].item(), high

    def of(self, name: str | None, coverage: float) -> "Conformal":
        """The scores of a group if they are enough for this coverage; else those of all rows."""
        own = None if name is None else self.groups.get(name)
        return self if own is None or own._rank_of(coverage) > own.n else own

    def knows(self, groups: Groups) -> bool:
        """Whether they may be the groups of `groups`: equal names in another column are others."""
        return bool(self.groups) and (None in (self.column, groups.column) or self.column == groups.column)

    def pooled_words(self, groups: Groups, coverage: float) -> str:
        """Which groups have the interval of all rows, and why; nothing if none has."""
        names = {name for name in groups.names if name is not None}
        few = sorted(name for name in names & self.groups.keys() if self.of(name, coverage) is self)
        parts = [f"{listed(few)} had fewer than {self._rows_for(coverage)} rows in calibrate"] if few else []
        unseen = sorted(names - self.groups.keys())
        parts += [f"{listed(unseen)} had none"] if unseen else []
        if unknown := sum(name is None for name in groups.names):
            parts.append(f"{count(unknown)} {'is' if unknown == 1 else 'are'} of no known group")
        return f"Some rows have the interval of all groups together: {'; '.join(parts)}." if parts else ""

    def central(
        self, score: Float64[np.ndarray, " n"], coverage: float, groups: Groups | None = None
    ) -> Float64[np.ndarray, " n"]:
        """The coverage of the smallest interval that holds each of these ``scores``: its rank among those of its group,
        if there are enough of them for ``coverage``."""
        found = np.empty(len(score))
        every: Iterable[tuple[Conformal, np.ndarray]] = [(self, np.arange(len(score)))]
        for own, rows in every if groups is None or not self.knows(groups) else self._apart(groups, coverage):
            rank = np.searchsorted(own.scores.numpy(), np.abs(score[rows])) + 0.5
            found[rows] = rank / (len(own.scores) + 1)
        return found

    def _limits_by_row(self, mean: Tensor, coverage: float, groups: Groups) -> tuple[Tensor, Tensor]:
        ends = mean.new_empty((2, len(mean)))
        for own, rows in self._apart(groups, coverage):
            ends[:, rows] = mean.new_tensor(own.limits(coverage))[:, None]
        low, high = (end.reshape(len(mean), *[1] * (mean.ndim - 1)) for end in ends)
        return low, high

    def _apart(self, groups: Groups, coverage: float) -> Iterable[tuple["Conformal", np.ndarray]]:
        """Whose scores count for which rows."""
        rows = _rows_by_name(groups)
        own = {name: at for name, at in rows.items() if self.of(name, coverage) is not self}
        if len(own) < len(rows):
            yield self, np.concatenate([at for name, at in rows.items() if name not in own])
        yield from ((self.groups[str(name)], at) for name, at in own.items())

    def _rank_of(self, coverage: float) -> int:
        """Of the score at the upper end; 100 * 0.55 is 55.00000000000001, and the rank would be one too high."""
        return math.ceil(round((self.n + 1) * self._level(coverage), 6))

    def _rows_for(self, coverage: float) -> int:
        level = self._level(coverage)
        return math.ceil(round(level / (1 - level), 6))

    def _level(self, coverage: float) -> float:
        return coverage if self.symmetric else (1 + coverage) / 2

    def _rank(self, position: int) -> int:
        return _rank_at(position, self.n, len(self.scores))

    def to_tensors(self) -> dict[str, Tensor]:
        """For a file of tensors; what else there is to say stands in `header`."""
        found = {"scores": self.scores, "n": torch.tensor(self.n), "symmetric": torch.tensor(self.symmetric)}
        if not self.groups:
            return found
        each = list(self.groups.values())
        found["group_scores"] = torch.cat([own.scores for own in each])
        return found | {"group_n": torch.tensor([own.n for own in each])}

    def header(self) -> dict[str, Any]:
        """What a file says beside: names of groups in the order of `to_tensors`."""
        return {"calibration": {"groups": list(self.groups), "column": self.column}} if self.groups else {}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], header: Any = None) -> "Conformal":
        """What `to_tensors` and `header` wrote; anything else is refused."""
        header = header or {}
        wanted = _TENSORS | (_GROUP_TENSORS if header else {})
        found = {name: (tensor.dtype, tensor.ndim) for name, tensor in tensors.items()}
        if found != wanted:
            raise ValueError(f"Expected the tensors {wanted} (dtype, dimensions), got {found}. The file was altered.")
        whole = cls(tensors["scores"], int(tensors["n"].item()), bool(tensors["symmetric"].item()))
        return whole._with_groups(tensors, header) if header else whole

    def _with_groups(self, tensors: dict[str, Tensor], header: Any) -> "Conformal":
        names, column, sizes = header["groups"], header["column"], tensors["group_n"].tolist()
        if type(names) is not list or any(type(name) is not str for name in names) or len(set(names)) < len(names):
            raise ValueError("Expected different names of groups, got others. The file was altered.")
        if len(names) != len(sizes) or not names or min(sizes) < 1 or type(column) not in (str, type(None)):
            raise ValueError(f"Expected {len(names)} groups and their column, got others. The file was altered.")
        kept = [min(n, MOST_SCORES) for n in sizes]
        if sum(kept) != len(tensors["group_scores"]):
            raise ValueError(f"Expected {sum(kept)} scores of groups, got others. The file was altered.")
        parts = zip(names, tensors["group_scores"].split(kept), sizes, strict=True)
        groups = {name: Conformal(scores.clone(), n, self.symmetric) for name, scores, n in parts}
        return replace(self, groups=groups, column=column)


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
    return _of_sorted((scores.abs() if symmetric else scores).sort().values, symmetric)


def fit_by_group(
    y: Float[Tensor, " n"], mean: Float[Tensor, " n"], deviation: Float[Tensor, " n"], groups: Groups
) -> Conformal:
    """`fit_conformal` of all rows, and of those of each group."""
    rows = {name: at for name, at in _rows_by_name(groups).items() if name is not None}
    if not rows:
        raise ValueError("Expected groups, got rows that are all of no known group. Leave groups out.")
    found = {str(name): fit_conformal(y[at], mean[at], deviation[at]) for name, at in rows.items()}
    return replace(fit_conformal(y, mean, deviation), groups=found, column=groups.column)


def _rows_by_name(groups: Groups) -> dict[str | None, np.ndarray]:
    """Names in their order, so that equal rows give equal files; None is the last."""
    code = {name: k for k, name in enumerate(sorted({name for name in groups.names if name is not None}))} | {None: -1}
    codes = np.array([code[name] for name in groups.names])
    order = np.argsort(codes, kind="stable")
    return {name: rows for name, k in code.items() if len(rows := _between(codes, order, k))}


def _between(codes: np.ndarray, order: np.ndarray, k: int) -> np.ndarray:
    start, end = np.searchsorted(codes, [k, k + 1], sorter=order)
    return order[start:end]


def _of_sorted(scores: Float[Tensor, " n"], symmetric: bool) -> Conformal:
    n, kept = len(scores), min(len(scores), MOST_SCORES)
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

    def header(self) -> dict[str, Any]:
        return {}


def _logit(p: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    return torch.special.logit(p.clamp(1e-12, 1 - 1e-12))
