"""Tables for the closed form: what their few rows, and the labels of classes taken for numbers, say of a kernel."""

import math
from dataclasses import replace

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp.data.rows import Rows, some_rows
from qsgp.hyperparameters import many_inputs, small_tables
from qsgp.hyperparameters.asked import LEARN_POINTS, Asked
from qsgp.hyperparameters.small_tables import QUICK, Watch
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels import Tied
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import Gaussian, first_guess

_COUNTS = (100, 400)  # rows to begin with
_LABELS = 600  # rows of a small table at most whose labels tell the lengthscales
_NOISE_OF_LABELS = 1e-3  # at least, when they are taken for numbers
_FEW_LABELS = 100  # rows, a quarter of which are too few to judge by
_FEW_CLASSES = 4  # whose evidence is worth its time
_UNITS_ALIKE = 16  # inputs from which on they may be of one kind, such as pixels
_JUDGES = 500  # rows that say how large the functions of classes are


def learn_small(rows: Rows, asked: Asked, watch: Watch, units: Float[Tensor, " d"] | None) -> tuple[Kernel, Likelihood]:
    """Lengthscales shrunk towards each other, variances that rows left out confirm."""
    n, d = rows.x.shape
    classes, most = LIKELIHOODS[asked.likelihood].labels, asked.most
    sites = first_guess(Gaussian.name if classes else asked.likelihood)
    rows = all_rows = rows.to(rows.x.device, torch.float64)
    if classes:  # the evidence of the labels, taken for numbers, tells the lengthscales (see `many_inputs`)
        most = min(max(most, _LABELS), n if few_labels(rows.weight) else n * 3 // 4)
        rows = rows._replace(Y=standardised(rows.Y, rows.weight))

    def some(count: int) -> Rows:
        return rows.take(some_rows(n, count, asked.seed))

    lengthscale = torch.full((d,), math.sqrt(d), dtype=torch.float64)
    alike = units if d >= _UNITS_ALIKE else None
    candidates = many_inputs.tied_kernels(list(asked.kernels), rows.x, lengthscale, alike)
    few = [count for count in _COUNTS if count < min(n, most) / 2]
    # Few labels, or many classes of many inputs: taken for numbers they want lengthscales that some rows overfit.
    alone = classes and (few_labels(rows.weight) or (rows.Y.shape[1] > _FEW_CLASSES and d >= _UNITS_ALIKE))
    free = d <= many_inputs.MANY and not alone
    noise = _NOISE_OF_LABELS if classes else 0.0
    found = small_tables.learned(candidates, sites, some, [*few, min(n, most)], watch, free, noise)
    if classes:
        found = [for_classes(found, first_guess(asked.likelihood), all_rows, most, asked.seed, watch)]
    kernel, sites = small_tables.widened(found, some(min(n, most)), watch)
    return kernel.kernel if isinstance(kernel, Tied) else kernel, sites


def for_classes(
    finalists: list[small_tables.Found], label: Likelihood, rows: Rows, known: int, seed: int, watch: Watch
) -> small_tables.Found:
    """What the labels of ``known`` rows, taken for numbers, have told, for the likelihood ``label``.

    Other rows choose how large the functions are, and the finalist of more parameters only if it is surely better; of
    few rows the evidence chooses alone.
    Then, of few classes, the bound of the evidence has its say; of many it costs a factor for each class, and such
    tables have told the lengthscales well before.
    """
    n, outputs = rows.Y.shape
    count = int(LEARN_POINTS / math.sqrt(outputs))
    if few_labels(rows.weight):
        best = replace(finalists[-1], likelihood=label)
        return small_tables.searched([best], rows.take(some_rows(n, count, seed)), watch, 0.0, QUICK)[0]
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))  # as `some_rows` has it
    trial = rows.take(order[: min(known, count * 3 // 4)]), rows.take(order[known : known + _JUDGES])
    tried = [many_inputs.with_best_variance(each.kernel, label, *trial, watch.halt) for each in finalists[::-1]]
    best, (kernel, density) = finalists[-1], tried[0]
    for each, (other, higher) in zip(finalists[-2::-1], tried[1:], strict=True):
        if small_tables.surely_better(higher, density, torch.ones_like(density)):
            best, kernel, density = each, other, higher
    best = replace(best, kernel=kernel, likelihood=label)
    if outputs > _FEW_CLASSES:
        return best
    return small_tables.searched([best], rows.take(some_rows(n, count, seed)), watch, 0.0, QUICK)[0]


def few_labels(weight: Float[Tensor, " n"]) -> bool:
    """A quarter of them, left out, would say nothing."""
    return float(weight.sum()) < _FEW_LABELS


def standardised(Y: Float64[Tensor, "n o"], weight: Float64[Tensor, " n"]) -> Float64[Tensor, "n o"]:
    """Each output without its mean, all in units of their common deviation."""
    centred = Y - weight @ Y / weight.sum()
    variance = (weight @ centred.square()).mean() / weight.sum()
    return centred / variance.sqrt().clamp_min(1e-12)
