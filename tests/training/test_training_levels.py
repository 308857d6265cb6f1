"""Identifiers with many levels from the estimators, on every road, against the exact GP of the sum."""

import numpy as np
import pandas as pd
import pytest
import torch

import qsgp
from qsgp import QSGPClassifier, QSGPRegressor
from qsgp.posteriors.posteriors import ClosedForm, WithEffects
from qsgp.training import options
from qsgp.training.levels import with_noise_of_unknown
from qsgp.training.plan import make_plan

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SIZES, EFFECTS, NOISE = (40, 15), (0.6, 0.4), 0.3  # levels; deviations
ROADS = {
    "weights": {"n_features": 60},
    "features": {"n_features": 60, "optimizer": "preconditioned"},
    "rows": {},
    "steps": {"n_features": 60, "max_iter": 100},
    "inducing": {"basis": "inducing", "n_features": 60},
}


def table(n=400, seed=0, sizes=SIZES):
    rng = np.random.default_rng(seed)
    x, codes = rng.normal(size=(n, 2)), np.stack([rng.integers(0, size, n) for size in sizes], 1)
    fixed = np.random.default_rng(7)
    f = np.sin(2 * x[:, 0]) + 0.3 * x[:, 1]
    for code, size, deviation in zip(codes.T, sizes, EFFECTS, strict=False):
        f = f + deviation * fixed.normal(size=size)[code]
    return np.concatenate([x, codes], 1), 10 + f + NOISE * rng.normal(size=n), 10 + f


def fitted(X, y, q=2, **keywords):
    model = QSGPRegressor(random_state=0, kernel="rbf", **keywords)
    model._levels = lambda: {"levels": tuple(range(X.shape[1] - q, X.shape[1]))}
    return model.fit(X, y)


def twin(model, X, y, X_new):
    """Mean and deviation of the exact GP of the sum with the hyperparameters of ``model``, in the unit of y."""
    scaling, kernel = model._scaling, model._posterior.kernel
    kernel = kernel.with_parameters({name: value.double() for name, value in kernel.parameters().items()})
    x, z = (torch.tensor(scaling.inputs(part)) for part in (X, X_new))
    target = torch.tensor(scaling.targets(y[:, None], X))
    noise = model.noise_variance_ / scaling.y_scale[0] ** 2
    K, cross = kernel(x, x) + noise * torch.eye(len(x)).double(), kernel(z, x)
    mean = cross @ torch.linalg.solve(K, target)
    left = kernel.diag(z) - (cross * torch.linalg.solve(K, cross.mT).mT).sum(1)
    return scaling.restore(mean.numpy(), X_new)[:, 0], left.sqrt().numpy() * scaling.y_scale[0]


@pytest.fixture(scope="module")
def closed():
    X, y, _ = table()
    return fitted(X, y)


def test_the_closed_form_is_the_exact_gp_of_the_sum(closed):
    X, y, _ = table()
    X_new, _, _ = table(50, seed=1)
    mean, deviation = twin(closed, X, y, X_new)
    found, std = closed.predict_latent(X_new)
    assert isinstance(closed._posterior, ClosedForm)
    np.testing.assert_allclose(found[:, 0], mean, atol=1e-6)
    np.testing.assert_allclose(std[:, 0], deviation, rtol=1e-5)
    np.testing.assert_allclose(closed.effect_variance_, np.square(EFFECTS), rtol=0.6)  # of 40 and of 15 levels


@pytest.mark.parametrize("road", ROADS)
def test_other_roads_are_near_the_exact_gp_of_the_sum(road, monkeypatch):
    monkeypatch.setattr(options, "SMALL", 100)  # larger tables go to the rows road
    X, y, _ = table()
    X_new, _, f_new = table(200, seed=1)
    model = fitted(X, y, **ROADS[road])
    mean, deviation = twin(model, X, y, X_new)
    found, std = model.predict_latent(X_new)
    assert isinstance(model._posterior, WithEffects) and model.plan_.road == ("weights" if road == "inducing" else road)
    assert np.sqrt(np.mean((found[:, 0] - mean) ** 2)) < 0.6 * np.mean(deviation)
    assert np.sqrt(np.mean((found[:, 0] - f_new) ** 2)) < 1.35 * np.sqrt(np.mean((mean - f_new) ** 2))
    assert 0.6 < np.mean(std[:, 0]) / np.mean(deviation) < 1.6


@pytest.fixture(scope="module")
def beside():
    X, y, _ = table()
    return fitted(X, y, n_features=60)


