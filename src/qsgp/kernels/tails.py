"""Frequencies with heavier tails than a kernel has, and weights that make up for it.

Where many rows are known and noise is small, what they leave open of a smooth function is its high frequencies, of
which a Matern kernel draws one in ten thousand: a variance from some thousand features is off by a factor of two or
five. So every other frequency is drawn as for Matern-1/2. With weight p / q, p the density of the kernel's frequencies
and q of these, the features have the same mean product (the balance heuristic: Veach and Guibas, "Optimally combining
sampling techniques for Monte Carlo rendering", 1995), and no weight is above 2.
"""

import math
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from qsgp.engine.counter_rng import normals
from qsgp.kernels.mapped import Mapped
from qsgp.kernels.spectral_sum import SpectralSum

CAUCHY = 1  # degrees of freedom of Matern-1/2


def heavy_frequencies(
    kernel: Any, seed: int, index: Int[Tensor, " p"]
) -> tuple[Float64[Tensor, "p d"], Float64[Tensor, " p"]]:
    """In the units of ``kernel.frequencies``, whose place they take, and their weights."""
    if isinstance(kernel, Mapped):
        own, weight = heavy_frequencies(kernel.kernel, seed, index)
        return kernel.in_inputs(own), weight
    if isinstance(kernel, SpectralSum):
        each = [heavy_frequencies(term, seed, index) for term in kernel.kernels]
        scales = [term.lengthscale.detach().double() for term in kernel.kernels]
        inputs = [own / scale for scale, (own, _) in zip(scales, each, strict=True)]
        chosen, row = kernel.chosen(seed, index), torch.arange(len(index), device=index.device)
        return torch.stack(inputs)[chosen, row], torch.stack([weight for _, weight in each])[chosen, row]
    own, degrees = kernel.frequencies(seed, index), kernel.degrees
    if not degrees or degrees == CAUCHY:  # normal ones have no tails that matter, Cauchy ones all there are
        return own, torch.ones_like(own[:, 0])
    d = own.shape[1]
    drawn = normals(seed, index, d + 1)
    frequencies = torch.where((index % 2 == 1)[:, None], drawn[:, :d] / drawn[:, d:].abs(), own)
    length = frequencies.square().sum(1)
    log_own = student_log_density(length, degrees, d)
    return frequencies, (math.log(2) + log_own - torch.logaddexp(log_own, student_log_density(length, CAUCHY, d))).exp()


def student_log_density(length: Float64[Tensor, " p"], degrees: int, d: int) -> Float64[Tensor, " p"]:
    """Of the multivariate Student t, from squared lengths."""
    constant = math.lgamma((degrees + d) / 2) - math.lgamma(degrees / 2) - d / 2 * math.log(degrees * math.pi)
    return constant - (degrees + d) / 2 * torch.log1p(length / degrees)
