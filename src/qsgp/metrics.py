"""How good a prediction is: errors, densities, calibration.

Arrays and tensors are read alike, one entry per test point, and judged on the host in float64. ``variance``
is the predictive variance of y, noise included: with the variance of f alone a model looks overconfident.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_positive, check_shape

Values = Tensor | np.ndarray


def rmse(y: Values, mean: Values) -> float:
    """Root mean squared error."""
    y, mean = _vectors(y=y, mean=mean)
    return (y - mean).square().mean().sqrt().item()


def gaussian_log_density(y: Values, mean: Values, variance: Values) -> Float[Tensor, " t"]:
    """log N(y | mean, variance), one value per point."""
    z, variance = _standardised(y, mean, variance)
    return -0.5 * (z.square() + variance.log() + math.log(2 * math.pi))


def mnlp(log_density: Values) -> float:
    """Mean negative log probability of the test points; ``log_density`` is that of the model's likelihood."""
    (log_density,) = _vectors(log_density=log_density)
    return -log_density.mean().item()


def coverage(y: Values, mean: Values, variance: Values, level: float = 0.95) -> float:
    """Share of the points inside their central interval of probability ``level``; calibrated if it equals ``level``."""
    if not 0 < level < 1:
        raise ValueError(f"Expected 0 < level < 1, got {level}. A level is a probability, such as 0.95 for 95 %.")
    z, _ = _standardised(y, mean, variance)
    half_width = torch.special.ndtri(z.new_tensor((1 + level) / 2))
    return (z.abs() <= half_width).double().mean().item()


def crps_gaussian(y: Values, mean: Values, variance: Values) -> float:
    """Mean continuous ranked probability score of N(mean, variance), in the unit of y; less is better.

    s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)) with s^2 = variance (Gneiting & Raftery 2007, Eq. 21).
    """
    z, variance = _standardised(y, mean, variance)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    score = z * (2 * torch.special.ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi)
    return (variance.sqrt() * score).mean().item()


def pit_gaussian(y: Values, mean: Values, variance: Values) -> Float[Tensor, " t"]:
    """Probability integral transform Phi((y - mean) / s): uniform on [0, 1] for a calibrated model."""
    z, _ = _standardised(y, mean, variance)
    return torch.special.ndtr(z)


def _standardised(y: Values, mean: Values, variance: Values) -> tuple[Tensor, Tensor]:
    """(y - mean) / sqrt(variance), and the variance."""
    y, mean, variance = _vectors(y=y, mean=mean, variance=variance)
    check_positive("variance", variance, "Pass the predictive variance of y, noise variance included.")
    return (y - mean) / variance.sqrt(), variance


def _vectors(**named: Values) -> list[Tensor]:
    """float64 vectors of one length: (t,) against (t, 1) would broadcast to t^2 differences and pass unseen."""
    vectors = {name: _read(values) for name, values in named.items()}
    rows = max(len(next(iter(vectors.values()))), 1)
    for name, vector in vectors.items():
        check_shape(name, vector, (rows,), "Pass vectors with one entry per test point (flatten a column).")
    return list(vectors.values())


def _read(values: Values) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().double().cpu()
    return torch.from_numpy(np.array(values, dtype=np.float64))
