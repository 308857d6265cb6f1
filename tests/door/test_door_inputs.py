"""Whatever holds the rows, in whatever portions they are worked off: the same model and the same predictions."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, feather, parquet
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from qsgp import QSGPClassifier, QSGPRegressor, QSRVMClassifier, QSRVMRegressor, memory

N = 60
NAMES = ["a", "b", "c"]


def rows(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs on a grid of eighths: exact in every floating type, so that predictions can be compared closely."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-24, 25, (n, 3)) / 8
    return X, np.round(8 * (np.sin(X[:, 0]) + X[:, 1] / 3) + rng.normal(size=n)) / 8


X, y = rows()
WEIGHT = 1 + (np.arange(N) % 3)
LABELS = np.digitize(y, [-0.5, 0.5])


def quick(cls: type = QSGPRegressor, **keywords: Any) -> Any:
    return cls(**({"learn_hyperparameters": False, "random_state": 0} | keywords))


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    return np.stack(quick().fit(X, y).predict(X, return_std=True))


def read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.setflags(write=False)
    return a


def strided(a: np.ndarray) -> np.ndarray:
    """Every other entry of a larger array, backwards."""
    large = np.full((2 * len(a), *(2 * s for s in a.shape[1:])), 99.0)
    view = large[::-2, ::2] if a.ndim == 2 else large[::-2]
    view[...] = a
    return view


ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "long double": lambda a: a.astype(np.longdouble),
    "other byte order": lambda a: a.astype(">f8"),
    "objects": lambda a: a.astype(object),
    "read-only": read_only,
    "a strided view": strided,
    "a transposed view": lambda a: np.ascontiguousarray(a.T).T,
    "lists": lambda a: a.tolist(),
    "tuples": lambda a: tuple(map(tuple, a)) if a.ndim == 2 else tuple(a),
    "torch float64": torch.tensor,
    "torch float32": lambda a: torch.tensor(a, dtype=torch.float32),
    "torch bfloat16": lambda a: torch.tensor(a, dtype=torch.bfloat16),
    "torch float16": lambda a: torch.tensor(a, dtype=torch.float16),
    "torch with a graph": lambda a: torch.tensor(a, requires_grad=True) * 1,
    "torch, a strided view": lambda a: torch.tensor(np.repeat(a, 2, 0))[::2],
    "pandas": lambda a: pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
    "pandas with another index": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(a, index=range(100, 100 + N)),
    "pandas Float64": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(a).astype("Float64"),
    "pandas double[pyarrow]": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(a).astype("double[pyarrow]"),
    "polars": lambda a: pl.DataFrame(a, schema=NAMES) if a.ndim == 2 else pl.Series(a),
    "polars Float32": lambda a: (
        pl.DataFrame(a.astype("f4"), schema=NAMES) if a.ndim == 2 else pl.Series(a.astype("f4"))
    ),
    "Arrow": lambda a: pa.table(list(a.T), NAMES) if a.ndim == 2 else pa.array(a),
    "Arrow in chunks": lambda a: (
        pa.concat_tables([pa.table(list(a[:7].T), NAMES), pa.table(list(a[7:].T), NAMES)])
        if a.ndim == 2
        else pa.chunked_array([a[:7], a[7:]])
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_container_does_not_matter(name, wanted):
    convert = ARRAYS[name]
    model = quick().fit(convert(X), convert(y))
    assert model.n_features_in_ == 3
    np.testing.assert_allclose(np.stack(model.predict(convert(X), return_std=True)), wanted, rtol=1e-9)


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("kind", [*INTEGERS, "polars", "arrow", "torch", "Int64"])
def test_whole_numbers_are_numbers(kind):
    whole, target = np.round(8 * X + 24).astype(np.int64), np.round(8 * y + 50).astype(np.int64)
    convert = {
        "polars": lambda a: pl.DataFrame(a, schema=NAMES) if a.ndim == 2 else pl.Series(a),
        "arrow": lambda a: pa.table(list(a.T), NAMES) if a.ndim == 2 else pa.array(a),
        "torch": lambda a: torch.tensor(a, dtype=torch.int32),
        "Int64": lambda a: (pd.DataFrame if a.ndim == 2 else pd.Series)(a).astype("Int64"),
    }.get(kind, lambda a: a.astype(kind))
    expected = quick().fit(whole.astype(float), target.astype(float)).predict(whole.astype(float))
    np.testing.assert_allclose(
        quick().fit(convert(whole), convert(target)).predict(convert(whole)), expected, rtol=1e-9
    )


def test_memory_mapped_files_are_read_in_place(tmp_path, wanted):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = quick().fit(mapped, np.load(tmp_path / "y.npy", mmap_mode="r"))
    np.testing.assert_allclose(np.stack(model.predict(mapped, return_std=True)), wanted, rtol=1e-9)


@pytest.mark.parametrize("cls", [QSGPRegressor, QSGPClassifier, QSRVMRegressor, QSRVMClassifier])
def test_nothing_given_is_changed(cls):
    """Not even in float64 and C order, where a careless cast would hand on the user's own memory."""
    target = y if "Regressor" in cls.__name__ else LABELS
    given = [X.copy(), target.copy(), WEIGHT.astype(float)]
    model = quick(cls, n_features=10, max_iter=3, covariance="meanfield").fit(*given)
    model.predict(given[0])
    for now, before in zip(given, (X, target, WEIGHT), strict=True):
        np.testing.assert_array_equal(now, before)


