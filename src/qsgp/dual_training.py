"""Training by the dual: the GP's mean and posterior draws by blocks of rows, watched on rows held out.

Each block solved overfits its own rows until the others answer; the mean of A over the visits of an epoch does not, and
is several epochs ahead of the last A. A slice of rows is held out meanwhile; its error says when predictions have
settled, and it joins the others in the last epoch. Posterior draws are further columns of the same system (`pathwise`);
after a third of the time the mean goes on alone, whose epochs take little more than half as long.
Sites that are not Gaussian are tightened as their rows are visited (`row_sites`).
"""

import math
import time
import warnings
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp import many_inputs
from qsgp.defaults import distinct
from qsgp.dual import Ahead, System, relaxation, shuffled, spectral
from qsgp.held_out import watched
from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.interrupt import Halt
from qsgp.lengthscale_trend import MANY_MORE, followed
from qsgp.likelihoods import Gaussian
from qsgp.options import Options, Sizes
from qsgp.posteriors import KernelFunctionsAtRows
from qsgp.row_sites import RowSites
from qsgp.spread import Spread
from qsgp.trained import Record, Report, Trained

_EPOCHS = 100
_SETTLED = 0.003  # relative change of the held-out error, and absolute change of its density, over three epochs
_SETTLED_CLASSES = 0.01  # relative change of the held-out density: near 0 an absolute one would say nothing
_RESIDUAL = 0.003  # |R - (K + D) A| / |R|: nothing more to find
_WORSE = 0.5  # nat of held-out density: no noise of single epochs
_DIVERGED = 3.0  # times the least residual so far
_ROUNDING = 3e-7  # of a kernel value in float32 products; of n rows it looks like a noise of sqrt(n) times that
_TREND_TIME = 0.25  # of the time after the hyperparameters, at most, for the trend of lengthscales
_DRAWS_TIME = 1 / 3  # of the time after the hyperparameters, at most, for draws beside the mean
_DRAWS_EPOCHS = 12  # and epochs
_DOUBLE_ROWS = 200_000  # that a GPU has time for in float64


