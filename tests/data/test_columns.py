"""Columns of every type in every container: the same description, the same inputs, the same predictions."""

import datetime
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from pyarrow import feather, parquet
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from qsgp import QSGPClassifier, QSGPRegressor, load
from qsgp.data.columns import Columns
from qsgp.data.encoding import encode
from qsgp.data.learning import Learner, columns_of

pytestmark = pytest.mark.filterwarnings("error")
N = 120
START = datetime.datetime(2020, 1, 1)
LEVELS = [f"m{k:02}" for k in range(55)]


def rows(seed: int = 0, n: int = N) -> pa.Table:
    """A column of every type; numbers are eighths, exact whatever holds them."""
    rng = np.random.default_rng(seed)
    number = np.round(8 * rng.normal(size=n)) / 8
    kind, steps = rng.choice(["flat", "house", "villa"], n), rng.integers(0, 9000, n)
    gap = rng.random(n) < 0.2
    return pa.table(
        {
            "number": number,
            "whole": rng.integers(0, 9, n),
            "yes": rng.random(n) < 0.4,
            "kind": kind,
            "gaps": pa.array(np.round(8 * rng.normal(size=n)) / 8, mask=gap),
            "holes": pa.array(rng.choice(["u", "v"], n), mask=gap),
            "when": pa.array([START + datetime.timedelta(hours=int(k)) for k in steps], pa.timestamp("s")),
            "day": pa.array([START.date() + datetime.timedelta(days=int(k)) for k in steps], pa.date32()),
            "level": [LEVELS[k % len(LEVELS)] for k in range(n)],
            "y": number + 3.0 * (kind == "villa"),
        }
    )


ROWS, NEW = rows(), rows(1, 25)
INPUTS = [name for name in ROWS.column_names if name != "y"]
WORDS = """number  number
whole   number
yes     yes or no
kind    3 categories, one input for each
gaps    number
holes   2 categories, one input for each; an input says where it is missing
when    date: trend, time of the year, day of the week, time of the day
day     date: trend, time of the year, day of the week
level   identifier of 55 levels"""


def written(writer: Callable[[pa.Table, Path], Any], name: str) -> Callable[[pa.Table, Path], Path]:
    def convert(table: pa.Table, folder: Path) -> Path:
        writer(table, folder / name)
        return folder / name

    return convert


CONTAINERS: dict[str, Callable[[pa.Table, Path], Any]] = {
    "pandas": lambda table, _: table.to_pandas(),
    "pandas, categories": lambda table, _: table.to_pandas().astype({"kind": "category", "level": "category"}),
    "pandas, Arrow types": lambda table, _: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, dates as texts": lambda table, _: table.to_pandas().assign(day=lambda t: t["day"].astype(str)),
    "polars": lambda table, _: pl.from_arrow(table),
    "polars, categories": lambda table, _: pl.from_arrow(table).with_columns(pl.col("kind").cast(pl.Categorical)),
    "polars, Enum": lambda table, _: pl.from_arrow(table).with_columns(
        pl.col("kind").cast(pl.Enum(["villa", "flat", "house"]))
    ),
    "Arrow": lambda table, _: table,
    "Arrow in chunks": lambda table, _: pa.concat_tables([table[:7], table[7:]]),
    "CSV": written(lambda table, path: table.to_pandas().to_csv(path, index=False), "rows.csv"),
    "Parquet": written(parquet.write_table, "rows.parquet"),
    "Feather": written(feather.write_feather, "rows.feather"),
}


def quick(cls: type = QSGPRegressor, **keywords: Any) -> Any:
    return cls(**({"kernel": "rbf", "learn_hyperparameters": False, "random_state": 0} | keywords))


def fitted(container: str, folder: Path) -> Any:
    X = CONTAINERS[container](ROWS, folder)
    if isinstance(X, Path):
        return quick().fit(X, target="y")
    inputs = X.select(INPUTS) if isinstance(X, pa.Table) else X[INPUTS]
    return quick().fit(inputs, ROWS["y"].to_numpy())


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    return np.stack(fitted("Arrow", Path()).predict(NEW, return_std=True))


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_type_in_every_container(container: str, wanted: np.ndarray, tmp_path: Path) -> None:
    model = fitted(container, tmp_path)
    assert str(model.columns_) == WORDS and model.n_features_in_ == len(INPUTS)
    model.save(tmp_path / "m.qsgp")
    again = load(tmp_path / "m.qsgp")
    assert again.columns_ == model.columns_ and list(again.feature_names_in_) == INPUTS
    for name in (container, "Arrow", "pandas"):
        new = CONTAINERS[name](NEW, tmp_path)
        np.testing.assert_allclose(np.stack(again.predict(new, return_std=True)), wanted, rtol=1e-6)


