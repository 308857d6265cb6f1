"""Intervals that hold in each group: exact by leaving rows out, through files, tables and the words of what is not."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import qsgp
from qsgp import QSGPRegressor
from qsgp.data.grouping import Groups
from qsgp.models.conformal import Conformal, fit_by_group, fit_conformal

SETTINGS = {"kernel": "rbf", "random_state": 0, "learn_hyperparameters": False, "noise": "equal"}


def shops(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A quiet shop, a loud one and a small one."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"size": rng.uniform(-2, 2, n), "shop": rng.choice(["quiet", "loud", "small"], n, p=[0.6, 0.38, 0.02])}
    )
    noise = table["shop"].map({"quiet": 0.1, "loud": 1.0, "small": 0.5}).to_numpy()
    return table, np.sin(table["size"].to_numpy()) + noise * rng.normal(size=n)


@pytest.fixture(scope="module")
def calibrated() -> QSGPRegressor:
    table, y = shops(200, 0)
    held, targets = shops(400, 1)
    return QSGPRegressor(**SETTINGS, target_map="none").fit(table[["size"]], y).calibrate(held, targets, groups="shop")


def held_in(model: QSGPRegressor, groups: object, X: pd.DataFrame, y: np.ndarray) -> pd.Series:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        lower, upper = model.predict_interval(X, 0.9, groups=groups)
    return pd.Series((lower <= y) & (y <= upper)).groupby(X["shop"].to_numpy()).mean()


def test_intervals_hold_in_each_group_where_those_of_all_rows_do_not(calibrated: QSGPRegressor) -> None:
    X, y = shops(6000, 2)
    pooled, own = held_in(calibrated, None, X, y), held_in(calibrated, "shop", X, y)
    assert pooled["quiet"] > 0.98 and pooled["loud"] < 0.8
    assert 0.85 < own["quiet"] < 0.95 and 0.85 < own["loud"] < 0.95


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_coverage_in_a_group_is_exact(coverage: float) -> None:
    """Over every choice of the test row of the group, the others of it known: ceil((n + 1) coverage) of n + 1."""
    rng = np.random.default_rng(0)
    y = torch.from_numpy(np.r_[rng.standard_cauchy(40), 50 * rng.standard_cauchy(60)])
    names = np.array(["a"] * 40 + ["b"] * 60, dtype=object)
    zero, one, inside = torch.zeros(100).double(), torch.ones(100).double(), {"a": 0, "b": 0}
    for row in range(100):
        rest = np.arange(100) != row
        found = fit_by_group(y[rest], zero[rest], one[rest], Groups(names[rest]))
        low, high = found.interval(zero[[row]], one[[row]], coverage, Groups(names[[row]]))
        inside[names[row]] += int(low <= y[row] <= high)
    assert inside == {"a": int(np.ceil(round(coverage * 40, 6))), "b": int(np.ceil(round(coverage * 60, 6)))}


def test_groups_unknown_or_small_have_the_interval_of_all_rows_and_it_is_said(calibrated: QSGPRegressor) -> None:
    X = shops(5, 3)[0].assign(shop=["small", "new", None, "loud", "quiet"])
    assert calibrated.calibration_.groups["small"].n < 19
    with pytest.warns(
        UserWarning, match=r"'small' had fewer than 19 rows in calibrate; 'new' had none; 1 row is of no"
    ):
        lower, upper = calibrated.predict_interval(X, 0.95, groups="shop")
    low, high = calibrated.predict_interval(X, 0.95)
    np.testing.assert_array_equal(lower[:3], low[:3])
    assert upper[3] > high[3] and upper[4] < high[4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a lower coverage needs fewer rows, and nothing is to be said
        calibrated.predict_interval(X[X["shop"].isin(["small", "loud"])], 0.5, groups="shop")


@pytest.mark.parametrize("library", [pl.from_pandas, pa.Table.from_pandas, lambda table: table])
def test_a_column_of_any_table_an_array_and_a_file_give_the_same(calibrated, library, tmp_path) -> None:
    X = shops(30, 4)[0].query("shop != 'small'")
    wanted = calibrated.predict_interval(X, 0.9, groups="shop")
    names = [X["shop"].to_numpy(), X["shop"].to_list(), X["shop"].astype("category"), pa.array(X["shop"])]
    X.to_csv(tmp_path / "rows.csv", index=False)
    found = [calibrated.predict_interval(library(X), 0.9, groups="shop")]
    found += [calibrated.predict_interval(X, 0.9, groups=given) for given in names]
    found.append(calibrated.predict_interval(str(tmp_path / "rows.csv"), 0.9, groups="shop"))
    for ends in found:
        np.testing.assert_allclose(ends, wanted, rtol=1e-9)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([2, 3], ["2", "3"]),
        (np.array([2.0, np.nan]), ["2", None]),
        (pd.Series([2, None], dtype="Int64"), ["2", None]),
        (pd.Series(pd.to_datetime(["2020-01-31", None])), ["2020-01-31", None]),
        (pa.array([True, False]), ["true", "false"]),
        (np.array([[" a "], [""]]), ["a", None]),
        (torch.tensor([1, 2]), ["1", "2"]),
    ],
)
def test_a_group_has_one_name_whatever_its_type(given: object, names: list[str | None]) -> None:
    assert Groups.of(given, None).names.tolist() == names


def test_groups_travel_in_the_model_file(calibrated: QSGPRegressor, tmp_path) -> None:
    calibrated.save(tmp_path / "m.qsgp")
    again = qsgp.load(tmp_path / "m.qsgp")
    X = shops(40, 5)[0].query("shop != 'small'")
    assert again.calibration_.column == "shop" and set(again.calibration_.groups) == {"quiet", "loud", "small"}
    for coverage in (0.5, 0.9):
        np.testing.assert_array_equal(
            again.predict_interval(X, coverage, groups="shop"), calibrated.predict_interval(X, coverage, groups="shop")
        )
    tensors, header = calibrated.calibration_.to_tensors(), calibrated.calibration_.header()["calibration"]
    for altered in ({"groups": ["a", "a", "b"]}, {"groups": ["a"]}, {"groups": [1, 2, 3]}, {"column": 5}):
        with pytest.raises(ValueError, match="The file was altered"):
            Conformal.from_tensors(tensors, header | altered)
    with pytest.raises(ValueError, match="The file was altered"):
        Conformal.from_tensors(tensors | {"group_n": tensors["group_n"] + 1}, header)


def test_under_a_map_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    table, y = shops(200, 6)
    held, targets = shops(300, 7)
    model = QSGPRegressor(**SETTINGS, target_map="sinh-arcsinh").fit(table[["size"]], np.exp(y))
    model.calibrate(held, np.exp(targets), groups="shop")
    X, t = shops(3000, 8)
    monkeypatch.setattr(type(model._posterior), "rows_at_a_time", 700)  # several blocks, each with its groups
    own = held_in(model, "shop", X, np.exp(t))
    assert 0.85 < own["quiet"] < 0.95 and 0.84 < own["loud"] < 0.96
    with pytest.raises(ValueError, match="one group for each of the 3000 rows of X, got 2500"):
        model.predict_interval(X, 0.9, groups=X["shop"][:2500].to_numpy())


def test_what_is_wrong_with_groups_is_said(calibrated: QSGPRegressor) -> None:
    X, y = shops(50, 9)
    with pytest.raises(ValueError, match="'shpo' in the table, got 'size', 'shop'. Did you mean 'shop'"):
        calibrated.predict_interval(X, 0.9, groups="shpo")
    with pytest.raises(ValueError, match="with inputs without names. Pass an array with one group for each row"):
        calibrated.calibrate(X[["size"]].to_numpy(), y, groups="shop")
    with pytest.raises(ValueError, match="one group for each of the 50 rows of X, got 49"):
        calibrated.calibrate(X, y, groups=X["shop"][:49])
    with pytest.raises(ValueError, match="one group for each of the 50 rows of X, got 49"):
        calibrated.predict_interval(X, 0.9, groups=X["shop"][:49])
    with pytest.raises(ValueError, match="of column 'shop', by which the model was calibrated, got 'town'"):
        calibrated.predict_interval(X.assign(town="quiet"), 0.9, groups="town")
    with pytest.raises(ValueError, match="all of no known group. Leave groups out"):
        calibrated.calibrate(X, y, groups=[None] * 50)
    with pytest.raises(ValueError, match=r"Expected groups of one dimension, got shape \(25, 2\)"):
        calibrated.calibrate(X, y, groups=np.zeros((25, 2)))
    plain = QSGPRegressor(**SETTINGS, target_map="none").fit(X[["size"]], y)
    for model in (plain, plain.calibrate(X, y)):
        with pytest.raises(ValueError, match=r"calibrated by groups, got one that was not. Call calibrate"):
            model.predict_interval(X, 0.9, groups="shop")


def test_without_groups_calibration_is_as_ever() -> None:
    scores = torch.linspace(0.1, 2, 50).double()
    zero, one = torch.zeros(50).double(), torch.ones(50).double()
    found = fit_by_group(scores, zero, one, Groups(np.array(["a", "b"] * 25, dtype=object)))
    plain = fit_conformal(scores, zero, one)
    assert found.limits(0.9) == plain.limits(0.9)
    assert plain.header() == {} and set(plain.to_tensors()) == {"scores", "n", "symmetric"}
    np.testing.assert_array_equal(found.central(scores.numpy(), 0.95), plain.central(scores.numpy(), 0.95))


def test_a_column_of_numbers_that_is_no_input_may_tell_the_groups(tmp_path) -> None:
    """A model of numbers takes its own columns alone; the one that tells the groups may stand beside them."""
    X, y = shops(60, 10)
    X["shop"] = X["shop"].map({"quiet": 1, "loud": 2, "small": 3})
    model = QSGPRegressor(**SETTINGS, target_map="none").fit(X[["size"]], y)
    wanted = model.calibrate(X[["size"]], y, groups=X["shop"]).predict_interval(X[["size"]], 0.5, groups=X["shop"])
    found = model.calibrate(X, y, groups="shop").predict_interval(X, 0.5, groups="shop")
    np.testing.assert_array_equal(found, wanted)