WEIGHTS = {
    "list": lambda w: w.tolist(),
    "integers": lambda w: w,
    "float32": lambda w: w.astype(np.float32),
    "pandas": pd.Series,
    "polars": pl.Series,
    "Arrow": pa.array,
    "torch": torch.tensor,
    "read-only": read_only,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_from_any_container(name):
    expected = quick().fit(np.repeat(X, WEIGHT, 0), np.repeat(y, WEIGHT)).predict(X)
    np.testing.assert_allclose(quick().fit(X, y, WEIGHTS[name](WEIGHT)).predict(X), expected, rtol=1e-7)


FRAMES = {
    "pandas": lambda: pd.DataFrame(X, columns=NAMES),
    "polars": lambda: pl.DataFrame(X, schema=NAMES),
    "Arrow": lambda: pa.table(list(X.T), NAMES),
}


@pytest.mark.parametrize("name", FRAMES)
def test_names_of_columns_are_kept(name, wanted):
    model = quick().fit(FRAMES[name](), y)
    assert model.feature_names_in_.tolist() == NAMES and model.feature_names_in_.dtype == object
    for other in FRAMES.values():  # a table of another library, with the same names
        np.testing.assert_allclose(model.predict(other()), wanted[0], rtol=1e-9)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)


def test_no_names_where_there_are_none():
    assert not hasattr(quick().fit(X, y), "feature_names_in_")
    assert not hasattr(quick().fit(pd.DataFrame(X), y), "feature_names_in_")


def test_targets_of_several_outputs_from_any_container():
    Y = np.stack([y, 2 - 3 * y], 1)
    wanted = np.stack(quick().fit(X, Y).predict(X, return_std=True))
    assert wanted.shape == (2, N, 2)
    for column in range(2):  # outputs share the features and nothing else
        alone = quick().fit(X, Y[:, column]).predict(X, return_std=True)
        np.testing.assert_allclose(wanted[:, :, column], np.stack(alone), rtol=1e-9)
    for convert in (
        torch.tensor,
        np.asfortranarray,
        lambda Y: pd.DataFrame(Y, columns=["u", "v"]),
        lambda Y: pl.DataFrame(Y, schema=["u", "v"]),
        lambda Y: pa.table(list(Y.T), ["u", "v"]),
    ):
        np.testing.assert_allclose(np.stack(quick().fit(X, convert(Y)).predict(X, return_std=True)), wanted, rtol=1e-9)


# --- files


def frame(part: slice = slice(None)) -> pd.DataFrame:
    """The weight stands between the inputs, the target before them: names count, not places."""
    return pd.DataFrame({"y": y, "a": X[:, 0], "w": WEIGHT, "b": X[:, 1], "c": X[:, 2]})[part]