def test_the_inputs_are_these_numbers() -> None:
    """By another route: pandas and plain arithmetic."""
    columns, table = columns_of(ROWS.select(INPUTS)), NEW.to_pandas()
    found = dict(zip(columns.encoded, encode(columns, NEW).array.T, strict=True))
    for name in ("number", "whole", "yes", "gaps"):
        np.testing.assert_array_equal(found[name], table[name].astype(float))
    for kind in ("flat", "house", "villa"):
        np.testing.assert_array_equal(found[f"kind={kind}"], table["kind"] == kind)
    np.testing.assert_array_equal(found["holes is missing"], table["holes"].isna())
    np.testing.assert_array_equal(found["holes=u"] + found["holes=v"], table["holes"].notna())
    since = (table["when"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    np.testing.assert_allclose(found["when"], since)
    hour = 2 * np.pi * (table["when"].dt.hour + table["when"].dt.minute / 60) / 24
    np.testing.assert_allclose(found["when: sine of day"], np.sin(hour), atol=1e-9)
    weekday = 2 * np.pi * pd.to_datetime(table["day"]).dt.day_of_week / 7
    np.testing.assert_allclose(found["day: cosine of week"], np.cos(weekday), atol=1e-9)
    assert columns.encoded[-1] == "level" and columns.levels == {"level": 55}
    np.testing.assert_array_equal(found["level"], [LEVELS.index(level) for level in table["level"]])


@pytest.mark.parametrize("size", [1, 7, 60])
def test_portions_tell_what_the_whole_table_tells(size: int) -> None:
    """What a reader of a file larger than memory adds up; also what gaps say of the target."""
    y = ROWS["y"].to_numpy()[:, None] + 9 * ROWS["gaps"].is_null().to_numpy()[:, None]
    learner = Learner()
    for start in range(0, N, size):
        learner.add(ROWS.select(INPUTS)[start : start + size], y[start : start + size])
    whole = Learner().add(ROWS.select(INPUTS), y).columns()
    assert learner.columns() == whole
    assert [column.name for column in whole if column.gaps] == ["gaps", "holes"]
    assert Columns.from_header(whole.header()) == whole


def test_an_input_says_where_values_are_missing_only_if_that_tells() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=400), "b": rng.normal(size=400)})
    X["a"] = X["a"].where(rng.random(400) > 0.3)
    chance, telling = X["b"].to_numpy(), X["b"] + 3 * X["a"].isna()
    assert quick().fit(X, chance).input_names_ == ["a", "b"]
    assert quick().fit(X, telling).input_names_ == ["a", "a is missing", "b"]


def test_ordered_categories_are_places_in_their_order() -> None:
    sizes = pd.Categorical(["S", "L", "M", "S", None] * 4, ["S", "M", "L", "XL"], ordered=True)
    X = pd.DataFrame({"size": sizes, "b": np.arange(20.0)})
    model = quick().fit(X, X["b"])
    assert model.columns_.given[0].words == "4 ordered categories, one input"
    np.testing.assert_array_equal(model.prepare_inputs(X)[:4, 0], [0, 2, 1, 0])
    other = X.assign(size=pd.Categorical(list(X["size"]), ["XL", "L", "M", "S"], ordered=True))
    np.testing.assert_array_equal(model.prepare_inputs(other), model.prepare_inputs(X))


ASKED = [["code"], [1], np.array([False, True, False]), ["code", "b"], "from_dtype", None]


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_numbers_are_categories_where_the_keyword_says_so(asked: Any) -> None:
    X = pd.DataFrame({"a": np.arange(30.0), "code": [7, 8, 9] * 10, "b": np.arange(30) % 2})
    model = quick(categorical_features=asked).fit(X, X["a"])
    kinds = {column.name: column.kind for column in model.columns_}
    assert kinds["code"] == ("number" if asked is None or isinstance(asked, str) else "category")
    assert (kinds["b"] == "category") == (isinstance(asked, list) and "b" in asked)
    if isinstance(asked, list) and asked != [1]:
        return
    array = quick(categorical_features=None if asked is None else asked).fit(X.to_numpy(), X["a"])
    np.testing.assert_allclose(array.predict(X.to_numpy()), model.predict(X), rtol=1e-9)


