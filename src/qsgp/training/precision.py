"""In which precision rows are solved, and the least noise that keeps the solution stable."""

import math
from typing import TypeVar

import torch
from torch import Tensor

from qsgp.interfaces import Kernel, Likelihood
from qsgp.solvers.dual import spectral
from qsgp.training.options import Options

P = TypeVar("P", Kernel, Likelihood)

# Of a kernel value in products; of n rows it looks like a noise of sqrt(n) times that. On a CPU, where float64 takes
# little longer, float32 must also leave the mean more digits than the noise hides: k(x, X) A adds up numbers that are
# 1 / sqrt(noise) as large as f, so errors of 1e-7 each became a tenth of the noise at noise / variance = 3e-5.
_ROUNDING, _ROUNDING_ON_CPU, _ROUNDING_DOUBLE = 3e-7, 1e-6, 1e-13
DOUBLE_ROWS = 200_000  # that a GPU has time for in float64


def resolution(kernel: Kernel, likelihood: Likelihood, options: Options, rows: int) -> tuple[torch.dtype, float]:
    """In which precision ``rows`` rows are solved, and the least noise that keeps that stable.

    Products in float32 round kernel values; a noise smaller than that would make K + D indefinite, and blocks drive
    each other apart. Float64 has no such limit within reason. On a GPU it takes too long for very many rows: there the
    noise is raised for the solution.
    """
    cuda = options.device.startswith("cuda")
    floor = rounding(kernel, rows, options.dtype, cuda)
    if options.dtype == torch.float64 or _noise(likelihood) >= floor:
        return options.dtype, floor
    if cuda and rows > DOUBLE_ROWS:
        return options.dtype, floor
    return torch.float64, rounding(kernel, rows, torch.float64, cuda)


def rounding(kernel: Kernel, rows: int, dtype: torch.dtype, cuda: bool) -> float:
    """The noise that the rounding of products over so many rows looks like."""
    unit = _ROUNDING_DOUBLE if dtype == torch.float64 else _ROUNDING if cuda else _ROUNDING_ON_CPU
    return unit * math.sqrt(rows) * float(spectral(kernel).variance)


def _noise(likelihood: Likelihood) -> float:
    """The variance that sites have about their f; a logistic label says no more of it than a noise of 4 does."""
    if likelihood.noise_variance is not None:
        return float(likelihood.noise_variance)
    label, zero = torch.ones(1), torch.zeros(1)
    return float(-0.5 / likelihood.quadratic_bound(label, zero).quadratic)


def put(part: P, like: Tensor) -> P:
    """A kernel or likelihood with its parameters beside ``like``."""
    return part.with_parameters({name: value.to(like) for name, value in part.parameters().items()})
