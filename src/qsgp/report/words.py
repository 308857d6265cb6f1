"""What the pictures say, computed from the same arrays: a sentence is chosen by a number beyond its chance error."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.stats import binom

from qsgp.evaluation import Classification, Regression, groups
from qsgp.report.page import number, percent

_LEAST = 0.01  # a share that is off by less matters to nobody
_DOUBT = 0.01  # what chance brings about more rarely is told
_RECALIBRATE = "Recalibrate with model.calibrate on rows that were not used in fit."


def coverage(found: Regression, calibrated: bool) -> str:
    share, half, n = float(found.inside.mean()), float((found.central <= 0.5).mean()), len(found.y)
    holds = f"95 % intervals hold {percent(share)} of the {n:,} rows, 50 % intervals {percent(half)}"
    if abs(share - 0.95) <= _LEAST or _chance(int(found.inside.sum()), n) > _DOUBT:
        if abs(half - 0.5) > 0.05 and _chance(int((found.central <= 0.5).sum()), n, 0.5) < _DOUBT:
            wide, tails = ("wide", "heavier") if half > 0.5 else ("narrow", "lighter")
            said = f"The 95 % intervals keep their word, the 50 % ones are too {wide}: {holds}. "
            return f"{said}Errors have {tails} tails than their predicted laws."
        few = " With so few rows only a large error would show." if n < 200 else ""
        return f"The intervals keep their word: {holds}.{few}"
    remedy = _RECALIBRATE
    if calibrated:
        remedy = "The model was recalibrated: these rows differ from those it was recalibrated on."
    return f"The intervals are too {'narrow' if share < 0.95 else 'wide'}: {holds}. {remedy}"


def _chance(inside: int, n: int, level: float = 0.95) -> float:
    """How probable so few, or so many, rows inside their intervals are if these hold what they promise."""
    return float(min(binom.cdf(inside, n, level), binom.sf(inside - 1, n, level)))


def pit(found: Regression) -> str:
    n = len(found.pit)
    middle, outer = float(found.pit.mean()), float((np.abs(found.pit - 0.5) > 0.45).mean())
    lean = middle - 0.5
    parts = []
    if abs(lean) > max(3 / math.sqrt(12 * n), 0.02):
        side = "low" if lean > 0 else "high"
        parts.append(f"predictions are too {side} on the whole (mean {middle:.2f} instead of 0.50)")
    if abs(outer - 0.1) > max(3 * math.sqrt(0.09 / n), 0.02):
        shape = "full ends: the laws are too narrow" if outer > 0.1 else "empty ends: the laws are too wide"
        parts.append(f"{shape} ({percent(outer)} of the rows in the outer tenth)")
    if not parts:
        return f"Flat within chance: mean {middle:.2f}, {percent(outer)} of the rows in the outer tenth."
    return _sentence("; ".join(parts))


def predictions(found: Regression) -> str:
    variance = float(found.y.var())
    if variance == 0:
        return f"The target is constant, {number(float(found.y[0]))}: there is nothing to explain."
    explained = 1 - float(np.square(found.residual).mean()) / variance
    if explained <= 0:
        return f"The predictions explain nothing: a constant does better (R² {explained:.2f})."
    return f"The predictions explain {percent(explained)} of the variance (R²)."


def deciles(found: Regression) -> str:
    parts = groups(found.deviation)
    if len(parts) == 1:
        return f"Too few rows for groups: {percent(float(found.inside.mean()))} of all are inside."
    share = [float(found.inside[rows].mean()) for rows in parts]
    sure = f"{percent(share[0])} of the surest rows and {percent(share[-1])} of the least sure ones are inside"
    worst = int(np.argmin(share))
    chance = _chance(int(found.inside[parts[worst]].sum()), len(parts[worst])) * len(parts)
    if share[worst] < 0.95 - 2 * _LEAST and chance < _DOUBT:
        return f"{_sentence(sure)} Group {worst + 1} is overconfident: {percent(share[worst])}."
    return f"{_sentence(sure)} No group is below 95 % by more than chance allows."


def trend_left(x: Float64[np.ndarray, " n"], residual: Float64[np.ndarray, " n"]) -> float:
    """Share of the residuals' variance that groups along one input explain, less what chance explains."""
    parts = groups(x, 20, 50)
    total = float(residual.var())
    if len(parts) == 1 or total == 0:
        return 0.0
    between = sum(len(part) * float(residual[part].mean() - residual.mean()) ** 2 for part in parts) / len(x)
    return max(0.0, between / total - (len(parts) - 1) / len(x))


def trends(left: dict[str, float]) -> str:
    found = {name: share for name, share in left.items() if share > 0.02}
    if not found:
        return "Nothing simple is missed: no input alone explains more than 2 % of the residuals' variance."
    listed = ", ".join(f"{name} ({percent(share)})" for name, share in sorted(found.items(), key=lambda item: -item[1]))
    return f"Something is missed along {listed}: share of the residuals' variance that this input alone explains."


def training(entry: str, values: list[float]) -> str:
    if len(values) == 1:
        return f"One record: {entry} {number(values[0])}."
    change = abs(values[-1] - values[-2]) / max(abs(values[-1] - values[0]), 1e-300)
    still = " It was still moving when training ended." if change > 0.2 and len(values) > 4 else ""
    return f"{entry}: from {number(values[0])} to {number(values[-1])} in {len(values)} records.{still}"


def inputs(names: list[str], relevance: Float64[np.ndarray, " d"]) -> str:
    order = np.argsort(-relevance, kind="stable")
    if len(names) == 1:
        return f"{names[0]} is the only input; its lengthscale is {number(1 / float(relevance[0]))} of its deviations."
    idle = int((relevance < 0.1 * relevance[order[0]]).sum())
    weak = f" {idle} of {len(names)} inputs have less than a tenth of its relevance." if idle else ""
    return f"{names[order[0]]} matters most, then {names[order[1]]}.{weak}"


def reliability(found: Classification) -> str:
    sure, right, n = float(found.confidence.mean()), float(found.right.mean()), len(found.label)
    said = f"the predicted class is right in {percent(right)} of the rows and was given {percent(sure)} on average"
    if abs(sure - right) <= max(2 * math.sqrt(max(right * (1 - right), 1 / n) / n), _LEAST):
        return f"The probabilities keep their word: {said}."
    return f"The probabilities are too {'bold' if sure > right else 'timid'}: {said}. {_RECALIBRATE}"


def confusion(found: Classification) -> str:
    wrong = ~found.right
    if not wrong.any():
        return f"All {len(found.label):,} rows were classified correctly."
    c = len(found.classes)
    pair, count = np.unique(found.label[wrong] * c + found.predicted[wrong], return_counts=True)
    worst = int(count.argmax())
    own, other = (found.classes[k] for k in divmod(int(pair[worst]), c))
    return (
        f"{int(wrong.sum()):,} rows are wrong; the most frequent error takes {own} for {other} ({count[worst]:,} rows)."
    )


def roc(areas: dict[str, float]) -> str:
    known = {name: value for name, value in areas.items() if not math.isnan(value)}
    if not known:
        return "The rows hold one class only: there is nothing to tell apart."
    worst = min(known, key=lambda name: known[name])
    if len(known) == 1:
        return f"A row of class {worst} gets a higher probability than another in {percent(known[worst])} of the pairs."
    mean = np.mean(list(known.values()))
    return f"{worst} is the hardest to tell from the rest: {known[worst]:.3f}; the mean is {mean:.3f}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def span(values: Any) -> float:
    return float(np.max(values) - np.min(values))
