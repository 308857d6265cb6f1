"""Training by the dual: the exact GP's mean and posterior draws by blocks of rows, watched on rows held out.

Each block solved overfits its own rows until the others answer; the mean of A over the visits of an epoch does not, and
is several epochs ahead of the last A. A slice of rows is held out meanwhile; its error says when predictions have
settled, and it joins the others in the last epoch. Posterior draws are further columns of the same system (`pathwise`).
"""

import time
import warnings
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp import metrics
from qsgp.defaults import distinct
from qsgp.dual import System, shuffled
from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.interrupt import Halt
from qsgp.likelihoods import Gaussian
from qsgp.options import Options, Sizes
from qsgp.pathwise import blended, fit_blend, noise_draws, prior_draws
from qsgp.posteriors import KernelFunctionsAtRows
from qsgp.trained import Record, Report, Trained

_EPOCHS = 40
_RELAX = 1.4
_SETTLED = 0.003  # relative change of the held-out error, and absolute change of its density, from epoch to epoch
_RESIDUAL = 0.003  # |Y - (K + D) A| / |Y|: nothing more to find


def train_dual(
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n o"],
    weight: Float[Tensor, " n"],
    kernel: Kernel,
    sites: Likelihood,
    options: Options,
    sizes: Sizes,
    halt: Halt,
    report: Report | None,
) -> Trained:
    """Epochs over random blocks of rows until held-out predictions settle or time is up."""

    def put(tensor: Tensor) -> Tensor:
        return tensor.to(options.device, options.dtype)

    assert isinstance(sites, Gaussian)
    kernel = kernel.with_parameters({name: put(value) for name, value in kernel.parameters().items()})
    assert isinstance(kernel, SpectralKernel)
    noise = Gaussian(put(sites.noise_variance))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(options.seed))[: sizes.dual_rows]
    x, Y, weight = (put(part[order]) for part in (x, Y, weight))
    n, outputs, kept = len(x), Y.shape[1], len(x) - sizes.held_out
    own = noise.noise_variance / weight
    R = Y
    if sizes.draws:
        draws = prior_draws(kernel, x, sizes.draws, options.seed)
        R = torch.cat([Y, draws + own.sqrt()[:, None] * noise_draws(n, sizes.draws, options.seed, x)], 1)
    rows = distinct(x[:kept], torch.arange(kept), sizes.variance_points).to(x.device)
    share = len(rows) / float(weight[:kept].sum()) * noise.noise_variance
    posterior = KernelFunctionsAtRows.build(
        kernel, noise, x[:kept], torch.zeros_like(R[:kept]), x[rows], share, outputs, options.seed
    )
    trained, began = Trained(posterior), time.perf_counter()
    system = System(kernel, x[:kept], own[:kept], posterior.A.clone())
    held, size = x[kept:], max(float(Y[:kept].norm()), 1e-30)

    def epoch(number: int) -> tuple[float | None, Tensor]:
        """Visit all rows of the system once; the residual, None when cut short, and the mean of A over the visits."""
        squares, total = [], torch.zeros_like(system.A)
        blocks = shuffled(len(system.x), sizes.block, options.seed * 1_000_003 + number, x.device)
        for rows in blocks:
            relax = _RELAX if len(blocks) > 1 else 1.0
            squares.append(system.visit(rows, R[rows], relax)[:, :outputs].square().sum())
            total += system.A
            if halt():
                break
        whole = len(squares) == len(blocks)
        # Of a part of an epoch less than half says little more than its own rows.
        mean = total / len(squares) if 2 * len(squares) >= len(blocks) or number == 0 else posterior.A
        return float(torch.stack(squares).sum().sqrt()) / size if whole else None, mean

    for number in range(_EPOCHS):
        started = time.perf_counter()
        residual, A = epoch(number)
        took = time.perf_counter() - started
        posterior = replace(posterior, A=A)
        mean, variance, blend = _watch(posterior, held)
        posterior = replace(posterior, blend=blend)
        trained.posterior, trained.iterations = posterior, number + 1
        record: Record = {"phase": "mean", "iteration": number + 1, "seconds": time.perf_counter() - began}
        # an epoch cut short has no residual; NaN could not be stored
        record |= {} if residual is None else {"residual": residual}
        record |= _scores(Y[kept:], mean, variance + own[kept:].to(variance))
        trained.history.append(record)
        stop = bool(report and report(record, lambda: trained.posterior))
        if halt.pressed.is_set():
            warnings.warn(f"Interrupted in epoch {number + 1}: the model is fitted as far as that.", stacklevel=2)
        if (
            stop
            or halt.pressed.is_set()
            or residual is None
            or residual < _RESIDUAL
            or _settled(trained.history)
            or halt.left < 2 * took
        ):
            break
    if not halt() and halt.left > took:  # all rows once more, those held out first
        system = System(kernel, x, own, torch.cat([system.A, torch.zeros_like(R[kept:])]))
        last = torch.arange(kept, n, device=x.device)
        system.visit(last, R[last])
        residual, A = epoch(_EPOCHS)
        if residual is not None:
            trained.posterior = replace(posterior, x=x, A=A)
    return trained


def _watch(
    posterior: KernelFunctionsAtRows, x: Float[Tensor, "h d"]
) -> tuple[Float[Tensor, "h o"], Float[Tensor, " h"], Float[Tensor, " two"]]:
    """Mean and variance at rows held out, and the blend of variances that fits there."""
    mean, spread, support = posterior.pieces(x)
    blend = fit_blend(spread, support) if spread.shape[1] else posterior.blend
    return mean, blended(spread, support, blend), blend


def _scores(Y: Float[Tensor, "h o"], mean: Float[Tensor, "h o"], variance: Float[Tensor, " h"]) -> Record:
    """Of standardised targets, over all outputs."""
    y, mean, variance = (part.double().expand_as(Y).flatten() for part in (Y, mean, variance[:, None]))
    return {"rmse": metrics.rmse(y, mean), "mnlp": metrics.mnlp(metrics.gaussian_log_density(y, mean, variance))}


def _settled(history: list[Record]) -> bool:
    if len(history) < 2:
        return False
    before, now = history[-2:]
    return abs(now["rmse"] - before["rmse"]) < _SETTLED * now["rmse"] and abs(now["mnlp"] - before["mnlp"]) < _SETTLED
