"""The estimators as their users meet them."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import qsgp
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMClassifier, QSRVMRegressor, interrupt
from qsgp.hyperparameters import search, small_tables
from qsgp.paper import fitting
from qsgp.posteriors import closed_form
from qsgp.training.options import PACES

ALL = [QSGPRegressor, QSGPClassifier, QSRVMRegressor, QSRVMClassifier]


def wave(n=80, seed=0, d=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    return X, 10 + 5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


def fitted(cls, **settings):
    if issubclass(cls, QSGPRegressor | QSRVMRegressor):
        return cls(random_state=0, **settings).fit(*wave())
    return cls(random_state=0, **settings).fit(*make_moons(80, noise=0.1, random_state=0))


def test_regression_is_accurate_and_honest():
    X, y = wave(300)
    X_new, y_new = wave(400, seed=1)
    model = QSGPRegressor(random_state=0).fit(X, y)
    mean, deviation = model.predict(X_new, return_std=True)
    assert np.sqrt(np.mean((mean - y_new) ** 2)) < 0.36
    lower, upper = model.predict_interval(X_new, coverage=0.9)
    assert 0.85 < np.mean((y_new > lower) & (y_new < upper)) < 0.95
    assert 0.06 < model.noise_variance_ < 0.14 and model.lengthscale_.shape == (2,)
    scores = model.log_density(X_new, y_new)
    wanted = -0.5 * ((y_new - mean) / deviation) ** 2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)


def test_the_deviation_grows_away_from_the_data():
    model = fitted(QSGPRegressor)
    _, near = model.predict([[0.0, 0.0]], return_std=True)
    _, far = model.predict([[100.0, 100.0]], return_std=True)
    assert far > 3 * near


def test_outliers_do_not_move_the_laplace_likelihood():
    X, y = wave(150)
    y[::10] += 60
    X_new, _ = wave(100, seed=2)
    truth = 10 + 5 * np.sin(X_new[:, 0])
    errors = [
        np.abs(QSGPRegressor(likelihood=name, random_state=0).fit(X, y).predict(X_new) - truth).mean()
        for name in ("laplace", "gaussian")
    ]
    assert errors[0] < 0.5 and errors[0] < 0.3 * errors[1]


def test_several_outputs_and_a_linear_mean():
    X, y = wave(100)
    Y = np.stack([y, 3 * X[:, 1] + 100], 1)
    model = QSGPRegressor(mean="linear", random_state=0).fit(X, Y)
    mean, deviation = model.predict(X, return_std=True)
    assert mean.shape == deviation.shape == (100, 2)
    far = model.predict([[0.0, 50.0]])
    assert abs(far[0, 1] - 250) < 5
    assert model.sample_y(X[:7], 3).shape == (7, 2, 3)


def test_draws_of_the_function_have_its_mean_and_deviation():
    """4,000 draws: mean and deviation within 6 standard errors of the posterior's."""
    model = fitted(QSGPRegressor)
    X_new = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0]])
    draws = model.sample_y(X_new, 4000, random_state=1)
    mean, deviation = model.predict(X_new, return_std=True)
    latent = np.sqrt(deviation**2 - model.noise_variance_)
    assert np.all(np.abs(draws.mean(1) - mean) < 6 * latent / np.sqrt(4000) + 0.02 * latent)
    np.testing.assert_allclose(draws.std(1), latent, rtol=0.1)
    assert np.corrcoef(draws[:2])[0, 1] > 0.9  # neighbours move together
    np.testing.assert_allclose(model.sample_y(X_new[:1], 4000, random_state=1)[0], draws[0], rtol=1e-6)


