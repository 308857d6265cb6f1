"""Where a search for hyperparameters begins: kernels with their first lengthscales, and the first noise."""

import math
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp.data.rows import Rows, some_rows
from qsgp.hyperparameters import many_inputs
from qsgp.hyperparameters.found import plain
from qsgp.hyperparameters.screening import first_lengthscales
from qsgp.interfaces import Kernel
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.kernels import SpectralSum, Tied, hyperparameters

COMPARED_POINTS = 3000  # rows on which kernels are compared at last, when more than 1,000 are learned from
_BULK = 10_000  # rows that tell whether outliers have stretched the scale


def first_kernels(x: Float[Tensor, "n d"], names: tuple[str, ...], units: Float[Tensor, " d"] | None) -> list[Kernel]:
    """Where searches begin: a lengthscale for each input, or for very many inputs common ones."""
    d = x.shape[1]
    lengthscale, variance = hyperparameters(math.sqrt(d) * bulk(x), 1.0, d=d, dtype=torch.float64)
    if d > many_inputs.MANY:
        return [*many_inputs.tied_kernels(list(names), x[:COMPARED_POINTS], lengthscale, units)]
    return [KERNELS[name](lengthscale, variance) for name in names]


def unlearned(kernels: list[Kernel], sum_of: tuple[str, ...]) -> Kernel:
    """The first of them, or the sum that is asked for, as nothing has been learned."""
    if not sum_of:
        return kernels[0]
    named: dict[str, Any] = {getattr(plain(kernel), "name", ""): plain(kernel) for kernel in kernels}
    share = -math.log(len(sum_of))
    terms = [named[name].with_parameters({"log_variance": named[name].variance.log() + share}) for name in sum_of]
    return SpectralSum(tuple(terms))


def screened(kernels: list[Kernel], rows: Rows, seed: int) -> list[Kernel]:
    """These kernels with the lengthscales that single inputs ask for; none where they all ask for the same."""
    if isinstance(kernels[0], Tied):
        return []
    some = rows.take(some_rows(rows.n, COMPARED_POINTS, seed))
    lengthscale = first_lengthscales(some.to(some.x.device, torch.float64))
    if lengthscale is None:
        return []
    return [kernel.with_parameters({"log_lengthscale": lengthscale.cpu().log()}) for kernel in kernels]


def bulk(x: Float[Tensor, "n d"]) -> Float64[Tensor, " d"]:
    """1 for each input, or half the width of its middle two thirds where outliers have stretched the scale: searches
    that begin a hundred times too wide take the function for noise."""
    low, high = torch.quantile(x[:_BULK].double(), torch.tensor([0.16, 0.84], dtype=torch.float64, device=x.device), 0)
    width = (high - low) / 2
    return torch.where((width > 0) & (width < 0.2), width, 1.0).cpu()
