"""What "auto" means for a kernel: its formula by evidence, its parameters from a subset of the rows."""

import time
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.data.rows import Rows, some_rows
from qsgp.hyperparameters import many_inputs
from qsgp.hyperparameters.asked import LEARN_POINTS, Asked
from qsgp.hyperparameters.few_rows import learn_small
from qsgp.hyperparameters.first import COMPARED_POINTS, first_kernels, screened, unlearned
from qsgp.hyperparameters.found import Found, best_of_each_formula, plain
from qsgp.hyperparameters.geometry import EVERY, FEW, Making, chosen
from qsgp.hyperparameters.metric import KNOWN, KNOWN_ON_GPU
from qsgp.hyperparameters.prior import lengthscale_prior
from qsgp.hyperparameters.replicates import Replicates
from qsgp.hyperparameters.small_tables import Watch
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels import ROUGH
from qsgp.kernels.relevance import stretched
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import Gaussian, LabelsAsNumbers, first_guess
from qsgp.solvers.closed_form import Effort, Prior, density_of_others, fit_hyperparameters
from qsgp.solvers.left_out import scaled_to_labels

_CHOOSE_POINTS = 400  # kernels are first compared on this many rows, of p factors 1 / sqrt(p) as many
_JUDGES = 4000  # rows that say which kernel predicts them best
_FEW_JUDGES = 500  # that say less than the evidence does
_LITTLE_TIME = 10.0  # seconds of a CPU, in which kernels of 2,000 rows cannot be compared: as for small tables then
_GROWTH = 1.41  # of the rows from search to search, while there is time: it costs thrice as much
_LEAST_LEARNED = 4  # with fewer rows the evidence says nothing: keep the defaults
_MORE_ROWS = 2  # times those of the last search: a metric takes one factor of them, and no slopes
_KNOWN = 2.5  # times those of the last search: most rows that kernels know when others judge them
_JUDGING = 0.25  # of the time that is left
_LEARN_POINTS_ON_GPU = 2500  # rows on which kernels are made of others
_KEPT, _KEPT_ON_GPU = 2, 4  # kernels that go on to more rows
_MAKING = 0.5  # of the time, at most, for kernels made of others
_QUICK, _LAST = Effort(20, 1e-4), Effort(60, 1e-5)
_COMPARING, _GROWING = Effort(16, 1e-4), Effort(8, 1e-4)

P = TypeVar("P", Kernel, Likelihood)


def learn(
    rows: Rows, asked: Asked, watch: Watch, units: Float[Tensor, " d"] | None = None
) -> tuple[Kernel, Likelihood]:
    """Kernel and its parameters by the evidence of more and more rows, ``asked.most`` at last; float64.

    Up to ``asked.spare`` rows are taken while a search on more of them can be expected to end within the time of
    ``watch``. With Gaussian noise and rows beyond those, the kernel is the one that predicts these best. Tables for the
    closed form have a road of their own (`few_rows`). ``units``: what 1 of each standardised input was before.
    """
    if rows.x.shape[1] > many_inputs.MANY:  # proportions are given, and rough kernels take the time of smooth ones
        kernels = asked.kernels if asked.sum_of else smooth(asked.kernels)
        asked = replace(asked, kernels=kernels, sums=False, metric="full" if asked.metric == "full" else "ard")
    noise, as_numbers = LIKELIHOODS[asked.likelihood], asked.likelihood == LabelsAsNumbers.name
    if asked.fixed or rows.n < _LEAST_LEARNED:
        first = first_kernels(rows.x, asked.kernels, units)
        return plain(unlearned(first, asked.sum_of)), first_guess(asked.likelihood)
    little = watch.left() < _LITTLE_TIME and (as_numbers or not noise.labels) and asked.search_device == "cpu"
    hurried = little and not (asked.sum_of or asked.metric == "full")
    if hurried:
        asked = replace(asked, kernels=smooth(asked.kernels))
    if as_numbers and (asked.closed_form or hurried):
        kernel, numbers = learn_small(rows, replace(asked, likelihood=Gaussian.name), watch, units)
        assert numbers.noise_variance is not None
        return kernel, LabelsAsNumbers(numbers.noise_variance)
    if hurried and not noise.fixed_sites:
        # sites take rounds; the variance of errors says nearly as much
        kernel, numbers = learn_small(rows, replace(asked, likelihood=Gaussian.name), watch, units)
        return kernel, noise.of_noise(numbers.noise_variance)
    if asked.closed_form or hurried:
        return learn_small(rows, asked, watch, units)
    if noise.labels and not as_numbers and rows.x.shape[1] > many_inputs.MANY:
        return _classes_of_many_inputs(rows, asked, watch, units)
    candidates = first_kernels(rows.x, asked.kernels, units)
    candidates = screened(candidates, rows, asked.seed) + candidates
    sites = first_guess(asked.likelihood)
    search = Search(rows, asked, watch, Replicates() if noise.labels else Replicates.of(rows))
    best = search.best([Found(kernel, sites) for kernel in candidates])
    kernel, sites = on(plain(best.kernel), "cpu"), on(best.likelihood, "cpu")
    return search.in_units_of_labels(kernel, sites) if isinstance(sites, LabelsAsNumbers) else (kernel, sites)


