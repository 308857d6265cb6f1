"""Tables of weights: in closed form where nothing is said of steps, honest about what their functions lack."""

import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import qsgp
from busy import waiting
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMRegressor
from qsgp.bases import Fourier, Grid, Inducing, Whitened
from qsgp.kernels import Matern32, SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.paper.chevron import Chevron
from qsgp.posteriors.posteriors import ClosedForm, Features
from qsgp.training import road_weights as weights_training
from qsgp.training.basis import grid_points
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.portions import Accumulated


def wave(n, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.normal(size=n)


# The noise of `wave` with 0.3, in squared deviations of y, is about what an untrained model takes it to be.
FIXED = {"kernel": "rbf", "learn_hyperparameters": False, "random_state": 0}


def judged(model, X, y):
    """Error in deviations of y, and the share of 95 % intervals that hold."""
    lower, upper = model.predict_interval(X)
    return np.sqrt(np.mean((model.predict(X) - y) ** 2)) / y.std(), np.mean((lower <= y) & (y <= upper))


# Far from the data

FAR = np.array([[40.0, -30.0], [60.0, 60.0]])
STEPS = {"max_iter": 20}
TABLES = [
    ({"basis": "inducing", "covariance": covariance}, steps)
    for covariance in ("auto", "meanfield", "chevron", "full")
    for steps in ({}, STEPS)
] + [({"basis": "grid"}, {}), ({"basis": "grid"}, STEPS), ({"basis": "inducing", "likelihood": "laplace"}, {})]


@pytest.mark.parametrize(("keywords", "steps"), TABLES)
def test_far_from_the_data_the_deviation_is_the_priors(keywords, steps, tmp_path):
    """It was the noise alone: functions that vanish there have no variance."""
    X, y = wave(120)
    model = QSGPRegressor(n_features=40, kernel="rbf", random_state=0, **keywords, **steps).fit(X, y)
    model.save(tmp_path / "m.qsgp")
    prior = np.sqrt(model.signal_variance_ + model.noise_variance_)
    for made in (model, qsgp.load(tmp_path / "m.qsgp")):
        mean, deviation = made.predict(FAR, return_std=True)
        np.testing.assert_allclose(deviation, prior, rtol=1e-3)
        lower, upper = made.predict_interval(FAR, 0.95)
        assert ((upper - lower) > 3 * prior).all()
        assert (made.log_density(FAR, mean + 2 * prior) > -5 - np.log(prior)).all()
        draws = made.sample_y(FAR, 800, random_state=1)
        np.testing.assert_allclose(draws.std(1), np.sqrt(model.signal_variance_), rtol=0.1)
    assert (model.predict(X, return_std=True)[1].mean() < 0.5 * prior).all()


def degenerate(name):
    kernel = SquaredExponential(*hyperparameters([0.7, 1.1], 2.0, dtype=torch.float64))
    Z = torch.randn(15, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grids = [torch.linspace(-2, 2, 9, dtype=torch.float64)] * 2
    return {
        "inducing": lambda: Inducing(kernel, Z),
        "whitened": lambda: Whitened.build(kernel, Z),
        "grid": lambda: Grid.build(kernel, grids, 20),
    }[name]()


@pytest.mark.parametrize("name", ["inducing", "whitened", "grid"])
def test_draws_have_the_variance_and_the_covariance_that_is_said(name):
    """Prior weights: everywhere, also where functions end, draws are draws of the kernel's prior."""
    basis = degenerate(name)
    every = torch.arange(basis.m)
    S = torch.diag(basis.precision_diag(every))
    if name == "inducing":
        S = basis.precision(basis.Z, basis.Z)
    C = torch.linalg.cholesky(torch.linalg.inv(S + 1e-8 * torch.eye(basis.m)))
    table = torch.cat([torch.zeros(basis.m, 1), C.tril(-1), C.diagonal().log()[:, None]], 1).double()
    posterior = Features(basis, Gaussian(torch.tensor(0.1).double()), Chevron(basis.m, basis.m), table, 1)
    x = torch.tensor([[0.0, 0.0], [0.4, 0.1], [2.5, -1.0], [9.0, 9.0]]).double()
    torch.testing.assert_close(posterior.latent(x)[1][:, 0], basis.kernel.diag(x), rtol=1e-4, atol=1e-4)
    draws = posterior.sample(x, 2000, seed=3)[:, :, 0]
    torch.testing.assert_close(torch.cov(draws.mT), basis.kernel(x, x), rtol=0.1, atol=0.2)


# The closed form


@pytest.mark.parametrize("k", [0, 3, 12])
def test_the_table_is_the_best_of_its_kind(k):
    """No change of an entry of C that a chevron may have lowers tr(C^T A C) - 2 sum log c_rr."""
    basis = Fourier(SquaredExponential(*hyperparameters(1.0, 1.5, d=2, dtype=torch.float64)), 12, seed=3)
    X, y = (torch.tensor(part) for part in wave(40))
    total = Accumulated.empty(basis, Gaussian(torch.tensor(0.05).double()), 1).add(X, y[:, None])
    found = total.posterior(k)
    rows = found.table
    torch.testing.assert_close(total.precision @ rows[:, :1], total.linear)
    C = found.covariance.to_dense(rows[:, 1 : 1 + k], rows[:, 1 + k]).requires_grad_()
    loss = torch.trace(C.mT @ total.precision @ C) - 2 * C.diagonal().log().sum()
    (gradient,) = torch.autograd.grad(loss, C)
    free = torch.eye(12).bool() | (torch.ones(12, 12).tril().bool() & (torch.arange(12) < k))
    assert gradient[free].abs().max() < 1e-8 * total.precision.abs().max()


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
def test_inducing_functions_at_all_rows_are_the_exact_gp(kernel):
    X, y = wave(150)
    keywords = {"kernel": kernel, "learn_hyperparameters": False, "random_state": 0, "dtype": "float64"}
    keywords |= {"noise": "equal", "target_map": "none"}  # which different rows would judge
    exact = QSGPRegressor(**keywords).fit(X, y)
    table = QSGPRegressor(basis="inducing", n_features=150, **keywords).fit(X, y)
    X_new = np.concatenate([wave(30, seed=1)[0], FAR])
    for got, wanted in zip(table.predict(X_new, True), exact.predict(X_new, True), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("likelihood", ["gaussian", "laplace"])
@pytest.mark.parametrize("basis", ["inducing", "fourier", "grid"])
def test_tables_are_trained_to_the_end(basis, likelihood):
    """Inducing functions had an error of 1 deviation and intervals that held 15 % of the rows, without a word."""
    X, y = wave(600, noise=0.3)
    model = QSGPRegressor(basis=basis, likelihood=likelihood, n_features=100, **FIXED).fit(X, y)
    assert isinstance(model._posterior, Features)
    error, coverage = judged(model, *wave(500, seed=1, noise=0.3))
    assert error < 0.4 and coverage > 0.92
    assert {"rmse", "mnlp", "rows"} <= set(model.history_[-1]) and model.history_[-1]["rows"] == 570


def test_a_classifier_over_inducing_functions():
    X, y = wave(500)
    model = QSGPClassifier(basis="inducing", n_features=60, **FIXED).fit(X, y > 0)
    X_new, y_new = wave(400, seed=1)
    assert isinstance(model._posterior, Features) and model.score(X_new, y_new > 0) > 0.9
    assert model.log_density(X_new, y_new > 0).mean() > -0.4


def test_weights_over_four_decades():
    X, y = wave(800, noise=0.3)
    weight = 10 ** np.random.default_rng(2).uniform(-2, 2, 800)
    model = QSGPRegressor(basis="fourier", n_features=200, **FIXED).fit(X, y, weight)
    error, coverage = judged(model, *wave(500, seed=1, noise=0.3))
    assert error < 0.5 and coverage > 0.9


def test_a_pass_cut_short_knows_the_rows_it_saw(monkeypatch):
    """Time is up after the first block: the posterior of its rows is honest, and there is a model."""
    X, y = wave(3500, noise=0.3)
    monkeypatch.setattr(weights_training._Passes, "time_for", lambda self, rows: False)
    model = QSGPRegressor(basis="inducing", n_features=200, **FIXED).fit(X, y)
    assert isinstance(model._posterior, Features) and model.history_[-1]["rows"] == 1000
    error, coverage = judged(model, *wave(500, seed=1, noise=0.3))
    assert error < 0.4 and coverage > 0.92


def test_time_is_kept():
    X, y = wave(20_000)
    limit, began = 1.5 * waiting(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # with little time the exact GP of 1,000 rows may be better
        QSGPRegressor(basis="inducing", max_time=limit, kernel="rbf", random_state=0).fit(X, y)
    assert time.perf_counter() - began < 2 * limit  # 1.3 times on a machine of one's own


def test_fewer_features_when_there_is_little_time():
    brief, long = (
        make_plan(10_000, 5, 1, Options(basis="inducing", max_time=seconds)).sizes for seconds in (1.0, 1000.0)
    )
    assert brief.road == "weights" and brief.m < 600 and long.m == 2048
    assert make_plan(10_000, 5, 1, Options(basis="inducing", max_iter=5)).road == "steps"
    assert make_plan(10_000, 5, 1, Options(basis="inducing", n_features=9000)).road == "steps"
    assert make_plan(10_000, 5, 1, Options(basis="fourier", n_features=4000, max_memory=10**9)).road == "steps"


# Grids


def test_one_row_far_away_takes_one_grid_point():
    values = torch.cat([torch.linspace(-1, 1, 500), torch.tensor([1000.0])]).double()
    points = grid_points(values, 0.2)
    assert points[-1] == 1000 and (points < 2).sum() == len(points) - 1
    assert points[:-1].diff().max() < 0.21 and len(points) < 40
    many = grid_points(values, 1e-4)
    assert len(many) <= 130 and many[-1] == 1000 and many[:-1].diff().max() < 0.2
    assert grid_points(torch.full((5,), 3.0), 1.0).tolist() == [3.0]


def test_a_grid_is_not_stretched_by_one_row():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 1))
    X[0] = 1000
    X_new = rng.normal(size=(400, 1))
    target = lambda inputs: np.sin(3 * inputs[:, 0]) + 0.1 * rng.normal(size=len(inputs))  # noqa: E731
    model = QSGPRegressor(basis="grid", random_state=0).fit(X, target(X))
    error, coverage = judged(model, X_new, target(X_new))
    assert error < 0.2 and 0.92 < coverage < 0.985


@pytest.mark.filterwarnings("ignore:Training has not converged")
@pytest.mark.parametrize(("asked", "wanted"), [("auto", "rbf"), ("laplacian", "laplacian")])
def test_which_kernel_a_grid_takes(asked, wanted):
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = QSGPRegressor(basis="grid", kernel=asked, n_features=60, max_iter=5, random_state=0).fit(X, X[:, 0] ** 2)
    assert model.kernel_ == wanted


def test_a_grid_whose_lengthscales_moved_comes_back_from_its_parts():
    basis = degenerate("grid")
    moved = replace(basis, kernel=replace(basis.kernel, lengthscale=1.3 * basis.kernel.lengthscale))
    table = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    posterior = Features(moved, Gaussian(torch.tensor(0.1).double()), Chevron(20, 0), table, 1)
    header, tensors = posterior.parts()
    again = Features.restore(moved.kernel, posterior.likelihood, header, tensors)
    x = torch.randn(9, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for got, wanted, old in zip(
        again.latent(x), posterior.latent(x), replace(posterior, basis=basis).latent(x), strict=True
    ):
        assert torch.equal(got, wanted) and not torch.allclose(got, old)


# What did not arrive


@pytest.mark.parametrize("keywords", [{"basis": "inducing"}, {"covariance": "full"}])
def test_steps_that_did_not_arrive_give_way_to_the_exact_gp_of_some_rows(keywords):
    X, y = wave(600)
    model = QSGPRegressor(optimizer="adagrad", n_features=100, max_iter=15, random_state=0, kernel="rbf", **keywords)
    with pytest.warns(ConvergenceWarning, match="exact GP that knows 570 rows. That GP is what is returned. Leave out"):
        model.fit(X, y)
    assert isinstance(model._posterior, ClosedForm) and model.n_iter_ == 15
    error, coverage = judged(model, *wave(400, seed=1))
    assert error < 0.13 and coverage > 0.92


def test_too_few_functions_are_named():
    X, y = wave(600)
    with pytest.warns(ConvergenceWarning, match="more functions"):
        model = QSGPRegressor(basis="inducing", n_features=3, kernel="rbf", random_state=0).fit(X, y)
    assert judged(model, *wave(400, seed=1))[0] < 0.13


def test_a_full_covariance_cut_by_time_is_no_wider_than_the_prior():
    """Its deviation was eight times that of the targets."""
    X, y = wave(4000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = QSGPRegressor(covariance="full", kernel="rbf", max_time=1.5 * waiting(), random_state=0).fit(X, y)
    error, coverage = judged(model, *wave(400, seed=1))
    assert error < 0.2 and coverage > 0.9
    assert model.predict(X[:300], return_std=True)[1].max() < y.std()


def test_relevance_vectors_that_say_less_than_nothing_say_so():
    X, y = wave(400)
    model = QSRVMRegressor(n_features=100, batch_features=5, max_iter=2, random_state=0, kernel="rbf")
    with pytest.warns(ConvergenceWarning, match="if their inputs are not looked at. Take more steps"):
        model.fit(X, y + 3 * (X[:, 0] > 0))


def test_preconditioned_features_keep_their_time():
    """3 seconds took 9, mostly for a preconditioner of 2,000 points; what was cut had an error of 0.55."""
    X, y = wave(12_000)
    QSGPRegressor(optimizer="preconditioned", n_features=20, random_state=0, learn_hyperparameters=False).fit(
        X[:50], y[:50]
    )  # compiles the products
    limit, began = 1.5 * waiting(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = QSGPRegressor(optimizer="preconditioned", kernel="rbf", max_time=limit, random_state=0).fit(X, y)
    assert time.perf_counter() - began < 2 * limit
    error, coverage = judged(model, *wave(400, seed=1))
    assert error < 0.2 and coverage > 0.9


def test_features_that_there_is_no_time_for_give_the_exact_gp_of_some_rows():
    """One pass over them would take half a minute."""
    X, y = wave(3_000)
    asked = {"optimizer": "preconditioned", "kernel": "rbf", "n_features": 200_000, "dtype": "float64"}
    began = time.process_time()
    with pytest.warns(ConvergenceWarning, match="no time for 200,000 features"):
        model = QSGPRegressor(**asked, max_time=0.3, random_state=0, learn_hyperparameters=False).fit(X, y)
    assert time.process_time() - began < 3
    assert judged(model, *wave(400, seed=1))[0] < 0.3


@pytest.mark.usefixtures("without_shape_checks")
def test_whitened_functions_need_their_own_root():
    kernel = Matern32(*hyperparameters(1.0, 1.0, d=2, dtype=torch.float64))
    Z = torch.randn(5, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="root of shape"):
        Whitened(kernel, Z, torch.eye(4, dtype=torch.float64))