def write(path: Any, part: slice = slice(None)) -> Any:
    table = pa.Table.from_pandas(frame(part), preserve_index=False)
    match path.suffix:
        case ".parquet" | ".pq":
            parquet.write_table(table, path)
        case ".feather" | ".arrow":
            feather.write_feather(table, path)
        case ".npz":
            np.savez(path, X=X[part], y=y[part], w=WEIGHT[part])
        case ".tsv":
            frame(part).to_csv(path, index=False, sep="\t")
        case _:
            csv.write_csv(table, path)
    return path


ENDINGS = [".csv", ".tsv", ".parquet", ".pq", ".feather", ".arrow", ".npz"]


@pytest.fixture(scope="module")
def weighted() -> np.ndarray:
    return quick().fit(X, y, WEIGHT).predict(X)


@pytest.mark.parametrize("ending", ENDINGS)
def test_fit_and_predict_from_a_file(ending, tmp_path, weighted):
    path = write(tmp_path / f"rows{ending}")
    model = quick().fit(path, target="y", sample_weight="w")
    if ending != ".npz":
        assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_allclose(model.predict(path), weighted, rtol=1e-7)
    np.testing.assert_allclose(model.predict(str(path)), weighted, rtol=1e-7)
    assert model.score(path, y) > 0.5


def test_files_under_each_other(tmp_path, weighted):
    first, second = slice(0, 25), slice(25, N)
    parts = [write(tmp_path / "1.csv", first), write(tmp_path / "2.parquet", second)]
    model = quick().fit(parts, target="y", sample_weight="w")
    np.testing.assert_allclose(model.predict(tuple(map(str, parts))), weighted, rtol=1e-7)
    write(tmp_path / "2.csv", second)
    model = quick().fit(f"{tmp_path}/*.csv", target="y", sample_weight="w")
    np.testing.assert_allclose(model.predict(f"{tmp_path}/*.csv"), weighted, rtol=1e-7)
    packed = [write(tmp_path / "1.npz", first), write(tmp_path / "2.npz", second)]
    np.testing.assert_allclose(quick().fit(packed, target="y", sample_weight="w").predict(packed), weighted, rtol=1e-7)


def test_csv_as_spreadsheets_write_it(tmp_path, wanted):
    """Semicolons, a byte order mark, blanks around names, Windows ends of lines."""
    text = frame().drop(columns="w").to_csv(index=False, sep=";", lineterminator="\r\n")
    head, body = text.split("\r\n", 1)
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{head.replace(';', ' ; ')}\r\n{body}".encode())
    np.testing.assert_allclose(quick().fit(path, target="y").predict(path), wanted[0], rtol=1e-7)


def test_a_file_and_an_array_mix(tmp_path, weighted):
    path = write(tmp_path / "rows.csv")
    frame().drop(columns=["y", "w"]).to_csv(tmp_path / "inputs.csv", index=False)
    np.testing.assert_allclose(quick().fit(path, target="y", sample_weight="w").predict(path), weighted, rtol=1e-7)
    model = quick().fit(tmp_path / "inputs.csv", y, WEIGHT)
    np.testing.assert_allclose(model.predict(tmp_path / "inputs.csv"), weighted, rtol=1e-7)
    np.testing.assert_allclose(model.predict(path), weighted, rtol=1e-7)  # columns that are not needed do no harm


def test_labels_from_a_file(tmp_path):
    words = np.array(["high", "low", "middle"])[LABELS]
    path = tmp_path / "rows.csv"
    frame().assign(y=words).to_csv(path, index=False)
    model = quick(QSGPClassifier).fit(path, target="y", sample_weight="w")
    assert model.classes_.tolist() == ["high", "low", "middle"]
    expected = quick(QSGPClassifier).fit(X, words, WEIGHT)
    np.testing.assert_allclose(model.predict_proba(path), expected.predict_proba(X), rtol=1e-7)
    assert (model.predict(path) == expected.predict(X)).all()