def test_classes_probabilities_and_unknown_labels():
    X, y = make_moons(200, noise=0.15, random_state=0)
    labels = np.array(["no", "yes"])[y]
    model = QSGPClassifier(random_state=0).fit(X, labels)
    assert model.score(X, labels) > 0.95
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(1), 1)
    assert (model.log_density(X, labels) <= 0).all()
    with pytest.raises(ValueError, match="labels among .*, got 'perhaps'"):
        model.log_density(X[:1], ["perhaps"])
    three = QSGPClassifier(random_state=0).fit(X, np.digitize(X[:, 0], [0, 1]))
    assert three.predict_proba(X).shape == (200, 3) and three.score(X, np.digitize(X[:, 0], [0, 1])) > 0.95


def test_relevance_vectors_are_few():
    X, y = wave(200, d=1)
    model = QSRVMRegressor(kernel="rbf", random_state=0).fit(X, y)
    assert 2 <= len(model.relevance_) <= 40
    truth = 10 + 5 * np.sin(X[:, 0])
    assert np.sqrt(np.mean((model.predict(X) - truth) ** 2)) < 0.3


@pytest.fixture
def few_exact_rows(monkeypatch):
    """Tables of some 3,000 rows are trained by blocks, as large ones are."""
    paces = {name: replace(pace, exact_rows=500) for name, pace in PACES.items()}
    monkeypatch.setattr("qsgp.training.options.PACES", paces)


@pytest.mark.slow
def test_the_exact_mean_of_more_rows(tmp_path, few_exact_rows):
    """Beyond the closed form, all at "auto": kernel functions at all rows, solved by blocks; against the exact GP."""
    X, y = wave(3600)
    X_new, y_new = wave(500, seed=3)
    model = QSGPRegressor(random_state=0, kernel="rbf").fit(X, y)
    mean, deviation = model.predict(X_new, return_std=True)
    scaling, posterior = model._scaling, model._posterior
    kernel = posterior.kernel.with_parameters({n: v.double() for n, v in posterior.kernel.parameters().items()})
    x, t, x_new = (torch.tensor(a) for a in (scaling.inputs(X), (y - y.mean()) / y.std(), scaling.inputs(X_new)))
    K = kernel(x, x) + float(posterior.likelihood.noise_variance) * torch.eye(len(x), dtype=torch.float64)
    k_star = kernel(x, x_new)
    exact = k_star.mT @ torch.linalg.solve(K, t)
    variance = kernel.diag(x_new) - (k_star * torch.linalg.solve(K, k_star)).sum(0)
    wanted = (variance + float(posterior.likelihood.noise_variance)).sqrt().numpy() * y.std()
    assert np.abs(mean - (exact.numpy() * y.std() + y.mean())).max() < 0.2 * deviation.min()
    np.testing.assert_allclose(deviation, wanted, rtol=0.03)
    assert [record["iteration"] for record in model.history_] == list(range(model.n_iter_ + 1))
    draws = model.sample_y(X_new[:3], 2000, random_state=1)
    latent = np.sqrt(deviation[:3] ** 2 - model.noise_variance_)
    np.testing.assert_allclose(draws.std(1), latent, rtol=0.15)
    assert np.all(np.abs(draws.mean(1) - mean[:3]) < 6 * latent / np.sqrt(2000) + 0.05 * latent)
    model.save(tmp_path / "m.qsgp")
    again = qsgp.load(tmp_path / "m.qsgp").predict(X_new, return_std=True)
    np.testing.assert_allclose(again[0], mean, rtol=1e-6)
    np.testing.assert_allclose(again[1], deviation, rtol=1e-6)
    with pytest.raises(ValueError, match="kernel functions at its rows. Begin with partial_fit"):
        model.partial_fit(X[:5], y[:5])