def train_dual(
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
    """Epochs over random blocks of rows until held-out predictions settle or time is up."""
    dtype, floor = resolution(kernel, likelihood, options, sizes.dual_rows)

    def put(tensor: Tensor) -> Tensor:
        return tensor.to(options.device, dtype)

    kernel = kernel.with_parameters({name: put(value) for name, value in kernel.parameters().items()})
    assert isinstance(kernel, SpectralKernel)
    likelihood = likelihood.with_parameters({name: put(value) for name, value in likelihood.parameters().items()})
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(options.seed))[: sizes.dual_rows]
    x, Y, weight = (put(part[order]) for part in (x, Y, weight))
    n, outputs, kept = len(x), Y.shape[1], len(x) - sizes.held_out
    held_out = (x[kept:], Y[kept:], weight[kept:])
    support = distinct(x[:kept], torch.arange(kept), sizes.variance_points).to(x.device)
    began = time.perf_counter()
    fixed, many, history = isinstance(likelihood, Gaussian), kept / sizes.block, list[Record]()

    many_more = n >= MANY_MORE * sizes.learn_most and x.shape[1] <= many_inputs.MANY
    if isinstance(likelihood, Gaussian) and options.learn_hyperparameters and many_more:
        noise = (likelihood.noise_variance / weight[:, None]).clamp(min=floor)
        kernel, trials = followed(
            kernel,
            likelihood,
            (x[:kept], Y[:kept], weight[:kept]),
            noise,
            learned=(sizes.learn_points, sizes.learn_most),
            block=sizes.block,
            seed=options.seed,
            halt=Halt(halt.pressed, _TREND_TIME * halt.left),
        )
        for number, trial in enumerate(trials):
            told = {"phase": "lengthscales", "iteration": number + 1, "seconds": time.perf_counter() - began}
            history.append(told | {"rmse": trial.rmse})
    sites = RowSites.build(kernel, likelihood, x, Y, weight, sizes.draws, options.seed)
    sites.noise.clamp_(min=floor)
    share = len(support) / float(weight[:kept].sum())

    def with_support(x: Tensor, A: Tensor) -> KernelFunctionsAtRows:
        spread = Spread.build(kernel, x[support], share * sites.unit_noise[support])
        return KernelFunctionsAtRows(kernel, likelihood, x, A, outputs, options.seed, spread)

    columns = outputs + sites.prior.shape[1]
    posterior = with_support(x[:kept], x.new_zeros(kept, columns))
    trained, draws_end = Trained(posterior, history), (1 - _DRAWS_TIME) * halt.left

    def begun() -> System:
        ahead = Ahead.wanted(posterior.A, many) if fixed else None
        return System(kernel, x[:kept], sites.noise[:kept], torch.zeros_like(posterior.A), sites.group, ahead)

    system = begun()

    def visit(rows: Tensor, relax: float) -> Float[Tensor, " two"]:
        """Squares of the residual and of the right-hand side."""
        f = system.values(rows)
        untold = not sites.draws and not isinstance(likelihood, Gaussian)
        R = sites.right(rows, f, posterior.spread.support(system.x[rows]).to(f) if untold else None)
        residual = system.solve(rows, f, R, relax)
        return torch.stack([part[:, :outputs].square().sum() for part in (residual, R)])

    def epoch(number: int) -> tuple[float | None, Tensor]:
        """Visit all rows of the system once; the residual, None when cut short, and the mean of A over the visits."""
        squares, total = [], torch.zeros_like(system.A)
        blocks = shuffled(len(system.x), sizes.block, options.seed * 1_000_003 + number, x.device)
        for rows in blocks:
            squares.append(visit(rows, relaxation(system, many)))
            total += system.A
            if halt():
                break
        whole = len(squares) == len(blocks)
        if system.ahead is not None:
            mean = system.ahead.mean.to(system.A.dtype, copy=True)
        else:  # of a part of an epoch less than half says little more than its own rows
            enough = 2 * len(squares) >= len(blocks) or number == 0
            mean = total / len(squares) if enough else posterior.A[:, : total.shape[1]]
        left, all_ = torch.stack(squares).sum(0).sqrt().tolist()
        return left / max(all_, 1e-30) if whole else None, mean

    least, best = 1.0, math.inf
    for number in range(_EPOCHS):
        started = time.perf_counter()
        residual, A = epoch(number)
        took = time.perf_counter() - started
        if fixed and residual is not None and not residual < _DIVERGED * least and not halt():
            # Rounding of the products outweighs the noise: begin again with more of it.
            floor = max(10 * floor, _rounding(kernel, n))
            sites.noise.clamp_(min=floor)
            system, least = begun(), 1.0
            continue
        least = least if residual is None else min(least, residual)
        A = torch.cat([A, posterior.A[:, A.shape[1] :]], 1)  # draws that are no longer solved for
        posterior = replace(posterior, A=A) if fixed else with_support(x[:kept], A)
        posterior, found = watched(posterior, likelihood, *held_out)
        trained.iterations = number + 1
        if found["mnlp"] < best + _WORSE:  # an epoch that was cut short may have gone astray
            trained.posterior, best = posterior, min(best, found["mnlp"])
        phase = "mean" if system.A.shape[1] == outputs else "mean and draws"
        record: Record = {"phase": phase, "iteration": number + 1, "seconds": time.perf_counter() - began}
        # an epoch cut short has no residual; NaN could not be stored
        record |= {} if residual is None else {"residual": residual}
        record |= found
        trained.history.append(record)
        stop = bool(report and report(record, lambda: trained.posterior))
        if halt.pressed.is_set():
            warnings.warn(f"Interrupted in epoch {number + 1}: the model is fitted as far as that.", stacklevel=2)
        if (
            stop
            or halt.pressed.is_set()
            or residual is None
            or residual < _RESIDUAL
            or (_settled(trained.history) and (system.ahead is None or number + 1 >= system.ahead.epochs))
            or halt.left < (2 if system.ahead is None else 1) * took
        ):
            break
        if fixed and (halt.left < draws_end or number + 1 >= _DRAWS_EPOCHS):
            system = system.first(outputs)
    # All rows once more, those held out first; of many blocks they are too few to be worth another epoch.
    if system.ahead is None and not halt() and halt.left > took:
        joined = torch.cat([system.A, system.A.new_zeros(n - kept, system.A.shape[1])])
        system = System(kernel, x, sites.noise, joined, system.group)
        visit(torch.arange(kept, n, device=x.device), 1.0)
        residual, A = epoch(_EPOCHS)
        if residual is not None:
            unsolved = posterior.A[:, A.shape[1] :]
            unsolved = torch.cat([unsolved, unsolved.new_zeros(n - kept, unsolved.shape[1])])
            trained.posterior = replace(posterior, x=x, A=torch.cat([A, unsolved], 1))
    return trained


def resolution(kernel: Kernel, likelihood: Likelihood, options: Options, rows: int) -> tuple[torch.dtype, float]:
    """In which precision ``rows`` rows are solved, and the least noise that keeps that stable.

    Products on tensor cores round kernel values; a noise smaller than that would make K + D indefinite, and blocks
    drive each other apart. Float64 has no such limit; where it takes too long, noise is raised for the solution.
    """
    if options.dtype == torch.float64 or not options.device.startswith("cuda") or not isinstance(likelihood, Gaussian):
        return options.dtype, 0.0
    floor = _rounding(kernel, rows)
    too_small = float(likelihood.noise_variance) < floor
    return (torch.float64, 0.0) if too_small and rows <= _DOUBLE_ROWS else (options.dtype, floor)


def _rounding(kernel: Kernel, rows: int) -> float:
    return _ROUNDING * math.sqrt(rows) * float(spectral(kernel).variance)


def _settled(history: list[Record]) -> bool:
    """Over the last third of the epochs, three at least: two may agree by luck, and many small steps lead far."""
    epochs = [record for record in history if "mnlp" in record]
    if len(epochs) < 3:
        return False
    last = epochs[-max(3, len(epochs) // 3) :]
    mnlp = [record["mnlp"] for record in last]
    if "error" in last[-1]:
        return bool(max(mnlp) - min(mnlp) < _SETTLED_CLASSES * mnlp[-1])
    rmse = [record["rmse"] for record in last]
    return bool(max(rmse) - min(rmse) < _SETTLED * rmse[-1] and max(mnlp) - min(mnlp) < _SETTLED)
