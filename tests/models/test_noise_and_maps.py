"""The noise that rows have told and a map of the target, at the door: all that is predicted agrees, files and exports
included."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qsgp import QSGPClassifier, QSGPRegressor, load
from qsgp.evaluation import evaluate

RNG = np.random.default_rng(0)
X = RNG.normal(size=(700, 2))
F = np.sin(2 * X[:, 0]) + X[:, 1]
UNEVEN = F + np.exp(0.8 * F - 1.5) * RNG.normal(size=700)
PRICES = 100 * np.exp(F + 0.3 * RNG.normal(size=700))
TRAIN, TEST = slice(0, 300), slice(300, None)


@pytest.fixture(scope="module")
def uneven() -> Any:
    return QSGPRegressor(target_map="none", random_state=0).fit(X[TRAIN], UNEVEN[TRAIN])


@pytest.fixture(scope="module")
def mapped() -> Any:
    return QSGPRegressor(random_state=0).fit(X[TRAIN], PRICES[TRAIN])


@pytest.fixture(scope="module")
def both() -> Any:
    """Two outputs: one with a map, and noise that rows have told."""
    return QSGPRegressor(random_state=0, target_map="auto").fit(X[TRAIN], np.c_[UNEVEN, PRICES][TRAIN])


def test_intervals_hold_what_they_promise_where_noise_is_small_and_where_it_is_large(uneven: Any) -> None:
    assert (uneven.likelihood_, uneven.target_map_) == ("mixture", "none")
    equal = QSGPRegressor(noise="equal", target_map="none", random_state=0).fit(X[TRAIN], UNEVEN[TRAIN])
    assert equal.likelihood_ == "gaussian"
    low, high = uneven.predict_interval(X[TEST], 0.8)
    inside, small = (low <= UNEVEN[TEST]) & (UNEVEN[TEST] <= high), F[TEST] < np.median(F[TEST])
    assert all(0.72 < inside[half].mean() < 0.88 for half in (small, ~small))
    gain = uneven.log_density(X[TEST], UNEVEN[TEST]) - equal.log_density(X[TEST], UNEVEN[TEST])
    assert gain.mean() > 0.3
    np.testing.assert_array_equal(uneven.predict(X[TEST]), equal.predict(X[TEST]))


def test_a_map_that_is_chosen_betters_the_density_and_spoils_no_mean(mapped: Any) -> None:
    assert mapped.target_map_ == "sinh-arcsinh"
    plain = QSGPRegressor(target_map="none", random_state=0).fit(X[TRAIN], PRICES[TRAIN])
    gain = mapped.log_density(X[TEST], PRICES[TEST]) - plain.log_density(X[TEST], PRICES[TEST])
    assert gain.mean() > 0.1
    errors = [np.abs(model.predict(X[TEST]) - PRICES[TEST]).mean() for model in (mapped, plain)]
    assert errors[0] < 1.02 * errors[1]


@pytest.mark.parametrize("name", ["uneven", "mapped", "both"])
def test_all_predictions_are_of_one_law(name: str, request: pytest.FixtureRequest) -> None:
    model, rows = request.getfixturevalue(name), X[TEST][:8]
    mean, deviation = model.predict(rows, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(rows))
    levels = (np.arange(400) + 0.5) / 400
    quantiles = model.predict_quantiles(rows, levels)
    assert (np.diff(quantiles, axis=0) > 0).all()
    np.testing.assert_allclose(quantiles.mean(0), mean, atol=0.1 * deviation.max())
    for level in (40, 340):
        found = model.assess(rows, quantiles[level])
        np.testing.assert_allclose(found["cdf"], levels[level], rtol=1e-6)
        step = 1e-4 * deviation
        below, above = (model.assess(rows, quantiles[level] + side * step)["cdf"] for side in (-1, 1))
        np.testing.assert_allclose((above - below) / (2 * step), np.exp(found["log_density"]), rtol=1e-3)
        share, off = levels.reshape(-1, *[1] * mean.ndim), quantiles[level] - quantiles
        pinball = 2 * np.maximum(share * off, (share - 1) * off)
        np.testing.assert_allclose(found["crps"], pinball.mean(0), rtol=0.02)
    draws = model.sample_y(rows, 400)
    np.testing.assert_allclose(np.median(draws, -1), model.predict_quantiles(rows, 0.5), atol=0.6 * deviation.max())


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("name", ["uneven", "mapped", "both"])
def test_files_and_exports_predict_the_same(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model, rows = request.getfixturevalue(name), X[TEST][:20]
    model.save(tmp_path / "model.qsgp")
    again = load(tmp_path / "model.qsgp")
    assert again.likelihood_ == model.likelihood_
    assert np.array_equal(again.target_map_, model.target_map_)
    expected = model.predict(rows, return_std=True)
    for one, other in zip(again.predict(rows, return_std=True), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.predict_quantiles(rows, 0.9), model.predict_quantiles(rows, 0.9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.export(tmp_path / "model.pt2")
        served = torch.export.load(tmp_path / "model.pt2").module()(torch.tensor(rows))
    for one, other in zip(served, expected, strict=True):
        np.testing.assert_allclose(one.numpy().reshape(other.shape), other, rtol=1e-6, atol=1e-8)


def test_recalibrated_intervals_of_a_mapped_target_are_right_and_mapped_back(mapped: Any) -> None:
    model = QSGPRegressor(random_state=0, noise="equal").fit(X[TRAIN], PRICES[TRAIN])
    model.calibrate(X[300:500], PRICES[300:500])
    low, high = model.predict_interval(X[500:], 0.8)
    assert 0.7 < np.mean((low <= PRICES[500:]) & (PRICES[500:] <= high)) < 0.9
    mean = model.predict(X[500:])
    assert np.mean((high - mean) / (mean - low)) > 1.1  # not symmetric, as the map is not
    found = evaluate(model, X[500:], PRICES[500:])
    np.testing.assert_array_equal((low <= PRICES[500:]) & (PRICES[500:] <= high), found.central <= 0.8)


def test_portions_have_neither() -> None:
    model = QSGPRegressor(random_state=0).partial_fit(X[TRAIN], PRICES[TRAIN])
    assert (model.likelihood_, model.target_map_) == ("gaussian", "none")
    with pytest.raises(ValueError, match="target_map 'auto' or 'none' for partial_fit"):
        QSGPRegressor(target_map="sinh-arcsinh").partial_fit(X[TRAIN], PRICES[TRAIN])


@pytest.mark.parametrize("keyword", [{"noise": "equal"}, {"target_map": "none"}])
def test_classifiers_have_neither(keyword: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="classifier"):
        QSGPClassifier(**keyword).fit(X[TRAIN], F[TRAIN] > 0)


def test_the_plan_says_what_will_be_tried() -> None:
    words = str(QSGPRegressor().plan(X, PRICES))
    assert "target_map" in words and "(noise)" in words
    words = str(QSGPRegressor(noise="equal", target_map="none").plan(X, PRICES))
    assert "target_map" not in words and "(noise)" not in words


def test_rows_with_gaps_are_within_their_intervals_as_often_as_others():
    """300 rows, six in a hundred of which lack an input that matters as much as the other: noise that rows had told
    was a mixture about the complete ones, and 95 % intervals of the others held 77 %."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2300, 3))
    y = X[:, 0] + X[:, 1] + 0.1 * rng.normal(size=2300)
    gap = rng.random(2300) < 0.06
    X[gap, 1] = np.nan
    model = QSGPRegressor(random_state=0).fit(X[:300], y[:300])
    low, high = model.predict_interval(X[300:])
    inside = (low <= y[300:]) & (y[300:] <= high)
    assert inside[gap[300:]].mean() > 0.88 and inside[~gap[300:]].mean() > 0.93
    assert model.likelihood_ == "gaussian"
