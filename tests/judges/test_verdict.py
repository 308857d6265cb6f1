"""Baselines as scikit-learn would have them, and words at the top that stay true for bad models."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from judges.test_report import read
from qsgp import QSGPClassifier, QSGPRegressor
from qsgp.evaluation import Classification, Regression, evaluate_all
from qsgp.report import baselines as module
from qsgp.report.baselines import LINEAR, TREES, Baselines
from qsgp.report.page import Section, page
from qsgp.report.scores import about, comparison
from qsgp.report.subject import Subject
from qsgp.report.verdict import verdict, worries


def bent(n, seed, noise=0.3):
    """A curve that a line misses."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)


def straight(n, seed, d=6, noise=0.5):
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, X.sum(1) + noise * np.random.default_rng(seed + 1).normal(size=n)


def subject_of(model, X, y):
    rows = model.prepare_inputs(X)
    return Subject(model, rows, evaluate_all(model, rows, y), ["y"], 0)


def told(model, X, y):
    subject = subject_of(model, X, y)
    return verdict(subject, Baselines.of(subject))


def gp(X, y, **keywords):
    return QSGPRegressor(kernel="rbf", random_state=0, **keywords).fit(X, y)


@pytest.fixture(scope="module")
def good():
    return gp(*bent(200, 0))


def test_the_linear_model_is_scikit_learns_in_five_folds(good):
    X, y = bent(200, 1)
    found = Baselines.of(subject_of(good, X, y))
    model = make_pipeline(SimpleImputer(), StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))
    folds = KFold(5, shuffle=True, random_state=0)
    wanted = cross_val_predict(model, X, y, cv=folds)
    np.testing.assert_allclose(found.found[LINEAR][0].mean, wanted)
    # one deviation for each fold, from the errors of the others
    known, judged = next(iter(folds.split(X)))
    np.testing.assert_allclose(found.found[LINEAR][0].deviation[judged], np.sqrt(np.mean((y - wanted)[known] ** 2)))
    assert found.learned_from == 160


def test_boosted_trees_take_categories_and_gaps_as_they_are():
    rng = np.random.default_rng(0)
    kind = rng.choice(list("abcdefgh"), 300)
    table = pd.DataFrame({"kind": kind, "size": rng.normal(size=300)})
    y = np.isin(kind, list("aceg")) * 3.0 + table["size"].to_numpy() + rng.normal(0, 0.1, 300)
    table["size"] = table["size"].where(rng.random(300) > 0.2)
    model = QSGPRegressor(kernel="rbf", learn_hyperparameters=False, random_state=0).fit(table[:50], y[:50])
    found = Baselines.of(subject_of(model, table, y))
    trees = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    folds = KFold(5, shuffle=True, random_state=0)
    wanted = cross_val_predict(trees, table.astype({"kind": "category"}), y, cv=folds)
    np.testing.assert_allclose(found.found[TREES][0].mean, wanted)


def test_levels_of_identifiers_are_known_to_the_baselines():
    rng = np.random.default_rng(0)
    level = rng.integers(0, 60, 400)
    table = pd.DataFrame({"shop": [f"shop {k}" for k in level], "size": rng.normal(size=400)})
    y = rng.normal(size=60)[level] * 3 + 0.1 * rng.normal(size=400)
    model = QSGPRegressor(kernel="rbf", learn_hyperparameters=False, random_state=0).fit(table, y)
    assert model.columns_.levels == {"shop": 60}
    found = Baselines.of(subject_of(model, table, y)).found
    assert max(each[0].scores()["RMSE"] for each in found.values()) < 0.7 * y.std()


def test_probabilities_of_baselines_are_scikit_learns_but_for_zeros():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=300) > 0).astype(int)
    model = QSGPClassifier(kernel="rbf", random_state=0).fit(X[:60], y[:60])
    found = Baselines.of(subject_of(model, X, y)).found[LINEAR][0]
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    wanted = cross_val_predict(linear, X, y, cv=folds, method="predict_proba")
    assert found.scores()["log loss"] == pytest.approx(log_loss(y, wanted), rel=0.02)
    assert found.probability.min() > 0 and found.probability.sum(1) == pytest.approx(1)


def test_a_class_of_one_row_costs_baselines_no_infinite_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = np.where(X[:, 0] > 0, 1, 0)
    y[0] = 2  # the other folds have not seen it
    model = QSGPClassifier(kernel="rbf", random_state=0).fit(X, y)
    for each in Baselines.of(subject_of(model, X, y)).found.values():
        assert each[0].scores()["log loss"] < 2


def test_without_enough_rows_there_are_no_baselines_and_it_is_told(good):
    subject = subject_of(good, *bent(49, 1))
    assert Baselines.of(subject) is None
    assert "too few rows" in about(subject, None) and "typical error" in comparison(subject, None)
    assert Baselines.of(subject_of(good, bent(60, 1)[0], np.zeros(60))) is None


def test_many_rows_take_part_as_a_sample_and_it_is_told(good, monkeypatch):
    monkeypatch.setattr(module, "_MOST_ROWS", 100)
    X, y = bent(300, 1)
    subject = subject_of(good, X, y)
    found = Baselines.of(subject)
    assert found.learned_from == 80 and len(found.found[TREES][0].y) == 100
    np.testing.assert_array_equal(found.found[TREES][0].y, y[found.rows])
    assert "100 of the rows take part" in about(subject, found)


# --- the verdict -----------------------------------------------------------------------------------------------------


