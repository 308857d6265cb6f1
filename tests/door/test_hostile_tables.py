"""Forty hostile tables: each gives a model that predicts finite numbers, or an error that says what is wrong."""

import datetime
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from qsgp import QSGPClassifier, QSGPRegressor

pytestmark = [pytest.mark.usefixtures("without_shape_checks"), pytest.mark.filterwarnings("ignore::UserWarning")]

N = 40
rng = np.random.default_rng(0)
A = rng.normal(size=N)
Y = np.sin(A)
KIND = np.array(["u", "v"] * 20)
FRAME = pd.DataFrame({"a": A, "kind": KIND})


def quick(cls: type = QSGPRegressor, **keywords: Any) -> Any:
    return cls(**({"kernel": "rbf", "learn_hyperparameters": False, "random_state": 0} | keywords))


def beside(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": A}).assign(**columns)


def gaps(values: Any, share: float = 0.5) -> np.ndarray:
    return np.where(np.arange(N) < share * N, None, np.asarray(values, object))


# a table to learn from -> what is made of its last column
TAKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "one level": (lambda: beside(c=["u"] * N), "left out: they never change"),
    "one level, of a categorical type": (lambda: beside(c=pd.Categorical(["u"] * N)), "left out: they never change"),
    "one level and gaps": (lambda: beside(c=gaps(["u"] * N)), "1 category, one input for each; an input says"),
    "a level for each row": (lambda: beside(c=[f"u{k}" for k in range(N)]), "40 categories"),
    "sixty rows of sixty texts": (
        lambda: pd.DataFrame({"a": np.arange(60.0), "c": [f"u{k}" for k in range(60)]}),
        "nearly every row has a text of its own",
    ),
    "sixty levels of a categorical type": (
        lambda: pd.DataFrame({"a": np.arange(60.0), "c": pd.Categorical([f"u{k}" for k in range(60)])}),
        "identifier of 60 levels",
    ),
    "whole numbers as texts": (lambda: beside(c=list(map(str, range(N)))), "40 categories"),
    "a few fractions as texts": (lambda: beside(c=["0.5", "1.5"] * 20), "2 categories"),
    "fractions of a categorical type": (
        lambda: beside(c=pd.Categorical([f"{k}.5" for k in range(N)])),
        "40 categories",
    ),
    "levels that no row has": (
        lambda: beside(c=pd.Categorical(KIND, ["u", "v", *map(str, range(99))])),
        "2 categories",
    ),
    "all missing": (lambda: beside(c=np.nan), "left out: they are empty"),
    "all missing texts": (lambda: beside(c=pd.array([None] * N, dtype="string")), "left out: they are empty"),
    "all missing dates": (lambda: beside(c=pd.to_datetime([None] * N)), "left out: they are empty"),
    "nothing but blanks": (lambda: beside(c=["  "] * N), "left out: they are empty"),
    "all missing but one": (lambda: beside(c=[1.0] + [None] * (N - 1)), "left out: they never change"),
    "a copy": (lambda: beside(c=A), "left out: they repeat 'a'"),
    "a copy of another type": (lambda: beside(b=KIND == "u", c=(KIND == "u").astype(int)), "left out: they repeat 'b'"),
    "yes and no with gaps": (lambda: beside(c=pd.array(gaps(KIND == "u"), dtype="boolean")), "yes or no"),
    "texts of true and false": (lambda: beside(c=np.where(KIND == "u", "true", "false")), "2 categories"),
    "ranges of percents": (lambda: beside(c=["0%"] * 36 + ["1 - 10%", "11 - 23%"] * 2), "3 categories"),
    "decimals": (lambda: beside(c=[Decimal(k) / 7 for k in range(N)]), "number"),
    "durations": (lambda: beside(c=pd.to_timedelta(np.arange(N), unit="D")), "number"),
    "huge whole numbers": (lambda: beside(c=np.arange(N) + 2**62), "number|never change"),
    "numbers near the limit": (lambda: beside(c=A * 1e299), "number"),
    "dates before 1700 and after 9000": (
        lambda: pl.DataFrame({"a": A, "c": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)] * 20}),
        "date: trend",
    ),
    "dates of one day": (lambda: beside(c=pd.Timestamp("2020-01-01")), "left out: they never change"),
    "dates with a zone": (
        lambda: beside(c=pd.date_range("2020-01-01", periods=N, freq="7h", tz="Europe/Berlin")),
        "date: trend, day of the week, time of the day",
    ),
    "the first of each year": (
        lambda: beside(c=pd.to_datetime([f"{1980 + k}-01-01" for k in range(N)])),
        "date: trend, day of the week",
    ),
    "times of the day": (
        lambda: pl.DataFrame({"a": A, "c": [datetime.time(k % 24) for k in range(N)]}),
        "time of the day",
    ),
    "texts that are dates": (lambda: beside(c=[f"2020-01-{1 + k % 28:02}" for k in range(N)]), "date: trend"),
    "texts that are no dates": (lambda: beside(c=[f"2020-02-{1 + k % 31:02}" for k in range(N)]), "31 categories"),
    "objects that are dates": (lambda: beside(c=[datetime.date(2020, 1, 1 + k % 28) for k in range(N)]), "date: trend"),
    "names like those of inputs": (
        lambda: beside(**{"kind=u": A**2, "kind": KIND, "kind is missing": A > 0, "c": gaps(KIND)}),
        "2 categories, one input for each; an input says where it is missing",
    ),
    "letters of all alphabets": (lambda: beside(c=np.where(KIND == "u", "größe ☃", "字\n")), "2 categories"),
    "columns without names": (lambda: pd.DataFrame({0: A, 1: KIND}), "2 categories"),
    "ten thousand columns": (lambda: pd.DataFrame(rng.normal(size=(12, 10_000))).add_prefix("c"), "number"),
    "long tails": (lambda: pd.DataFrame({"a": np.arange(400.0), "c": np.exp(4 * rng.normal(size=400))}), "long tails"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_hostile_table_is_taken(name: str) -> None:
    make, words = TAKEN[name]
    X = make()
    y = np.sin(np.arange(len(X)) / 5)
    model = quick().fit(X, y)
    last = model.columns_.given[-1].words
    assert any(part in last for part in words.split("|")), last
    mean, deviation = model.predict(X, return_std=True)
    assert np.isfinite(mean).all() and (deviation > 0).all()
    model.predict(X[:1] if not isinstance(X, pl.DataFrame) else X.head(1))


# a table to learn from and words of the error
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "texts among numbers": (lambda: beside(c=[1, "x"] * 20), r"several kinds.*\.astype\(str\)"),
    "a slip among numbers": (lambda: beside(c=["1O", *map(str, range(N - 1))]), "'1O' in row 1 "),
    "fractions as texts": (
        lambda: beside(c=[f"{k}.5" for k in range(N)]),
        r"numbers in column 'c', got them as texts, such as '0\.5'.*to_numeric",
    ),
    "no columns": (lambda: pd.DataFrame(index=range(N)), "Expected a table with columns"),
    "lists": (lambda: pl.DataFrame({"a": A, "c": [[1.0]] * N}), "'c' .*Drop them"),
    "bytes": (lambda: pa.table({"a": A, "c": [b"x"] * N}), "'c' .*Drop them"),
    "intervals": (lambda: beside(c=pd.cut(A, 3)), "Expected .*'c'|neither"),
    "a name twice": (lambda: pd.DataFrame(np.c_[A, A], columns=["a", "a"]), "Expected every column once.*Rename"),
    "infinity": (lambda: FRAME.assign(a=np.where(A > 1, np.inf, A)), "infinity values in columns 'a'.*missing"),
    "nothing at all": (lambda: pd.DataFrame({"a": [None] * N, "b": [np.nan] * N}), "empty columns.*Check the table"),
    "an array of texts": (lambda: FRAME.to_numpy(), r"array of numbers.*pandas\.DataFrame\(X\)"),
    "a structured array": (lambda: np.zeros(N, [("a", float), ("b", "U3")]), r"pandas\.DataFrame\(X\)"),
    "an array of dates": (lambda: np.full((N, 2), "2020-01-01", "M8[D]"), r"pandas\.DataFrame\(X\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_table_is_refused_with_a_word(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(ValueError, match=f"(?s){words}"):
        quick().fit(make(), Y)


@pytest.fixture(scope="module")
def model() -> Any:
    X = FRAME.assign(
        day=pd.date_range("2020-01-01", periods=N), yes=KIND == "u", size=pd.Categorical(KIND, ["v", "u"], ordered=True)
    )
    return quick().fit(X.assign(yes=np.arange(N) % 3 == 0), Y), X.assign(yes=np.arange(N) % 3 == 0)


# what becomes of the table of the fit before it is predicted; whether predictions stay the same
LATER: dict[str, tuple[Callable[[pd.DataFrame], Any], bool]] = {
    "columns in another order": (lambda X: X[X.columns[::-1]], True),
    "more columns": (lambda X: X.assign(more="x", others=[[1]] * N), True),
    "categories in another order": (lambda X: X.assign(kind=pd.Categorical(KIND, ["w", "v", "u"])), True),
    "an order turned round": (lambda X: X.assign(size=pd.Categorical(KIND, ["u", "v"], ordered=True)), True),
    "dates as texts": (lambda X: X.assign(day=X["day"].astype(str)), True),
    "numbers as objects": (lambda X: X.assign(a=X["a"].astype(object)), True),
    "yes and no as numbers": (lambda X: X.assign(yes=X["yes"].astype(int)), True),
    "all levels unseen": (lambda X: X.assign(kind="w", size="w"), False),
    "everything missing": (lambda X: X.assign(**dict.fromkeys(X.columns)), False),
    "gaps here and there": (lambda X: X.mask(rng.random(X.shape) < 0.5), False),
    "a day ten thousand years on": (lambda X: pl.from_pandas(X).with_columns(day=datetime.date(9999, 1, 1)), False),
}


@pytest.mark.parametrize("name", LATER)
def test_a_table_to_predict_that_differs(name: str, model: Any) -> None:
    (model, X), (change, same) = model, LATER[name]
    mean, deviation = model.predict(X, return_std=True)
    found, doubt = model.predict(change(X), return_std=True)
    assert np.isfinite(found).all()
    if same:
        np.testing.assert_allclose(found, mean, rtol=1e-9)
    else:
        assert doubt.mean() > deviation.mean()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X: X.drop(columns="kind"), "a column 'kind' in the table"),
        (lambda X: X.assign(a="x"), "numbers in column 'a', as in the fit, got texts such as 'x'"),
        (lambda X: X[:0], "Expected rows"),
        (lambda X: X.assign(day=5), "dates in column 'day'"),
        (lambda X: X.assign(a=np.inf), "infinity values in columns 'a'"),
        (lambda X: np.zeros((3, 5)), "a table with the columns of the fit"),
    ],
)
def test_a_table_that_cannot_be_predicted(change: Callable[[pd.DataFrame], Any], words: str, model: Any) -> None:
    with pytest.raises(ValueError, match=words):
        model[0].predict(change(model[1]))


