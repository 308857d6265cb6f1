"""How steps at the door are set: the paper's way by name, else what trains best; a run that diverged is no error."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from problems import make_problem
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMRegressor
from qsgp.posteriors.posteriors import ClosedForm
from qsgp.training import road_steps
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.step_settings import make_settings


def settings_of(problem, **keywords):
    options = Options(**keywords)
    return make_settings(problem, options, make_plan(5000, 2, 1, options).sizes)


@pytest.mark.parametrize("basis", ["fourier", "rvm"])
def test_adagrad_means_what_the_paper_prints(basis):
    """Appendix I.1, written down a second time."""
    found = settings_of(make_problem(basis, m=3000), optimizer="adagrad", batch_features=200, relevance=basis == "rvm")
    assert (found.rate, found.hyper_rate, found.iterations, found.frozen) == (0.1, 1e-5, 100_000, 0.1)
    assert (found.mean_update, found.covariance_update) == ("adagrad", "entry")
    assert (found.control, found.bound) == ("gram", "B")
    assert found.learn_hyperparameters and found.learned is None
    assert (found.n_tilde, found.m_tilde) == (1000, 200)


def test_adagrad_leaves_what_the_user_says():
    problem = make_problem(m=3000)
    said = {"max_iter": 70, "learn_hyperparameters": False, "batch_points": 30}
    found = settings_of(problem, optimizer="adagrad", **said)
    assert (found.iterations, found.learn_hyperparameters, found.n_tilde) == (70, False, 30)
    assert not settings_of(problem, optimizer="adagrad", basis="inducing").learn_hyperparameters


def test_auto_takes_other_settings():
    found = settings_of(make_problem(m=2000), max_iter=200)
    assert (found.mean_update, found.control, found.covariance_update) == ("newton", "none", "row")
    assert found.learn_hyperparameters and found.learned == ("noise",) and found.hyper_rate == 4 / 200
    sampled = settings_of(make_problem(m=2000), batch_features=50)
    assert (sampled.mean_update, sampled.control, sampled.iterations) == ("adagrad", "kriging", 4000)
    assert not settings_of(make_problem("fourier", "logistic"), likelihood="logistic").learn_hyperparameters


def wave(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


ADAGRAD = {"optimizer": "adagrad", "kernel": "rbf", "random_state": 0, "n_features": 40, "batch_features": 20}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", [QSGPRegressor, QSGPClassifier, QSRVMRegressor])
def test_the_steps_of_a_fit_are_the_papers_and_move_hyperparameters(estimator, monkeypatch):
    seen = []
    fit = road_steps.fit

    def watched(problem, settings, **others):
        result = fit(problem, replace(settings, hyper_rate=0.1), **others)  # 30 steps of 1e-5 are lost in rounding
        seen.append((settings, result.state.theta, problem))
        return result

    monkeypatch.setattr(road_steps, "fit", watched)
    X, y = wave(150)
    target = y > 0 if estimator is QSGPClassifier else y
    model = estimator(max_iter=30, max_time=20.0, **ADAGRAD).fit(X, target)
    ((settings, theta, problem),) = seen
    assert model.n_iter_ == 30 and settings.control == "gram" and settings.covariance_update == "entry"
    moved = theta["kernel.log_lengthscale"] - problem.basis.kernel.lengthscale.log()
    assert float(moved.abs().max()) > 1e-3


def test_a_run_that_diverged_gives_the_exact_gp_of_some_rows(monkeypatch):
    def broken(*_, **__):
        raise FloatingPointError("Training diverged: the sampled ELBO is nan. Lower the rate.")

    monkeypatch.setattr(road_steps, "fit", broken)
    X, y = wave(150)
    with pytest.warns(ConvergenceWarning, match="Training diverged.*float64.*exact GP that knows 150 rows is what is"):
        model = QSGPRegressor(max_iter=5, **ADAGRAD).fit(X, y)
    assert isinstance(model._posterior, ClosedForm) and np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 0.15
    with pytest.raises(FloatingPointError, match="Training diverged.*float64"):  # a sparse model has no such stand-in
        QSRVMRegressor(max_iter=5, **ADAGRAD).fit(X, y)


def test_the_plan_says_what_adagrad_means():
    words = str(make_plan(5000, 2, 1, Options(optimizer="adagrad")))
    assert (
        "Weights move as in the paper: AdaGrad at a rate of 0.1 that decays exponentially over 100,000 steps" in words
    )
    assert "move with them by Adam at a rate of 0.00001, after the first 10% of the steps" in words
    fixed = str(make_plan(5000, 2, 1, Options(optimizer="adagrad", max_iter=60, learn_hyperparameters=False)))
    assert "over 60 steps" in fixed and "by Adam" not in fixed
    assert "as in the paper" not in str(make_plan(5000, 2, 1, Options(max_iter=60)))
