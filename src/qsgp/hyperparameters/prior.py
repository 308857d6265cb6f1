"""What is believed of lengthscales before any row is seen."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels import Tied


def lengthscale_prior(kernel: Kernel, likelihood: Likelihood | None = None) -> Float[Tensor, ""]:
    """Of tables beyond the closed form; whatever the noise."""
    if isinstance(kernel, Tied):
        return -0.5 * (kernel.log_scale / 1.5).square()
    logs = [value for name, value in kernel.parameters().items() if is_lengthscale(name)]
    return torch.stack([log_density_of_lengthscale(each) for each in logs]).sum()


def is_lengthscale(name: str) -> bool:
    """Whether a parameter of this name is one: a sum of kernels has several."""
    return name.endswith("log_lengthscale")


def log_density_of_lengthscale(log_lengthscale: Float[Tensor, " d"]) -> Float[Tensor, ""]:
    """Log-normal about sqrt(d), wide: without it the evidence of few rows over many inputs fits noise."""
    centre = 0.5 * math.log(len(log_lengthscale)) + 0.5
    return -0.5 * ((log_lengthscale - centre) / 1.5).square().sum()
