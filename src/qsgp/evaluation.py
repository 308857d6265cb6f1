"""Predictions beside what happened, row by row: what scores, pictures and the report are made of.

A model predicts every row once; all the rest is arithmetic on arrays, which may also come from any other model.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64, Shaped
from scipy.stats import binom

from qsgp import metrics
from qsgp.data.encoding import Encoded as Encoded
from qsgp.data.grouping import Groups as Groups
from qsgp.data.tables import as_target
from qsgp.interfaces import Numeric
from qsgp.likelihoods import Gaussian

Array = np.ndarray
_LEAST_DEVIATION = 1e-150  # its square is still a number
_INTERVAL = 0.95
DOUBT = 0.01  # what chance brings about more rarely is not called chance


@dataclass(frozen=True)
class Regression:
    """Targets, their predicted laws and how the two agree."""

    y: Float64[Array, " n"]
    mean: Float64[Array, " n"]
    deviation: Float64[Array, " n"]  # of y, noise included
    pit: Float64[Array, " n"]  # Pr(below y)
    log_density: Float64[Array, " n"]
    central: Float64[Array, " n"]  # the coverage of the smallest central interval that holds y
    crps: Float64[Array, " n"]  # continuous ranked probability score, in the unit of y

    @classmethod
    def of(cls, y: Any, mean: Any, deviation: Any, law: Numeric | None = None) -> "Regression":
        """From arrays: the law of y is that of f plus the noise of ``law``; normal without one."""
        # a Series of pandas may not be written to, and torch wants to be able to
        y, mean, deviation = (np.require(values, np.float64, "W") for values in (y, mean, deviation))
        if not y.shape == mean.shape == deviation.shape or y.ndim != 1 or not len(y):
            raise ValueError(
                f"Expected y, mean and deviation of one length, got shapes {y.shape}, {mean.shape} and "
                f"{deviation.shape}. Pass one entry for every row, one output at a time."
            )
        law = law or Gaussian(torch.tensor(_LEAST_DEVIATION**2, dtype=torch.float64))
        noise = float(law.moments(torch.zeros(()).double(), torch.zeros(()).double())[1])
        latent = np.maximum(np.square(np.maximum(deviation, _LEAST_DEVIATION)) - noise, 0.0)
        known = [torch.from_numpy(values) for values in (y, mean, latent)]
        pit = law.cdf(*known).numpy()
        crps = law.crps(*known).numpy()
        return cls(y, mean, deviation, pit, law.log_density(*known).numpy(), np.abs(2 * pit - 1), crps)

    @property
    def residual(self) -> Float64[Array, " n"]:
        return self.y - self.mean

    @property
    def inside(self) -> Shaped[Array, " n"]:
        """Whether y lies in its 95 % interval."""
        return self.central <= _INTERVAL

    def pit_bars(self) -> "Bars":
        """How many targets fell into equal parts of their predicted laws, and how many chance allows."""
        n = len(self.pit)
        bins = 20 if n >= 1000 else 10 if n >= 100 else 5
        rare = DOUBT / bins / 2  # each bar leaves on either side so rarely that any bar does with probability DOUBT
        few, many = (int(count) for count in binom.ppf([rare, 1 - rare], n, 1 / bins))
        return Bars(np.histogram(self.pit, bins, (0, 1))[0].astype(np.int64), few, many)

    def scores(self) -> dict[str, float]:
        return {
            "RMSE": metrics.rmse(self.y, self.mean),
            "MNLP": metrics.mnlp(self.log_density),
            "CRPS": float(self.crps.mean()),
            "coverage": float(self.inside.mean()),
        }

    def constant_scores(self) -> dict[str, float]:
        """Those of the best constant in hindsight: one normal distribution with mean and deviation of these targets."""
        deviation = float(self.y.std())
        if deviation == 0:
            return {"RMSE": 0.0, "MNLP": math.nan, "CRPS": 0.0, "coverage": 1.0}
        return Regression.of(self.y, np.full_like(self.y, self.y.mean()), np.full_like(self.y, deviation)).scores()


@dataclass(frozen=True)
class Bars:
    """Counts of a histogram that is flat but for chance, and the band that then holds all of them."""

    count: Int64[Array, " b"]
    few: int
    many: int

    @property
    def outside(self) -> Shaped[Array, " b"]:
        """Which bars leave the band."""
        return (self.count < self.few) | (self.count > self.many)

    def height(self, count: Any) -> Any:
        """Relative to a flat histogram."""
        return count * len(self.count) / self.count.sum()


@dataclass(frozen=True)
class Classification:
    """Labels as positions among ``classes``, and the probability of every class."""

    label: Int64[Array, " n"]
    probability: Float64[Array, "n c"]
    classes: Shaped[Array, " c"]

    @property
    def predicted(self) -> Int64[Array, " n"]:
        return self.probability.argmax(1)

    @property
    def right(self) -> Shaped[Array, " n"]:
        return self.predicted == self.label

    @property
    def confidence(self) -> Float64[Array, " n"]:
        """Probability of the predicted class."""
        return self.probability.max(1)

    @property
    def log_density(self) -> Float64[Array, " n"]:
        own = self.probability[np.arange(len(self.label)), self.label]
        return np.log(own.clip(np.finfo(float).tiny))

    def events(self) -> tuple[Float64[Array, " n"], Shaped[Array, " n"]]:
        """Probabilities, and whether what they were given to happened: the second of two classes, or the predicted."""
        if len(self.classes) == 2:
            return self.probability[:, 1], self.label == 1
        return self.confidence, self.right

    def shown(self) -> list[int]:
        """The classes whose probability is worth a curve: the second of two, or all."""
        return [1] if len(self.classes) == 2 else list(range(len(self.classes)))

    def scores(self) -> dict[str, float]:
        """The area under the ROC curve is the mean over the classes against the rest; NaN where rows hold one class."""
        areas = [area(self.label == c, self.probability[:, c]) for c in self.shown()]
        known = [value for value in areas if not np.isnan(value)]
        return {
            "accuracy": float(self.right.mean()),
            "log loss": -float(self.log_density.mean()),
            "ROC AUC": float(np.mean(known)) if known else float("nan"),
            "calibration error": metrics.expected_calibration_error(self.confidence.clip(0, 1), self.right),
        }

    def constant_scores(self) -> dict[str, float]:
        """Those of the best constant in hindsight: every row is given the shares of the classes in these rows."""
        share = np.bincount(self.label, minlength=len(self.classes)) / len(self.label)
        entropy = -float(sum(p * math.log(p) for p in share if p > 0))
        return {"accuracy": float(share.max()), "log loss": entropy, "ROC AUC": 0.5, "calibration error": 0.0}


Evaluation = Regression | Classification


def evaluate(model: Any, X: Any, y: Any, *, output: int = 0) -> Evaluation:
    """Predict the rows X with a fitted model and put the targets beside; ``output`` picks one of several."""
    found = evaluate_all(model, model.prepare_inputs(X), y)
    if not 0 <= output < len(found):
        raise ValueError(f"Expected 0 <= output < {len(found)}, got {output}. Outputs are numbered from 0.")
    return found[output]


def evaluate_all(model: Any, X: Shaped[Array, "n d"], y: Any, groups: Groups | None = None) -> list[Evaluation]:
    """One evaluation for every output of a regressor, a single one for a classifier; ``X`` comes from
    `prepare_inputs`. Intervals are those of the ``groups`` if the model was calibrated by them."""
    numeric = not hasattr(model, "classes_")
    given = as_target(y, numeric=numeric)
    if len(given) != len(X):
        raise ValueError(f"Expected one target for each of the {len(X)} rows of X, got {len(given)}. Check y.")
    if not numeric:
        label = model.class_codes(given).astype(np.int64)
        return [Classification(label, model.predict_proba(Encoded(X)), np.asarray(model.classes_))]
    Y = given.astype(np.float64).reshape(len(X), -1)
    found = {name: np.reshape(values, Y.shape) for name, values in model.assess(Encoded(X), given).items()}
    outputs = ({name: values[:, o] for name, values in found.items()} for o in range(Y.shape[1]))
    return [_judged(model, y, law, groups) for y, law in zip(Y.T, outputs, strict=True)]


def joined(parts: Iterable[Evaluation]) -> Evaluation:
    """One evaluation of all rows of some portions."""
    found = list(parts)
    first = found[0]
    if isinstance(first, Classification):
        rows = {name: np.concatenate([getattr(part, name) for part in found]) for name in ("label", "probability")}
        return Classification(**rows, classes=first.classes)
    return Regression(**{name: np.concatenate([getattr(part, name) for part in found]) for name in vars(first)})


def _judged(model: Any, y: Array, law: dict[str, Array], groups: Groups | None) -> Regression:
    central = np.abs(2 * law["cdf"] - 1)
    found = Regression(y, law["mean"], law["std"], law["cdf"], law["log_density"], central, law["crps"])
    if model.calibration_ is None:
        return found
    # Conformal intervals: their coverage is the rank of the score among those of the calibration rows.
    central = model.calibration_.central(law["deviations_off"], _INTERVAL, groups)
    return Regression(**{**vars(found), "central": central})


def by_group(found: Evaluation, groups: Groups, most: int = 100) -> list[dict[str, Any]]:
    """What the model is worth in each group, the largest if there are very many; rows of no known group last."""
    names = np.array(["" if name is None else name for name in groups.names])
    every, code, rows = np.unique(names, return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(-rows, kind="stable")[:most])
    table = []
    for k in sorted(kept, key=lambda k: (every[k] == "", *_in_order(str(every[k])))):
        at = code.ravel() == k
        own: dict[str, Any] = {"group": str(every[k]) or "not known", "rows": int(rows[k])}
        if isinstance(found, Regression):
            own |= {"mean error": float(found.residual[at].mean()), "RMSE": metrics.rmse(found.y[at], found.mean[at])}
            own |= {"inside": int(found.inside[at].sum()), "coverage": float(found.inside[at].mean())}
        else:
            own |= {"right": int(found.right[at].sum()), "accuracy": float(found.right[at].mean())}
            own |= {"confidence": float(found.confidence[at].mean()), "log loss": -float(found.log_density[at].mean())}
        table.append(own)
    return table


def _in_order(name: str) -> tuple[float, str]:
    """Numbers by their size, before texts."""
    try:
        number = float(name)
    except ValueError:
        return math.inf, name
    return (number, "") if math.isfinite(number) else (math.inf, name)


def area(positive: Shaped[Array, " n"], score: Float64[Array, " n"]) -> float:
    """Probability that a positive row scores above a negative one, ties counting half; NaN without both kinds."""
    count = int(positive.sum())
    if count in (0, len(positive)):
        return float("nan")
    _, position, times = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(times) - (times - 1) / 2)[position]  # ties share their mean rank
    return float((rank[positive].sum() - count * (count + 1) / 2) / (count * (len(positive) - count)))


def largest_surprises(found: Evaluation, count: int = 10) -> list[dict[str, Any]]:
    """The rows whose target had the least predicted density or probability, worst first; rows numbered from 0."""
    worst = np.argsort(found.log_density, kind="stable")[:count]
    table = []
    for row in map(int, worst):
        surprise = -float(found.log_density[row])
        if isinstance(found, Regression):
            own = {
                "observed": float(found.y[row]),
                "predicted": float(found.mean[row]),
                "deviation": float(found.deviation[row]),
                "deviations off": float(found.residual[row] / max(found.deviation[row], _LEAST_DEVIATION)),
            }
        else:
            own = {
                "observed": found.classes[found.label[row]],
                "predicted": found.classes[found.predicted[row]],
                "probability of the observed": float(found.probability[row, found.label[row]]),
            }
        table.append({"row": row, **own, "surprise": surprise})
    return table


def relevance(model: Any) -> Float64[Array, " d"]:
    """1 / lengthscale with every input in units of its deviation over the training rows: how fast f may change."""
    return np.asarray(model.input_scale_ / model.lengthscale_, dtype=np.float64)


def input_names(model: Any) -> list[str]:
    """Of the model's inputs: columns of the table of ``fit`` or what was made of them, or x0, x1, ..."""
    names: list[str] = model.input_names_
    return names


def groups(values: Float64[Array, " n"], most: int = 10, least_rows: int = 10) -> list[Int64[Array, " g"]]:
    """Rows in groups of equal size by rising ``values``: deciles where there are rows enough; ties stay in order."""
    count = int(np.clip(len(values) // least_rows, 1, most))
    return np.array_split(np.argsort(values, kind="stable"), count)


def binned(p: Float64[Array, " n"], happened: Shaped[Array, " n"], bins: int = 10) -> Float64[Array, "b 3"]:
    """Mean probability, share that happened and number of rows for every bin of equal width that holds any."""
    bin_of = np.minimum((p * bins).astype(int), bins - 1)
    rows = np.bincount(bin_of, minlength=bins)
    kept = rows > 0
    sums = [np.bincount(bin_of, weights=values, minlength=bins)[kept] for values in (p, happened.astype(float))]
    return np.stack([sums[0] / rows[kept], sums[1] / rows[kept], rows[kept].astype(float)], 1)