def test_portions_from_files(tmp_path):
    parts = [write(tmp_path / "1.csv", slice(0, 25)), write(tmp_path / "2.csv", slice(25, N))]
    model, other = quick(), quick()
    for path, part in zip(parts, (slice(0, 25), slice(25, N)), strict=True):
        model.partial_fit(path, target="y", sample_weight="w")
        other.partial_fit(X[part], y[part], WEIGHT[part])
    np.testing.assert_allclose(model.predict(parts[0]), other.predict(X[:25]), rtol=1e-7)


# --- blocks


@pytest.fixture(params=[1, 7])
def tiny_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """However much memory there is, so many rows at a time; the sizes asked for are listed."""
    asked: list[int] = []

    def few(budget: int, per_row: int, rows: int, most: int = 8192) -> int:
        asked.append(rows)
        return request.param

    monkeypatch.setattr(memory, "block_rows", few)
    return asked


KINDS: dict[str, Callable[[], Any]] = {
    "closed form": lambda: quick().fit(X, y),
    "closed form, two outputs": lambda: quick().fit(X, np.c_[y, -y]),
    "closed form, linear mean": lambda: quick(mean="linear").fit(X, y),
    "closed form, Laplace": lambda: quick(likelihood="laplace").fit(X, y),
    "fourier": lambda: quick(basis="fourier", n_features=40, max_iter=5).fit(X, y),
    "fourier, chevron": lambda: quick(basis="fourier", n_features=40, max_iter=5, covariance="chevron").fit(X, y),
    "inducing": lambda: quick(basis="inducing", n_features=20, max_iter=5).fit(X, y),
    "grid": lambda: quick(basis="grid", n_features=40, max_iter=5).fit(X, y),
    "relevance vectors": lambda: quick(QSRVMRegressor, n_features=20, max_iter=20).fit(X, y),
    "portions": lambda: portions(),
}


def portions() -> Any:
    """Sums over a table of features; rows that begin with ``partial_fit`` would be kept themselves."""
    return quick(basis="fourier", n_features=40, max_iter=5).fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])