@pytest.mark.slow
def test_weights_and_outputs_of_the_exact_mean():
    """A row of weight 1/100 has a hundred times the noise; outputs share the kernel."""
    X, y = wave(3300)
    weight = np.where(np.arange(3300) % 2, 1.0, 0.01)
    y += np.random.default_rng(1).normal(size=3300) * np.where(weight < 1, 3.0, 0.0)
    model = QSGPRegressor(random_state=0, kernel="rbf").fit(X, np.stack([y, -2 * y], 1), weight)
    mean = model.predict(X[:200])
    np.testing.assert_allclose(mean[:, 1], -2 * mean[:, 0], atol=0.05)
    scaling, posterior = model._scaling, model._posterior
    kernel = posterior.kernel.with_parameters({n: v.double() for n, v in posterior.kernel.parameters().items()})
    x, t = torch.tensor(scaling.inputs(X)), torch.tensor((y - scaling.y_mean[0]) / scaling.y_scale[0])
    noise, K = float(posterior.likelihood.noise_variance), kernel(x, x)
    solved = [
        K[:200] @ torch.linalg.solve(K + torch.diag(noise / torch.tensor(w)), t) for w in (weight, 0 * weight + 1)
    ]
    weighted, plain = (s.numpy() * scaling.y_scale[0] + scaling.y_mean[0] for s in solved)
    assert np.linalg.norm(mean[:, 0] - weighted) < 0.3 * np.linalg.norm(plain - weighted)


def test_an_epoch_cut_short_leaves_a_model_that_can_be_stored(tmp_path, monkeypatch):
    """Time is up after the first block: half the rows have been heard."""
    X, y = wave(3900)
    asked = iter(range(1000))
    monkeypatch.setattr(interrupt.Halt, "__call__", lambda self: next(asked) > 0)
    model = QSGPRegressor(random_state=0, learn_hyperparameters=False).fit(X, y)
    assert model.n_iter_ == 1 and "residual" not in model.history_[0]
    model.save(tmp_path / "m.qsgp")
    assert np.isfinite(qsgp.load(tmp_path / "m.qsgp").predict(X[:5])).all()


def test_little_time_still_gives_a_model():
    X, y = wave(5000)
    with pytest.warns(UserWarning, match="knows 1000 of 5000 rows"):
        model = QSGPRegressor(random_state=0, max_time=1e-3).fit(X, y)
    assert np.isfinite(model.predict(X[:10])).all()


def test_more_rows_than_the_closed_form_takes():
    X, y = wave(5000)
    model = QSGPRegressor(random_state=0, n_features=200, max_iter=60).fit(X, y)
    X_new, y_new = wave(500, seed=3)
    assert np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)) < 0.4
    assert model.n_iter_ == 60 and model.history_[-1]["iteration"] == 60
    lower, upper = model.predict_interval(X_new)
    assert 0.9 < np.mean((y_new > lower) & (y_new < upper)) < 0.999


@pytest.mark.parametrize("cls", ALL)
def test_a_saved_model_predicts_the_same(cls, tmp_path):
    model = fitted(cls)
    path = tmp_path / "model.qsgp"
    model.save(path)
    again = qsgp.load(path)
    X = wave(20, seed=5)[0]
    assert type(again) is cls and again.get_params()["kernel"] == model.get_params()["kernel"]
    if hasattr(model, "sample_y"):
        np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-6)
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), rtol=1e-6, atol=1e-12)
        assert (again.predict(X) == model.predict(X)).all()
    again.save(tmp_path / "second.qsgp")


def test_calibration_is_kept_in_the_file(tmp_path):
    model = fitted(QSGPRegressor).calibrate(*wave(200, seed=8))
    X_new, y_new = wave(1000, seed=9)
    lower, upper = model.predict_interval(X_new, 0.9)
    assert 0.86 < np.mean((y_new > lower) & (y_new < upper)) < 0.94
    model.save(tmp_path / "m.qsgp")
    np.testing.assert_allclose(qsgp.load(tmp_path / "m.qsgp").predict_interval(X_new, 0.9)[0], lower)


