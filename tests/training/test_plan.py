"""The plan of a fit: sizes as they have always been, and sentences that say why."""

import json
from pathlib import Path

import numpy as np
import pytest

import qsgp
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMRegressor
from qsgp.training.options import Options
from qsgp.training.plan import Plan, make_plan
from qsgp.training.train import ROADS

GB = 10**9
# What "auto" stood for before plans were made in one place, by keywords, rows and outputs: the road, every size, and
# the bytes in all; or the message of the error.
SIZES = json.loads((Path(__file__).parent / "sizes.json").read_text())
KEYWORDS = {
    "default": {},
    "classes": {"likelihood": "logistic"},
    "laplace": {"likelihood": "laplace", "max_time": 5.0},
    "support": {"covariance": "support"},
    "time 1": {"max_time": 1.0},
    "time 600": {"max_time": 600.0},
    "cuda": {"device": "cuda"},
    "cuda time 300": {"device": "cuda", "max_time": 300.0, "max_memory": 65 * GB},
    "memory 17": {"max_memory": 17 * 10**6},
    "memory 75": {"max_memory": 75 * 10**6},
    "memory 200": {"max_memory": 200 * 10**6},
    "memory 900 classes": {"max_memory": 900 * 10**6, "likelihood": "logistic"},
    "no learning": {"learn_hyperparameters": False, "max_memory": 900 * 10**6},
    "max_iter": {"max_iter": 5},
    "batch_points": {"batch_points": 300, "batch_features": 64, "support_points": 70},
    "adagrad": {"optimizer": "adagrad", "max_memory": 300 * 10**6},
    "preconditioned": {"optimizer": "preconditioned"},
    "preconditioned time 10": {"optimizer": "preconditioned", "n_features": 4000, "max_time": 10.0},
    "preconditioned cuda": {"optimizer": "preconditioned", "device": "cuda", "n_features": 100_000},
    "n_features": {"n_features": 500},
    "n_features many": {"n_features": 20_000},
    "n_features memory 300": {"n_features": 4000, "max_memory": 300 * 10**6},
    "fourier time 5": {"basis": "fourier", "max_time": 5.0},
    "fourier memory 60": {"basis": "fourier", "max_memory": 60 * 10**6},
    "inducing": {"basis": "inducing"},
    "inducing iter memory 200": {"basis": "inducing", "max_iter": 5, "max_memory": 200 * 10**6},
    "grid": {"basis": "grid", "covariance": "meanfield"},
    "chevron": {"covariance": "chevron", "dense_columns": 10},
    "full steps": {"covariance": "full", "max_iter": 10, "n_features": 600},
    "relevance": {"relevance": True, "max_memory": 900 * 10**6},
    "relevance features": {"relevance": True, "n_features": 300, "covariance": "meanfield"},
    "keep": {"keep": True},
    "keep features": {"keep": True, "n_features": 100, "max_memory": 50 * 10**6},
}


def planned(n, outputs=1, **keywords):
    keep = keywords.pop("keep", False)
    return make_plan(n, 8, outputs, Options(**keywords), keep=keep)


@pytest.mark.parametrize("name", KEYWORDS)
def test_sizes_are_what_they_were(name):
    cases = {key: value for key, value in SIZES.items() if key.rsplit(", ", 2)[0] == name}
    assert len(cases) == 8
    for key, wanted in cases.items():
        n, outputs = map(int, key.rsplit(", ", 2)[1:])
        if isinstance(wanted, str):
            with pytest.raises(ValueError, match="max_memory") as error:
                planned(n, outputs, **KEYWORDS[name])
            assert wanted in str(error.value), key
        else:
            plan = planned(n, outputs, **KEYWORDS[name])
            assert [*vars(plan.sizes).values(), plan.memory] == wanted, key


@pytest.mark.parametrize(
    ("n", "keywords", "why"),
    [
        (500, {}, "The exact GP is solved in closed form, because 500 rows are not more than 3,000."),
        (
            50_000,
            {},
            "The exact GP is solved by blocks of rows, because 50,000 rows are more than the 3,000 of the closed form.",
        ),
        (
            50_000,
            {"max_iter": 5},
            "max_iter is a setting of steps, so Fourier features are trained by steps instead of the exact GP by "
            "blocks of rows.",
        ),
        (
            500,
            {"basis": "inducing"},
            "basis='inducing' asks for inducing points, so the weights of inducing points are solved from sums over "
            "the rows instead of the exact GP in closed form.",
        ),
        (
            50_000,
            {"n_features": 600, "batch_points": 50, "max_iter": 9},
            "n_features asks for Fourier features and batch_points and max_iter are settings of steps, so Fourier "
            "features are trained by steps instead of the exact GP by blocks of rows.",
        ),
        (
            3000,
            {"max_memory": 200 * 10**6},
            "The exact GP in closed form would take 576 MB, which is more than max_memory (200 MB), so the exact GP is "
            "solved by blocks of rows.",
        ),
        (
            50_000,
            {"basis": "fourier", "max_memory": 60 * 10**6},
            "basis='fourier' asks for Fourier features, but solving for the weights of Fourier features would take "
            "368 MB, which is more than max_memory (60 MB), so Fourier features are trained by steps.",
        ),
        (
            50_000,
            {"likelihood": "logistic", "n_features": 20_000},
            "n_features asks for Fourier features and more than 8,192 of them are too many for a matrix of their "
            "covariance, so Fourier features are trained by steps instead of the GP by blocks of rows.",
        ),
    ],
)
def test_the_first_sentence_says_which_road_and_why(n, keywords, why):
    assert planned(n, **keywords).sentences[0] == why


