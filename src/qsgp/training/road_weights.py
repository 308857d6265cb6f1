"""Weights of basis functions in closed form: with quadratic sites their posterior is a sum over the rows.

One pass over the rows, in random order, gives the exact posterior for Gaussian noise (`streaming.Accumulated`): no
learning rate, and what a pass cut short leaves is the posterior of the rows it has seen. Other sites are parabolas that
touch at the last posterior; passes follow until they settle. Where the functions lack a part of the kernel's prior,
that part counts as noise of the rows (the FITC model of Snelson and Ghahramani, 2006).
"""

import math
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.interfaces import Basis, Degenerate, Kernel, Likelihood
from qsgp.interrupt import Halt
from qsgp.posteriors.posteriors import ClosedForm, Features
from qsgp.training.basis import Table, make_table
from qsgp.training.held_out import raised, scores
from qsgp.training.portions import Accumulated
from qsgp.training.safeguard import MORE_FEATURES, exact_of_some, judges, never_worse
from qsgp.training.task import Task
from qsgp.training.trained import Record, Trained, Unseen

_PASSES, _PASSES_STREAMED = 12, 3  # of sites that are not Gaussian; of rows from the disk
_SETTLED = 1e-2  # mean change of xi, relative
_FACTOR = 1.2  # of a matrix takes as long as so many sums over as many rows as it has


def train(task: Task, kernel: Kernel, likelihood: Likelihood) -> Trained:
    """The posterior of the weights given all rows, or as many as time allows.

    The closed form of some rows says how much noise there is, and where sites that are not Gaussian touch first; it is
    what is returned where it is clearly better.
    """
    table = make_table(task, kernel, likelihood)
    known = exact_of_some(table.rows, table.kernel, table.likelihood, task.sizes, task.halt)
    trained = _summed(task, table, known)
    return never_worse(trained, known, table.rows.last(judges(task.sizes)), MORE_FEATURES)


def _summed(task: Task, table: Table, known: ClosedForm) -> Trained:
    """The last rows are held out until the noise of predictions has been compared with them, and added then."""
    rows, basis, options = table.rows, table.basis, task.options
    began, held = time.perf_counter(), judges(task.sizes)
    source = _Blocks(task, table, held)
    passes = _Passes(source, rows.source.outputs, basis, known, task.halt)
    k = {"meanfield": 0, "chevron": min(options.dense_columns, basis.m)}.get(options.covariance, basis.m)
    history: list[Record] = []
    while passes.once():
        record: Record = {"phase": "weights", "iteration": passes.number, "seconds": time.perf_counter() - began}
        history.append(record | {"rows": passes.seen})
        if task.report is not None and task.report(history[-1], partial(_posterior, passes, k)):
            break
    found, seen = _posterior(passes, k), None
    if held:
        unseen = rows.last(held)
        mean, variance = found.latent(unseen.x)
        noisy = raised(found.likelihood, unseen.Y, mean, variance, unseen.weight)
        seen = Unseen(unseen.Y, mean, variance, unseen.weight)
        history[-1] |= scores(noisy, unseen.Y, mean, variance, unseen.weight)
        if passes.time_for(_FACTOR * basis.m + held):
            found = passes.with_rows(unseen).posterior(k)
        found = replace(found, likelihood=noisy)
    equal = options.noise == "equal" or not found.likelihood.fixed_sites
    return Trained(found, history, passes.number, unseen=None if equal else seen)


def _posterior(passes: "_Passes", k: int) -> Features:
    return passes.total.posterior(k)


class _Blocks:
    """The rows that are added up, a block after another: those of the task, or all that its stream has."""

    def __init__(self, task: Task, table: Table, held: int) -> None:
        self._task, self._rows, self._held = task, table.rows, table.order[len(table.order) - held :].numpy()
        self.count = (len(table.rows) if task.stream is None else task.stream.n) - held

    @property
    def streamed(self) -> bool:
        return self._task.stream is not None

    def __call__(self, number: int) -> Generator[Rows, None, None]:
        """In the order of pass ``number``."""
        size, stream, like = self._task.sizes.batch_points, self._task.stream, self._rows.source.x
        if stream is None:
            yield from (self._rows.part(start, min(start + size, self.count)) for start in range(0, self.count, size))
            return
        with stream.once(self._task.options.seed + number, stream.numbers[self._held]) as rows:
            for some in rows:
                for part in torch.arange(some.n).split(size):
                    yield some.take(part).to(like.device, like.dtype)


