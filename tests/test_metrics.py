"""Metrics against scipy.stats, numerical integration and simulated calibrated data."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from qsgp import metrics

Y = np.array([0.3, -1.2, 2.5, 0.0, 7.0])
MEAN = np.array([0.1, -1.0, 1.5, 0.4, -2.0])
VARIANCE = np.array([0.5, 0.01, 2.0, 1.0, 30.0])
PREDICTIVE = stats.norm(MEAN, np.sqrt(VARIANCE))


def test_rmse_is_the_root_of_the_mean_square() -> None:
    assert metrics.rmse(Y, MEAN) == pytest.approx(math.sqrt(np.mean((Y - MEAN) ** 2)), rel=1e-14)
    assert metrics.rmse(Y, Y) == 0


def test_gaussian_log_density_matches_scipy() -> None:
    np.testing.assert_allclose(metrics.gaussian_log_density(Y, MEAN, VARIANCE), PREDICTIVE.logpdf(Y), rtol=1e-13)


def test_mnlp_is_minus_the_mean() -> None:
    density = PREDICTIVE.logpdf(Y)
    assert metrics.mnlp(density) == pytest.approx(-density.mean(), rel=1e-14)


def test_pit_matches_the_distribution_function() -> None:
    np.testing.assert_allclose(metrics.pit_gaussian(Y, MEAN, VARIANCE), PREDICTIVE.cdf(Y), rtol=1e-13)


def test_crps_matches_its_integral() -> None:
    """CRPS = integral of (F(t) - 1[y <= t])^2, in two smooth pieces."""

    def score(y: float, mean: float, variance: float) -> float:
        law = stats.norm(mean, math.sqrt(variance))
        below, _ = integrate.quad(lambda t: law.cdf(t) ** 2, -np.inf, y, epsabs=1e-12)
        above, _ = integrate.quad(lambda t: law.sf(t) ** 2, y, np.inf, epsabs=1e-12)
        return below + above

    expected = np.mean([score(*row) for row in zip(Y, MEAN, VARIANCE, strict=True)])
    assert metrics.crps_gaussian(Y, MEAN, VARIANCE) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_coverage_counts_the_central_interval(level: float) -> None:
    lower, upper = PREDICTIVE.interval(level)
    assert metrics.coverage(Y, MEAN, VARIANCE, level) == np.mean((lower <= Y) & (upper >= Y))


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_coverage_of_equally_likely_points_is_the_level(level: float) -> None:
    """The midpoints of 10,000 equally likely strips: no seed, exact up to one point at each end."""
    y = stats.norm(1.0, 3.0).ppf((np.arange(10_000) + 0.5) / 10_000)
    assert metrics.coverage(y, np.full_like(y, 1.0), np.full_like(y, 9.0), level) == pytest.approx(level, abs=2e-4)


def test_tensors_arrays_and_float32_are_read_alike(device: torch.device) -> None:
    y, mean, variance = (torch.tensor(values, dtype=torch.float32, device=device) for values in (Y, MEAN, VARIANCE))
    rounded = [values.cpu().numpy() for values in (y, mean, variance)]
    assert metrics.crps_gaussian(y, mean, variance) == metrics.crps_gaussian(*rounded)
    assert metrics.coverage(y, mean, variance) == metrics.coverage(*rounded)
    assert metrics.gaussian_log_density(y, mean, variance).dtype == torch.float64
    assert isinstance(metrics.rmse(y, mean), float)


def test_read_only_arrays_are_read_without_warning() -> None:
    frozen = Y.copy()
    frozen.flags.writeable = False
    assert metrics.rmse(frozen, MEAN) == metrics.rmse(Y, MEAN)


def test_a_column_is_refused_instead_of_broadcast() -> None:
    with pytest.raises(ValueError, match=r"Expected mean of shape \(5,\), got \(5, 1\).*one entry per test point"):
        metrics.rmse(Y, MEAN[:, None])
    with pytest.raises(ValueError, match=r"Expected y of shape \(5,\), got \(5, 1\)"):
        metrics.rmse(Y[:, None], MEAN[:, None])


def test_no_points_no_score() -> None:
    with pytest.raises(ValueError, match=r"got \(0,\)"):
        metrics.rmse(Y[:0], MEAN[:0])


def test_a_variance_must_be_positive() -> None:
    with pytest.raises(ValueError, match=r"Expected variance > 0, got 0.0.*noise variance included"):
        metrics.coverage(Y, MEAN, np.zeros(5))


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_probability(level: float) -> None:
    with pytest.raises(ValueError, match="0 < level < 1"):
        metrics.coverage(Y, MEAN, VARIANCE, level)
