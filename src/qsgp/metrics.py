"""How good a prediction is: errors, densities, calibration.

Arrays and tensors are read alike, one entry per test point, and judged on the host in float64. ``variance``
is the predictive variance of y, noise included: with the variance of f alone a model looks overconfident.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_positive, check_shape

Values = Tensor | np.ndarray
_LEVELS = tuple(k / 20 for k in range(1, 20))


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
    _levels(level)
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


def interval_coverage(y: Values, lower: Values, upper: Values) -> float:
    """Share of the points inside their interval, ends included."""
    y, lower, upper = _vectors(y=y, lower=lower, upper=upper)
    return ((lower <= y) & (y <= upper)).double().mean().item()


def interval_width(lower: Values, upper: Values) -> float:
    """Mean width of the intervals; among those with the right coverage, less is better."""
    lower, upper = _vectors(lower=lower, upper=upper)
    crossed = int((lower > upper).sum())
    if crossed:
        raise ValueError(f"Expected lower <= upper, got {crossed} intervals that end before they start. Swap the ends.")
    return (upper - lower).mean().item()


def central_coverage(pit: Values, levels: Sequence[float] = _LEVELS) -> Float[Tensor, " k"]:
    """Share of the points inside their central interval of each probability; equals ``levels`` when calibrated.

    Needs nothing but ``pit`` = F(y) of any predictive law: y is in its interval where |2 F(y) - 1| <= level.
    """
    distance = (2 * _probabilities(pit=pit) - 1).abs()
    return (distance[:, None] <= _levels(*levels)).double().mean(0)


def calibration_error(pit: Values, levels: Sequence[float] = _LEVELS) -> float:
    """Mean absolute difference between `central_coverage` and its level: 0 when calibrated, below 1/2 always.

    The intervals are central: a bias that leaves |F(y) - 1/2| as it should be goes unseen; see `pit_distance`.
    """
    return (central_coverage(pit, levels) - _levels(*levels)).abs().mean().item()


def pit_distance(pit: Values) -> float:
    """Kolmogorov's distance between the values F(y) and the uniform law; near 0.9 / sqrt(t) for a calibrated model."""
    ordered = _probabilities(pit=pit).sort().values
    steps = torch.arange(len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return torch.maximum(steps[1:] - ordered, ordered - steps[:-1]).max().item()


def crps_from_quantiles(y: Values, q: Sequence[float], quantiles: Values) -> float:
    """Mean continuous ranked probability score of any law, from its quantiles of shape (t, k) at increasing levels q.

    2 E_q |1[y < Q(q)] - q| |y - Q(q)| over q uniform (Gneiting & Raftery 2007), each level standing for all that are
    nearest to it: with q = (i - 1/2) / k the error falls like 1 / k, three digits at k = 1,000.
    """
    (y,), levels, quantiles = _vectors(y=y), _levels(*q), _read(quantiles)
    check_shape("quantiles", quantiles, (len(y), len(levels)), "Pass one row per test point, one column per level.")
    if (levels.diff() <= 0).any():
        raise ValueError(f"Expected increasing levels q, got {list(q)}. Sort them, and the quantiles alike.")
    edges = torch.cat([levels.new_zeros(1), (levels[1:] + levels[:-1]) / 2, levels.new_ones(1)])
    below = y[:, None] - quantiles
    pinball = torch.maximum(levels * below, (levels - 1) * below)
    return 2 * (pinball @ edges.diff()).mean().item()


def brier(probabilities: Values, labels: Values) -> float:
    """Mean squared difference between the probability of label 1 and the label, 0 or 1; less is better."""
    p, labels = _classes(probabilities, labels)
    return (p - labels).square().mean().item()


def log_loss(probabilities: Values, labels: Values) -> float:
    """Mean negative log probability of the labels, 0 or 1; infinite if a label was given the probability 0."""
    p, labels = _classes(probabilities, labels)
    return -torch.where(labels == 1, p.log(), torch.log1p(-p)).mean().item()


def expected_calibration_error(probabilities: Values, labels: Values, bins: int = 15) -> float:
    """Mean over points of |share of label 1 - mean probability| in their bin of equal width; 0 when calibrated.

    Several classes: pass the probability of the predicted class, and whether it was right.
    """
    if bins < 1:
        raise ValueError(f"Expected bins >= 1, got {bins}. 15 is customary; fewer for less than 1,000 points.")
    p, labels = _classes(probabilities, labels)
    bin_of = (p * bins).long().clamp_max(bins - 1)
    excess = p.new_zeros(bins).index_add(0, bin_of, labels - p)  # bin size times difference of means
    return (excess.abs().sum() / len(p)).item()


def _levels(*levels: float) -> Tensor:
    for level in levels:
        if not 0 < level < 1:
            raise ValueError(f"Expected 0 < level < 1, got {level}. A level is a probability, such as 0.95 for 95 %.")
    return torch.tensor(levels, dtype=torch.float64)


def _classes(probabilities: Values, labels: Values) -> list[Tensor]:
    p, labels = _probabilities(probabilities=probabilities), _read(labels)
    check_shape("labels", labels, tuple(p.shape), "Pass one label per probability.")
    strange = labels[(labels != 0) & (labels != 1)]
    if strange.numel():
        raise ValueError(f"Expected labels 0 and 1, got {strange[0].item()}. Pass y == positive_class.")
    return [p, labels]


def _probabilities(**named: Values) -> Tensor:
    (values,) = _vectors(**named)
    outside = values[~((values >= 0) & (values <= 1))]
    if outside.numel():
        (name,) = named
        raise ValueError(f"Expected {name} between 0 and 1, got {outside[0].item()}. Pass probabilities, not scores.")
    return values


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
