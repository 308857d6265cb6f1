"""Identifiers with many levels: what is learned of their effects before a road is taken, and after it.

Variances of effects come from all rows (`hyperparameters.effects`), kernels from some rows whose effects are taken off.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.data.rows import Rows
from qsgp.hyperparameters.effects import Effects, First, estimated
from qsgp.hyperparameters.prior import lengthscale_prior
from qsgp.hyperparameters.small_tables import NOISE
from qsgp.interfaces import Kernel, Likelihood, Numeric, SpectralKernel
from qsgp.interrupt import Halt
from qsgp.kernels import Matern32, WithLevels
from qsgp.kernels.levels import looked_up
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import Gaussian
from qsgp.posteriors.posteriors import WithEffects
from qsgp.solvers.closed_form import Effort, fit_hyperparameters
from qsgp.solvers.dual import spectral
from qsgp.solvers.mixed import Sums, left_open
from qsgp.training.learning import learn
from qsgp.training.options import PRODUCTS, Options, Sizes
from qsgp.training.sizes import CLOSED_FORM
from qsgp.training.task import Task
from qsgp.training.trained import Record, Trained

_GUESS = 0.4  # of the time that is left, at most, for the variances of effects
_FEW_FUNCTIONS, _FUNCTIONS = 64, 256  # that stand for the smooth function while effects are estimated
_DRAWS = 16
_EXACT = Effort(30, 1e-5)
_SEARCH = 0.5  # of the time that is left, for the evidence of function and effects at once
_LEAST_SHARE = 0.2  # of the noise that effects of levels with few rows can leave
_SURELY_LESS = 0.7  # noise than all rows tell beside few functions: these are too few then
_LOUDER = 4.0  # few functions want more variance than the kernel that they stand for

Road = Callable[[Task, Kernel, Likelihood], Trained]


def learned(
    rows: Rows, options: Options, sizes: Sizes, halt: Halt, units: Float[Tensor, " d"] | None
) -> tuple[Kernel, Likelihood]:
    """Kernel and noise of the function of the numbers: of what effects leave of the targets, these being estimated
    beside a first guess of the function."""
    check(rows, options)
    numbers, codes = apart(rows, options)
    d = numbers.x.shape[1]
    rough = Matern32(torch.full((d,), d**0.5, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    first = Halt(halt.pressed, _GUESS * halt.left)
    guess = estimated(_sums(rough, numbers, codes, options.seed, _FEW_FUNCTIONS), halt=first)
    left = numbers.Y - looked_up(guess.tables, codes).to(numbers.Y)
    own = None if units is None else units[:d]
    smooth, noise = learn(numbers._replace(Y=left), replace(options, levels=()), sizes, halt, own)
    return WithLevels(spectral(smooth), torch.tensor(guess.variances, dtype=torch.float64)), noise


def train(task: Task, kernel: Kernel, noise: Likelihood, road: Road) -> Trained:
    """The road of the plan for the function of the numbers, and effects beside it; in closed form the two at once.

    ``kernel`` is that of `learned`, or of a run that goes on, which has stored that of the numbers alone. ``noise`` is
    what is left of it where effects have taken their share.
    """
    assert isinstance(noise, Numeric) and noise.noise_variance is not None
    numbers, codes = apart(task.rows, task.options)
    smooth, first = _begun(kernel, noise)
    halt = Halt(task.halt.pressed, _GUESS * task.halt.left)
    effects = estimated(_sums(smooth, numbers, codes, task.options.seed), first, halt)
    both = WithLevels(smooth, torch.tensor(effects.variances, dtype=torch.float64))
    if task.sizes.road == CLOSED_FORM:
        return _at_once(task, both, noise.of_noise(torch.tensor(effects.noise, dtype=torch.float64)), road)
    share = max(1 - effects.determined, _LEAST_SHARE)
    searched, by_rows = float(noise.noise_variance), share * effects.noise
    remaining = torch.tensor(searched if searched < _SURELY_LESS * by_rows else by_rows, dtype=torch.float64)
    return Beside(task, both, effects, share).trained(noise.of_noise(remaining), road)


def _begun(kernel: Kernel, noise: Likelihood) -> tuple[SpectralKernel, First]:
    if not isinstance(kernel, WithLevels):
        smooth = spectral(kernel)
        return smooth, First(_LOUDER * float(smooth.variance))
    functions = _LOUDER * float(kernel.smooth.variance)
    return kernel.smooth, First(functions, tuple(kernel.effects.tolist()), float(noise.noise_variance or 0))


def _at_once(task: Task, kernel: WithLevels, noise: Numeric, road: Road) -> Trained:
    """The exact GP of the sum, whose evidence all of its rows can tell."""
    if task.options.learn_hyperparameters and not task.halt():
        rows = task.rows.to("cpu", torch.float64)
        halt = Halt(task.halt.pressed, _SEARCH * task.halt.left)
        kernel, noise, _ = fit_hyperparameters(kernel, noise, rows, _EXACT, prior=_prior, halt=halt)
    return road(replace(task, rows=with_noise_of_unknown(task.rows, kernel, noise)), kernel, noise)


def _prior(kernel: Kernel, likelihood: Likelihood) -> Tensor:
    """Of lengthscales, and of noise and effects, of which a few rows would take all or none."""
    variances = [*(value.log() for value in (likelihood.noise_variance,) if value is not None)]
    variances += kernel.effects.log() if isinstance(kernel, WithLevels) else []
    middle, deviation = NOISE
    return lengthscale_prior(kernel) - 0.5 * ((torch.stack(variances) - middle) / deviation).square().sum()


@dataclass(frozen=True)
class Beside:
    """A road for the function, on targets without the effects that all rows ask for, and the effects then."""

    task: Task
    kernel: WithLevels
    effects: Effects
    share: float  # of the noise that is left in these targets

    def trained(self, remaining: Numeric, road: Road) -> Trained:
        numbers, codes = apart(self.task.rows, self.task.options)
        target = numbers.Y - looked_up(self.effects.tables, codes).to(numbers.Y)
        sites = Gaussian(torch.tensor(self.effects.noise, dtype=torch.float64))
        weight = with_noise_of_unknown(self.task.rows, self.kernel, sites).weight.cpu()
        left = left_open(self.kernel, self.task.rows.x.cpu(), sites.noise_variance / weight)
        report, told = self.task.report, None
        if report is not None:
            given = report

            def told(record: Record, made: Callable[[], Any]) -> bool:
                return given(record, lambda: self._with(made(), left))

        options = replace(self.task.options, levels=())
        task = replace(self.task, rows=Rows(numbers.x, target, weight), options=options, report=told)
        trained = road(task, self.kernel.smooth, remaining)
        return replace(trained, posterior=self._with(trained.posterior, left))

    def _with(self, posterior: Any, left: Float64[Tensor, "q levels"]) -> WithEffects:
        variance, tables = posterior.kernel.variance, self.effects.tables.to(posterior.kernel.variance.device)
        effects = self.kernel.effects.to(variance)
        return WithEffects(posterior, effects, tables, left.to(variance.device), self.share)


def check(rows: Rows, options: Options) -> None:
    """What can be said before anything is learned."""
    d, q = rows.x.shape[1], len(options.levels)
    if options.levels != tuple(range(d - q, d)):
        raise ValueError(f"Expected identifiers as the last of {d} inputs, got {options.levels}. Reorder the columns.")
    if q == d:
        raise ValueError("Expected an input beside identifiers, got none. Add a column, if only of zeros.")
    if LIKELIHOODS[options.likelihood].labels:
        raise ValueError(
            "Expected numbers as targets beside identifiers with many levels, got classes. Leave the identifiers out, "
            "or make categories of few levels of them."
        )
    codes = rows.x[:, d - q :]
    if bool((codes != codes.round()).any()) or bool((codes < -1).any()):
        raise ValueError("Expected levels as whole numbers from 0, or -1 where there is none. Encode them first.")


def apart(rows: Rows, options: Options) -> tuple[Rows, Int[Tensor, "n q"]]:
    """The rows with their numbers alone, and the levels of their identifiers; on the CPU."""
    q = len(options.levels)
    numbers = Rows(rows.x[:, :-q].contiguous(), rows.Y, rows.weight).to("cpu", rows.x.dtype)
    return numbers, rows.x[:, -q:].long().cpu()


def _sums(kernel: Kernel, numbers: Rows, codes: Int[Tensor, "n q"], seed: int, most: int = _FUNCTIONS) -> Sums:
    """Of a constant, Fourier features of ``kernel`` and levels, over the rows whose levels are all known."""
    known = (codes >= 0).all(1)
    if known.any() and not known.all():
        numbers, codes = numbers.take(torch.nonzero(known)[:, 0]), codes[known]
    levels = int(codes.amax(0).clamp_min(0).sum()) + codes.shape[1]
    m = max(16, min(most, PRODUCTS // levels, numbers.n // 4) // 2 * 2)
    return Sums.of(functions(kernel, m, seed), numbers, codes, _DRAWS, seed)


def functions(kernel: Any, m: int, seed: int) -> Callable[[Tensor], Tensor]:
    """1 and Fourier features, whose variance is 1 in all."""
    basis = Fourier(kernel.unit(), m, seed=seed)
    columns = basis.columns(torch.arange(m))
    return lambda x: torch.cat([x.new_ones(len(x), 1), basis.features(x, columns)], 1)


def with_noise_of_unknown(rows: Rows, kernel: WithLevels, likelihood: Likelihood) -> Rows:
    """Rows whose level is not known count for less: its effect is noise of their own."""
    noise = likelihood.noise_variance
    assert noise is not None
    more = (kernel.codes(rows.x) < 0).to(rows.weight) @ kernel.effects.to(rows.weight)
    return rows._replace(weight=rows.weight / (1 + rows.weight * more / noise.to(rows.weight)))
