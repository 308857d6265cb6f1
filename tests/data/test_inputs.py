"""Columns of texts, categories and booleans: the same inputs from every table and every file, and predictions alike."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

from qsgp import QSGPClassifier, QSGPRegressor, load
from qsgp.data.encoding import Encoded

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

from qsgp.cli import app

N = 45
KINDS = ["flat", "house", "villa"]
ENCODED = ["size", "kind=flat", "kind=house", "kind=villa", "new"]


def frame(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"size": rng.integers(8, 80, n) / 4, "kind": rng.choice(KINDS, n), "new": rng.random(n) < 0.4})
    return rows.assign(price=rows["size"] + 5.0 * (rows["kind"] == "villa") + 2 * rows["new"])


ROWS, NEW = frame(), frame(20, seed=1)
INPUTS = ["size", "kind", "new"]

TABLES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda rows: rows,
    "pandas categories": lambda rows: rows.astype({"kind": pd.CategoricalDtype(KINDS)}),
    "pandas objects": lambda rows: rows.astype({"kind": object}),
    "pandas string": lambda rows: rows.astype({"kind": "string"}),
    "pandas string[pyarrow]": lambda rows: rows.astype({"kind": pd.ArrowDtype(pa.string())}),
    "pandas with another index": lambda rows: rows.set_index(np.arange(len(rows))[::-1] * 3),
    "polars": pl.from_pandas,
    "polars categories": lambda rows: pl.from_pandas(rows).with_columns(pl.col("kind").cast(pl.Categorical)),
    "polars Enum": lambda rows: pl.from_pandas(rows).with_columns(pl.col("kind").cast(pl.Enum(KINDS))),
    "Arrow": lambda rows: pa.Table.from_pandas(rows, preserve_index=False),
    "Arrow dictionary": lambda rows: _with_dictionary(pa.Table.from_pandas(rows, preserve_index=False)),
    "Arrow in chunks": lambda rows: pa.concat_tables([pa.Table.from_pandas(rows[:7]), pa.Table.from_pandas(rows[7:])]),
}
FILES = ["csv", "tsv", "parquet", "feather"]


def _with_dictionary(table: pa.Table) -> pa.Table:
    return table.set_column(1, "kind", table.column("kind").dictionary_encode())


def write(rows: pd.DataFrame, path: Path) -> Path:
    if path.suffix in (".csv", ".tsv"):
        rows.to_csv(path, index=False, sep="," if path.suffix == ".csv" else "\t")
    else:
        getattr(rows, {".parquet": "to_parquet", ".feather": "to_feather"}[path.suffix])(path)
    return path


def quick(cls: type = QSGPRegressor, **keywords: Any) -> Any:
    return cls(**({"kernel": "rbf", "learn_hyperparameters": False, "random_state": 0} | keywords))


def by_hand(rows: pd.DataFrame) -> pd.DataFrame:
    """The same by another route."""
    columns = {"size": rows["size"], **{f"kind={kind}": rows["kind"] == kind for kind in KINDS}, "new": rows["new"]}
    return pd.DataFrame(columns).astype(float)


def program(line: str) -> str:
    done = CliRunner().invoke(app, shlex.split(line), prog_name="qsgp")
    assert done.exit_code == 0, done.output
    return done.stderr


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    """The exact GP of those inputs, written down: yes and no of a category are two units of 0.5 apart."""
    x, z, y = by_hand(ROWS).to_numpy(), by_hand(NEW).to_numpy(), ROWS["price"].to_numpy()
    model = quick().fit(ROWS[INPUTS], y)
    unit = np.array([x[:, 0].std(), 0.5, 0.5, 0.5, x[:, 4].std()])
    np.testing.assert_allclose(model.lengthscale_, np.sqrt(5) * unit)

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        square = np.square((a[:, None] - b) / model.lengthscale_).sum(2)
        return model.signal_variance_ * np.exp(-square / 2)

    weights = np.linalg.solve(kernel(x, x) + model.noise_variance_ * np.eye(N), y - y.mean())
    return y.mean() + kernel(z, x) @ weights


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", TABLES)
def test_every_table_with_texts_gives_the_same_model(name: str, wanted: np.ndarray) -> None:
    convert = TABLES[name]
    model = quick().fit(convert(ROWS)[INPUTS] if "Arrow" not in name else convert(ROWS).select(INPUTS), ROWS["price"])
    assert list(model.feature_names_in_) == INPUTS and model.n_features_in_ == 3 and model.input_names_ == ENCODED
    for other in TABLES.values():  # a table of another library; columns that are not needed do no harm
        np.testing.assert_allclose(model.predict(other(NEW)), wanted, rtol=1e-9)
    np.testing.assert_allclose(model.predict(Encoded(by_hand(NEW).to_numpy())), wanted, rtol=1e-9)
    np.testing.assert_array_equal(model.prepare_inputs(NEW), by_hand(NEW))


@pytest.mark.parametrize("ending", FILES)
def test_every_file_with_texts_gives_the_same_model(ending: str, wanted: np.ndarray, here: Path) -> None:
    path, new = write(ROWS, here / f"rows.{ending}"), write(NEW.drop(columns="price"), here / f"new.{ending}")
    model = quick().fit(path, target="price")
    assert model.input_names_ == ENCODED
    np.testing.assert_allclose(model.predict(new), wanted, rtol=1e-9)
    np.testing.assert_allclose(model.predict(NEW), wanted, rtol=1e-9)
    model.save("model.qsgp")
    np.testing.assert_allclose(load("model.qsgp").predict(pl.from_pandas(NEW)), wanted, rtol=1e-9)


@pytest.mark.parametrize("ending", FILES)
def test_a_model_of_the_command_line_predicts_from_python(ending: str, here: Path) -> None:
    path = write(ROWS, here / f"rows.{ending}")
    write(NEW, here / "new.csv")
    program(f"fit {path.name} -t price -q --kernel rbf")
    program("predict model.qsgp new.csv -o out.csv")
    written, model = pd.read_csv("out.csv"), load("model.qsgp")
    assert model.input_names_ == ENCODED
    for rows in (Path("new.csv"), *(convert(NEW) for convert in TABLES.values())):
        mean, deviation = model.predict(rows, return_std=True)
        np.testing.assert_allclose(mean, written["mean"], rtol=1e-9)
        np.testing.assert_allclose(deviation, written["deviation"], rtol=1e-6)


@pytest.mark.parametrize("name", ["csv", "pandas", "polars", "Arrow"])
def test_a_model_of_python_is_used_by_the_command_line(name: str, wanted: np.ndarray, here: Path) -> None:
    write(NEW, here / "new.csv")
    if name == "csv":
        quick().fit(write(ROWS, here / "rows.csv"), target="price").save("model.qsgp")
        program("evaluate model.qsgp new.csv -q")  # the target is known from the fit
    else:
        quick().fit(TABLES[name](ROWS.drop(columns="price")), ROWS["price"]).save("model.qsgp")
        program("evaluate model.qsgp new.csv -q -t price")
    program("predict model.qsgp new.csv -o out.parquet")
    np.testing.assert_allclose(pd.read_parquet("out.parquet")["mean"], wanted, rtol=1e-9)


@pytest.mark.parametrize("how", ["auto", "mean"])
def test_gaps_are_taken_from_python_as_by_the_command_line(how: str, here: Path) -> None:
    rows, new = ROWS.copy(), NEW.drop(columns="price").astype({"new": object})
    rows.loc[3, "size"], rows.loc[5, "kind"] = np.nan, None
    new.loc[1, "size"], new.loc[2, "kind"], new.loc[4, "new"] = np.nan, None, None
    write(rows, here / "rows.csv")
    write(new, here / "new.csv")
    program(f"fit rows.csv -t price -q --kernel rbf --missing {how}")
    program("predict model.qsgp new.csv -o out.csv")
    written, model = pd.read_csv("out.csv"), load("model.qsgp")
    assert written.notna().all(axis=None)
    for table in (Path("new.csv"), new.astype({"new": "boolean"}), pl.from_pandas(new.astype({"new": "boolean"}))):
        mean, deviation = model.predict(table, return_std=True)
        np.testing.assert_allclose(mean, written["mean"], rtol=1e-9)
        np.testing.assert_allclose(deviation, written["deviation"], rtol=1e-6)


def test_unknown_categories_are_told_and_doubted(here: Path) -> None:
    model = quick().fit(ROWS.drop(columns="price"), ROWS["price"])
    castle = pd.DataFrame({"size": [9.0], "kind": ["castle"], "new": [True]})
    shares = [(ROWS["kind"] == kind).mean() for kind in KINDS]
    known = [model.predict(castle.assign(kind=kind), return_std=True)[1] for kind in KINDS]
    for table in (castle, pl.from_pandas(castle), write(castle, here / "castle.csv")):
        with pytest.warns(UserWarning, match=r"kind=castle \(1\)"):
            found, deviation = model.predict(table, return_std=True)
        np.testing.assert_allclose(found, model.predict(Encoded(np.array([[9.0, *shares, 1]]))))
        assert deviation > 1.2 * max(known)


def test_the_order_of_columns_does_not_matter_once_they_are_learned() -> None:
    rows = ROWS.drop(columns="price")
    model = quick().fit(rows, ROWS["price"])
    np.testing.assert_array_equal(model.predict(rows[["new", "kind", "size"]]), model.predict(rows))
    with pytest.raises(ValueError, match="Expected a column 'kind' in the table, got 'size', 'new'"):
        model.predict(rows[["size", "new"]])


def test_labels_and_portions_with_categories(here: Path) -> None:
    labels = np.where(ROWS["price"] > 12, "dear ", "cheap")
    path = write(ROWS.assign(price=labels), here / "rows.csv")
    model = quick(QSGPClassifier).fit(path, target="price")
    assert model.classes_.tolist() == ["cheap", "dear"], "blanks around labels are no part of them"
    model.save("model.qsgp")
    program("evaluate model.qsgp rows.csv -q")
    whole = quick(QSGPClassifier).fit(ROWS.drop(columns="price"), np.char.strip(labels.astype(str)))
    np.testing.assert_array_equal(model.predict_proba(path), whole.predict_proba(ROWS))
    first, rest = ROWS[:30], ROWS[30:]
    portions = quick().partial_fit(first.drop(columns="price"), first["price"])
    portions.partial_fit(write(rest, here / "rest.csv"), target="price")
    other = quick().partial_fit(first.drop(columns="price"), first["price"])
    other.partial_fit(rest.drop(columns="price"), rest["price"])
    np.testing.assert_allclose(portions.predict(NEW), other.predict(NEW), rtol=1e-9)
    assert np.abs(portions.predict(NEW) - quick().fit(ROWS[INPUTS], ROWS["price"]).predict(NEW)).max() < 1


def test_a_new_fit_forgets_the_columns_of_the_last(here: Path) -> None:
    model = quick().fit(ROWS.drop(columns="price"), ROWS["price"])
    assert model.columns_.names == INPUTS and not hasattr(clone(model), "columns_")
    model.fit(ROWS[["size"]].to_numpy(), ROWS["price"])
    assert not hasattr(model, "columns_") and model.input_names_ == ["x0"]
    with pytest.raises(ValueError, match="two classes"):
        quick(QSGPClassifier).fit(ROWS[INPUTS], np.ones(N))


def test_a_slip_among_numbers_is_refused_with_advice_for_python() -> None:
    rows = pd.DataFrame({"a": np.arange(N) / 7, "b": ["1O", *map(str, range(N - 1))]})
    with pytest.raises(ValueError, match=r"'1O' in row 1 .*a categorical type") as refused:
        quick().fit(rows, rows["a"])
    assert "--" not in str(refused.value)


def test_a_categorical_type_makes_categories_of_numbers(here: Path) -> None:
    rows = pd.DataFrame({"zip": pd.Categorical([10, 20, 30] * 15), "size": np.arange(N) / 4})
    model = quick().fit(rows, rows["size"])
    assert model.input_names_ == ["zip=10", "zip=20", "zip=30", "size"]
    path = write(rows, here / "rows.csv")
    np.testing.assert_allclose(model.predict(path), model.predict(rows), rtol=1e-9)
    np.testing.assert_allclose(model.predict(rows.astype({"zip": int})), model.predict(rows), rtol=1e-9)
