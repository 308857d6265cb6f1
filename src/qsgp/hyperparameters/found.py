"""Where searches have ended."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels import Mapped, SpectralSum, Tied
from qsgp.solvers.closed_form import Effort

NOT_YET = -math.inf  # the evidence of what no search has begun from


class Found(NamedTuple):
    """Where a search has ended, and the evidence and prior there."""

    kernel: Kernel
    likelihood: Likelihood
    value: float = NOT_YET


OnRows = Callable[[list[Found], int, Effort], list[Found]]  # searches on so many rows, the best evidence first


def plain(kernel: Kernel) -> Kernel:
    """Without the tie that a search has put on it."""
    return kernel.kernel if isinstance(kernel, Tied) else kernel


def formula(kernel: Kernel) -> tuple[str, ...]:
    """What tells kernels apart whose parameters alone may differ: their names, and whether they have a metric."""
    inner: Any = plain(kernel)
    if isinstance(inner, SpectralSum):
        return tuple(part for term in inner.kernels for part in formula(term))
    return (inner.name, "metric") if isinstance(inner, Mapped) else (inner.name,)


def best_of_each_formula(found: Sequence[Found]) -> list[Found]:
    """In order of their evidence, one for each."""
    kinds: dict[tuple[str, ...], Found] = {}
    for each in found:
        kinds.setdefault(formula(each.kernel), each)
    return list(kinds.values())