@pytest.mark.parametrize("asked", ["code", ["c"], [3], [True, False], [0.5], [[0]]], ids=str)
def test_a_keyword_that_names_no_column_is_refused(asked: Any) -> None:
    X = pd.DataFrame({"a": np.arange(30.0), "code": [7, 8, 9] * 10, "b": np.arange(30) % 2})
    with pytest.raises(ValueError, match=r"categorical_features .* got .*'a', 'code', 'b'"):
        quick(categorical_features=asked).fit(X, X["a"])


@pytest.mark.parametrize("cls", [QSGPRegressor, QSGPClassifier])
def test_missing_values_of_an_array(cls: type, tmp_path: Path) -> None:
    """NaN in the fit and in predictions, or in predictions alone: no error, and more doubt."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = X[:, 0] * 2 + X[:, 1]
    y = (y > 0).astype(int) if cls is QSGPClassifier else y
    holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    for table in (X, holes):
        model = quick(cls, learn_hyperparameters=True).fit(table, y)
        deviation = [model.predict_latent(np.where(np.arange(3) < k, np.nan, X))[1].mean() for k in range(3)]
        if table is X:
            assert deviation[0] < deviation[1] < deviation[2]
        model.save(tmp_path / "m.qsgp")
        np.testing.assert_array_equal(load(tmp_path / "m.qsgp").predict(holes), model.predict(holes))
        if cls is QSGPRegressor:
            low, high = (np.ptp(model.predict_interval(rows), 0).mean() for rows in (X, holes))
            assert low < high and np.isfinite([low, high]).all()


def test_what_gaps_cost_is_measured_again_after_more_portions() -> None:
    X = np.random.default_rng(0).normal(size=(120, 2))
    y, holes = np.sin(2 * X[:, 0]), np.where(np.arange(2) == 0, np.nan, X[:5])
    model = quick().partial_fit(X[:100], y[:100])
    model.predict(holes, return_std=True)
    more = clone(model).partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    model.partial_fit(X[100:], y[100:])
    np.testing.assert_array_equal(*(each.predict(holes, return_std=True)[1] for each in (model, more)))


def test_hidden_inputs_cost_what_they_say() -> None:
    """Of a linear function of independent inputs the variance of a hidden one is that of its term."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 2))
    model = QSGPRegressor(kernel="rbf", random_state=0).fit(X, 3 * X[:, 0] + X[:, 1] + 0.1 * rng.normal(size=400))
    new = rng.normal(size=(200, 2))
    for hidden, variance in ((0, 9.0), (1, 1.0)):
        rows = new.copy()
        rows[:, hidden] = np.nan
        more = np.square(model.predict(rows, return_std=True)[1]) - np.square(model.predict(new, return_std=True)[1])
        assert np.median(more) == pytest.approx(variance, rel=0.25)


@pytest.mark.slow
def test_the_command_line_and_python_make_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from qsgp.cli import app

    monkeypatch.chdir(tmp_path)
    CONTAINERS["CSV"](ROWS, tmp_path)
    NEW.to_pandas().to_csv("new.csv", index=False)
    for line in ("fit rows.csv -t y -q --kernel rbf", "predict model.qsgp new.csv -q -o out.csv", "info model.qsgp"):
        done = CliRunner().invoke(app, shlex.split(line), prog_name="qsgp")
        assert done.exit_code == 0, done.output
    assert "kind: 3 categories, one input for each" in done.stdout
    model = load("model.qsgp")
    assert str(model.columns_) == WORDS
    there = QSGPRegressor(kernel="rbf", random_state=0).fit("rows.csv", target="y")
    np.testing.assert_allclose(model.predict(NEW), there.predict(NEW), rtol=1e-9)
    np.testing.assert_allclose(pd.read_csv("out.csv")["mean"], model.predict(NEW), rtol=1e-9)