@pytest.mark.parametrize("kind", ["closed", "beside"])
def test_a_level_that_no_row_has_is_the_prior(kind, request):
    """Another one changes nothing, and the variance is that of f and of both effects."""
    model, X = request.getfixturevalue(kind), table(5, seed=2)[0]
    unknown, unseen, one_known = X.copy(), X.copy(), X.copy()
    unknown[:, 2:], unseen[:, 2:], one_known[:, 3] = -1, 10_000, -1
    for a, b in zip(model.predict_latent(unknown), model.predict_latent(unseen), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    known, partly, none = (np.square(model.predict_latent(rows)[1][:, 0]) for rows in (X, one_known, unknown))
    assert (known < partly).all() and (partly < none).all()
    np.testing.assert_allclose(none - partly, model.effect_variance_[0], rtol=0.25)
    draws = model.sample_y(unknown[[0, 0]], 4000, random_state=0)
    variance = np.square(model.predict_latent(unknown)[1][0, 0])
    np.testing.assert_allclose(draws.reshape(2, -1).var(1), variance, rtol=0.1)
    # two rows without a level share f, and no effect
    shared = np.cov(draws.reshape(2, -1))[0, 1]
    assert shared < 0.5 * variance


@pytest.mark.parametrize("kind", ["closed", "beside"])
def test_draws_of_the_function_have_its_mean_and_variance(kind, request):
    model, X = request.getfixturevalue(kind), table(6, seed=3)[0]
    draws = model.sample_y(X, 4000, random_state=1).reshape(6, -1)
    mean, std = (part[:, 0] for part in model.predict_latent(X))
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.1 * std.max())
    np.testing.assert_allclose(draws.std(1), std, rtol=0.15)