class _Passes:
    """Sums over the rows, a block after another."""

    def __init__(self, blocks: _Blocks, outputs: int, basis: Basis, known: ClosedForm, halt: Halt) -> None:
        self._blocks, self._basis, self._known, self._halt = blocks, basis, known, halt
        like = next(iter(basis.kernel.parameters().values()))
        parameters = {name: value.to(like) for name, value in known.likelihood.parameters().items()}
        self._likelihood: Likelihood = known.likelihood.with_parameters(parameters)
        self._prior = Accumulated.empty(basis, self._likelihood, outputs)
        self._xi = None if blocks.streamed else like.new_ones(blocks.count, outputs, dtype=torch.float64)
        self._seconds, self._change = 0.0, math.inf  # of a row; of xi in the last pass
        self.total, self.number, self.seen = self._prior, 0, 0

    def once(self) -> bool:
        """One more pass, whole or, if it is the first, as far as time allows; False when there is none."""
        count = self._blocks.count
        if self.number and (self._settled() or not self.time_for(count + 2 * _FACTOR * self._basis.m)):
            return False
        posterior = self._known if not self.number else self.total.posterior()
        total, seen, moved = self._prior, 0, 0.0
        with closing(self._blocks(self.number)) as blocks:
            for rows in blocks:
                began = time.perf_counter()
                if seen and not self.time_for(2 * _FACTOR * self._basis.m + rows.n):
                    break
                total, change = self._added(total, seen, rows, posterior)
                self._seconds = max(self._seconds, (time.perf_counter() - began) / rows.n)
                seen, moved = seen + rows.n, moved + change
        if self.number and seen < count:
            return False
        self.total, self.seen, self._change, self.number = total, seen, moved / seen, self.number + 1
        return True

    def time_for(self, rows: float) -> bool:
        """To add so many more rows."""
        return not self._halt.pressed.is_set() and self._halt.left > rows * self._seconds

    def with_rows(self, rows: Rows) -> Accumulated:
        """The last sums and those of rows that no pass has seen."""
        return self.total.add(rows.x, rows.Y, self._counted(rows.x, rows.weight))

    def _settled(self) -> bool:
        most = _PASSES if self._xi is not None else _PASSES_STREAMED
        return self._likelihood.fixed_sites or self._change < _SETTLED or self.number >= most

    def _added(
        self, total: Accumulated, start: int, rows: Rows, posterior: ClosedForm | Features
    ) -> tuple[Accumulated, float]:
        """With the rows from ``start`` on, and the sum over them of how far their sites have moved, if it is known."""
        x, Y, weight = rows
        Y, moved = Y.double(), math.inf
        xi = torch.ones_like(Y)
        if not self._likelihood.fixed_sites:
            mean, variance = (part.double() for part in posterior.latent(x))
            xi = total.common_xi(Y, mean, variance.mean(1))
            if self._xi is not None:
                before = self._xi[start : start + rows.n]
                moved = float(((xi - before).abs() / (xi + before)).mean(1).sum())
                self._xi[start : start + rows.n] = xi
        return total.with_sites(total.features(x), Y, self._counted(x, weight).double(), xi), moved

    def _counted(self, x: Float[Tensor, "l d"], weight: Float[Tensor, " l"]) -> Float[Tensor, " l"]:
        """How often rows count when what the functions lack is noise as well."""
        if not (isinstance(self._basis, Degenerate) and self._likelihood.fixed_sites):
            return weight
        assert self._likelihood.noise_variance is not None
        return weight / (1 + weight * self._basis.missing(x) / self._likelihood.noise_variance)
