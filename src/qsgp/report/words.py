"""What the pictures say, computed from the same arrays: a sentence is chosen by a number beyond its chance error."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.stats import betabinom, binom

from qsgp.evaluation import DOUBT, Classification, Regression, binned, groups
from qsgp.report.page import number, percent

_LEAST = 0.01  # a share that is off by less is off slightly
_TAILS = {True: "heavier", False: "lighter"}
_RECALIBRATE = "Recalibrate with model.calibrate on rows that were not used in fit."


def coverage(found: Regression, calibration_rows: int = 0) -> str:
    """Each level by a binomial test; ``calibration_rows`` are those of `calibrate`, which were drawn by chance too."""
    n = len(found.y)
    inside = {level: int((found.central <= level).sum()) for level in (0.95, 0.5)}
    wide, half = (_wrong(count, n, level, calibration_rows, DOUBT / len(inside)) for level, count in inside.items())
    holds = (
        f"95 % intervals hold {percent(inside[0.95] / n)} of the {n:,} rows, 50 % intervals {percent(inside[0.5] / n)}"
    )
    if not wide and not half:
        few = " With so few rows only a large error would show." if n < 200 else ""
        return f"The intervals keep their word: {holds}.{few}"
    if not wide:
        tails = _TAILS[half.endswith("wide")]
        said = f"The 95 % intervals keep their word, the 50 % ones are {half}: {holds}. "
        return f"{said}Errors have {tails} tails than their predicted laws."
    if half and half.split()[-1] != wide.split()[-1]:
        tails = _TAILS[half.endswith("wide")]
        said = f"The 95 % intervals are {wide}, the 50 % ones {half}: {holds}. "
        said += f"Errors have {tails} tails than their predicted laws. "
    else:
        said = f"The intervals are {wide}: {holds}. "
    if calibration_rows:
        return f"{said}The model was recalibrated: these rows differ from those it was recalibrated on."
    return said + _RECALIBRATE


def _wrong(inside: int, n: int, level: float, calibration_rows: int, doubt: float) -> str:
    """ "too narrow" or "too wide", "slightly" if it matters to few; nothing if it may be chance."""
    if _chance(inside, n, level, calibration_rows) >= doubt:
        return ""
    gap = inside / n - level
    slightly = "slightly " if abs(gap) <= _LEAST else ""
    return f"{slightly}too {'wide' if gap > 0 else 'narrow'}"


def _chance(inside: int, n: int, level: float, calibration_rows: int = 0) -> float:
    """How probable a count as far from n times ``level`` is if intervals hold what they promise (two-sided)."""
    law: Any = binom(n, level)
    if calibration_rows:
        # ranks among the scores of m calibration rows: the share that an interval of rank r holds is Beta(r, m + 1 - r)
        rank = math.floor(level * (calibration_rows + 1) + 0.5)
        if not 0 < rank <= calibration_rows:
            return 1.0
        law = betabinom(n, rank, calibration_rows + 1 - rank)
    return min(1.0, 2 * float(min(law.cdf(inside), law.sf(inside - 1))))


def group_coverage(rows: int, inside: int, groups: int, calibration_rows: int) -> str:
    """What 95 % intervals are in one of so many groups, if chance is no excuse."""
    return _wrong(inside, rows, 0.95, calibration_rows, DOUBT / groups)


def group_accuracy(rows: int, right: int, confidence: float, groups: int) -> str:
    """What probabilities are in one of so many groups."""
    if _chance(right, rows, confidence) >= DOUBT / groups:
        return ""
    return "too bold" if right < confidence * rows else "too timid"


def pit(found: Regression) -> str:
    """Flat is what no bar, no lean and no excess at the ends contradicts."""
    n, bars = len(found.pit), found.pit_bars()
    middle, ends = float(found.pit.mean()), int((np.abs(found.pit - 0.5) > 0.45).sum())
    lean = middle - 0.5
    parts = []
    if abs(lean) > 3 / math.sqrt(12 * n):
        slightly = "slightly " if abs(lean) <= _LEAST else ""
        digits = 2 if abs(lean) > _LEAST else 4
        side = "low" if lean > 0 else "high"
        parts.append(
            f"predictions are {slightly}too {side} on the whole (mean {middle:.{digits}f} instead of {0.5:.{digits}f})"
        )
    if _chance(ends, n, 0.1) < DOUBT:
        shape = "full ends: the laws are too narrow" if ends > 0.1 * n else "empty ends: the laws are too wide"
        parts.append(f"{shape} ({percent(ends / n)} of the rows in the outer tenth)")
    outside = int(bars.outside.sum())
    if outside:
        parts.append(f"{outside} of {len(bars.count)} bars {'leaves' if outside == 1 else 'leave'} the band of chance")
    if not parts:
        return f"Flat within chance: mean {middle:.2f}, {percent(ends / n)} of the rows in the outer tenth."
    return _sentence("; ".join(parts))


def predictions(found: Regression) -> str:
    variance = float(found.y.var())
    if variance == 0:
        return f"The target is constant, {number(float(found.y[0]))}: there is nothing to explain."
    explained = 1 - float(np.square(found.residual).mean()) / variance
    if explained <= 0:
        return f"The predictions explain nothing: a constant does better (R² {explained:.2f})."
    return f"The predictions explain {percent(explained)} of the variance (R²)."


def deciles(found: Regression, calibration_rows: int = 0) -> str:
    parts = groups(found.deviation)
    if len(parts) == 1:
        return f"Too few rows for groups: {percent(float(found.inside.mean()))} of all are inside."
    share = [float(found.inside[rows].mean()) for rows in parts]
    sure = f"{percent(share[0])} of the surest rows and {percent(share[-1])} of the least sure ones are inside"
    worst = int(np.argmin(share))
    chance = _chance(int(found.inside[parts[worst]].sum()), len(parts[worst]), 0.95, calibration_rows) * len(parts)
    if share[worst] < 0.95 and chance < DOUBT:
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
    """The mean by a binomial test; and so each group of the diagram, for errors that the mean does not show."""
    sure, right, n = float(found.confidence.mean()), int(found.right.sum()), len(found.label)
    said = f"the predicted class is right in {percent(right / n)} of the rows and was given {percent(sure)} on average"
    if _chance(right, n, sure) < DOUBT:
        slightly = "slightly " if abs(sure - right / n) <= _LEAST else ""
        bold = "bold" if sure > right / n else "timid"
        return f"The probabilities are {slightly}too {bold}: {said}. {_RECALIBRATE}"
    table = binned(*found.events())
    chance = [_chance(round(share * rows), int(rows), p) for p, share, rows in table]
    worst = int(np.argmin(chance))
    if chance[worst] * len(chance) < DOUBT:
        p, share, rows = table[worst]
        wrong = f"{int(rows):,} rows were given {percent(p)} where it happened in {percent(share)}"
        return f"The probabilities are right on the whole, but not everywhere: {said}; {wrong}. {_RECALIBRATE}"
    return f"The probabilities keep their word: {said}."


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