def test_sparse_columns_of_pandas_are_those_of_a_matrix() -> None:
    X = pd.get_dummies(FRAME["kind"], sparse=True, dtype=float)
    found, expected = (quick().fit(table, Y).predict(table) for table in (X, X.sparse.to_coo()))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="sparse table that fits into max_memory"):
        quick(max_memory=2**24).fit(pd.DataFrame.sparse.from_spmatrix(sparse.eye_array(2000)), np.zeros(2000))


@pytest.mark.parametrize("cls", [QSGPRegressor, QSGPClassifier])
def test_missing_targets_are_counted(cls: type) -> None:
    y = np.where(np.arange(N) < 3, None, (KIND == "u").astype(object))
    with pytest.raises(ValueError, match="3 of 40.*Drop the rows"):
        quick(cls).fit(FRAME, y)


@pytest.mark.parametrize(("slip", "told"), [(1e6, True), (10.0, False)])
def test_a_target_that_decides_the_scale_of_all_is_told(slip: float, told: bool) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        quick().fit(FRAME[["a"]], np.r_[slip, Y[1:]])
    assert any("A few targets decide the scale" in str(each.message) for each in found) == told


@pytest.mark.parametrize(
    ("labels", "plain"),
    [([True, False], np.dtype(bool)), ([3, 7], np.dtype(int)), ([0.0, 1], np.dtype(float))],
)
def test_labels_whose_gaps_were_dropped_are_no_objects(labels: list[Any], plain: np.dtype) -> None:
    """pandas makes a column with gaps one of objects, and leaves it so."""
    y = pd.Series([None, *labels * 20], dtype=object).dropna()
    model = quick(QSGPClassifier).fit(FRAME, y)
    assert model.classes_.dtype == plain
    assert set(model.predict(FRAME)) <= set(labels)
    assert model.score(FRAME, y) > 0


@pytest.mark.parametrize("labels", [[1, "a"], [True, "a"], [True, 2]])
def test_labels_of_two_kinds_are_named(labels: list[Any]) -> None:
    with pytest.raises(ValueError, match=f"labels of one kind.*{labels[0]!r} and {labels[1]!r}.*texts"):
        quick(QSGPClassifier).fit(FRAME, np.array(labels * 20, dtype=object))