def test_a_good_model_is_called_better(good):
    better, honest, worry = told(good, *bent(400, 1))
    assert better.startswith("The model is better than a linear model and boosted trees: typical error (RMSE) 0.3")
    assert "keep their word" in honest and "too surely" not in worry


def test_of_a_model_without_faults_nothing_bad_is_said(good):
    """Its predictions are those of whoever made the data."""
    X, y = bent(400, 1)
    mean = np.sin(3 * X[:, 0]) + X[:, 1]
    subject = dataclasses.replace(subject_of(good, X, y), found=[Regression.of(y, mean, np.full(400, 0.3))])
    better, honest, worry = verdict(subject, Baselines.of(subject))
    assert better.startswith("The model is better than") and "keep their word" in honest
    assert worry.startswith("Nothing else on this page speaks against the model")


def test_a_model_that_knows_nothing_is_called_no_better_than_a_constant():
    X, y = bent(60, 0)
    model = gp(X, np.random.default_rng(0).permutation(y) * 3)
    better, _, worry = told(model, *bent(400, 1))
    own, constant = (float(v) for v in re.findall(r"[\d.]+\d", better)[:2])
    assert "no better than a constant" in better and "Do not use its predictions" in better and own > constant
    assert "worse than without a model" in worry or "missed along x" in worry


def test_a_model_of_few_rows_is_called_worse_than_a_line_and_who_knew_more():
    model = gp(*straight(12, 0))
    better, *_ = told(model, *straight(400, 5))
    assert better.startswith("The model is worse than a linear model: typical error (RMSE)")
    assert "They had more to learn from: 320 of these rows, the model 12." in better


def test_a_difference_within_chance_is_none():
    model = gp(*straight(400, 0))
    better, *_ = told(model, *straight(400, 5))
    assert better.startswith("The model is about as good as a linear model, within chance:")


@pytest.mark.parametrize(("fit_rows", "said"), [(1000, "it should be ahead"), (60, "being behind proves little")])
def test_it_is_told_who_had_more_to_learn_from(fit_rows, said, good):
    subject = subject_of(good, *bent(300, 1))
    plan = dataclasses.replace(good.plan_, given=fit_rows)
    found = Baselines.of(subject)
    subject.model.plan_, kept = plan, good.plan_
    try:
        assert said in about(subject, found) and f"{fit_rows:,} rows" in about(subject, found)
    finally:
        subject.model.plan_ = kept


def test_an_overconfident_model_is_called_so(good):
    X, y = bent(400, 1)
    subject = subject_of(good, X, y)
    found = subject.found[0]
    sure = Regression.of(found.y, found.mean, found.deviation / 3)
    _, honest, worry = verdict(dataclasses.replace(subject, found=[sure]), None)
    assert "too narrow" in honest and "Some rows are predicted too surely" in worry


def test_what_is_missed_is_named(good):
    """The model is judged by rows of another world, where the second column matters twice as much."""
    X, y = bent(400, 1)
    worry = " ".join(worries(subject_of(good, X, y + X[:, 1])))
    share = float(re.search(r"missed along x1: it alone explains ([\d.]+)", worry)[1])
    assert share > 80


def test_a_hundred_rows_cannot_acquit(good):
    assert "With 100 rows only large faults would show" in told(good, *bent(100, 1))[2]


def test_training_that_was_cut_short_is_told(good):
    subject = subject_of(good, *bent(300, 1))
    history, good.history_ = good.history_, [{"seconds": k, "rmse": 10.0 - k} for k in range(5)]
    try:
        assert "Training was cut short" in " ".join(worries(subject))
        good.history_ = [{"seconds": k, "rmse": 1 + 0.01**k} for k in range(5)]
        assert "Training" not in " ".join(worries(subject))
    finally:
        good.history_ = history


def test_a_classifier_of_noise_is_called_no_better_than_shares():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), rng.integers(0, 2, 80)
    model = QSGPClassifier(kernel="rbf", random_state=0).fit(X, y)
    subject = subject_of(model, rng.normal(size=(300, 2)), rng.integers(0, 2, 300))
    found = subject.found[0]
    bold = np.where(found.probability > 0.5, 0.95, 0.05)
    bold = bold / bold.sum(1, keepdims=True)
    better, honest, _ = verdict(
        dataclasses.replace(subject, found=[Classification(found.label, bold, found.classes)]), Baselines.of(subject)
    )
    assert "no better than giving every row the shares of the classes" in better and "too bold" in honest


def test_the_report_begins_with_the_verdict(good, tmp_path):
    path = good.report(*bent(200, 1), tmp_path / "report.html")
    html = path.read_text("utf-8")
    assert html.count('<p class="lead">') == 3
    assert html.index('<p class="lead">The model is better') < html.index("<table>")
    assert list(read(path).table("Scores of 200 rows")) == ["RMSE", "MNLP", "CRPS", "coverage"]
    head = re.search(r"<thead><tr>(.*?)</tr>", html)[1]
    assert re.findall(r">([\w ]+)</th>", head) == ["score", "model", LINEAR, TREES, "constant"]


def test_every_table_scrolls_by_itself(good, tmp_path):
    """On a phone the page must not be wider than the window; tables scroll in a frame of their own."""
    html = good.report(*bent(60, 1), tmp_path / "report.html").read_text("utf-8")
    framed = re.findall(r'<div class="scroll" role="region" tabindex="0" aria-label="[^"]*"><table>', html)
    assert len(framed) == html.count("<table>") > 3
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto", page("empty", [Section("a", "a")]))