@pytest.fixture(scope="module")
def stopped():
    """The closed form of some rows, with effects of all: time ended before the road."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "SMALL", 100)
        with pytest.warns(UserWarning, match="Stopped while"):
            return fitted(*table()[:2], max_time=1e-6)


@pytest.mark.parametrize("kind", ["closed", "beside", "stopped"])
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_files_and_exports_give_the_same_predictions(kind, request, tmp_path):
    model, X = request.getfixturevalue(kind), table(9, seed=4)[0]
    X[0, 2:] = -1
    model.save(tmp_path / "model.qsgp")
    model.export(tmp_path / "model.pt2")
    mean, std = model.predict(X, return_std=True)
    loaded = qsgp.load(tmp_path / "model.qsgp")
    for a, b in zip(loaded.predict(X, return_std=True), (mean, std), strict=True):
        np.testing.assert_array_equal(a, b)
    assert type(loaded._posterior) is type(model._posterior)
    np.testing.assert_allclose(loaded.effect_variance_, model.effect_variance_)
    served = torch.export.load(tmp_path / "model.pt2").module()(torch.tensor(X))
    np.testing.assert_allclose(served[0].numpy()[:, 0], mean, rtol=1e-5)
    np.testing.assert_allclose(served[1].numpy()[:, 0], std, rtol=1e-4)


@pytest.mark.parametrize("keywords", [{}, {"n_features": 60}])
def test_levels_with_few_rows_have_honest_intervals(keywords):
    """Half of 200 levels have one row or two: 90 % intervals of f hold there as they do elsewhere."""
    rng = np.random.default_rng(0)
    rare = np.repeat(np.arange(100), rng.integers(1, 3, 100))
    code = np.concatenate([rare, rng.integers(100, 200, 500)])
    x, effects = rng.normal(size=len(code)), 0.7 * rng.normal(size=200)
    y = np.sin(2 * x) + effects[code] + NOISE * rng.normal(size=len(code))
    model = fitted(np.stack([x, code], 1), y, q=1, **keywords)
    x_new = rng.normal(size=200)
    mean, std = model.predict_latent(np.stack([x_new, np.arange(200)], 1))
    z = (mean[:, 0] - np.sin(2 * x_new) - effects) / std[:, 0]
    for part in (z[:100], z[100:]):
        assert 0.8 <= np.mean(np.abs(part) < 1.645) <= 0.98
    assert std[:100].mean() > 1.5 * std[100:].mean()


def test_rows_without_a_level_count_for_less(closed):
    X, _, _ = table(3)
    X[0, 2] = -1
    rows = qsgp.data.rows.Rows(torch.tensor(X), torch.zeros(3, 1).double(), torch.tensor([1.0, 1, 2]).double())
    posterior = closed._posterior
    found = with_noise_of_unknown(rows, posterior.kernel, posterior.likelihood).weight
    noise = posterior.likelihood.noise_variance
    torch.testing.assert_close(
        found, torch.stack([noise / (noise + posterior.kernel.effects[0]), noise / noise, 2 * noise / noise])
    )


def test_what_cannot_be_done_is_said():
    X, y, _ = table(60)
    with pytest.raises(ValueError, match="whole numbers from 0"):
        fitted(X + 0.5, y)
    with pytest.raises(ValueError, match="an input beside identifiers"):
        fitted(X[:, 2:], y)
    with pytest.raises(ValueError, match="as the last"):
        model = QSGPRegressor(random_state=0)
        model._levels = lambda: {"levels": (0, 1)}
        model.fit(X, y)
    with pytest.raises(ValueError, match="got classes"):
        model = QSGPClassifier(random_state=0)
        model._levels = lambda: {"levels": (2, 3)}
        model.fit(X, y > 10)
    with pytest.raises(ValueError, match="target_map 'auto' or 'none' beside identifiers"):
        QSGPRegressor(target_map="sinh-arcsinh").plan(as_texts(table(200, sizes=(60,))[0]), np.arange(200.0))


def as_texts(X, missing=()):
    """The codes as texts in the order of the codes, some of them missing."""
    names = pd.Series([f"k{int(code):02}" for code in X[:, 2]])
    names[list(missing)] = None
    return pd.DataFrame({"who": names, "a": X[:, 0], "b": X[:, 1]})


def test_a_column_of_many_texts_has_the_effects_of_its_codes():
    """In a table identifiers may stand anywhere; a text that is missing or was not met has no level."""
    X, y, _ = table(300, sizes=(60,))
    X[:2, 2] = -1
    model, wanted = QSGPRegressor(random_state=0, kernel="rbf").fit(as_texts(X, (0, 1)), y), fitted(X, y, 1)
    assert model.input_names_ == ["a", "b", "who"] and model.effect_variance_.shape == (1,)
    new, codes = as_texts(X[:9], (0, 1)), X[:9].copy()
    new.loc[2, "who"], codes[2, 2] = "nobody", -1
    with pytest.warns(UserWarning, match="who=nobody"):
        found = model.predict(new, return_std=True)
    np.testing.assert_allclose(found, wanted.predict(codes, return_std=True), rtol=1e-3)


def test_a_table_of_identifiers_alone_has_a_model():
    X, y, _ = table(500, sizes=(60,))
    model = QSGPRegressor(random_state=0, kernel="rbf", learn_hyperparameters=False).fit(as_texts(X)[["who"]], y)
    assert model.input_names_ == ["who is missing", "who"]
    means = pd.Series(y).groupby(X[:, 2]).transform("mean")
    assert np.corrcoef(model.predict(as_texts(X)[["who"]]), means)[0, 1] > 0.95


def test_classifiers_and_portions_leave_identifiers_out_and_say_so():
    X, y, _ = table(200, sizes=(60,))
    with pytest.warns(UserWarning, match="a classifier takes texts of up to 50 values: 'who'"):
        assert QSGPClassifier(random_state=0).fit(as_texts(X), y > 10).input_names_ == ["a", "b"]
    with pytest.warns(UserWarning, match="partial_fit takes texts of up to 50 values: 'who'"):
        assert QSGPRegressor(random_state=0).partial_fit(as_texts(X), y).input_names_ == ["a", "b"]
    with pytest.raises(ValueError, match="none that can be used, because a classifier"):
        QSGPClassifier().fit(as_texts(X)[["who"]], y > 10)


def test_a_run_that_goes_on_ends_where_it_had_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "SMALL", 100)
    X, y, _ = table(300)
    first, again = (fitted(X, y, checkpoint=tmp_path, learn_hyperparameters=False) for _ in range(2))
    assert first.plan_.road == "rows" and any(tmp_path.iterdir())
    np.testing.assert_allclose(again.predict(X), first.predict(X), atol=0.01)


def test_rows_without_any_level_are_rows_without_identifiers():
    X, y, _ = table(60)
    X[:, 2:] = -1
    model = fitted(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=4 * np.sqrt(model.noise_variance_))


def test_the_plan_says_what_identifiers_take():
    plain, own = (make_plan(10**6, 6, 1, options.Options(levels=levels)) for levels in ((), (4, 5)))
    assert plain.memory < own.memory < 4e9
    assert "2 identifiers" in str(own) and "identifier" not in str(plain)
    shared = make_plan(10**6, 6, 1, options.Options(levels=(4, 5), ranks=2))
    assert "Each of the 2 ranks trains the same model" in str(shared) and "share the rows" not in str(shared)


def test_the_plan_of_identifiers_speaks_of_no_map_and_no_noise_of_other_shapes():
    X, y, _ = table(200, sizes=(60,))
    said = [str(QSGPRegressor().plan(rows, y)) for rows in (as_texts(X), as_texts(X)[["a", "b"]])]
    assert ["target_map" in each for each in said] == [False, True]
    assert ["whether the noise" in each for each in said] == [False, True]
