"""optimizer="preconditioned": a Fourier model solved on all rows and features, preconditioned from support points.

Conjugate gradients on the dual with the residual kept at all rows (`feature_dual`) were ahead of sampled steps wherever
a pass over n m feature values can be afforded; this is that road from the estimators. Some rows are held out: they say
how the variances of draws and support points are blended, and what noise predictions have.
"""

import time
import warnings
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.data.rows import Rows, distinct
from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.interrupt import Halt
from qsgp.likelihoods import Gaussian
from qsgp.posteriors import solved_features as feature_posterior
from qsgp.posteriors.posteriors import FourierWeights
from qsgp.posteriors.spread import FEW
from qsgp.solvers.dual import spectral
from qsgp.solvers.feature_dual import USUAL, Descent, Features
from qsgp.training.held_out import watched
from qsgp.training.safeguard import MORE_TIME, Shuffled, exact_of_some, judges, never_worse
from qsgp.training.task import Task
from qsgp.training.trained import Record, Trained, Unseen

_TIMED = 256  # features that tell how long all take
_LEAST_PASSES = 2  # one to solve, and as much for draws and weights
_RESIDUAL = 0.01  # relative; at 0.03 the error was within 2 % of the exact one


def train(task: Task, kernel: Kernel, likelihood: Likelihood) -> Trained:
    """Passes over all features until the residual is small, time is up or ``max_iter`` of them are made."""
    options, sizes, n = task.options, task.sizes, task.rows.n
    place: Any = {"device": options.device, "dtype": options.dtype}
    assert isinstance(likelihood, Gaussian)
    kernel = kernel.with_parameters({name: value.to(**place) for name, value in kernel.parameters().items()})
    noise = Gaussian(likelihood.noise_variance.to(**place))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(options.seed))
    x, Y, weight = (part[order].to(**place) for part in task.rows)
    kept, began = n - sizes.held_out, time.perf_counter()
    rows = Shuffled(Arrays(x, Y, weight), torch.arange(n, device=x.device))
    known = exact_of_some(rows, kernel, noise, sizes, task.halt)
    if task.options.max_time is not None and least_seconds(task, x, spectral(kernel)) > task.halt.left:
        warnings.warn(
            f"There was no time for {sizes.m:,} features of {n:,} rows. The exact GP that knows {len(known.x)} rows is "
            f"what is returned. {MORE_TIME}",
            ConvergenceWarning,
            stacklevel=4,
        )
        return Trained(known)
    posterior = _solved(task, Rows(x[:kept], Y[:kept], weight[:kept]), x[kept:], spectral(kernel), noise)
    posterior, unseen = replace(posterior, likelihood=noise), None
    record: Record = {"phase": "features", "iteration": 1, "seconds": time.perf_counter() - began}
    if sizes.held_out >= FEW:
        posterior, found = watched(posterior, noise, Rows(x[kept:], Y[kept:], weight[kept:]))
        record |= found
        if options.noise != "equal":
            unseen = Unseen(Y[kept:], *posterior.latent(x[kept:]), weight[kept:])
    if task.report is not None:
        told = posterior
        task.report(record, lambda: told)
    return never_worse(Trained(posterior, [record], 1, unseen=unseen), known, rows.last(judges(sizes)), MORE_TIME)


def least_seconds(task: Task, x: Float[Tensor, "n d"], kernel: SpectralKernel) -> float:
    """Of one pass, the draws before it and the weights after it, by the time that a few features take."""
    m, draws = min(_TIMED, task.sizes.m), x.new_zeros(len(x), task.rows.Y.shape[1] + task.sizes.draws)
    few = Features.of(Fourier(kernel, m, seed=task.options.seed), x, m, USUAL.precision)
    seconds = 0.0
    for _ in range(2):  # the first may compile
        began = time.perf_counter()
        few.gram(draws)
        seconds = time.perf_counter() - began
    return _LEAST_PASSES * seconds * task.sizes.m / m


def _solved(
    task: Task, rows: Rows, unseen: Float[Tensor, "h d"], kernel: SpectralKernel, noise: Gaussian
) -> FourierWeights:
    options, sizes = task.options, task.sizes
    some = distinct(rows.x, torch.arange(rows.n), sizes.support_points).to(rows.x.device)
    return feature_posterior.solve(
        Fourier(kernel, sizes.m, seed=options.seed),
        feature_posterior.Seen(rows.x, rows.Y, noise.noise_variance / rows.weight),
        rows.x[some],
        unseen,
        sizes.draws,
        options.seed,
        Descent(sizes.batch_features // 2 * 2, options.max_iter or 100, _RESIDUAL, halt=_InTime(task.halt)),
    )


class _InTime:
    """Asked after every pass: ends before one more, and the one that makes weights of it, would be too late."""

    def __init__(self, halt: Halt) -> None:
        self._halt, self._last = halt, time.monotonic()

    def __call__(self) -> bool:
        took, self._last = time.monotonic() - self._last, time.monotonic()
        return self._halt() or self._halt.left < 2 * took
