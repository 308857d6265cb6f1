"""What "auto" means for a kernel: its formula by evidence, its parameters from a subset of the rows."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp.data.rows import some_rows
from qsgp.hyperparameters import many_inputs, small_tables
from qsgp.hyperparameters.prior import lengthscale_prior
from qsgp.hyperparameters.screening import first_lengthscales
from qsgp.hyperparameters.small_tables import Watch
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels import AUTO, Tied, factorising, hyperparameters
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import Gaussian, first_guess
from qsgp.solvers.closed_form import density_of_others, fit_hyperparameters
from qsgp.training.options import LEARN_POINTS, Options

_FIRST_POINTS = 100  # of a small table, to begin with
_LABELS = 600  # rows of a small table at most whose labels tell the lengthscales
_NOISE_OF_LABELS = 1e-3  # at least, when they are taken for numbers
_FEW_LABELS = 100  # rows, a quarter of which are too few to judge by
_FEW_CLASSES = 4  # whose evidence is worth its time
_UNITS_ALIKE = 16  # inputs from which on they may be of one kind, such as pixels
_CHOOSE_POINTS = 400  # kernels are first compared on this many rows, of p factors 1 / sqrt(p) as many
_COMPARED_POINTS = 3000  # and, when hyperparameters are learned on more than 1,000, at last on this many
_JUDGES = 4000  # rows that say which kernel predicts them best
_FEW_JUDGES = 500  # that say less than the evidence does
_LITTLE_TIME = 10.0  # seconds of a CPU, in which kernels of 2,000 rows cannot be compared: as for small tables then
_GROWTH = 1.41  # of the rows from search to search, while there is time: it costs thrice as much
_LEAST_LEARNED = 4  # with fewer rows the evidence says nothing: keep the defaults
_BULK = 10_000  # rows that tell whether outliers have stretched the scale

P = TypeVar("P", Kernel, Likelihood)


def learn(
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n o"],
    weight: Float[Tensor, " n"],
    options: Options,
    most: int = LEARN_POINTS,
    halt: Callable[[], bool] = lambda: False,
    spare: int = 0,
    left: Callable[[], float] = lambda: math.inf,
    units: Float[Tensor, " d"] | None = None,
) -> tuple[Kernel, Likelihood]:
    """Kernel and its parameters by the evidence of more and more rows, ``most`` at last; float64.

    Up to ``spare`` rows are taken while a search on more of them can be expected to end within the seconds ``left``.
    With Gaussian noise and rows beyond those, the kernel is the one that predicts these best. Tables for the closed
    form have a road of their own (`small_tables`). ``units``: what 1 of each standardised input was before.
    """
    n, sites, noise = len(x), first_guess(options.likelihood), LIKELIHOODS[options.likelihood]
    # A matrix of a thousand rows is not worth the way to a GPU and back.
    device = options.device if most > LEARN_POINTS else "cpu"
    if not options.learn_hyperparameters or n < _LEAST_LEARNED:
        first = first_kernels(x, options, units)[0]
        return first.kernel if isinstance(first, Tied) else first, sites

    def taken(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        double: Any = {"device": device, "dtype": torch.float64}
        return x[rows].to(**double), Y[rows].to(**double), weight[rows].to(**double)

    watch = Watch(halt, left)
    hurried = left() < _LITTLE_TIME and not noise.labels and device == "cpu"
    if hurried and not noise.fixed_sites:  # sites take rounds; the variance of errors says nearly as much
        kernel, numbers = learn_small(x, Y, weight, replace(options, likelihood=Gaussian.name), most, watch, units)
        return kernel, noise.of_noise(numbers.noise_variance)
    if not options.wants_table(n) or hurried:
        return learn_small(x, Y, weight, options, most, watch, units)
    if noise.labels and x.shape[1] > many_inputs.MANY:
        as_numbers = replace(options, likelihood=Gaussian.name)
        kernel, _ = learn(x, Y - Y.mean(0), weight, as_numbers, most, halt, spare, left, units)
        some = some_rows(n, most, options.seed)
        parts = taken(some[: len(some) * 3 // 4]), taken(some[len(some) * 3 // 4 :])
        kernel, _ = many_inputs.with_best_variance(on(kernel, device), sites, *parts, halt)
        return on(kernel, "cpu"), sites
    candidates = first_kernels(x, options, units)

    Found = tuple[Kernel, Likelihood, float]

    def search(starts: list[Found], count: int, iterations: int, tolerance: float) -> list[Found]:
        """Every kernel from where its last search ended, on ``count`` rows; the best evidence first."""
        part = taken(some_rows(n, min(count, n), options.seed))
        keywords: Any = {"iterations": iterations, "tolerance": tolerance, "prior": lengthscale_prior}
        found: list[Found] = []
        for kernel, sites, _ in starts:
            if not watch.allows(len(part[0]), 2):  # the rest, and the order, stay as they were
                return found + starts[len(found) :]
            over = watch.over(len(part[0]))
            found.append(fit_hyperparameters(on(kernel, device), on(sites, device), *part, halt=over, **keywords))
        return found if halt() else sorted(found, key=lambda each: -each[2])

    def judged(found: list[Found], count: int) -> list[Found]:
        """Ordered by the density of rows beyond the first ``count``, which the kernels know."""
        if len(found) < 2 or n < count + _FEW_JUDGES or not watch.allows(count, len(found)):
            return found
        order = torch.randperm(n, generator=torch.Generator().manual_seed(options.seed))  # as `some_rows` has it
        known, others = taken(order[:count]), taken(order[count : count + _JUDGES])

        def density(each: Found) -> float:
            return density_of_others(on(each[0], device), on(each[1], device), known, others, halt)

        return sorted(found, key=density, reverse=True)

    def few(count: int) -> int:
        return max(4, int(count / math.sqrt(options.groups(Y.shape[1]))))

    candidates = screened(candidates, (x, Y, weight), options.seed) + candidates
    found: list[Found] = [(kernel, sites, 0.0) for kernel in candidates]
    if len(found) > 1:
        found = best_of_each_kernel(search(found, min(most, few(_CHOOSE_POINTS)), 20, 1e-4))
    if most > few(LEARN_POINTS):
        # More rows can tell more of the function: rough kernels win later than smooth ones.
        found = search(found, few(LEARN_POINTS), 20, 1e-4)
        rows, iterations, more = min(most, few(_COMPARED_POINTS)), 16, True
        while more:
            began = time.monotonic()
            found = search(found, rows, iterations, 1e-4)
            next_one = (time.monotonic() - began) * _GROWTH**3 * 8 / iterations
            more = rows * _GROWTH <= min(spare, n) and next_one < left()
            rows, iterations = int(rows * _GROWTH) if more else rows, 8
        found = judged(found, rows) if noise.fixed_sites else found
        most = max(most, rows)
    kernel, sites, _ = search(found[:1], most, 60, 1e-5)[0]
    return on(kernel.kernel if isinstance(kernel, Tied) else kernel, "cpu"), on(sites, "cpu")


def learn_small(
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n o"],
    weight: Float[Tensor, " n"],
    options: Options,
    most: int,
    watch: Watch,
    units: Float[Tensor, " d"] | None,
) -> tuple[Kernel, Likelihood]:
    """For the closed form: lengthscales shrunk towards each other, variances that rows left out confirm."""
    n, d = x.shape
    classes = LIKELIHOODS[options.likelihood].labels
    sites = first_guess(Gaussian.name if classes else options.likelihood)
    targets = Y.double()
    if classes:  # the evidence of the labels, taken for numbers, tells the lengthscales (see `many_inputs`)
        most = min(max(most, _LABELS), n if few_labels(weight) else n * 3 // 4)
        targets = standardised(targets, weight.double())
    all_rows = (x.double(), targets, weight.double())

    def rows(count: int) -> tuple[Tensor, Tensor, Tensor]:
        some = some_rows(n, count, options.seed)
        return all_rows[0][some], all_rows[1][some], all_rows[2][some]

    lengthscale = torch.full((d,), math.sqrt(d), dtype=torch.float64)
    alike = units if d >= _UNITS_ALIKE else None
    candidates = many_inputs.tied_kernels(kernel_names(options), all_rows[0], lengthscale, alike)
    few = [count for count in (_FIRST_POINTS, _CHOOSE_POINTS) if count < min(n, most) / 2]
    # Few labels, or many classes of many inputs: taken for numbers they want lengthscales that some rows overfit.
    alone = classes and (few_labels(weight) or (Y.shape[1] > _FEW_CLASSES and d >= _UNITS_ALIKE))
    free = d <= many_inputs.MANY and not alone
    noise = _NOISE_OF_LABELS if classes else 0.0
    found = small_tables.learned(candidates, sites, rows, [*few, min(n, most)], watch, free, noise)
    if classes:
        rows_of_labels, label = (all_rows[0], Y.double(), all_rows[2]), first_guess(options.likelihood)
        found = [for_classes(found, label, rows_of_labels, most, options.seed, watch)]
    kernel, sites = small_tables.widened(found, rows(min(n, most)), watch)
    return kernel.kernel if isinstance(kernel, Tied) else kernel, sites


def for_classes(
    finalists: list[small_tables.Found],
    label: Likelihood,
    rows: tuple[Tensor, Tensor, Tensor],
    known: int,
    seed: int,
    watch: Watch,
) -> small_tables.Found:
    """What the labels of ``known`` rows, taken for numbers, have told, for the likelihood ``label``.

    Other rows choose how large the functions are, and the finalist of more parameters only if it is surely better; of
    few rows the evidence chooses alone.
    Then, of few classes, the bound of the evidence has its say; of many it costs a factor for each class, and such
    tables have told the lengthscales well before.
    """

    def part(some: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return rows[0][some], rows[1][some], rows[2][some]

    n, outputs = rows[1].shape
    count = int(LEARN_POINTS / math.sqrt(outputs))
    if few_labels(rows[2]):
        best = replace(finalists[-1], likelihood=label)
        return small_tables.searched([best], part(some_rows(n, count, seed)), watch, 0.0, 20, 1e-4)[0]
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))  # as `some_rows` has it
    trial = part(order[: min(known, count * 3 // 4)]), part(order[known : known + _FEW_JUDGES])
    tried = [many_inputs.with_best_variance(each.kernel, label, *trial, watch.halt) for each in finalists[::-1]]
    best, (kernel, density) = finalists[-1], tried[0]
    for each, (other, higher) in zip(finalists[-2::-1], tried[1:], strict=True):
        if small_tables.surely_better(higher, density, torch.ones_like(density)):
            best, kernel, density = each, other, higher
    best = replace(best, kernel=kernel, likelihood=label)
    if outputs > _FEW_CLASSES:
        return best
    return small_tables.searched([best], part(some_rows(n, count, seed)), watch, 0.0, 20, 1e-4)[0]


def few_labels(weight: Float[Tensor, " n"]) -> bool:
    """A quarter of them, left out, would say nothing."""
    return float(weight.sum()) < _FEW_LABELS


def standardised(Y: Float64[Tensor, "n o"], weight: Float64[Tensor, " n"]) -> Float64[Tensor, "n o"]:
    """Each output without its mean, all in units of their common deviation."""
    centred = Y - weight @ Y / weight.sum()
    variance = (weight @ centred.square()).mean() / weight.sum()
    return centred / variance.sqrt().clamp_min(1e-12)


def kernel_names(options: Options) -> list[str]:
    if options.basis == "grid":
        return list(factorising())
    return list(AUTO) if options.kernel == "auto" else [options.kernel]


def first_kernels(x: Float[Tensor, "n d"], options: Options, units: Float[Tensor, " d"] | None) -> list[Kernel]:
    """Where searches begin: a lengthscale for each input, or for very many inputs common ones."""
    d = x.shape[1]
    lengthscale, variance = hyperparameters(math.sqrt(d) * bulk(x), 1.0, d=d, dtype=torch.float64)
    names = kernel_names(options)
    if d > many_inputs.MANY:
        return [*many_inputs.tied_kernels(names, x[:_COMPARED_POINTS], lengthscale, units)]
    return [KERNELS[name](lengthscale, variance) for name in names]


def screened(kernels: list[Kernel], rows: tuple[Tensor, Tensor, Tensor], seed: int) -> list[Kernel]:
    """These kernels with the lengthscales that single inputs ask for; none where they all ask for the same."""
    if isinstance(kernels[0], Tied):
        return []
    some = some_rows(len(rows[0]), _COMPARED_POINTS, seed)
    lengthscale = first_lengthscales(*(part[some].double() for part in rows))
    if lengthscale is None:
        return []
    return [kernel.with_parameters({"log_lengthscale": lengthscale.cpu().log()}) for kernel in kernels]


def best_of_each_kernel(found: list[tuple[Kernel, Likelihood, float]]) -> list[tuple[Kernel, Likelihood, float]]:
    """In order of their evidence, one for each formula."""
    kinds: dict[type, tuple[Kernel, Likelihood, float]] = {}
    for each in found:
        kinds.setdefault(type(each[0].kernel if isinstance(each[0], Tied) else each[0]), each)
    return list(kinds.values())


def bulk(x: Float[Tensor, "n d"]) -> Float64[Tensor, " d"]:
    """1 for each input, or half the width of its middle two thirds where outliers have stretched the scale: searches
    that begin a hundred times too wide take the function for noise."""
    low, high = torch.quantile(x[:_BULK].double(), torch.tensor([0.16, 0.84], dtype=torch.float64, device=x.device), 0)
    width = (high - low) / 2
    return torch.where((width > 0) & (width < 0.2), width, 1.0).cpu()


def on(part: P, device: str) -> P:
    """A kernel or likelihood with its parameters on ``device``."""
    return part.with_parameters({name: value.to(device) for name, value in part.parameters().items()})