def test_pipelines_searches_and_clones():
    X, y = wave(60)
    pipe = make_pipeline(StandardScaler(), QSGPRegressor(learn_hyperparameters=False))
    assert cross_val_score(pipe, X, y, cv=3).shape == (3,)
    search = GridSearchCV(QSGPRegressor(learn_hyperparameters=False), {"kernel": ["rbf", "matern32"]}, cv=2).fit(X, y)
    assert search.best_params_["kernel"] in ("rbf", "matern32")
    model = QSGPRegressor(kernel="rbf", random_state=3)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize(
    "convert", [torch.tensor, np.asfortranarray, lambda a: a.astype(np.float32), lambda a: a.tolist()]
)
def test_any_table_of_numbers_will_do(convert):
    X, y = wave(40)
    model = QSGPRegressor(learn_hyperparameters=False).fit(convert(X), convert(y))
    wanted = QSGPRegressor(learn_hyperparameters=False).fit(X, y)
    np.testing.assert_allclose(model.predict(convert(X)), wanted.predict(X), rtol=1e-4)


STRANGE = {
    "one row": (np.ones((1, 3)), np.ones(1)),
    "two rows": (np.eye(2), np.array([0.0, 1.0])),
    "constant column": (np.c_[wave(30)[0], np.full(30, 7.0)], wave(30)[1]),
    "all columns constant": (np.ones((30, 2)), wave(30)[1]),
    "constant target": (wave(30)[0], np.full(30, 4.2)),
    "duplicate rows": (np.repeat(wave(5)[0], 8, 0), np.repeat(wave(5)[1], 8)),
    "huge scale": (1e200 * wave(30)[0], 1e100 * wave(30)[1]),
    "tiny scale": (1e-200 * wave(30)[0], 1e-100 * wave(30)[1]),
    "heavy tails": (wave(60)[0], np.tan(np.linspace(-1.57, 1.57, 60))),
    "integers": (np.arange(60).reshape(30, 2), np.arange(30)),
    "booleans": (np.arange(60).reshape(30, 2) % 2 == 0, np.arange(30)),
    "more inputs than rows": (np.random.default_rng(0).normal(size=(10, 50)), np.arange(10.0)),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_but_finite_data_give_a_finite_model(name):
    X, y = STRANGE[name]
    model = QSGPRegressor(random_state=0).fit(X, y)
    mean, deviation = model.predict(X, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()


def bad(X=None, y=None, **settings):
    good_X, good_y = wave(20)
    return (good_X if X is None else X, good_y if y is None else y, settings)


def with_infinity():
    X = wave(20)[0]
    X[3, 1] = np.inf
    return X


BAD = {
    "infinite value": (bad(X=with_infinity()), "infinity"),
    "strings": (bad(X=np.array([["a", "b"]] * 20)), "could not convert|Unable to convert|dtype"),
    "complex": (bad(X=wave(20)[0] * 1j), "Complex"),
    "one dimension": (bad(X=np.arange(20.0)), "2D array"),
    "lengths": (bad(y=np.arange(19.0)), "inconsistent numbers of samples"),
    "infinite target": (bad(y=np.r_[np.inf, np.zeros(19)]), "infinity"),
    "unknown kernel": (bad(kernel="linear"), "kernel among 'auto', 'rbf'.*got 'linear'"),
    "unknown covariance": (bad(covariance="diagonal"), "covariance among 'auto', 'meanfield'.*got 'diagonal'"),
    "unknown optimizer": (bad(optimizer="adam"), "optimizer among 'auto', 'adagrad', 'preconditioned'"),
    "wrong likelihood": (bad(likelihood="logistic"), "likelihood among 'auto', 'gaussian', 'laplace'"),
    "negative count": (bad(n_features=-2), "n_features to be a whole number >= 1.*got -2"),
    "fractional count": (bad(batch_points=2.5), "batch_points to be a whole number.*got 2.5"),
    "odd features": (bad(n_features=7), "even m >= 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name, without_shape_checks):
    (X, y, settings), message = BAD[name]
    with pytest.raises(ValueError, match=message):
        QSGPRegressor(**settings).fit(X, y)


def test_wrong_width_and_one_class_are_named(without_shape_checks):
    with pytest.raises(ValueError, match="3 features, but QSGPRegressor is expecting 2"):
        fitted(QSGPRegressor).predict(np.ones((4, 3)))
    with pytest.raises(ValueError, match="two classes or more, got 1 class"):
        QSGPClassifier().fit(np.eye(4), np.ones(4))
    with pytest.raises(ValueError, match="0 < coverage < 1, got 95"):
        fitted(QSGPRegressor).predict_interval(np.ones((4, 2)), 95)
    with pytest.raises(ValueError, match="zero"):
        QSGPRegressor().fit(*wave(10), sample_weight=np.zeros(10))


def large(folder, **settings):
    """Beyond the closed form by choice of the basis, so that training runs and can be stored."""
    learning = {"basis": "fourier", "n_features": 40, "max_iter": 40, "random_state": 0}
    return QSGPRegressor(**{**learning, **settings}, checkpoint=folder)


def test_a_finished_run_is_resumed_and_says_so(tmp_path):
    X, y = wave(100)
    first = large(tmp_path).fit(X, y)
    with pytest.warns(UserWarning, match="Resumed from iteration 40"):
        again = large(tmp_path).fit(X, y)
    np.testing.assert_allclose(first.predict(X), again.predict(X), rtol=1e-6)


def test_other_data_or_arguments_are_refused_by_name(tmp_path):
    X, y = wave(100)
    large(tmp_path).fit(X, y)
    with pytest.raises(ValueError, match="got others: .*targets was .* and is now"):
        large(tmp_path).fit(X, y + np.sin(X[:, 1]))
    with pytest.raises(ValueError, match="max_iter was 40 and is now 50"):
        large(tmp_path, max_iter=50).fit(X, y)


def test_ctrl_c_leaves_a_fitted_model_and_a_checkpoint(tmp_path, monkeypatch):
    X, y = wave(100)
    model = large(tmp_path, max_iter=100_000)
    step, taken = fitting.step, iter(range(100_000))

    def press(*arguments):
        if next(taken) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*arguments)

    monkeypatch.setattr(fitting, "step", press)
    with pytest.warns(UserWarning, match="Interrupted after .* of 100000 iterations"):
        model.fit(X, y)
    assert np.isfinite(model.predict(X)).all() and 0 < model.n_iter_ < 100_000
    assert list(tmp_path.glob("step-*.qsgp"))


@pytest.mark.parametrize("cls", ALL)
def test_ctrl_c_while_hyperparameters_are_learned_ends_the_fit(cls, monkeypatch):
    """No second search, no more than one round of sites or step of training; and it is said."""
    searches, rounds, learn, tighten = [], [], search.fit_hyperparameters, closed_form.tighten_all

    def press(*arguments, **keywords):
        searches.append(os.kill(os.getpid(), signal.SIGINT))
        return learn(*arguments, **keywords)

    def counted(*arguments):
        *given, halt = arguments
        return tighten(*given, lambda: rounds.append(halt()) or rounds[-1])

    for module in (search, small_tables):
        monkeypatch.setattr(module, "fit_hyperparameters", press)
    monkeypatch.setattr(closed_form, "tighten_all", counted)
    X, y = wave(60)
    with pytest.warns(UserWarning, match="Interrupted early: the model is fitted"):
        model = cls(random_state=0).fit(X, y if hasattr(cls, "predict_interval") else y > 10)
    assert len(searches) == 1 and len(rounds) <= 1 and model.n_iter_ <= 1
    assert np.isfinite(model.predict(X).astype(float)).all()


@pytest.mark.parametrize("covariance", ["support", "samples"])
def test_the_variance_of_many_rows_by_name(covariance, few_exact_rows):
    """Draws and support points blended, or support points alone, which are too wide rather than too narrow."""
    X, y = wave(3400)
    model = QSGPRegressor(covariance=covariance, learn_hyperparameters=False, random_state=0).fit(X, y)
    assert model._posterior.draws == (0 if covariance == "support" else 16)
    X_new, y_new = wave(600, seed=3)
    mean, deviation = model.predict(X_new, return_std=True)
    assert 0.9 < np.mean(np.abs(y_new - mean) < 1.96 * deviation) <= 1
    assert {"rmse", "mnlp", "residual", "phase"} <= set(model.history_[-1])
    for other in ({"basis": "fourier"}, {"max_iter": 5}):
        with pytest.raises(ValueError, match=f"covariance {covariance!r} with all else at 'auto'.*got it with"):
            QSGPRegressor(covariance=covariance, **other).fit(X[:50], y[:50])


def blobs(n, classes, seed=0):
    """Noisy labels of a ring, or of sectors."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 2))
    angle = np.arctan2(X[:, 1], X[:, 0]) + 0.2 * generator.normal(size=n)
    return X, ((angle + np.pi) / (2 * np.pi) * classes).astype(int) % classes


@pytest.mark.parametrize(
    ("classes", "covariance"),
    [
        pytest.param(2, "auto", marks=pytest.mark.slow),
        pytest.param(2, "support", marks=pytest.mark.slow),
        (3, "auto"),
    ],
)
def test_a_classifier_of_many_rows_knows_them_all(tmp_path, classes, covariance):
    X, y = blobs(3300, classes)
    settings = {"kernel": "rbf", "learn_hyperparameters": False, "random_state": 0}
    model = QSGPClassifier(covariance=covariance, likelihood="logistic", **settings).fit(X, y)
    X_new, y_new = blobs(600, classes, seed=3)
    assert model._posterior.x.shape == (3300, 2) and len(model._posterior.spread.factor) == (
        1 if classes == 2 else classes
    )
    assert model.score(X_new, y_new) > (0.9 if classes == 2 else 0.8)
    assert {"error", "mnlp", "residual"} <= set(model.history_[-1])
    proba = model.predict_proba(X_new)
    assert -model.log_density(X_new, y_new).mean() < 0.8 * np.log(classes)
    model.save(tmp_path / "model.qsgp")
    np.testing.assert_allclose(qsgp.load(tmp_path / "model.qsgp").predict_proba(X_new), proba, atol=1e-6)


@pytest.mark.slow
def test_heavy_tails_of_many_rows():
    """One target in ten is off by far: the Laplace likelihood does not mind, Gaussian noise does, with a map or not."""
    X, y = wave(3300)
    generator = np.random.default_rng(0)
    y = np.where(generator.random(3300) < 0.1, y + 8 * generator.standard_cauchy(3300).clip(-20, 20), y)
    X_new = wave(500, seed=3)[0]
    function = 10 + 5 * np.sin(X_new[:, 0])
    settings = {"kernel": "rbf", "random_state": 0}
    robust = QSGPRegressor(likelihood="laplace", **settings).fit(X, y)
    mapped = QSGPRegressor(**settings).fit(X, y)
    plain = QSGPRegressor(noise="equal", target_map="none", **settings).fit(X, y)
    errors = [np.sqrt(np.mean((model.predict(X_new) - function) ** 2)) for model in (robust, mapped, plain)]
    assert type(robust._posterior).__name__ == "KernelFunctionsAtRows" and robust.target_map_ == "none"
    assert errors[0] < 0.3 * errors[1] and errors[1] < 0.7 * errors[2]
    draws = robust.sample_y(X_new[:20], 400, random_state=0)
    spread = robust._latent(X_new[:20])[1].sqrt().numpy()[:, 0] * robust._scaling.y_scale[0]
    np.testing.assert_allclose(draws.std(1), spread, rtol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["auto", pytest.param("support", marks=pytest.mark.slow)])
def test_preconditioned_features_come_near_the_exact_gp(tmp_path, covariance):
    X, y = wave(900)
    X_new, y_new = wave(500, seed=3)
    exact = QSGPRegressor(kernel="rbf", random_state=0).fit(X, y)
    settings = {"kernel": "rbf", "optimizer": "preconditioned", "covariance": covariance, "random_state": 0}
    model = QSGPRegressor(n_features=4000, **settings).fit(X, y)
    errors = [np.sqrt(np.mean((each.predict(X_new) - y_new) ** 2)) for each in (model, exact)]
    densities = [-each.log_density(X_new, y_new).mean() for each in (model, exact)]
    assert errors[0] < 1.05 * errors[1] and densities[0] < densities[1] + (0.1 if covariance == "auto" else 0.3)
    assert model._posterior.draws == (16 if covariance == "auto" else 0) and "rmse" in model.history_[-1]
    model.save(tmp_path / "model.qsgp")
    again = qsgp.load(tmp_path / "model.qsgp")
    np.testing.assert_allclose(again.predict(X_new, return_std=True), model.predict(X_new, return_std=True), rtol=1e-5)
    draws = model.sample_y(X_new[:20], 400, random_state=0)
    spread = model._latent(X_new[:20])[1].sqrt().numpy()[:, 0] * model._scaling.y_scale[0]
    np.testing.assert_allclose(draws.std(1), spread, rtol=0.2)


def test_preconditioned_features_of_few_rows_outputs_and_weights():
    X, y = wave(60)
    settings = {"optimizer": "preconditioned", "n_features": 100, "random_state": 0}
    for rows in (1, 5, 30):
        assert np.isfinite(QSGPRegressor(**settings).fit(X[:rows], y[:rows]).predict(X, return_std=True)).all()
    both = QSGPRegressor(**settings).fit(X, np.stack([y, -2 * y], 1)).predict(X)
    np.testing.assert_allclose(both[:, 1], -2 * both[:, 0], atol=1e-2 * np.abs(y).max())
    ignored = QSGPRegressor(**settings).fit(X, np.where(np.arange(60) < 30, y, 99.0), np.arange(60) < 30)
    np.testing.assert_allclose(ignored.predict(X), QSGPRegressor(**settings).fit(X[:30], y[:30]).predict(X), rtol=1e-3)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"likelihood": "laplace"}, "solves for Gaussian noise"),
        ({"basis": "inducing"}, "basis 'auto' or 'fourier'"),
        ({"covariance": "full"}, "covariance 'auto' or 'support' or 'samples'"),
        ({"batch_points": 50}, "batch_points 'auto'"),
        ({"n_features": 7}, "even n_features"),
    ],
)
def test_what_preconditioned_features_cannot_do(other, message):
    with pytest.raises(ValueError, match=message):
        QSGPRegressor(optimizer="preconditioned", **other).fit(*wave(40))
    with pytest.raises(ValueError, match="solves for Gaussian noise"):
        QSGPClassifier(optimizer="preconditioned").fit(*blobs(40, 2))


def test_an_output_that_does_not_vary_says_nothing_of_the_noise():
    X, y = wave(300)
    both = QSGPRegressor(random_state=0).fit(X, np.stack([y, np.full(300, 5.0)], 1))
    alone = QSGPRegressor(random_state=0).fit(X, y)
    np.testing.assert_allclose(both.noise_variance_[0], alone.noise_variance_, rtol=1e-6)
    np.testing.assert_allclose(both.predict(X)[:, 0], alone.predict(X), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(both.predict(X)[:, 1], 5.0)


def test_labels_of_tiny_weights_give_a_finite_model():
    """The weights sum to one: what is divided by their sum less one would be no number."""
    X, y = blobs(200, 2)
    with pytest.warns(UserWarning, match="The weights sum to 1"):
        model = QSGPClassifier(random_state=0).fit(X, y, sample_weight=np.full(200, 1 / 200))
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_metric_of_few_rows_is_told():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    with pytest.warns(UserWarning, match="60 rows of 5 inputs, which is likely to overfit"):
        QSGPRegressor(kernel="rbf", metric="full", random_state=0).fit(X, X[:, 0])