def everything(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    targets = np.c_[y, -y] if not model._one_output else y
    return {
        "mean": model.predict(X),
        "mean and deviation": np.stack(model.predict(X, return_std=True)),
        "interval": np.stack(model.predict_interval(X, 0.8)),
        "quantiles": model.predict_quantiles(X, [0.1, 0.5, 0.9]),
        "median": model.predict_quantiles(X, 0.5),
        "log density": model.log_density(X, targets),
        "draws": model.sample_y(X, 3, random_state=1),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_rows_do_not_show(kind, tiny_blocks, monkeypatch):
    model, (X_new, y_new) = KINDS[kind](), rows(23, seed=1)
    in_blocks = everything(model, X_new, y_new)
    assert tiny_blocks and set(tiny_blocks) == {23}
    monkeypatch.undo()
    for name, values in everything(model, X_new, y_new).items():
        np.testing.assert_allclose(in_blocks[name], values, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("classes", [2, 3])
def test_blocks_of_rows_do_not_show_in_classes(classes, tiny_blocks, monkeypatch):
    labels = LABELS.clip(0, classes - 1)
    model, (X_new, _) = quick(QSGPClassifier).fit(X, labels), rows(23, seed=1)
    new_labels = labels[:23]

    def all_of_it() -> list[np.ndarray]:
        calibrated = quick(QSGPClassifier).fit(X, labels).calibrate(X_new, new_labels)
        return [
            model.predict_proba(X_new),
            model.predict(X_new),
            model.log_density(X_new, new_labels),
            calibrated.predict_proba(X_new),
        ]

    in_blocks = all_of_it()
    monkeypatch.undo()
    for values, expected in zip(in_blocks, all_of_it(), strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-9)


def test_calibration_in_blocks(tiny_blocks, monkeypatch):
    X_new, y_new = rows(40, seed=2)
    in_blocks = np.stack(quick().fit(X, y).calibrate(X_new, y_new).predict_interval(X_new, 0.9))
    monkeypatch.undo()
    whole = np.stack(quick().fit(X, y).calibrate(X_new, y_new).predict_interval(X_new, 0.9))
    np.testing.assert_allclose(in_blocks, whole, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:Training has not converged")  # in so few steps
@pytest.mark.parametrize("keywords", [{}, {"basis": "fourier", "n_features": 200, "max_iter": 5}])
def test_the_least_memory_gives_the_same_predictions(keywords, capsys):
    """16 MiB make blocks of fewer rows where features are stored; the plan is said before it is followed."""
    X_fit, y_fit = rows(300, seed=3)
    X_new, _ = rows(9000, seed=4)
    roomy = quick(**keywords).fit(X_fit, y_fit)
    tight = quick(**keywords, max_memory=16 * 2**20, verbose=1).fit(X_fit, y_fit)
    said = capsys.readouterr().out
    assert "This fit takes about" in said and "max_memory is 16.8 MB" in said
    mean, deviation = tight.predict(X_new, return_std=True)
    said = capsys.readouterr().out
    size = int(said.split("rows at a time")[0].split()[-1])
    assert "Predicting 9000 rows takes about" in said and (size < 9000 or keywords.get("basis") == "fourier")
    expected = roomy.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(deviation, expected[1], rtol=1e-4)


def test_blocks_follow_the_memory():
    """Half the budget in rows, never more than there are or than is useful, never none."""
    assert memory.block_rows(10_000, 100, 1000, most=500) == 50
    assert memory.block_rows(10_000, 100, 20, most=500) == 20
    assert memory.block_rows(10**12, 100, 10**6, most=500) == 500
    assert memory.block_rows(10, 100, 1000, most=500) == 1


@pytest.mark.filterwarnings("ignore:Training has not converged")  # in so few steps
def test_small_memory_makes_small_models_not_errors():
    """All at "auto": sizes follow the budget, whatever it is."""
    X_fit, y_fit = rows(4000, seed=5)
    model = QSGPRegressor(max_memory="24MB", max_iter=3, random_state=0, kernel="rbf").fit(X_fit, y_fit)
    assert model.memory_ <= 24_000_000
    mean, deviation = model.predict(X_fit[:50], return_std=True)
    assert np.isfinite(mean).all() and (deviation > 0).all()


def test_predictions_from_several_threads():
    """A fitted model is only read."""
    model = quick().fit(X, y)
    expected, found = model.predict(X, return_std=True), []
    threads = [threading.Thread(target=lambda: found.append(model.predict(X, return_std=True))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for got in found:
        np.testing.assert_allclose(np.stack(got), np.stack(expected), rtol=1e-9)


def test_weights_that_are_shares_are_told():
    X, y = np.random.default_rng(0).normal(size=(2, 50, 2))
    with pytest.warns(UserWarning, match=r"sum to 1 for 50 rows.*how often a row counts.*sample_weight\.mean"):
        QSGPRegressor(kernel="rbf").fit(X, y[:, 0], sample_weight=np.full(50, 1 / 50))


@pytest.mark.filterwarnings("error")
def test_weights_that_count_or_leave_out_rows_are_no_surprise():
    X, y = np.random.default_rng(0).normal(size=(2, 50, 2))
    for weight in (np.full(50, 0.5), (np.arange(50) % 25 == 0).astype(float)):
        QSGPRegressor(kernel="rbf").fit(X, y[:, 0], sample_weight=weight)


def test_the_encoder_that_errors_advise_works_as_it_comes():
    """Its output is sparse."""
    kind = np.random.default_rng(0).choice(["a", "b", "c"], (60, 1))
    y = (kind[:, 0] == "a") + 0.0
    sparse = make_pipeline(OneHotEncoder(), QSGPRegressor(kernel="rbf", random_state=0)).fit(kind, y)
    dense = make_pipeline(OneHotEncoder(sparse_output=False), QSGPRegressor(kernel="rbf", random_state=0)).fit(kind, y)
    np.testing.assert_array_equal(sparse.predict(kind), dense.predict(kind))
