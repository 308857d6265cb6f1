"""Hundreds of inputs: common lengthscales, in the unit that the evidence prefers."""

import numpy as np
import pytest
import torch

from qsgp import QSGPClassifier, QSGPRegressor
from qsgp.data.rows import Rows
from qsgp.hyperparameters import few_rows, many_inputs
from qsgp.hyperparameters.asked import AUTO
from qsgp.hyperparameters.first import first_kernels
from qsgp.kernels import SquaredExponential, Tied, hyperparameters
from qsgp.likelihoods import Logistic


def pixels(n, classes=3, d=150, seed=0):
    """Ten loud inputs tell the class; the others are nearly blank, and so quiet that only their unit says so."""
    own = np.random.default_rng(99)
    centres = own.normal(size=(classes, 10))
    generator = np.random.default_rng(seed)
    y = generator.integers(classes, size=n)
    X = 1e-4 * generator.normal(size=(n, d))
    X[:, :10] += 3 * centres[y] + generator.normal(size=(n, 10))
    return X, y


def test_candidates_are_tied_and_of_two_units():
    x, units = torch.randn(50, 200, dtype=torch.float64), torch.linspace(0.1, 5, 200, dtype=torch.float64)
    kernels = first_kernels(x, AUTO, units)
    assert len(kernels) == 6 and all(isinstance(kernel, Tied) for kernel in kernels)
    ratios = [kernel.proportions * units for kernel in kernels[:2]]
    assert ratios[0].std() > 1 and ratios[1].std() < 1e-9  # equal before they were standardised
    assert not any(isinstance(kernel, Tied) for kernel in first_kernels(x[:, :100], AUTO, units[:100]))


@pytest.mark.parametrize("many", [True, False])
def test_inputs_that_share_a_unit_keep_it(many, monkeypatch):
    """The quiet inputs get long lengthscales in standardised units; without this road they drown the others."""
    monkeypatch.setattr(few_rows, "_UNITS_ALIKE", 16 if many else 1000)
    X, y = pixels(150)
    model = QSGPClassifier(kernel="rbf", random_state=0).fit(X, y)
    standardised = model.lengthscale_ / X.std(0)
    told_apart = standardised[10:].mean() > 100 * standardised[:10].mean()
    assert told_apart == many
    if many:
        assert model.score(*pixels(300, seed=1)) > 0.95


def test_regression_with_many_inputs():
    X, _ = pixels(200)
    y = X[:, :3].sum(1)
    model = QSGPRegressor(kernel="rbf", random_state=0).fit(X[:150], y[:150])
    assert np.isfinite(model.predict(X[150:])).all() and len(model.lengthscale_) == 150
    assert model.score(X[150:], y[150:]) > 0.8


def test_the_variance_is_that_of_the_best_held_out_density():
    """Labels that a coin decides want small functions, sure ones large functions."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(160, 2, generator=generator, dtype=torch.float64)
    kernel = SquaredExponential(*hyperparameters(1.0, d=2, dtype=torch.float64))
    sure = x[:, :1].sign()
    coins = torch.randn(160, 1, generator=generator, dtype=torch.float64).sign()
    weight = torch.ones(120, dtype=torch.float64)

    def variance(Y, halt=lambda: False):
        parts = Rows(x[:120], Y[:120], weight), Rows(x[120:], Y[120:], weight[:40])
        return float(many_inputs.with_best_variance(kernel, Logistic(), *parts, halt)[0].variance)

    found = [variance(Y) for Y in (coins, sure)]
    assert found[0] == min(many_inputs.VARIANCES) and found[1] >= 16
    assert variance(coins, lambda: True) == pytest.approx(many_inputs.VARIANCES[0])  # no time to try any