def smooth(names: tuple[str, ...]) -> tuple[str, ...]:
    """Without the rough ones, unless these are all there is."""
    return tuple(name for name in names if name not in ROUGH) or names


def _classes_of_many_inputs(
    rows: Rows, asked: Asked, watch: Watch, units: Float[Tensor, " d"] | None
) -> tuple[Kernel, Likelihood]:
    """The labels taken for numbers tell the lengthscales, rows left out how large the functions are."""
    sites = first_guess(asked.likelihood)
    as_numbers = rows._replace(Y=rows.Y - rows.Y.mean(0))
    kernel, _ = learn(as_numbers, replace(asked, likelihood=Gaussian.name), watch, units)
    some, search = some_rows(rows.n, asked.most, asked.seed), Search(rows, asked, watch)
    known, others = search.taken(some[: len(some) * 3 // 4]), search.taken(some[len(some) * 3 // 4 :])
    kernel, _ = many_inputs.with_best_variance(on(kernel, asked.search_device), sites, known, others, watch.halt)
    return on(kernel, "cpu"), sites


@dataclass(frozen=True)
class Search:
    """Searches on more and more of the rows: every kernel goes on from where its last search has ended."""

    rows: Rows
    asked: Asked
    watch: Watch
    replicates: Replicates = Replicates()

    def best(self, found: list[Found]) -> Found:
        """The best of the kernels where the evidence of as many rows as there is time for has led it."""
        asked, n, most = self.asked, self.rows.n, self.asked.most
        if len(found) > 1 or asked.makes_others:
            found = best_of_each_formula(self.on_rows(found, min(most, self._few(_CHOOSE_POINTS)), _QUICK))
        if most <= self._few(LEARN_POINTS):
            found = self.contenders(found)
        else:
            # More rows can tell more of the function: rough kernels win later than smooth ones.
            found = self.contenders(self.on_rows(found, self._few(LEARN_POINTS), _QUICK))
            count, effort, more = min(most, self._few(COMPARED_POINTS)), _COMPARING, True
            while more:
                began = time.monotonic()
                found = self.on_rows(found, count, effort)
                found = self.judged(found, count)[:_KEPT] if len(found) > _KEPT else found
                next_one = (time.monotonic() - began) * _GROWTH**3 * 8 / effort.iterations
                more = count * _GROWTH <= min(asked.spare, n) and next_one < self.watch.left()
                count, effort = int(count * _GROWTH) if more else count, _GROWING
            found = self.judged(found, count) if LIKELIHOODS[asked.likelihood].fixed_sites else found
            most = max(most, count)
        return self.on_rows(found[:1], most, _LAST)[0]

    def contenders(self, found: list[Found]) -> list[Found]:
        """What can be made of the best of these kernels, and the best plain one: rows left out will choose."""
        asked = self.asked
        if not asked.makes_others:
            return found
        few = self._few(_LEARN_POINTS_ON_GPU if self._on_gpu else LEARN_POINTS)
        part = replace(self, watch=self.watch.within(_MAKING))
        making = Making(part.some, part.on_rows, few, self._told, EVERY if self._on_gpu else FEW)
        return self.judged(chosen(found, making, asked), few)[: _KEPT_ON_GPU if self._on_gpu else _KEPT]

    def on_rows(self, starts: list[Found], count: int, effort: Effort) -> list[Found]:
        """Every kernel from where its last search ended, on ``count`` rows; the best evidence first."""
        part = self.some(count)
        prior, found, effort = self._prior(part), list[Found](), effort._replace(late=self.watch.halt)
        for kernel, sites, _ in starts:
            if not self.watch.allows(part.n, 2):  # the rest, and the order, stay as they were
                return found + starts[len(found) :]
            over, device = self.watch.over(part.n), self.asked.search_device
            own = on(kernel, device), on(sites, device)
            found.append(Found(*fit_hyperparameters(*own, part, effort, prior=prior, halt=over)))
        return found if self.watch.halt() else sorted(found, key=lambda each: -each.value)

    def _prior(self, part: Rows) -> Prior:
        """Of lengthscales, and of the noise what equal rows beyond ``part`` say of it."""
        if not self.replicates.squares or part.n == self.rows.n:
            return lengthscale_prior
        lacking = self.replicates.lacking(Replicates.of(part), part.n / self.rows.n)
        return lambda kernel, noise: lengthscale_prior(kernel) + lacking.log_density(noise)

    def judged(self, found: list[Found], count: int) -> list[Found]:
        """Ordered by the density of rows that have told nothing, for kernels that know the first ``count`` rows, and
        twice as many as long as that takes no time to speak of: rough kernels win late."""
        told = max(count, self._told) if self.asked.makes_others else count
        if len(found) < 2 or self.rows.n < told + _FEW_JUDGES or not self.watch.allows(count, len(found)):
            return found
        most = min(int(_KNOWN * self.asked.most), self.rows.n - _JUDGES)
        while True:
            began = time.monotonic()
            found = self._by_density(found, count, told)
            more, took = min(2 * count, most), time.monotonic() - began
            if more < 1.2 * count or 8 * took > _JUDGING * self.watch.left() or self.watch.halt():
                return found
            count, told = more, max(told, more)

    def _by_density(self, found: list[Found], count: int, told: int) -> list[Found]:
        # as `some_rows` has it
        order = torch.randperm(self.rows.n, generator=torch.Generator().manual_seed(self.asked.seed))
        known, others = self.taken(order[:count]), self.taken(order[told : told + _JUDGES])

        def density(each: Found) -> float:
            device = self.asked.search_device
            own = on(each.kernel, device), on(each.likelihood, device)
            return density_of_others(*own, known, others, self.watch.halt)

        return sorted(found, key=density, reverse=True)

    def in_units_of_labels(self, kernel: Kernel, numbers: LabelsAsNumbers) -> tuple[Kernel, Likelihood]:
        """The size of kernel and noise, of which the probabilities of labels left out say nothing."""
        some = self.some(min(self.asked.most, LEARN_POINTS)).to("cpu", torch.float64)
        size = scaled_to_labels(kernel(some.x, some.x), numbers, some)
        assert numbers.noise_variance is not None
        return stretched(kernel, size), LabelsAsNumbers(numbers.noise_variance * size)

    def some(self, count: int) -> Rows:
        """The first ``count`` in the order of the seed, or all."""
        return self.taken(some_rows(self.rows.n, min(count, self.rows.n), self.asked.seed))

    def taken(self, index: Int[Tensor, " i"]) -> Rows:
        return self.rows.take(index).to(self.asked.search_device, torch.float64)

    @property
    def _on_gpu(self) -> bool:
        return self.asked.search_device != "cpu"

    @property
    def _told(self) -> int:
        """Rows that a metric is learned from; a quarter at least remains to judge it. One factor of so many takes no
        more memory than the searches do."""
        most = KNOWN_ON_GPU if self._on_gpu else KNOWN
        most = min(most, int(_MORE_ROWS * self.asked.most), self.rows.n * 3 // 4)
        return max(min(self._few(LEARN_POINTS), self.asked.most), most)

    def _few(self, count: int) -> int:
        return self.asked.few(count, self.rows.Y.shape[1])


def on(part: P, device: str) -> P:
    """A kernel or likelihood with its parameters on ``device``."""
    return part.with_parameters({name: value.to(device) for name, value in part.parameters().items()})
