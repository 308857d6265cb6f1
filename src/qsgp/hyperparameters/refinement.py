"""Hyperparameters from more rows than a Cholesky factor can take: ascent on the evidence while its systems are solved.

Every block of rows visited solves its equations at the current hyperparameters and gives one stochastic slope
(`evidence.slopes`); nothing starts anew, since a small step leaves the solution nearly right. The prior draws behind
the trace are functions of the hyperparameters with fixed random numbers, so they move smoothly too.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.hyperparameters.prior import is_lengthscale, log_density_of_lengthscale
from qsgp.hyperparameters.slopes import slopes
from qsgp.interfaces import Parameters, SpectralKernel
from qsgp.paper.optimisers import Moments, adam
from qsgp.solvers.dual import shuffled, spectral
from qsgp.solvers.pathwise import noise_draws, prior_draws
from qsgp.solvers.system import System

_DRAWS = 8
_WARM = 2  # epochs before the first step: slopes of an unsolved system mislead


@dataclass(frozen=True)
class Ascent:
    """Epochs over all rows, ``block`` of them at a time, with steps of Adam that begin at ``rate``."""

    epochs: int
    block: int
    rate: float = 0.05
    seed: int = 0


def refine(
    kernel: SpectralKernel,
    noise_variance: Float[Tensor, ""],
    rows: Rows,
    ascent: Ascent,
    *,
    halt: Callable[[], bool] = lambda: False,
    tell: Callable[[dict[str, Any]], None] = lambda record: None,
) -> tuple[SpectralKernel, Float[Tensor, ""]]:
    """Kernel and noise variance of higher evidence; Adam with a rate that falls to 0 over ``epochs``.

    The mean of the second half of the path is returned: single slopes are noisy. Ended early by ``halt``, what has been
    reached is. Cost of an epoch: n^2 kernel values with (2 d + 1) (o + 8) columns, and n block^2.
    """
    (x, Y, weight), outputs, n, began = rows, rows.Y.shape[1], rows.n, time.perf_counter()
    epochs, block, seed = ascent.epochs, ascent.block, ascent.seed
    sign = torch.tensor([1.0] * outputs + [-outputs / _DRAWS] * _DRAWS).to(x)
    e = noise_draws(n, _DRAWS, seed, x)
    theta: Parameters = {**kernel.parameters(), "log_noise_variance": noise_variance.log()}
    moments = {name: Moments(torch.zeros_like(value), torch.zeros_like(value)) for name, value in theta.items()}
    system = System(kernel, x, (noise_variance / weight)[:, None], x.new_zeros(n, outputs + _DRAWS))
    steps, t = epochs * -(-n // block), 0
    path: list[Parameters] = []
    for epoch in range(_WARM + epochs):
        for some in shuffled(n, block, seed * 1_000_003 + epoch, x.device):
            own = system.noise[some]
            draws = prior_draws(system.kernel, x[some], _DRAWS, seed) + own.sqrt() * e[some]
            system.visit(system.block(some), torch.cat([Y[some], draws], 1))
            if halt():
                break
            if epoch < _WARM:
                continue
            slope = slopes(system.kernel, x, system.A, sign, system.noise[:, 0], some)
            for name in filter(is_lengthscale, theta):
                slope[name] += _prior_slope(theta[name])
            t += 1
            for name, value in theta.items():
                now = ascent.rate * (1 - (t - 1) / steps)
                theta[name], moments[name] = adam(value, moments[name], -slope[name], now, t, (0.9, 0.99))
            path.append(dict(theta))
            system.kernel = at(kernel, theta)
            system.noise = (theta["log_noise_variance"].exp() / weight)[:, None]
        if halt():
            break
        tell({"phase": "hyperparameters", "iteration": epoch + 1, "seconds": time.perf_counter() - began})
    late = path[len(path) // 2 :] or [theta]
    mean = {name: torch.stack([point[name] for point in late]).mean(0) for name in theta}
    return at(kernel, mean), mean["log_noise_variance"].exp()


def at(kernel: SpectralKernel, theta: Parameters) -> SpectralKernel:
    return spectral(kernel.with_parameters({name: theta[name] for name in kernel.parameters()}))


def _prior_slope(log_lengthscale: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    return torch.func.grad(log_density_of_lengthscale)(log_lengthscale)
