"""optimizer="preconditioned": a Fourier model solved on all rows and features, preconditioned from support points.

Conjugate gradients on the dual with the residual kept at all rows (`feature_dual`) were ahead of sampled steps wherever
a pass over n m feature values can be afforded; this is that road from the estimators. Some rows are held out: they say
how the variances of draws and support points are blended, and what noise predictions have.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.data.rows import Rows, distinct
from qsgp.interfaces import Kernel, Likelihood
from qsgp.interrupt import Halt
from qsgp.likelihoods import Gaussian
from qsgp.posteriors import solved_features as feature_posterior
from qsgp.posteriors.spread import FEW
from qsgp.solvers.dual import spectral
from qsgp.training.held_out import watched
from qsgp.training.options import Options, Sizes
from qsgp.training.safeguard import MORE_TIME, Shuffled, exact_of_some, judges, never_worse
from qsgp.training.trained import Record, Report, Trained

_RESIDUAL = 0.01  # relative; at 0.03 the error was within 2 % of the exact one


def train_features(
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n o"],
    weight: Float[Tensor, " n"],
    kernel: Kernel,
    likelihood: Likelihood,
    options: Options,
    sizes: Sizes,
    halt: Halt,
    report: Report | None,
) -> Trained:
    """Passes over all features until the residual is small, time is up or ``max_iter`` of them are made."""

    def put(tensor: Tensor) -> Tensor:
        return tensor.to(options.device, options.dtype)

    assert isinstance(likelihood, Gaussian)
    kernel = kernel.with_parameters({name: put(value) for name, value in kernel.parameters().items()})
    noise = Gaussian(put(likelihood.noise_variance))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(options.seed))
    x, Y, weight = (put(part[order]) for part in (x, Y, weight))
    kept, began = len(x) - sizes.held_out, time.perf_counter()
    rows = Shuffled(Arrays(x, Y, weight), torch.arange(len(x), device=x.device))
    known = exact_of_some(rows, kernel, noise, sizes, halt)
    some = distinct(x[:kept], torch.arange(kept), sizes.support_points).to(x.device)
    posterior = feature_posterior.solve(
        Fourier(spectral(kernel), sizes.m, seed=options.seed),
        x[:kept],
        Y[:kept],
        noise.noise_variance / weight[:kept],
        x[some],
        x[kept:],
        draws=sizes.draws,
        seed=options.seed,
        m_tilde=sizes.batch_features // 2 * 2,
        passes=options.max_iter or 100,
        tolerance=_RESIDUAL,
        halt=_in_time(halt),
    )
    posterior = replace(posterior, likelihood=noise)
    record: Record = {"phase": "features", "iteration": 1, "seconds": time.perf_counter() - began}
    if sizes.held_out >= FEW:
        posterior, found = watched(posterior, noise, Rows(x[kept:], Y[kept:], weight[kept:]))
        record |= found
    if report is not None:
        report(record, lambda: posterior)
    return never_worse(Trained(posterior, [record], 1), known, rows.last(judges(sizes)), MORE_TIME)


def _in_time(halt: Halt) -> Callable[[], bool]:
    """Asked after every pass: ends before one more, and the one that makes weights of it, would be too late."""
    last = time.monotonic()

    def ends() -> bool:
        nonlocal last
        took, last = time.monotonic() - last, time.monotonic()
        return halt() or halt.left < 2 * took

    return ends
