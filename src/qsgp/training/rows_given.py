"""What the rows road solves for: rows in random order, those held out, kernel and likelihood in one precision."""

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from qsgp.data.rows import Rows
from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.ranks import ALONE, Ranks
from qsgp.solvers.dual import spectral
from qsgp.training.held_out import watched
from qsgp.training.precision import DOUBLE_ROWS, put, resolution, rounding
from qsgp.training.task import Task
from qsgp.training.trained import Record, Unseen

MOST_UNSEEN = 4000  # rows that tell the shape of the noise, those held out among them


class Judged(NamedTuple):
    """A posterior with the noise and the trust that rows held out ask for, its scores there, and how long it took."""

    posterior: KernelFunctionsAtRows
    scores: Record
    seconds: float


@dataclass(frozen=True)
class Given:
    """The GP that is to be solved, and the rows that judge it."""

    rows: Rows  # a rank's own of all n
    held_out: Rows  # all of them
    kernel: SpectralKernel
    likelihood: Likelihood  # as it was learned
    floor: float  # least noise that the precision of the products allows
    n: int
    spare: Rows  # some of those that are neither solved for nor held out; all ranks have them
    ranks: Ranks = ALONE

    @classmethod
    def of(cls, task: Task, kernel: Kernel, likelihood: Likelihood) -> "Given":
        """Rows in random order, as `some_rows` has it: the first were learned from, the last are held out."""
        n, options, sizes = task.rows.n, task.options, task.sizes
        order = torch.randperm(n, generator=torch.Generator().manual_seed(options.seed))
        kept = min(sizes.dual_rows, n) - sizes.held_out
        dtype, floor = resolution(kernel, likelihood, options, task.rows.x[order[:kept]])
        rows = task.rows.take(order[:kept][task.ranks.share(kept)]).to(options.device, dtype)
        held_out = task.rows.take(order[n - sizes.held_out :]).to(options.device, dtype)
        spare = task.rows.take(order[kept : n - sizes.held_out][:MOST_UNSEEN]).to(options.device, dtype)
        own = spectral(put(kernel, rows.x)), put(likelihood, rows.x)
        return cls(rows, held_out, *own, floor, kept, spare, task.ranks)

    @property
    def fixed(self) -> bool:
        """Whether sites stay as they are."""
        return self.likelihood.fixed_sites

    @property
    def outputs(self) -> int:
        return self.rows.Y.shape[1]

    @property
    def all_rows(self) -> Rows:
        """The own ones, and those of the rows held out."""
        return self.rows.followed_by(self.held_out.take(self.ranks.share(self.n + self.held_out.n, self.n)))

    def first(self, count: int) -> Rows:
        """The first of all rows, on every rank."""
        if self.ranks.size == 1:
            return self.rows.take(slice(count))
        every = torch.arange(count, device=self.rows.x.device)
        return Rows(*(self.ranks.collected(part, every) for part in self.rows))

    def fewer(self, count: int) -> "Given":
        rows, spare = self.rows.take(slice(self.ranks.mine(count))), self.spare
        if self.ranks.size == 1:
            spare = self.rows.take(slice(count, count + MOST_UNSEEN)).followed_by(spare).take(slice(MOST_UNSEEN))
        return replace(self, rows=rows, n=min(count, self.n), spare=spare)

    def judged(self, posterior: KernelFunctionsAtRows) -> Judged:
        began = time.perf_counter()
        suited, scores = watched(posterior, self.likelihood, self.held_out)
        return Judged(suited, self.ranks.agreed(scores), time.perf_counter() - began)

    def unseen(self, posterior: KernelFunctionsAtRows, more: bool) -> Unseen:
        """What a posterior says of rows it does not know: those held out, and ``more`` of them if there are any."""
        rows = self.held_out
        if more:
            rows = rows.followed_by(self.spare.take(slice(max(0, MOST_UNSEEN - rows.n))))
        found = [posterior.latent(part) for part in rows.x.split(posterior.rows_at_a_time)]
        mean, variance = (torch.cat(parts) for parts in zip(*found, strict=True))
        return Unseen(rows.Y, mean, variance, rows.weight)

    def in_double(self) -> "Given":
        device = self.rows.x.device
        rows, held_out, spare = (part.to(device, torch.float64) for part in (self.rows, self.held_out, self.spare))
        kernel, likelihood = spectral(put(self.kernel, rows.x)), put(self.likelihood, rows.x)
        floor = rounding(kernel, self.n, rows.x.dtype, rows.x.is_cuda)
        double = replace(self, rows=rows, held_out=held_out, spare=spare)
        return replace(double, kernel=kernel, likelihood=likelihood, floor=floor)

    def steadier(self, task: Task) -> "Given":
        """For when rounding of the products outweighs the noise: in float64 where there is time for it, else with more
        noise."""
        x = self.rows.x
        if x.dtype == torch.float32 and (timed(task) or not x.is_cuda or self.n <= DOUBLE_ROWS):
            return self.in_double()
        least = rounding(self.kernel, self.n, torch.float32, x.is_cuda)
        return replace(self, floor=max(10 * self.floor, least))


def timed(task: Task) -> bool:
    """Whether the clock of a CPU decides on sizes: without it equal seeds must give equal models."""
    return task.options.max_time is not None and not task.options.device.startswith("cuda")
