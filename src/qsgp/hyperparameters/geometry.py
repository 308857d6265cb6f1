"""Kernels made of the best ones so far: of a learned metric, and sums with one that acts along the axes.

All are compared on the same rows. What is made here is kept only where rows that nothing was learned from say so; that
is up to `search`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from qsgp.data.rows import Rows
from qsgp.engine import FORMULAS
from qsgp.hyperparameters.asked import Asked
from qsgp.hyperparameters.found import NOT_YET, Found, OnRows, best_of_each_formula, formula, plain
from qsgp.hyperparameters.metric import directions
from qsgp.kernels import Mapped, SpectralSum
from qsgp.solvers.closed_form import Effort

ROUNDS = 2  # of learning a metric: most of the gain comes with the first
_EFFORT = Effort(16, 1e-4)


class Breadth(NamedTuple):
    """How many are looked at: formulas in the last metric, formulas with a second term, and contenders of all these
    beside the best plain one."""

    turned: int
    sums: int
    contenders: int


FEW, EVERY = Breadth(2, 2, 2), Breadth(4, 4, 6)  # what a CPU has time for; a GPU tries all


class Making(NamedTuple):
    """Some of the rows, and searches on ``points`` of them within the time there is for it; a metric is learned from
    ``known`` rows."""

    rows: Callable[[int], Rows]
    on_rows: OnRows
    points: int
    known: int
    breadth: Breadth = FEW


def chosen(found: list[Found], making: Making, asked: Asked) -> list[Found]:
    """The best that can be made of these plain kernels, which are in the order of their evidence, and the best of them.

    When time ends, the best of what has been searched by then.
    """
    around = [each for each in found if radial(each)]
    turned = [] if asked.metric == "ard" else _turned(around, making)
    full = turned if asked.metric == "full" else []
    if asked.sum_of:
        return making.on_rows([_sum_of(asked.sum_of, _ordered(full or turned + found) + found)], making.points, _EFFORT)
    both = _ordered(turned + found)
    summed = _ordered(making.on_rows(_sums(both, making.breadth.sums), making.points, _EFFORT)) if asked.sums else []
    made = _ordered(full + [each for each in summed if has_metric(each)]) if full else _ordered(both + summed)
    best = made[: making.breadth.contenders] or found
    return best + [each for each in made if is_plain(each) and each not in best][:1]


def radial(found: Found) -> bool:
    """Of a distance that a metric can change."""
    return all(FORMULAS[name].norm == 2 for name in formula(found.kernel) if name in FORMULAS)


def has_metric(found: Found) -> bool:
    return "metric" in formula(found.kernel)


def is_plain(found: Found) -> bool:
    return len(formula(found.kernel)) == 1


def _turned(found: list[Found], making: Making) -> list[Found]:
    """The best formulas in a metric learned from the best of them, round after round."""
    turned: list[Found] = []
    for number in range(ROUNDS):
        best = _ordered(found[:1] + turned)[:1]
        rows = making.rows(making.known)
        if not best or best[0].likelihood.noise_variance is None or rows.x.shape[1] < 2:
            return turned
        where = directions(best[0].kernel, best[0].likelihood, rows)
        few = 1 if number + 1 < ROUNDS else making.breadth.turned
        starts = [Found(where.mapped(_inner(each)), best[0].likelihood) for each in found[:few]]
        searched = _ordered(making.on_rows(starts, making.points, _EFFORT))
        if not searched:
            return turned
        turned = best_of_each_formula(_ordered(searched + turned))
    return turned


def _sums(found: list[Found], most: int) -> list[Found]:
    """The best kernels of a distance, each beside the best that acts along the axes."""
    along = [each for each in found if not radial(each)]
    around: dict[str, Found] = {}
    for each in found:
        if radial(each):
            around.setdefault(formula(each.kernel)[0], each)
    return [_sum((each, along[0])) for each in list(around.values())[:most] if along]


def _sum_of(names: Sequence[str], found: list[Found]) -> Found:
    """Of the best of each name."""
    return _sum([next(each for each in found if formula(each.kernel)[0] == name) for name in names])


def _sum(found: Sequence[Found]) -> Found:
    """Each begins where it was, with its share of the variance."""
    terms: list[Any] = []
    for kernel in (plain(each.kernel) for each in found):
        own = kernel.parameters()
        terms.append(kernel.with_parameters(own | {"log_variance": own["log_variance"] - math.log(len(found))}))
    return Found(SpectralSum(tuple(terms)), found[0].likelihood)


def _ordered(found: list[Found]) -> list[Found]:
    """The best evidence first, without what no search has begun from."""
    return sorted((each for each in found if each.value > NOT_YET), key=lambda each: -each.value)


def _inner(found: Found) -> Any:
    kernel: Any = plain(found.kernel)
    return kernel.kernel if isinstance(kernel, Mapped) else kernel