@pytest.mark.parametrize("name", KEYWORDS)
@pytest.mark.parametrize("n", [800, 40_000])
def test_no_keyword_changes_the_road_silently(name, n):
    """A road that is not the one without any keyword has a reason, and the reason names a keyword that is set."""
    keywords = dict(KEYWORDS[name])
    if name == "n_features memory 300":
        return  # an error, above
    plan, usual = planned(n, **keywords), planned(n)
    words = {"relevance": "relevance vector machine", "keep": "first portions"}
    named = [words.get(keyword, keyword) for keyword in keywords]
    if plan.road != usual.road:
        assert any(word in plan.sentences[0] for word in named), plan.sentences[0]
    assert plan.road in ROADS
    assert all(sentence.endswith(".") and not sentence.endswith("..") for sentence in plan.sentences)


@pytest.mark.parametrize("name", ["batch_points", "batch_features", "support_points", "max_iter", "tol", "checkpoint"])
def test_settings_of_steps_say_where_they_have_no_effect(name):
    plan = planned(500, **{name: {"tol": 0.1, "checkpoint": "folder"}.get(name, 5)})
    assert plan.road == "closed form" and f"{name} has no effect: there are no steps to set." in plan.sentences


@pytest.mark.parametrize("name", ["tol", "checkpoint"])
def test_settings_that_the_rows_honour_leave_the_road(name):
    keywords = {name: "folder" if name == "checkpoint" else 0.01}
    rows = planned(50_000, **keywords)
    assert rows.road == "rows" and rows.sizes == planned(50_000).sizes
    said = {"tol": "change by less than 0.01", "checkpoint": "Checkpoints are written"}[name]
    assert said in str(rows) and said not in str(planned(50_000))
    both = planned(50_000, max_iter=5, **keywords)
    assert both.road == "steps" and both.sentences[0].startswith("max_iter is a setting of steps, so ")
    assert planned(50_000, basis="fourier", **keywords).road == "steps"  # weights from sums have no such setting


def test_numbers_of_a_plan():
    plan = planned(10**6, max_time=60.0)
    assert (plan.road, plan.device, plan.dtype, plan.max_time) == ("rows", "cpu", "float32", 60.0)
    assert plan.rows == plan.sizes.dual_rows < plan.given == 10**6 and plan.held_out == 1000
    assert f"The model knows {plan.rows:,} of 1,000,000 rows, drawn at random: as many as 60 s allow" in str(plan)
    closed = planned(800, device="cuda")
    assert (closed.rows, closed.held_out, closed.device, closed.dtype) == (800, 0, "cpu", "float64")
    assert repr(closed) == f"Plan(road='closed form', rows=800, memory={closed.memory}, device='cpu')"


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return X, X[:, 0] + 0.1 * rng.normal(size=60)


def test_a_model_has_its_plan_and_keeps_it_in_its_file(data, tmp_path, capsys):
    model = QSGPRegressor(learn_hyperparameters=False, verbose=1, max_iter=3).fit(*data)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{model.plan_}\n") and "max_iter has no effect" in printed
    assert model.plan_.road == "closed form" and model.plan_.memory == model.memory_
    model.save(tmp_path / "model.qsgp")
    assert qsgp.load(tmp_path / "model.qsgp").plan_ == model.plan_
    old = qsgp.load(Path(__file__).parents[1] / "golden" / "format1-rows.qsgp")
    assert not hasattr(old, "plan_")


def test_a_plan_comes_without_training(data, monkeypatch):
    X, y = data
    monkeypatch.setattr("qsgp.models.estimator.train", lambda *_: pytest.fail("it has begun to train"))
    for model, target in ((QSGPRegressor(), y), (QSGPClassifier(), y > 0), (QSRVMRegressor(), y)):
        before = dict(vars(model))
        plan = model.plan(X, target)
        assert isinstance(plan, Plan) and plan.given == 60
        assert vars(model) == before
    with pytest.raises(ValueError, match="Expected max_iter"):
        QSGPRegressor(max_iter=0).plan(X, y)


def test_portions_say_when_they_are_added_up():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    model = QSGPRegressor(learn_hyperparameters=False, n_features=64, random_state=0)
    model.partial_fit(X[:800], X[:800, 0])
    assert "the first portions are kept" in model.plan_.sentences[0]
    for start in (800, 1200):
        model.partial_fit(X[start : start + 400], X[start : start + 400, 0])
    assert model.plan_.road == "weights" and model.plan_.memory == model.memory_
    assert [sentence for sentence in model.plan_.sentences if "sums over 64 Fourier features" in sentence]


def test_a_plan_made_up_is_refused():
    header = planned(800).header()
    assert Plan.from_header(json.loads(json.dumps(header))) == planned(800)
    wrong = [
        {"given": -1},
        {"given": 10**400},
        {"sentences": [1]},
        {"max_time": "long"},
        {"sizes": header["sizes"] | {"m": 0.5}},
        {"sizes": header["sizes"] | {"more": 1}},
        {"need": {"data": "much"}},
    ]
    for change in wrong:
        with pytest.raises((ValueError, TypeError)):
            Plan.from_header(header | change)
