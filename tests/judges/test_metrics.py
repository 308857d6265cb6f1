"""Metrics against scipy.stats, numerical integration and simulated calibrated data."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
from sklearn.metrics import log_loss as sklearn_log_loss

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


# --- intervals and the probability integral transform ----------------------------------------------------------------

STRIPS = (np.arange(10_000) + 0.5) / 10_000  # F(y) of equally likely points: a calibrated sample without a seed


def test_intervals_are_counted_and_measured() -> None:
    lower, upper = np.array([0.3, -2.0, 2.6, -1.0, 0.0]), np.array([0.4, -1.2, 9.0, 1.0, 6.9])
    assert metrics.interval_coverage(Y, lower, upper) == 3 / 5  # both ends belong to the interval
    assert metrics.interval_width(lower, upper) == pytest.approx((0.1 + 0.8 + 6.4 + 2.0 + 6.9) / 5, rel=1e-14)


def test_crossed_intervals_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected lower <= upper, got 2 intervals that end before they start"):
        metrics.interval_width(np.array([1.0, 0.0, 5.0]), np.array([0.5, 0.0, 4.0]))


def test_interval_coverage_agrees_with_the_gaussian_one() -> None:
    lower, upper = PREDICTIVE.interval(0.9)
    assert metrics.interval_coverage(Y, lower, upper) == metrics.coverage(Y, MEAN, VARIANCE, 0.9)
    pit = metrics.pit_gaussian(Y, MEAN, VARIANCE)
    assert metrics.central_coverage(pit, [0.9]).item() == metrics.coverage(Y, MEAN, VARIANCE, 0.9)


def test_equally_likely_points_are_calibrated() -> None:
    levels = [0.01, 0.3, 0.5, 0.99]
    np.testing.assert_allclose(metrics.central_coverage(STRIPS, levels), levels, atol=2e-4)
    assert metrics.calibration_error(STRIPS) < 2e-4
    assert metrics.pit_distance(STRIPS) == pytest.approx(0.5e-4, rel=1e-9)


@pytest.mark.parametrize("ratio", [0.5, 2.0, 4.0])
def test_calibration_error_of_a_wrong_deviation(ratio: float) -> None:
    """Predicted deviation = ratio times the true one: level c covers 2 Phi(ratio z_c) - 1, by scipy."""
    y = stats.norm.ppf(STRIPS)
    pit = metrics.pit_gaussian(y, np.zeros_like(y), np.full_like(y, ratio**2))
    levels = np.arange(1, 20) / 20
    covered = 2 * stats.norm.cdf(ratio * stats.norm.ppf((1 + levels) / 2)) - 1
    assert metrics.calibration_error(pit) == pytest.approx(np.abs(covered - levels).mean(), abs=2e-4)


def test_calibration_error_is_below_one_half() -> None:
    for pit in (np.zeros(5), np.full(5, 0.5), np.ones(5)):
        assert metrics.calibration_error(pit) == pytest.approx(0.5, abs=1e-12)


def test_pit_distance_equals_scipy_and_sees_what_central_intervals_do_not() -> None:
    pit = np.random.default_rng(0).beta(2, 5, 200)
    assert metrics.pit_distance(pit) == pytest.approx(stats.kstest(pit, "uniform").statistic, rel=1e-12)
    folded = 0.5 + STRIPS / 2  # all targets above their median
    assert metrics.calibration_error(folded) < 2e-4
    assert metrics.pit_distance(folded) == pytest.approx(0.5, abs=1e-4)


def test_crps_from_quantiles_converges_to_the_closed_form() -> None:
    exact = metrics.crps_gaussian(Y, MEAN, VARIANCE)
    errors = []
    for k in (100, 1000):
        q = (np.arange(k) + 0.5) / k
        quantiles = stats.norm.ppf(q, MEAN[:, None], np.sqrt(VARIANCE)[:, None])
        errors.append(abs(metrics.crps_from_quantiles(Y, list(q), quantiles) - exact))
    assert errors[1] < 1e-3 * exact
    assert errors[1] < errors[0] / 5


def test_crps_from_quantiles_of_a_uniform_law() -> None:
    """On [0, 1], CRPS(y) = y^3 / 3 + (1 - y)^3 / 3; uneven levels stand for what is nearest to them."""
    q = np.sort(np.concatenate([np.linspace(0.001, 0.2, 400), np.linspace(0.21, 0.999, 300)]))
    y = np.array([0.0, 0.2, 0.7, 1.0])
    value = metrics.crps_from_quantiles(y, list(q), np.tile(q, (4, 1)))
    assert value == pytest.approx(np.mean(y**3 + (1 - y) ** 3) / 3, abs=1e-3)
    assert metrics.crps_from_quantiles(np.array([3.0]), [0.5], np.array([[1.0]])) == 2.0  # one value: absolute error
    # levels 0.1, 0.5, 0.6 stand for 0 to 0.3, to 0.55, to 1; quantiles 1, 2, 4 and y = 3
    by_hand = 2 * (0.3 * 0.1 * 2 + 0.25 * 0.5 * 1 + 0.45 * 0.4 * 1)
    value = metrics.crps_from_quantiles(np.array([3.0]), [0.1, 0.5, 0.6], np.array([[1.0, 2.0, 4.0]]))
    assert value == pytest.approx(by_hand, rel=1e-12)


def test_quantiles_must_fit_their_levels() -> None:
    with pytest.raises(ValueError, match=r"Expected quantiles of shape \(5, 2\), got \(2, 5\)"):
        metrics.crps_from_quantiles(Y, [0.1, 0.9], np.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"Expected increasing levels q, got \[0.9, 0.1\]"):
        metrics.crps_from_quantiles(Y, [0.9, 0.1], np.zeros((5, 2)))
    with pytest.raises(ValueError, match="0 < level < 1, got 0.0"):
        metrics.crps_from_quantiles(Y, [0.0, 0.5], np.zeros((5, 2)))


# --- classes ---------------------------------------------------------------------------------------------------------

PROBABILITIES = np.random.default_rng(1).uniform(0.001, 0.999, 500)
LABELS = (np.random.default_rng(2).uniform(size=500) < PROBABILITIES**2).astype(int)


def test_class_scores_equal_scikit_learn() -> None:
    assert metrics.brier(PROBABILITIES, LABELS) == pytest.approx(brier_score_loss(LABELS, PROBABILITIES), rel=1e-12)
    assert metrics.log_loss(PROBABILITIES, LABELS) == pytest.approx(sklearn_log_loss(LABELS, PROBABILITIES), rel=1e-12)
    assert metrics.brier(torch.tensor(PROBABILITIES), torch.tensor(LABELS) == 1) == metrics.brier(PROBABILITIES, LABELS)


def test_certainty_costs_nothing_when_right_and_all_when_wrong() -> None:
    assert metrics.log_loss(np.array([0.0, 1.0]), np.array([0, 1])) == 0
    assert metrics.log_loss(np.array([0.0, 1.0]), np.array([0, 0])) == math.inf


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_expected_calibration_error_equals_scikit_learn(bins: int) -> None:
    """Weighted by the bin counts, which calibration_curve does not return."""
    share, mean = calibration_curve(LABELS, PROBABILITIES, n_bins=bins)
    counts, _ = np.histogram(PROBABILITIES, bins=bins, range=(0, 1))
    expected = np.abs(share - mean) @ counts[counts > 0] / len(LABELS)
    assert metrics.expected_calibration_error(PROBABILITIES, LABELS, bins) == pytest.approx(expected, rel=1e-10)


def test_expected_calibration_error_of_known_cases() -> None:
    half, labels = np.full(1000, 0.5), np.tile([0, 1], 500)
    assert metrics.expected_calibration_error(half, labels) == pytest.approx(0, abs=1e-12)
    assert metrics.expected_calibration_error(np.full(1000, 0.9), labels) == pytest.approx(0.4, abs=1e-12)
    assert metrics.expected_calibration_error(np.ones(4), np.zeros(4)) == 1  # p = 1 belongs to the last bin


def test_bad_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected labels 0 and 1, got -1.0.*positive_class"):
        metrics.brier(np.array([0.5, 0.5]), np.array([-1, 1]))
    with pytest.raises(ValueError, match="Expected probabilities between 0 and 1, got 1.5.*not scores"):
        metrics.log_loss(np.array([0.5, 1.5]), np.array([0, 1]))
    with pytest.raises(ValueError, match="Expected pit between 0 and 1, got nan"):
        metrics.calibration_error(np.array([0.5, math.nan]))
    with pytest.raises(ValueError, match=r"Expected labels of shape \(2,\), got \(2, 1\)"):
        metrics.brier(np.array([0.5, 0.5]), np.array([[0], [1]]))
    with pytest.raises(ValueError, match="Expected bins >= 1, got 0"):
        metrics.expected_calibration_error(PROBABILITIES, LABELS, 0)
