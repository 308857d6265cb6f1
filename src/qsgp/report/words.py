"""What the pictures say, computed from the same arrays: a sentence is chosen by a number beyond its chance error."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float64
from scipy.stats import betabinom, binom, f

from qsgp.evaluation import DOUBT, Classification, Regression, binned, groups
from qsgp.plots.views import MOST_VALUES, Circle, View
from qsgp.report.page import number, percent

_LEAST = 0.01  # a share that is off by less is off slightly
MOST_TRENDS = 12  # inputs that are looked at: all together call chance a trend with probability DOUBT
_TREND = 0.02  # of the residuals' variance: what explains less is not told
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
    share = [float(found.inside[rows].mean()) for rows in (parts[0], parts[-1])]
    sure = f"{percent(share[0])} of the surest rows and {percent(share[1])} of the least sure ones are inside"
    worst = overconfident(found, calibration_rows)
    if worst:
        return f"{_sentence(sure)} {worst}"
    return f"{_sentence(sure)} No group is below 95 % by more than chance allows."


def overconfident(found: Regression, calibration_rows: int = 0) -> str:
    """The group by predicted deviation whose intervals hold least, if that is not chance."""
    parts = groups(found.deviation)
    share = [float(found.inside[rows].mean()) for rows in parts]
    worst = int(np.argmin(share))
    rare = _chance(int(found.inside[parts[worst]].sum()), len(parts[worst]), 0.95, calibration_rows) * len(parts)
    if len(parts) == 1 or share[worst] >= 0.95 or rare >= DOUBT:
        return ""
    return f"Group {worst + 1} is overconfident: {percent(share[worst])}."


def trend_left(parts: list[np.ndarray], residual: Float64[np.ndarray, " n"]) -> float:
    """Share of the residuals' variance that groups of rows explain beyond chance; 0 if it may be chance (an F test)."""
    rows = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    known, free = residual[rows], len(parts) - 1
    others = len(rows) - len(parts)
    if free < 1 or others < 1 or (total := float(known.var())) == 0:
        return 0.0
    between = sum(len(part) * float(residual[part].mean() - known.mean()) ** 2 for part in parts) / len(rows) / total
    within = max(1 - between, np.finfo(float).tiny)
    if f.sf(between / free / (within / others), free, others) >= DOUBT / MOST_TRENDS:
        return 0.0
    return max(0.0, 1 - (1 - between) * (len(rows) - 1) / others)


def trends(left: dict[str, float]) -> str:
    found = missed(left)
    if not found:
        return (
            "Nothing simple is missed: no input alone explains more than 2 % of the residuals' variance beyond chance."
        )
    listed = ", ".join(f"{name} ({percent(share)})" for name, share in found.items())
    return f"Something is missed along {listed}: share of the residuals' variance that this input alone explains."


def missed(left: dict[str, float]) -> dict[str, float]:
    """Inputs along which the residuals have a trend worth telling, the largest first."""
    return dict(sorted(((name, share) for name, share in left.items() if share > _TREND), key=lambda item: -item[1]))


def training(entry: str, values: list[float]) -> str:
    if len(values) == 1:
        return f"One record: {entry} {number(values[0])}."
    still = " It was still moving when training ended." if still_moving(values) else ""
    return f"{entry}: from {number(values[0])} to {number(values[-1])} in {len(values)} records.{still}"


def still_moving(values: list[float]) -> bool:
    change = abs(values[-1] - values[-2]) / max(abs(values[-1] - values[0]), 1e-300) if len(values) > 4 else 0.0
    return change > 0.2


def inputs(relevance: dict[str, float]) -> str:
    """Columns by falling relevance."""
    names, largest = list(relevance), max(relevance.values())
    if len(names) == 1:
        return f"{names[0]} is the only input; its lengthscale is {number(1 / largest)} of its deviations."
    idle = sum(value < 0.1 * largest for value in relevance.values())
    weak = f" {idle} of {len(names)} inputs have less than a tenth of its relevance." if idle else ""
    return f"{names[0]} matters most, then {names[1]}.{weak}"


def reliability(found: Classification) -> str:
    """The mean by a binomial test; and so each group of the diagram, for errors that the mean does not show."""
    sure, right, n = float(found.confidence.mean()), int(found.right.sum()), len(found.label)
    said = f"the predicted class is right in {percent(right / n)} of the rows and was given {percent(sure)} on average"
    if _chance(right, n, sure) < DOUBT:
        slightly = "slightly " if abs(sure - right / n) <= _LEAST else ""
        bold = "bold" if sure > right / n else "timid"
        return f"The probabilities are {slightly}too {bold}: {said}. {_RECALIBRATE}"
    table = binned(*found.events())
    rare = [_chance(round(share * rows), int(rows), p) for p, share, rows in table]
    worst = int(np.argmin(rare))
    if rare[worst] * len(rare) < DOUBT:
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


def middle(values: Any) -> str:
    low, high = np.quantile(values, [0.25, 0.75])
    return f"{number(float(low))} and {number(float(high))}"


def values(view: View, x: Float64[np.ndarray, " n"]) -> str:
    """What a histogram shows: the most frequent value, or where half of the rows are; and how many are missing."""
    known = x[~np.isnan(x)]
    missing = f" Missing in {percent(1 - len(known) / len(x))} of the rows." if len(known) < len(x) else ""
    if isinstance(view, Circle):
        count, edges = np.histogram(known, view.edges(x))
        often = int(count.argmax())
        said = f"Most often about {one(view, edges[often : often + 2].mean())}, in {percent(count[often] / len(x))}."
    elif view.labels:
        value, count = np.unique(known, return_counts=True)
        often = int(count.argmax())
        drawn = f", {MOST_VALUES} of them drawn" if len(value) > MOST_VALUES else ""
        said = (
            f"{len(value):,} values{drawn}; most often {one(view, value[often])}, in {percent(count[often] / len(x))}."
        )
    else:
        low, high = (one(view, np.quantile(known, q)) for q in (0.25, 0.75))
        said = f"Half of the rows lie between {low} and {high}."
    return said + missing


def one(view: View, value: float) -> str:
    """A value of a view as people write it."""
    if math.isnan(value):
        return "missing"
    if isinstance(view, Circle):
        return view.told(value)
    if view.labels:
        return view.labels[int(value)]
    return str(np.datetime64(math.floor(value), "D")) if view.date else number(float(value))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def span(values: Any) -> float:
    return float(np.max(values) - np.min(values))
