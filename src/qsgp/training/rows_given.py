"""What the rows road solves for: rows in random order, those held out, kernel and likelihood in one precision."""

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from qsgp.data.rows import Rows
from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.solvers.dual import spectral
from qsgp.training.held_out import watched
from qsgp.training.precision import DOUBLE_ROWS, put, resolution, rounding
from qsgp.training.task import Task
from qsgp.training.trained import Record


class Judged(NamedTuple):
    """A posterior with the noise and the trust that rows held out ask for, its scores there, and how long it took."""

    posterior: KernelFunctionsAtRows
    scores: Record
    seconds: float


@dataclass(frozen=True)
class Given:
    """The GP that is to be solved, and the rows that judge it."""

    rows: Rows
    held_out: Rows
    kernel: SpectralKernel
    likelihood: Likelihood  # as it was learned
    floor: float  # least noise that the precision of the products allows

    @classmethod
    def of(cls, task: Task, kernel: Kernel, likelihood: Likelihood) -> "Given":
        """Rows in random order, as `some_rows` has it: the first were learned from, the last are held out."""
        n, options, sizes = task.rows.n, task.options, task.sizes
        order = torch.randperm(n, generator=torch.Generator().manual_seed(options.seed))
        kept = min(sizes.dual_rows, n) - sizes.held_out
        dtype, floor = resolution(kernel, likelihood, options, task.rows.x[order[:kept]])
        rows = task.rows.take(order[:kept]).to(options.device, dtype)
        held_out = task.rows.take(order[n - sizes.held_out :]).to(options.device, dtype)
        return cls(rows, held_out, spectral(put(kernel, rows.x)), put(likelihood, rows.x), floor)

    @property
    def fixed(self) -> bool:
        """Whether sites stay as they are."""
        return self.likelihood.fixed_sites

    @property
    def outputs(self) -> int:
        return self.rows.Y.shape[1]

    @property
    def all_rows(self) -> Rows:
        return self.rows.followed_by(self.held_out)

    def judged(self, posterior: KernelFunctionsAtRows) -> Judged:
        began = time.perf_counter()
        suited, scores = watched(posterior, self.likelihood, self.held_out)
        return Judged(suited, scores, time.perf_counter() - began)

    def in_double(self) -> "Given":
        device = self.rows.x.device
        rows, held_out = (part.to(device, torch.float64) for part in (self.rows, self.held_out))
        kernel, likelihood = spectral(put(self.kernel, rows.x)), put(self.likelihood, rows.x)
        return Given(rows, held_out, kernel, likelihood, rounding(kernel, rows.n, rows.x.dtype, rows.x.is_cuda))

    def steadier(self, task: Task) -> "Given":
        """For when rounding of the products outweighs the noise: in float64 where there is time for it, else with more
        noise."""
        x = self.rows.x
        if x.dtype == torch.float32 and (timed(task) or not x.is_cuda or self.rows.n <= DOUBLE_ROWS):
            return self.in_double()
        least = rounding(self.kernel, self.rows.n, torch.float32, x.is_cuda)
        return replace(self, floor=max(10 * self.floor, least))


def timed(task: Task) -> bool:
    """Whether the clock of a CPU decides on sizes: without it equal seeds must give equal models."""
    return task.options.max_time is not None and not task.options.device.startswith("cuda")
