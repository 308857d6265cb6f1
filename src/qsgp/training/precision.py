"""In which precision rows are solved, and the least noise that keeps the solution stable."""

import math
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.kernels import ROUGH, SpectralSum
from qsgp.solvers.dual import spectral
from qsgp.training.options import Options

P = TypeVar("P", Kernel, Likelihood)

# Of a kernel value in products; of n rows it looks like a noise of sqrt(n) times that. On a CPU, where float64 takes
# little longer, float32 must also leave the mean more digits than the noise hides: k(x, X) A adds up numbers that are
# 1 / sqrt(noise) as large as f, so errors of 1e-7 each became a tenth of the noise at noise / variance = 3e-5.
_ROUNDING, _ROUNDING_ON_CPU, _ROUNDING_DOUBLE = 3e-7, 1e-6, 1e-13
_ROUGH_ROWS, _NEIGHBOURS, _SHARED = 300, 20_000, 0.25  # rows and neighbours looked at; what more neighbours leave
DOUBLE_ROWS = 200_000  # that a GPU has time for in float64


def resolution(
    kernel: Kernel, likelihood: Likelihood, options: Options, x: Float[Tensor, "n d"]
) -> tuple[torch.dtype, float]:
    """In which precision rows ``x`` are solved, and the least noise that keeps that stable.

    Products in float32 round kernel values; a noise smaller than that would make K + D indefinite, and blocks drive
    each other apart. Float64 has no such limit within reason. On a GPU it takes too long for very many rows: there the
    noise is raised for the solution. What a rough kernel leaves open between neighbouring rows has the effect of noise.
    """
    rows, cuda = len(x), options.device.startswith("cuda")
    floor = rounding(kernel, rows, options.dtype, cuda)
    if options.dtype == torch.float64 or _noise(likelihood) >= floor:
        return options.dtype, floor
    if (roughness := open_between_rows(kernel, x)) + _noise(likelihood) >= floor:
        return options.dtype, max(floor - roughness, 0.0)
    if cuda and rows > DOUBLE_ROWS:
        return options.dtype, floor
    return torch.float64, rounding(kernel, rows, torch.float64, cuda)


@torch.no_grad()
def open_between_rows(kernel: Kernel, x: Float[Tensor, "n d"]) -> float:
    """The variance that the rough terms of a kernel have at a row whose neighbours are known, for three rows in four.

    A kernel with an edge at distance 0 has no small eigenvalues but those of rows that lie close together. The nearest
    row tells 1 - rho^2 of it, and others a part of the rest.
    """
    terms = kernel.kernels if isinstance(kernel, SpectralSum) else (spectral(kernel),)
    some, others = x[:_ROUGH_ROWS].double(), x[:_NEIGHBOURS].double()
    left = 0.0
    for term in map(_in_double, terms):
        if term.name in ROUGH and len(others) > 1:
            rho = term(some, others.to(some)) / term.variance
            rho.diagonal().zero_()
            left += _SHARED * float(term.variance * torch.quantile(1 - rho.amax(1).square(), 0.25))
    return left


def _in_double(kernel: Kernel) -> SpectralKernel:
    return spectral(put(kernel, torch.empty(0, dtype=torch.float64)))


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
