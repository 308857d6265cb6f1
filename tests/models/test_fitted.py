"""What a fitted model tells of itself: the public surface that plots, the report and the command line use."""

import numpy as np
import pytest

from qsgp import QSGPClassifier, QSGPRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2)) * [1, 10]
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)


@pytest.fixture(scope="module")
def regressor():
    return QSGPRegressor(kernel="rbf", random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def classifier():
    return QSGPClassifier(kernel="rbf", random_state=0).fit(X, np.where(y > 0, "up", "down"))


def test_the_latent_function_lacks_the_noise(regressor):
    mean, deviation = regressor.predict_latent(X)
    of_y = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(mean[:, 0], of_y[0])
    np.testing.assert_allclose(deviation[:, 0] ** 2 + regressor.noise_variance_, of_y[1] ** 2, rtol=1e-6)


def test_scales_are_those_of_the_training_rows(regressor, classifier):
    np.testing.assert_allclose(regressor.input_scale_, X.std(0))
    np.testing.assert_allclose([regressor.target_mean_[0], regressor.target_scale_[0]], [y.mean(), y.std()])
    assert (classifier.target_mean_, classifier.target_scale_) == ([0], [1])


def test_a_solution_describes_itself(regressor, classifier):
    assert regressor.posterior_["kind"] == "closed form" and regressor.posterior_["rows"] == 60
    assert (regressor.likelihood_, classifier.likelihood_) == ("gaussian", "logistic")


def test_calibration_is_none_until_there_is_one(regressor):
    model = QSGPRegressor(kernel="rbf", random_state=0).fit(X, y)
    assert model.calibration_ is None
    assert model.calibrate(X, y).calibration_.n == 60
    assert not hasattr(QSGPRegressor(), "calibration_") and not hasattr(QSGPRegressor(), "posterior_")


def test_quantiles_of_a_probability_lie_around_it(classifier):
    low, middle, high = classifier.predict_proba_quantiles(X, [0.05, 0.5, 0.95])
    assert low.shape == (60, 1) and (low < middle).all() and (middle < high).all()
    p = classifier.predict_proba(X)[:, 1:]
    assert ((low < p) & (p < high)).all()
    np.testing.assert_array_equal(classifier.predict_proba_quantiles(X, 0.5), middle)
    mean, _ = classifier.predict_latent(X)
    np.testing.assert_allclose(middle, 1 / (1 + np.exp(-mean)), rtol=1e-6)


def test_codes_of_classes(classifier):
    assert classifier.class_codes(["up", "down"]).tolist() == [1, 0]
    with pytest.raises(ValueError, match="labels among"):
        classifier.class_codes(["sideways"])


def test_inputs_are_the_array_the_model_works_with(regressor):
    np.testing.assert_array_equal(regressor.prepare_inputs(X.tolist()), X)