@pytest.mark.usefixtures("without_shape_checks")
def test_an_exported_model_takes_the_prepared_inputs(tmp_path: Path) -> None:
    model = quick().fit(ROWS.select(INPUTS), ROWS["y"].to_numpy())
    model.export(tmp_path / "m.pt2")
    inputs = model.prepare_inputs(NEW)
    found = torch.export.load(tmp_path / "m.pt2").module()(torch.from_numpy(inputs))
    for part, wanted in zip(found, model.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(part[:, 0].numpy(), wanted, rtol=1e-6)


@pytest.mark.slow
def test_the_world_of_scikit_learn() -> None:
    frame, y = ROWS.to_pandas()[["number", "kind", "gaps", "when"]], ROWS["y"].to_numpy()
    assert cross_val_score(quick(), frame, y, cv=3).min() > 0.3
    model = quick().fit(frame, y)
    importance = permutation_importance(model, frame, y, n_repeats=2, random_state=0).importances_mean
    assert importance[:2].min() > 5 * abs(importance[3])
    average = partial_dependence(model, frame, ["kind"], categorical_features=["kind"])
    by_kind = dict(zip(average["grid_values"][0], average["average"][0], strict=True))
    assert by_kind["villa"] > by_kind["flat"] + 1
    made = make_column_transformer((StandardScaler(), ["number"]), remainder="passthrough").set_output(
        transform="pandas"
    )
    pipeline = make_pipeline(made, quick()).fit(frame, y)
    np.testing.assert_allclose(pipeline.predict(frame), model.predict(frame), rtol=1e-6)
    tags = model.__sklearn_tags__().input_tags
    assert tags.allow_nan and tags.categorical


def test_names_classes_and_groups_in_the_world_of_scikit_learn() -> None:
    """Texts and missing values go through transformers, splits by groups and inspection, for labels too."""
    frame = ROWS.to_pandas()[["number", "kind", "gaps"]]
    labels = np.where(ROWS["y"].to_numpy() > 1, "high", "low")
    made = make_column_transformer(
        (StandardScaler(), ["gaps", "number"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    fast = {"kernel": "rbf", "learn_hyperparameters": False, "random_state": 0}
    pipeline = make_pipeline(made, QSGPClassifier(**fast)).fit(frame, labels)
    names = pipeline[:-1].get_feature_names_out().tolist()
    assert names == pipeline[-1].feature_names_in_.tolist() == ["gaps", "number", "kind"]
    assert set(pipeline[-1].input_names_) == {"gaps", "number", "kind=flat", "kind=house", "kind=villa"}
    scores = cross_val_score(pipeline, frame, labels, cv=GroupKFold(3), groups=np.arange(N) % 10, error_score="raise")
    assert scores.min() > 0.7
    importance = permutation_importance(pipeline, frame, labels, n_repeats=2, random_state=0).importances_mean
    assert importance[:2].min() > 2 * abs(importance[2])
    average = partial_dependence(pipeline, frame, ["number"], grid_resolution=5)["average"][0]
    assert average[0] + 0.2 < average[-1] or average[0] - 0.2 > average[-1]  # of the second class, "low"
    polars = make_column_transformer((StandardScaler(), ["number"]), remainder="passthrough").set_output(
        transform="polars"
    )
    found = make_pipeline(polars, QSGPRegressor(**fast, noise="equal", target_map="none"))
    table = pl.from_pandas(frame)
    assert cross_val_score(found, table, ROWS["y"].to_numpy(), cv=2, error_score="raise").min() > 0.3


def test_a_file_that_knew_categories_alone_still_predicts(tmp_path: Path) -> None:
    """Written by version 0.1, whose inputs were the features."""
    model = load(Path(__file__).parent / "categories-of-0.1.qsgp")
    new = pd.DataFrame({"new": [False, True], "size": [5.0, 12.0], "kind": ["flat", "villa"]})
    mean, deviation = model.predict(new, return_std=True)
    np.testing.assert_allclose(mean, [4.81157616, 19.22177628])
    np.testing.assert_allclose(deviation, [2.09209467, 2.19184403])
    assert list(model.feature_names_in_) == ["size", "kind", "new"] and model.n_features_in_ == 3
    model.save(tmp_path / "again.qsgp")
    np.testing.assert_array_equal(load(tmp_path / "again.qsgp").predict(new), mean)
    assert (model.predict(new.assign(size=np.nan), return_std=True)[1] > deviation).all()


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_durations_are_seconds_in_whatever_unit_a_table_has_them(unit: str) -> None:
    seconds = np.random.default_rng(0).integers(1, 5000, 60)
    table = pa.table({"took": pa.array(seconds, pa.duration("s")), "number": np.arange(60.0)})
    other = table.set_column(0, "took", table["took"].cast(pa.duration(unit)))
    columns = columns_of(table)
    np.testing.assert_array_equal(encode(columns, table).array[:, 0], seconds)
    np.testing.assert_array_equal(encode(columns, other).array[:, 0], seconds)
    model = QSGPRegressor(kernel="rbf", noise="equal", target_map="none", random_state=0)
    model.fit(table, np.sin(seconds / 800))
    np.testing.assert_array_equal(model.predict(other), model.predict(table))
    np.testing.assert_array_equal(model.predict(pd.DataFrame(other.to_pandas())), model.predict(table))
