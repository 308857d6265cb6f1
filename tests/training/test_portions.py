"""Portions of rows: the posterior is that of all rows at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import qsgp
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMRegressor, memory
from qsgp.bases import Fourier, Inducing
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.posteriors.posteriors import ClosedForm
from qsgp.training.options import Options
from qsgp.training.portions import Accumulated, start_accumulating


def data(n=60, outputs=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return x, torch.sin(2 * x[:, :1]) + 0.1 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)


def basis(m=20):
    return Fourier(SquaredExponential(*hyperparameters(1.0, 1.5, d=2, dtype=torch.float64)), m, seed=3)


NOISE = Gaussian(torch.tensor(0.05, dtype=torch.float64))


@pytest.mark.parametrize("outputs", [1, 3])
def test_gaussian_rows_give_bayesian_linear_regression(outputs):
    """Against the normal equations, written out; weights as repeated rows."""
    x, Y = data(outputs=outputs)
    weight = torch.ones(len(x), dtype=torch.float64)
    weight[:5] = 2.0
    B = basis()
    Phi = B.features(x, B.columns(torch.arange(B.m)))
    A = torch.eye(B.m, dtype=torch.float64) + Phi.mT @ (weight[:, None] * Phi) / NOISE.noise_variance
    mu = torch.linalg.solve(A, Phi.mT @ (weight[:, None] * Y) / NOISE.noise_variance)
    posterior = Accumulated.empty(B, NOISE, outputs).add(x, Y, weight).posterior()
    x_new = data(7, seed=1)[0]
    Phi_new = B.features(x_new, B.columns(torch.arange(B.m)))
    mean, variance = posterior.latent(x_new)
    torch.testing.assert_close(mean, Phi_new @ mu)
    torch.testing.assert_close(variance[:, 0], (Phi_new @ torch.linalg.solve(A, Phi_new.mT)).diagonal())


@pytest.mark.parametrize("sizes", [[60], [1, 59], [20, 20, 20], [7] * 8 + [4]])
def test_portions_do_not_matter_for_gaussian_noise(sizes):
    x, Y = data()
    total = Accumulated.empty(basis(), NOISE, 1)
    for rows in torch.arange(60).split(sizes):
        total = total.add(x[rows], Y[rows])
    whole = Accumulated.empty(basis(), NOISE, 1).add(x, Y)
    torch.testing.assert_close(total.precision, whole.precision)
    torch.testing.assert_close(total.linear, whole.linear)


@pytest.mark.parametrize("likelihood", [Laplace(torch.tensor(0.2, dtype=torch.float64)), Logistic()])
def test_other_sites_come_close_to_those_of_all_rows(likelihood):
    """In portions the early sites are looser: the mean moves a little."""
    x, Y = data(400)
    Y = torch.where(Y > 0, 1.0, -1.0).double() if isinstance(likelihood, Logistic) else Y
    total = Accumulated.empty(basis(), likelihood, 1)
    for rows in torch.arange(400).split(50):
        total = total.add(x[rows], Y[rows])
    whole = Accumulated.empty(basis(), likelihood, 1).add(x, Y)
    x_new = data(30, seed=1)[0]
    (mean, variance), (wanted, _) = total.posterior().latent(x_new), whole.posterior().latent(x_new)
    assert (mean - wanted).square().mean() < 0.05 * wanted.var()
    prior = Accumulated.empty(basis(), likelihood, 1).posterior().latent(x_new)[1]
    assert (variance < prior).all()


def test_a_table_goes_on_where_it_stopped():
    """Sigma^-1 and Sigma^-1 mu of the posterior table are the natural parameters it was made from."""
    x, Y = data()
    total = Accumulated.empty(basis(), NOISE, 1).add(x, Y)
    again = Accumulated.of(total.posterior())
    torch.testing.assert_close(again.precision, total.precision, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(again.linear, total.linear, rtol=1e-8, atol=1e-8)


def wave(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2)) * [1, 100] + [0, 1e4]
    return X, 10 + 5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


def test_a_regressor_learns_from_portions(tmp_path):
    """First kept and fitted anew as they double, then added up; a file in between changes nothing."""
    X, y = wave(2400)
    model = QSGPRegressor(random_state=0, n_features=400)
    for start in range(0, 2000, 400):
        model.partial_fit(X[start : start + 400], y[start : start + 400])
    model.save(tmp_path / "m.qsgp")
    again = qsgp.load(tmp_path / "m.qsgp")
    model.partial_fit(X[2000:], y[2000:])
    again.partial_fit(X[2000:], y[2000:])
    X_new, y_new = wave(500, seed=1)
    mean, deviation = model.predict(X_new, return_std=True)
    assert np.sqrt(np.mean((mean - y_new) ** 2)) < 0.33
    assert 0.9 < np.mean(np.abs(mean - y_new) < 1.96 * deviation) < 0.98
    np.testing.assert_allclose(again.predict(X_new), mean, rtol=1e-4)


@pytest.mark.slow
def test_a_large_first_portion_can_be_followed_by_others():
    """More rows than are kept, and more than the closed form takes; sorted, as files often are."""
    X, y = wave(4500)
    order = np.argsort(X[:, 0])
    model = QSGPRegressor(random_state=0).partial_fit(X[order[:4000]], y[order[:4000]])
    model.partial_fit(X[order[4000:]], y[order[4000:]])
    X_new, y_new = wave(500, seed=1)
    assert np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)) < 0.33


@pytest.mark.slow
def test_portions_after_fit_add_to_it():
    X, y = wave(600)
    model = QSGPRegressor(random_state=0, n_features=200, basis="fourier", max_iter=100).fit(X[:300], y[:300])
    before = model.predict(X, return_std=True)[1].mean()
    after = model.partial_fit(X[300:], y[300:]).predict(X, return_std=True)[1].mean()
    assert after < before
    small = QSGPRegressor(random_state=0).fit(X[:100], y[:100])
    assert len(small.partial_fit(X[100:150], y[100:150])._posterior.x) == 150


def test_a_classifier_needs_its_classes_once():
    X, _ = wave(300)
    y = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-1, 1])]
    model = QSGPClassifier(random_state=0, kernel="rbf")
    model.partial_fit(X[:20], y[:20], classes=["low", "mid", "high"])
    model.partial_fit(X[20:], y[20:])
    assert model.score(X, y) > 0.93
    with pytest.raises(ValueError, match="labels among .* got 'none'"):
        model.partial_fit(X[:1], ["none"])


def test_what_takes_no_portions_says_so():
    assert not hasattr(QSRVMRegressor(), "partial_fit")
    X, y = wave(50)
    model = QSGPRegressor(basis="inducing", n_features=20, max_iter=5, random_state=0).fit(X, y)
    kernel = model._posterior.kernel
    model._trained = replace(model._posterior, basis=Inducing(kernel, model._posterior.basis.Z.to(kernel.variance)))
    with pytest.raises(ValueError, match="with S = I to add rows to, got Inducing"):
        model.partial_fit(X, y)
    plain = QSGPRegressor(random_state=0, learn_hyperparameters=False).partial_fit(X, y)
    with pytest.raises(ValueError, match="targets as in the first portion"):
        plain.partial_fit(X, np.stack([y, y], 1))


@pytest.mark.parametrize("limit", ["17MB", "60MB"])
def test_little_memory_means_fewer_rows_kept_and_fewer_features(limit):
    X, y = wave(1200)
    model = QSGPRegressor(random_state=0, kernel="rbf", max_memory=limit).partial_fit(X[:900], y[:900])
    model.partial_fit(X[900:], y[900:])
    assert model._accumulated.basis.m < 2048 and model.memory_ <= memory.parse(limit)
    assert np.sqrt(np.mean((model.predict(X) - 10 - 5 * np.sin(X[:, 0])) ** 2)) < 0.2
    with pytest.raises(ValueError, match=r"max_memory = 17 MB, got .*Lower n_features \(now 4000\)"):
        QSGPRegressor(
            random_state=0, learn_hyperparameters=False, max_memory="17MB", n_features=4000, dtype="float64"
        ).partial_fit(X, y)


def test_a_first_portion_of_one_value_does_not_set_the_scale():
    """Elsewhere than the others, so that they do not contradict it; they have no noise, so intervals are narrow."""
    X, y = wave(1500)
    X_flat = X[:100] + [10, 0]
    for flat, least in ((X_flat, 0.88), (np.tile(X_flat, (15, 1)), 0.7)):  # fewer rows than are kept, and more
        model = QSGPRegressor(random_state=0, n_features=300, kernel="rbf").partial_fit(flat, np.full(len(flat), 10.0))
        for start in (0, 500, 1000):
            model.partial_fit(X[start : start + 500], y[start : start + 500])
        X_new, y_new = wave(400, seed=1)
        lower, upper = model.predict_interval(X_new)
        assert np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)) < 1.0
        assert np.mean((lower < y_new) & (y_new < upper)) > least


def test_one_value_again_and_again_is_no_reason_to_keep_all_rows():
    X, _ = wave(1500)
    model = QSGPRegressor(random_state=0, learn_hyperparameters=False)
    for start in (0, 700, 1400):
        model.partial_fit(X[start : start + 700], np.full(len(X[start : start + 700]), 3.0))
    assert len(model._posterior.x) == 1000 and np.allclose(model.predict(X[:5]), 3.0)


@pytest.mark.slow
def test_an_input_that_varies_later_is_learned_again():
    X, y = wave(900)
    y = y + 0.05 * X[:, 1]
    model = QSGPRegressor(random_state=0, kernel="rbf").partial_fit(X[:500] * [1, 0] + [0, 1e4], y[:500])
    model.partial_fit(X[500:800], y[500:800])
    assert model._scaling.x_scale[1] > 10


def test_a_portion_unlike_the_first_is_named():
    X, y = wave(1600)
    model = QSGPRegressor(random_state=0, n_features=100, kernel="rbf").partial_fit(X[:1200], 1e-6 * y[:1200])
    with pytest.warns(ConvergenceWarning, match="far from the rows that scales .* were learned from.*random order"):
        model.partial_fit(X[1200:], y[1200:])


def test_sites_of_a_portion_get_one_round_when_time_is_up():
    x, Y = data(50)
    likelihood, asked = Laplace(torch.tensor(0.2, dtype=torch.float64)), []
    empty = Accumulated.empty(basis(), likelihood, 1)
    late = empty.add(x, Y, late=lambda: not asked.append(0))
    assert len(asked) == 1
    Phi = empty.features(x)
    first = likelihood.optimal_xi(Y, torch.zeros_like(Y), Phi.square().sum(1, keepdim=True))
    torch.testing.assert_close(late.precision, empty.with_sites(Phi, Y, torch.ones(50).double(), first).precision)
    assert (empty.add(x, Y).precision - late.precision).abs().max() > 1


def test_sums_begin_with_the_sites_of_the_exact_gp():
    """They are tight already, and cost no rounds: the weights are those of the sites, written out."""
    x, Y = data(50)
    labels, weight = torch.where(Y > 0, 1.0, -1.0).double(), torch.ones(50, dtype=torch.float64)
    exact = ClosedForm.build(basis().kernel, Logistic(), x, labels, weight)
    total = start_accumulating(exact, replace(Options(likelihood="logistic"), n_features=20))
    xi = exact.xi[:, 0]
    Phi = total.features(x)
    curvature = torch.tanh(xi / 2) / (2 * xi)
    torch.testing.assert_close(total.precision, torch.eye(20).double() + Phi.mT @ (curvature[:, None] * Phi))
    torch.testing.assert_close(total.linear, Phi.mT @ labels / 2)


# --- forgetting -------------------------------------------------------------------------------------------------


def test_rows_that_fade_count_less():
    """As rows of that weight; the prior does not fade."""
    x, Y = data()
    share = 0.3
    wanted = Accumulated.empty(basis(), NOISE, 1).add(x[:40], Y[:40], torch.full((40,), share).double())
    found = Accumulated.empty(basis(), NOISE, 1).add(x[:40], Y[:40]).faded(share)
    torch.testing.assert_close(found.precision, wanted.precision)
    torch.testing.assert_close(found.linear, wanted.linear)


def test_a_half_life_is_in_rows_however_they_come():
    x, Y = data()
    total = Accumulated.empty(basis(), NOISE, 1).add(x[:40], Y[:40]).add(x[40:], Y[40:], half_life=20)
    wanted = Accumulated.empty(basis(), NOISE, 1).add(x[:40], Y[:40]).faded(0.5).add(x[40:], Y[40:])
    torch.testing.assert_close(total.precision, wanted.precision)


def test_a_model_that_forgets_follows_a_function_that_changes():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (6000, 1))
    y = np.where(np.arange(6000) < 3000, 1, -1) * np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=6000)
    errors = {}
    for half_life in (None, 500):
        model = QSGPRegressor(n_features=64, kernel="rbf", random_state=0)
        for start in range(0, 6000, 1000):
            model.partial_fit(X[start : start + 1000], y[start : start + 1000], half_life=half_life)
        errors[half_life] = np.sqrt(np.mean((model.predict(X[:500]) + np.sin(2 * X[:500, 0])) ** 2))
    assert errors[500] < 0.1 < 0.5 < errors[None]


@pytest.mark.parametrize("half_life", [0, -1, float("nan"), "long", True])
def test_a_half_life_must_be_a_number_of_rows(half_life):
    X, y = np.arange(10.0)[:, None], np.arange(10.0)
    with pytest.raises(ValueError, match="Expected half_life as a number of rows"):
        QSGPRegressor().partial_fit(X, y, half_life=half_life)
