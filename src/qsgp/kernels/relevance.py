"""What a kernel says of single inputs, and what it is times a number, whatever it is made of."""

import math
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from qsgp.kernels.levels import WithLevels
from qsgp.kernels.mapped import Mapped
from qsgp.kernels.spectral_sum import SpectralSum


def metric(kernel: Any) -> Float64[Tensor, "d k"]:
    """M of the distance |(x - z) M|: a column for each direction, the lengthscales in it; of a sum all its terms side
    by side, in the proportion of their variances. An identifier has a direction of its own, as long as the deviation
    of its effects is in that of the function."""
    if isinstance(kernel, WithLevels):
        effects = (kernel.effects / kernel.smooth.variance).detach().double().cpu().sqrt()
        return torch.block_diag(metric(kernel.smooth), torch.diag(effects))
    if isinstance(kernel, SpectralSum):
        shares = [(term.variance / kernel.variance).detach().double().cpu().sqrt() for term in kernel.kernels]
        return torch.cat([share * metric(term) for share, term in zip(shares, kernel.kernels, strict=True)], 1)
    if isinstance(kernel, Mapped):
        return kernel.map.detach().double().cpu() @ metric(kernel.kernel)
    return torch.diag(1 / kernel.lengthscale.detach().double().cpu())


def effective_lengthscales(kernel: Any) -> Float64[Tensor, " d"]:
    """How far each input alone must change to matter; of a plain kernel its lengthscales."""
    plain = not isinstance(kernel, SpectralSum | Mapped | WithLevels)
    return kernel.lengthscale.detach().double().cpu() if plain else 1 / metric(kernel).norm(dim=1).clamp_min(1e-12)


def stretched(kernel: Any, factor: float) -> Any:
    """The kernel times ``factor``."""
    own = kernel.parameters()
    more = {name: value + math.log(factor) for name, value in own.items() if name.endswith("log_variance")}
    return kernel.with_parameters(own | more)


def has_map(kernel: Any) -> bool:
    """Whether a linear map stands in front of the kernel, or of a term of it."""
    kernel = kernel.smooth if isinstance(kernel, WithLevels) else kernel
    terms = kernel.kernels if isinstance(kernel, SpectralSum) else (kernel,)
    return any(isinstance(term, Mapped) for term in terms)


def words(name: str, known: dict[str, type[Any]]) -> str:
    """For people: the words of each term."""
    return " plus ".join(known[term].words for term in name.split("+"))
