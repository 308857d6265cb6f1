"""The estimators among scikit-learn's own tools: pipelines, searches, routing, callbacks, tags, pickles."""

import pickle
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingClassifier, VotingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import get_tags

import qsgp.models.callbacks
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMClassifier, QSRVMRegressor

ALL = [QSGPRegressor, QSGPClassifier, QSRVMRegressor, QSRVMClassifier]
TABLE = {"basis": "fourier", "n_features": 20, "max_iter": 6}


def wave(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, 10 + 5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


X, y = wave()
LABELS = np.array(["low", "middle", "high"])[np.digitize(y, [8, 12])]


def quick(cls: type = QSGPRegressor, **keywords: Any) -> Any:
    small = {"n_features": 20, "max_iter": 20} if cls.__name__.startswith("QSRVM") else {}
    return cls(**({"learn_hyperparameters": False, "random_state": 0} | small | keywords))


def target_of(cls: type) -> np.ndarray:
    return y if "Regressor" in cls.__name__ else LABELS


def assert_same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Labels exactly, numbers to rounding: linear algebra may round by where its arrays lie in memory."""
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    else:
        np.testing.assert_array_equal(found, wanted)


# --- parameters, tags, pictures


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("cls", ALL)
def test_parameters_are_kept_untouched(cls):
    """Whatever is given, even nonsense: checked in fit, so that clone and set_params never trip."""
    odd = {name: object() for name in cls().get_params()}
    model = cls(**odd)
    assert all(model.get_params()[name] is value for name, value in odd.items())
    defaults = cls()
    assert clone(defaults).get_params() == defaults.get_params()
    assert clone(defaults.set_params(kernel="rbf")).kernel == "rbf"
    with pytest.raises(ValueError, match="Invalid parameter 'kernal'"):
        defaults.set_params(kernal="rbf")


@pytest.mark.parametrize("cls", ALL)
def test_fit_returns_self_and_leaves_the_parameters(cls):
    model = quick(cls)
    before = dict(model.get_params())
    assert model.fit(X, target_of(cls)) is model
    assert model.get_params() == before
    assert not hasattr(clone(model), "n_iter_")
    learned = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    assert {"kernel_", "lengthscale_", "signal_variance_", "n_iter_", "history_", "n_features_in_"} <= learned


@pytest.mark.parametrize("cls", ALL)
def test_tags(cls):
    tags, regressor = get_tags(cls()), "Regressor" in cls.__name__
    assert is_regressor(cls()) == regressor and is_classifier(cls()) == (not regressor)
    assert tags.target_tags.required and tags.target_tags.multi_output == regressor
    assert (
        tags.input_tags.sparse
        and tags.input_tags.allow_nan
        and tags.input_tags.categorical
        and not tags.non_deterministic
    )
    if not regressor:
        assert tags.classifier_tags.multi_class


@pytest.mark.parametrize("cls", ALL)
def test_shown_in_text_and_html(cls):
    model = quick(cls, kernel="rbf")
    assert repr(model).startswith(f"{cls.__name__}(kernel='rbf', learn_hyperparameters=False")
    assert cls.__name__ in model._repr_html_() and "fitted" not in repr(model)
    assert "kernel" in model.fit(X, target_of(cls))._repr_html_()


@pytest.mark.parametrize("cls", ALL)
def test_not_fitted_is_said(cls):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        quick(cls).predict(X)


@pytest.mark.parametrize("cls", ALL)
def test_the_same_seed_gives_the_same_model(cls):
    keywords = TABLE if "GP" in cls.__name__ else {}
    first, second = (quick(cls, **keywords).fit(X, target_of(cls)) for _ in range(2))
    for method in ("predict_proba", "predict"):
        if hasattr(first, method):
            assert_same(getattr(first, method)(X), getattr(second, method)(X))


@pytest.mark.parametrize("cls", ALL)
def test_fitting_again_forgets_the_first_fit(cls):
    model = quick(cls).fit(np.c_[X, X], target_of(cls))
    model.fit(X, target_of(cls))
    assert model.n_features_in_ == 2
    assert_same(model.predict(X), quick(cls).fit(X, target_of(cls)).predict(X))


@pytest.mark.parametrize("cls", ALL)
def test_a_fitted_model_survives_joblib(cls, tmp_path):
    model = quick(cls).fit(pd.DataFrame(X, columns=["a", "b"]), target_of(cls))
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    rows = pd.DataFrame(wave(20, seed=1)[0], columns=["a", "b"])
    assert_same(again.predict(rows), model.predict(rows))
    assert again.feature_names_in_.tolist() == ["a", "b"] and again.get_params() == model.get_params()


def test_a_model_of_features_does_not_carry_its_data():
    sizes = [len(pickle.dumps(quick(**TABLE).fit(*wave(n)))) for n in (60, 6000)]
    assert sizes[1] < sizes[0] + 5000  # one copy of the rows would be 144,000 bytes


def test_portions_survive_joblib(tmp_path):
    """Between two portions the sums are kept, not only the predictions."""
    model = quick(**TABLE).fit(X[:30], y[:30])
    model.partial_fit(X[30:50], y[30:50])
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    for one in (model, again):
        one.partial_fit(X[50:], y[50:])
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-12)


# --- pipelines and searches


def test_scaling_before_the_model_changes_nothing():
    """It standardises inside: a scaler in front must not matter."""
    plain, piped = quick().fit(X, y), make_pipeline(StandardScaler(), quick()).fit(X, y)
    np.testing.assert_allclose(piped.predict(X), plain.predict(X), rtol=1e-9)
    mean, deviation = piped.predict(X, return_std=True)
    np.testing.assert_allclose(deviation, plain.predict(X, return_std=True)[1], rtol=1e-9)
    np.testing.assert_allclose(mean, piped.predict(X))


def test_columns_of_all_kinds_through_a_transformer():
    """What the error messages recommend: impute numbers, encode words, keep the names."""
    colour = np.where(X[:, 1] > 0, "red", "blue")
    table = pd.DataFrame({"a": X[:, 0], "colour": colour}).assign(b=np.where(np.arange(60) % 9, X[:, 1], np.nan))
    prepare = ColumnTransformer(
        [("numbers", SimpleImputer(), ["a", "b"]), ("words", OneHotEncoder(sparse_output=False), ["colour"])]
    ).set_output(transform="pandas")
    piped = make_pipeline(prepare, quick()).fit(table, y)
    assert piped.score(table, y) > 0.9
    names = piped[-1].feature_names_in_.tolist()
    assert names == ["numbers__a", "numbers__b", "words__colour_blue", "words__colour_red"]


@pytest.mark.parametrize("cls", ALL)
def test_cross_validation(cls):
    scores = cross_val_score(quick(cls), X, target_of(cls), cv=3, error_score="raise")
    assert scores.shape == (3,) and (scores > 0.5).all()
    out = cross_val_predict(quick(cls), X, target_of(cls), cv=3)
    assert out.shape == (60,)


def test_probabilities_in_cross_validation():
    proba = cross_val_predict(quick(QSGPClassifier), X, LABELS, cv=3, method="predict_proba")
    np.testing.assert_allclose(proba.sum(1), 1)
    scores = cross_val_score(quick(QSGPClassifier), X, LABELS, cv=3, scoring="neg_log_loss", error_score="raise")
    assert (scores > -np.log(3)).all()


def test_a_search_over_keywords_of_a_step():
    piped = make_pipeline(StandardScaler(), quick())
    name = "qsgpregressor__"
    grid = {f"{name}kernel": ["rbf", "matern12"], f"{name}mean": ["constant", "linear"]}
    search = GridSearchCV(piped, grid, cv=2, error_score="raise").fit(X, y)
    assert set(search.best_params_) == set(grid) and search.best_score_ > 0.8
    assert search.predict(X).shape == (60,)


@pytest.mark.slow
def test_a_search_on_two_cores():
    """Models travel to other processes and back."""
    search = GridSearchCV(quick(), {"kernel": ["rbf", "matern32"]}, cv=2, n_jobs=2, error_score="raise").fit(X, y)
    alone = GridSearchCV(quick(), {"kernel": ["rbf", "matern32"]}, cv=2, error_score="raise").fit(X, y)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"], rtol=1e-6)


def test_a_wrong_keyword_in_a_search_is_reported():
    with pytest.raises(ValueError, match="kernel among .* got 'cubic'"):
        GridSearchCV(quick(), {"kernel": ["rbf", "cubic"]}, cv=2, error_score="raise").fit(X, y)


# --- other meta-estimators


def test_voting_stacking_and_bagging():
    members = [("gp", quick()), ("rvm", quick(QSRVMRegressor)), ("line", LinearRegression())]
    assert VotingRegressor(members).fit(X, y).score(X, y) > 0.7
    assert StackingRegressor(members, cv=2).fit(X, y).score(X, y) > 0.9
    assert BaggingRegressor(quick(), n_estimators=2, random_state=0).fit(X, y).score(X, y) > 0.9
    voters = [("gp", quick(QSGPClassifier)), ("line", LogisticRegression())]
    assert VotingClassifier(voters, voting="soft").fit(X, LABELS).score(X, LABELS) > 0.7


def test_calibrated_by_scikit_learn():
    model = CalibratedClassifierCV(quick(QSGPClassifier), cv=2).fit(X, LABELS)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert model.score(X, LABELS) > 0.7


def test_a_target_on_another_scale():
    model = TransformedTargetRegressor(quick(), func=np.log, inverse_func=np.exp).fit(X, y)
    assert model.score(X, y) > 0.9


def test_importance_of_the_inputs():
    found = permutation_importance(quick().fit(X, y), X, y, n_repeats=2, random_state=0)
    assert found.importances_mean[0] > 10 * abs(found.importances_mean[1])


def test_scorers_by_name():
    assert get_scorer("neg_root_mean_squared_error")(quick().fit(X, y), X, y) > -2
    model = quick(QSGPClassifier).fit(X, LABELS)
    assert get_scorer("roc_auc_ovr")(model, X, LABELS) > 0.9


def test_several_outputs_are_scored():
    Y = np.stack([y, -2 * y], 1)
    assert cross_val_score(quick(), X, Y, cv=2, error_score="raise").min() > 0.8


# --- metadata routing


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


WEIGHT = np.where(np.arange(60) < 30, 1.0, 0.0)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("cls", ALL)
def test_weights_asked_for_reach_the_model(cls):
    model = quick(cls).set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
    piped = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
    fitted = piped.fit(X, target_of(cls), sample_weight=WEIGHT)
    expected = quick(cls).fit(StandardScaler().fit_transform(X), target_of(cls), WEIGHT)
    assert_same(fitted.predict(X), expected.predict(StandardScaler().fit_transform(X)))
    unweighted = quick(cls).fit(X, target_of(cls))
    assert (unweighted.predict(X) != fitted.predict(X)).any()


@pytest.mark.usefixtures("routing")
def test_weights_through_a_search_and_cross_validation():
    """Rows of weight 0 carry a nonsense target: only a model that got the weights is good on the others."""
    spoilt = np.where(WEIGHT > 0, y, 1000.0)
    model = quick().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    order = np.arange(60).reshape(2, 30).T.ravel()  # each fold holds rows of both kinds
    search = GridSearchCV(model, {"kernel": ["rbf", "matern32"]}, cv=2, error_score="raise")
    search.fit(X[order], spoilt[order], sample_weight=WEIGHT[order])
    assert search.best_score_ > 0.5
    assert search.best_estimator_.score(X[:30], y[:30]) > 0.9
    scores = cross_validate(
        model, X[order], spoilt[order], cv=2, params={"sample_weight": WEIGHT[order]}, error_score="raise"
    )
    assert (scores["test_score"] > 0.5).all()


@pytest.mark.usefixtures("routing")
def test_weights_not_spoken_of_are_refused():
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="sample_weight"):
        cross_validate(quick(), X, y, params={"sample_weight": WEIGHT}, error_score="raise")


@pytest.mark.usefixtures("routing")
def test_return_std_can_be_asked_for():
    assert quick().set_predict_request(return_std=True).get_metadata_routing().predict.requests["return_std"] is True


# --- callbacks, new in scikit-learn 1.9

callbacks = pytest.mark.skipif(not qsgp.models.callbacks.SUPPORTED, reason="scikit-learn before 1.9 has no callbacks")


class Watcher:
    """Counts tasks, keeps what the model of the moment predicts, and says stop at the ``most``-th record."""

    def __init__(self, most: int | None = None) -> None:
        self.most, self.records, self.begun, self.roots, self.setups = most, [], 0, 0, 0

    def setup(self, estimator: Any, context: Any) -> None:
        self.setups += 1

    def teardown(self, estimator: Any, context: Any) -> None:
        self.setups -= 1

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.begun += 1

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, X: Any, y: Any, metadata: Any, fitted_estimator: Any
    ) -> bool:
        self.begun -= 1
        if context.task_name != "iterations":
            self.roots += 1
            return False
        self.records.append(fitted_estimator.predict(X))
        assert len(X) == len(y) and "sample_weight" in metadata
        return self.most is not None and len(self.records) >= self.most


@callbacks
@pytest.mark.parametrize("cls", ALL)
def test_a_callback_stops_the_training(cls):
    keywords = TABLE if "GP" in cls.__name__ else {}
    watcher = Watcher(most=2)
    model = quick(cls, **keywords | {"max_iter": 30}).set_callbacks(watcher).fit(X, target_of(cls))
    assert model.n_iter_ == 2 and len(model.history_) == 2
    assert len(watcher.records) == 2 and watcher.roots == 1
    assert watcher.begun == 0 and watcher.setups == 0  # all that began has ended
    assert_same(watcher.records[-1], model.predict(X))


@callbacks
def test_a_callback_sees_every_record():
    watcher = Watcher()
    model = quick(**TABLE).set_callbacks(watcher).fit(X, y)
    assert len(watcher.records) == len(model.history_) == 6 and model.n_iter_ == 6
    assert not np.array_equal(watcher.records[0], watcher.records[-1])
    assert_same(watcher.records[-1], model.predict(X))


@callbacks
def test_a_model_of_the_closed_form_is_one_task():
    watcher = Watcher()
    quick().set_callbacks(watcher).fit(X, y)
    assert watcher.roots == 1 and watcher.begun == 0 and len(watcher.records) <= 1


@callbacks
@pytest.mark.parametrize("cls", ALL)
def test_scores_while_training(cls):
    monitor = sklearn.callback.ScoringMonitor(scoring="r2" if "Regressor" in cls.__name__ else "accuracy")
    table = pd.DataFrame(X, columns=["a", "b"])
    keywords = TABLE if "GP" in cls.__name__ else {}
    model = quick(cls, **keywords).set_callbacks(monitor).fit(table, target_of(cls))
    found = [row for row in monitor.get_logs().data if row["task_name"] == "iterations"]
    scores = [row["r2" if "Regressor" in cls.__name__ else "accuracy"] for row in found]
    assert len(scores) == len(model.history_)
    assert scores[-1] == pytest.approx(model.score(table, target_of(cls)))


@callbacks
@pytest.mark.parametrize("keywords", [{}, TABLE])
def test_progress_is_shown(keywords, capsys):
    quick(**keywords).set_callbacks(sklearn.callback.ProgressBar()).fit(X, y)
    assert "QSGPRegressor - fit" in capsys.readouterr().out


@callbacks
def test_callbacks_travel_with_a_search(capsys):
    """A bar on the search has a line for every fit inside; a monitor on the model hears from each of them."""
    monitor = sklearn.callback.ScoringMonitor(scoring="r2")
    model = quick(**TABLE).set_callbacks(monitor)
    search = GridSearchCV(model, {"kernel": ["rbf", "matern32"]}, cv=2, error_score="raise")
    search.set_callbacks(sklearn.callback.ProgressBar()).fit(X, y)
    shown = capsys.readouterr().out
    assert shown.count("QSGPRegressor - fit") >= 5
    data = monitor.get_logs().data
    ended = [row for row in data if row["estimator_name"] == "QSGPRegressor" and row["task_name"] == "fit"]
    assert len(ended) == 5 and all(np.isfinite(row["r2"]) for row in ended)  # 2 x 2 fits and the last


@callbacks
def test_a_stopping_callback_inside_a_search():
    model = quick(**TABLE | {"max_iter": 20}).set_callbacks(Watcher(most=2))
    search = GridSearchCV(model, {"kernel": ["rbf"]}, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_.n_iter_ <= 2


@callbacks
def test_callbacks_and_portions():
    monitor = sklearn.callback.ScoringMonitor(scoring="r2")
    model = quick().set_callbacks(monitor)
    for part in np.array_split(np.arange(60), 3):
        model.partial_fit(X[part], y[part])
    assert model.score(X, y) > 0.9


@callbacks
def test_what_is_no_callback_is_refused():
    with pytest.raises(TypeError, match="FitCallback"):
        quick().set_callbacks(print)
