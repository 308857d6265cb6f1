"""The bad-input matrix of the estimators: every case is a clear error or a sensible model, never a NaN or a riddle.

Tables of named cases first, then data that Hypothesis makes up. A message is matched in its parts: what was expected
... what came ... what to do. Shape checks are off, as users run the library.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import is_regressor
from sklearn.exceptions import NotFittedError

import qsgp
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMClassifier, QSRVMRegressor

pytestmark = [
    pytest.mark.usefixtures("without_shape_checks"),
    pytest.mark.filterwarnings("ignore:A few targets decide the scale"),  # so they do
]

N = 40
TABLE = {"basis": "fourier", "n_features": 20, "max_iter": 5}
ALL = [QSGPRegressor, QSGPClassifier, QSRVMRegressor, QSRVMClassifier]


def wave(n: int = N, seed: int = 0, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    return X, 10 + 5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


X, y = wave()
LABELS = (y > 10).astype(int)
WORDS = np.array(["no", "yes"])[LABELS]
FRAME = pd.DataFrame(X, columns=["a", "b"])


def new(cls: type = QSGPRegressor, **keywords: Any) -> Any:
    quick = {"max_iter": 30, "n_features": 10} if cls.__name__.startswith("QSRVM") else {}
    return cls(**({"learn_hyperparameters": False, "random_state": 0} | quick | keywords))


@cache
def fitted(cls: type = QSGPRegressor) -> Any:
    return new(cls).fit(X, y if is_regressor(new(cls)) else LABELS)


def fit(X: Any = X, y: Any = y, weight: Any = None, cls: type = QSGPRegressor, **keywords: Any) -> Any:
    return new(cls, **keywords).fit(X, y, weight)


def classify(y: Any, X: Any = X) -> Any:
    return new(QSGPClassifier).fit(X, y)


def holding(name: str, content: str | bytes) -> Callable[[Path], Path]:
    """Writes a file of this content into the folder."""

    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def from_csv(content: str | bytes, cls: type = QSGPRegressor, name: str = "rows.csv", **how: Any) -> Callable:
    return lambda folder: new(cls).fit(holding(name, content)(folder), **({"target": "y"} | how))


def replaced(values: np.ndarray, value: Any, at: Any = 3) -> np.ndarray:
    values = values.copy()
    values[at] = value
    return values


def text_column(**columns: Any) -> pd.DataFrame:
    return FRAME.assign(**columns)


def npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "rows.npz", **arrays)
    return folder / "rows.npz"


def a_file(folder: Path) -> Path:
    return holding("a_file", "x")(folder)


DROP = "Drop the rows"
ENCODE = "turn them into numbers, texts or dates"

# what is wrong -> a call that gets an empty folder, and its message in parts
REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    # --- inputs
    "missing values in many columns": (
        lambda _: fit(np.full((N, 9), np.nan)),
        "empty columns: 'x0', 'x1', 'x2' ... Check the table",
    ),
    "infinite input": (lambda _: fit(replaced(X, np.inf, (3, 1))), "infinity values in columns 1 (1) ... Replace them"),
    "inputs beyond 1e300": (lambda _: fit(1e305 * X), "inputs of at most 1e+300 ... got larger ... Rescale"),
    "a category of intervals": (
        lambda _: fit(text_column(c=pd.cut(FRAME["a"], 3))),
        "Expected ... .astype(str)|Expected numbers, texts or dates",
    ),
    "intervals in pandas": (
        lambda _: fit(text_column(c=pd.interval_range(0, N))),
        f"numbers, texts or dates ... 'c' (interval ... {ENCODE}",
    ),
    "numbers and text in one pandas column": (
        lambda _: fit(pd.DataFrame({"a": [1, "x"] * 20})),
        "numbers, texts or dates ... several kinds ... .astype(str)",
    ),
    "lists in polars": (
        lambda _: fit(pl.DataFrame({"a": [[1.0]] * N})),
        f"numbers, texts or dates ... (List ... {ENCODE}",
    ),
    "a polars LazyFrame": (
        lambda _: fit(pl.DataFrame({"a": range(N)}).lazy()),
        "a table ... got a lazy one ... collect()",
    ),
    "a typo among numbers in Arrow": (
        lambda _: fit(pa.table({"a": ["1", "2", "3", "1O", "5"] * 8, "b": range(N)})),
        "Expected numbers in column 'a', got '1O' in row 4 (8 of 40 ... a categorical type",
    ),
    "text in NumPy": (
        lambda _: fit(np.array([["a", "b"]] * N)),
        "could not convert string to float ... 'a' ... pandas.DataFrame(X)",
    ),
    "dates in NumPy": (
        lambda _: fit(np.full((N, 2), "2020-01-01", dtype="M8[D]")),
        "numbers ... datetime64 ... pandas.DataFrame(X)",
    ),
    "complex inputs": (lambda _: fit(1j * X), "Complex data not supported"),
    "complex torch inputs": (lambda _: fit(1j * torch.tensor(X)), "Complex data not supported"),
    "sparse inputs too large to be made dense": (
        lambda _: fit(sparse.csr_array((N, 10**6)), max_memory="100MB"),
        "sparse table that fits into max_memory ... (40, 1000000) ... TruncatedSVD",
    ),
    "a structured array": (
        lambda _: fit(np.zeros(N, [("a", float), ("b", float)])),
        "columns of numbers ... got an array of [('a' ... pandas.DataFrame(X)",
    ),
    "three axes": (lambda _: fit(X[:, :, None]), "dim 3 ... dim <= 2"),
    "one axis": (lambda _: fit(X[:, 0]), "Expected 2D array, got 1D ... reshape(-1, 1)"),
    "no rows": (lambda _: fit(X[:0], y[:0]), "0 sample(s) ... minimum of 1"),
    "no columns": (lambda _: fit(X[:, :0]), "0 feature(s) ... minimum of 1"),
    "no table at all": (lambda _: fit(None), "Expected 2D array, got scalar"),
    "ragged lists": (lambda _: fit([[1.0, 2.0], [1.0]], [1.0, 2.0]), "setting an array element|inhomogeneous"),
    "column names of two kinds": (
        lambda _: fit(FRAME.rename(columns={"b": 1})),
        "all input features have string names",
    ),
    # --- targets and weights
    "no target": (lambda _: new().fit(X), "requires y to be passed"),
    "missing target": (lambda _: fit(y=replaced(y, np.nan)), f"target y ... NaN ... 1 of 40 ... {DROP}"),
    "missing target, pandas Float64": (
        lambda _: fit(y=pd.Series(pd.array([None, *y[1:]], dtype="Float64"))),
        f"target ... 1 of 40 ... {DROP}",
    ),
    "missing target, polars": (lambda _: fit(y=pl.Series([None, *y[1:]])), f"target y ... NaN ... 1 of 40 ... {DROP}"),
    "infinite target": (lambda _: fit(y=replaced(y, np.inf)), f"target y ... infinity ... 1 of 40 ... {DROP}"),
    "masked target": (
        lambda _: fit(y=np.ma.masked_array(y, y > 12)),
        f"a target for every row ... missing ... 18 of 40 ... {DROP}",
    ),
    "complex target": (lambda _: fit(y=1j * y), "Complex data not supported"),
    "target of text": (lambda _: fit(y=["a"] * N), "numbers as target ... got ... 'a' ... classifier"),
    "target of dates": (
        lambda _: fit(y=pd.Series(pd.date_range("2020", periods=N))),
        "numbers or labels as target ... got dates (datetime64 ... into numbers",
    ),
    "targets beyond 1e150": (lambda _: fit(y=1e160 * y), "targets of at most 1e+150 ... got larger ... Rescale"),
    "target of another length": (lambda _: fit(y=y[:-1]), "inconsistent numbers of samples: [40, 39]"),
    "one number as target": (lambda _: fit(y=3.0), "Expected ... y|target"),
    "a sparse target": (lambda _: fit(y=sparse.csr_array(y[:, None])), "list or array ... got a csr_array ... Convert"),
    "targets too large for any float": (lambda _: fit(y=[10**400] * N), "targets of at most 1e+150|too large"),
    "target with three axes": (lambda _: fit(y=np.ones((N, 1, 1))), "dim 3 ... dim <= 2"),
    "target without columns": (lambda _: fit(y=np.ones((N, 0))), "0 feature(s) ... minimum of 1"),
    "negative weight": (lambda _: fit(weight=replaced(np.ones(N), -1)), "Negative values ... `sample_weight`"),
    "weights of zero": (lambda _: fit(weight=np.zeros(N)), "at least one non-zero"),
    "missing weight": (lambda _: fit(weight=replaced(np.ones(N), np.nan)), "sample_weight contains NaN"),
    "infinite weight": (lambda _: fit(weight=replaced(np.ones(N), np.inf)), "sample_weight contains infinity"),
    "weights of another length": (lambda _: fit(weight=np.ones(N - 1)), "(39,), expected (40,)"),
    "weights with two axes": (lambda _: fit(weight=np.ones((N, 1))), "Sample weights must be 1D ... got 2D"),
    "complex weights": (lambda _: fit(weight=1j * np.ones(N)), "Complex data not supported"),
    "enormous weights": (lambda _: fit(weight=np.full(N, 1e308)), "weight ... 1e+308"),
    "weights by name, without a path": (
        lambda _: fit(weight="w"),
        "weight column with a path ... got 'w' ... Pass the weights",
    ),
    # --- labels
    "one class": (lambda _: classify(np.ones(N)), "two classes or more ... got 1 class ... Check the target column"),
    "labels on a scale": (lambda _: classify(y), "label type: continuous ... discrete classes"),
    "two columns of labels": (lambda _: classify(np.c_[LABELS, LABELS]), "1d array ... (40, 2)"),
    "missing label": (lambda _: classify(replaced(1.0 * LABELS, np.nan)), f"target y ... NaN ... 1 of 40 ... {DROP}"),
    "missing text label": (
        lambda _: classify(np.array([None, *WORDS[1:]], object)),
        f"a target for every row ... 1 of 40 ... {DROP}",
    ),
    "missing pandas label": (
        lambda _: classify(pd.Series(pd.array([None, *LABELS[1:]], dtype="Int64"))),
        f"target ... 1 of 40 ... {DROP}",
    ),
    "missing label, pandas text": (
        lambda _: classify(pd.Series(["u", pd.NA, "v", "u"] * 10, dtype="string")),
        f"a target for every row ... 10 of 40 ... {DROP}",
    ),
    "masked labels": (lambda _: classify(np.ma.masked_array(LABELS, y > 14)), f"target ... missing ... {DROP}"),
    "labels of bytes": (lambda _: classify(LABELS.astype("S1")), "bytes is not supported ... Convert"),
    "unknown label": (
        lambda _: fitted(QSGPClassifier).log_density(X[:2], [0, 7]),
        "labels among [0, 1] ... got '7' ... Leave out",
    ),
    "label of another kind": (
        lambda _: fitted(QSGPClassifier).log_density(X[:2], ["a", "b"]),
        "labels among [0, 1] ... got 'a' ... Leave out",
    ),
    "unknown label to calibrate": (
        lambda _: new(QSGPClassifier).fit(X, LABELS).calibrate(X, LABELS + 5),
        "labels among [0, 1] ... Leave out",
    ),
    # --- prediction
    **{
        f"{cls.__name__} of another width": (
            lambda _, cls=cls: fitted(cls).predict(np.ones((4, 3))),
            f"X has 3 features, but {cls.__name__} is expecting 2",
        )
        for cls in ALL
    },
    **{f"{cls.__name__} before fit": (lambda _, cls=cls: new(cls).predict(X), "not fitted yet ... fit") for cls in ALL},
    "renamed columns": (lambda _: fit(FRAME).predict(FRAME.rename(columns={"b": "c"})), "unseen at fit ... c ... b"),
    "columns in another order": (lambda _: fit(FRAME).predict(FRAME[["b", "a"]]), "same order as they were in fit"),
    "text to predict": (lambda _: fitted().predict(FRAME.assign(b="u").to_numpy()), "could not convert ... 'u'"),
    "no rows to predict": (lambda _: fitted().predict(X[:0]), "0 sample(s) ... minimum of 1"),
    "coverage in per cent": (lambda _: fitted().predict_interval(X, 95), "0 < coverage < 1 ... got 95 ... 0.95"),
    "coverage of NaN": (lambda _: fitted().predict_interval(X, np.nan), "0 < coverage < 1 ... got nan ... 0.95"),
    "coverage as text": (lambda _: fitted().predict_interval(X, "0.9"), "coverage ... '0.9' ... 0.95"),
    "several coverages": (
        lambda _: fitted().predict_interval(X, [0.5, 0.9]),
        "one coverage ... got [0.5, 0.9] ... predict_quantiles",
    ),
    "quantile 0": (lambda _: fitted().predict_quantiles(X, [0, 0.5]), "0 < q < 1 ... got [0, 0.5] ... the median"),
    "quantile 1.5": (lambda _: fitted().predict_quantiles(X, 1.5), "0 < q < 1 ... got 1.5 ... the median"),
    "no quantiles": (lambda _: fitted().predict_quantiles(X, []), "0 < q < 1 ... got [] ... the median"),
    "targets to score, too few": (
        lambda _: fitted().log_density(X, y[:5]),
        "each of the 40 rows ... 5 ... Check y",
    ),
    "targets to score, too many": (lambda _: fitted().log_density(X[:5], y), "each of the 5 rows ... 40 ... Check y"),
    "targets to score, NaN": (
        lambda _: fitted().log_density(X, replaced(y, np.nan)),
        f"target y ... NaN ... {DROP}",
    ),
    "targets to score, none": (lambda _: fitted().log_density(X, None), "y ... None"),
    "targets to score, two columns": (
        lambda _: fitted().log_density(X, np.c_[y, y]),
        "1 targets for every row ... got 2 ... Check y",
    ),
    "labels to score, too few": (
        lambda _: fitted(QSGPClassifier).log_density(X, LABELS[:3]),
        "each of the 40 rows ... got 3 ... Check y",
    ),
    "no draws": (lambda _: fitted().sample_y(X, 0), "n_samples ... >= 1 ... got 0 ... at least one"),
    "half a draw": (lambda _: fitted().sample_y(X, 2.5), "n_samples ... whole number ... got 2.5 ... at least one"),
    "draws with a seed of text": (lambda _: fitted().sample_y(X, 1, "a"), "'a' cannot be used to seed"),
    "draws without room": (
        lambda _: new(max_memory="20MB").fit(X, y).sample_y(X, 10**7),
        "max_memory = 20 MB ... got 6.56 GB ... raise max_memory",
    ),
    # --- calibration
    "calibrate before fit": (lambda _: new().calibrate(X, y), "not fitted yet"),
    "calibrate with other lengths": (
        lambda _: fit().calibrate(X, y[:5]),
        "each of the 40 rows of X ... got 5 ... Check y",
    ),
    "calibrate with NaN": (
        lambda _: fit().calibrate(X, replaced(y, np.nan)),
        f"target y ... NaN ... 1 of 40 ... {DROP}",
    ),
    "calibrate two outputs": (lambda _: fit(y=np.c_[y, y]).calibrate(X, y), "one output ... several ... Fit one model"),
    "calibrated by one row": (
        lambda _: fit().calibrate(X[:1], y[:1]).predict_interval(X),
        "Coverage 0.95 needs at least 19 rows ... got 1 ... at most 0.5",
    ),
    # --- portions
    "portion of another width": (lambda _: new().partial_fit(X, y).partial_fit(np.ones((3, 5)), y[:3]), "5 features"),
    "portion of other outputs": (
        lambda _: new().partial_fit(X, y).partial_fit(X, np.c_[y, y]),
        "as in the first portion ... (40, 2) ... Keep",
    ),
    "portion with a new label": (
        lambda _: new(QSGPClassifier).partial_fit(X, LABELS).partial_fit(X, LABELS + 1),
        "labels among [0, 1] ... got '2' ... Leave out",
    ),
    "classes that are not those of the rows": (
        lambda _: new(QSGPClassifier).partial_fit(X, LABELS, classes=[5, 6]),
        "labels among [5, 6] ... Leave out",
    ),
    "portions for relevance vectors": (lambda _: new(QSRVMRegressor).partial_fit(X, y), "no attribute 'partial_fit'"),
    # --- keywords
    **{
        f"{name}={value!r}": (lambda _, name=name, value=value: fit(**TABLE | {name: value}), message)
        for name, value, message in [
            ("kernel", "RBF", "kernel among ... 'rbf' ... got 'RBF' ... Choose"),
            ("kernel", None, "kernel among ... got None ... Choose"),
            ("basis", "sines", "basis among ... 'fourier' ... got 'sines' ... Choose"),
            ("covariance", "sparse", "covariance among ... 'meanfield' ... got 'sparse' ... Choose"),
            ("optimizer", "sgd", "optimizer among ... got 'sgd' ... Choose"),
            ("likelihood", "poisson", "likelihood among ... 'laplace' ... got 'poisson' ... Choose"),
            ("mean", "zero", "mean among 'constant', 'linear' ... got 'zero' ... Choose"),
            ("dtype", "float16", "dtype among 'float32', 'float64' ... got 'float16' ... Choose"),
            ("device", "gpu", "device 'auto' ... got 'gpu' ... Leave it at 'auto'"),
            ("device", 5, "device 'auto' ... got 5 ... Leave it at 'auto'"),
            ("n_features", 7, "even m >= 2 ... got m = 7 ... Use m = 8"),
            ("n_features", 2.5, "n_features to be a whole number ... got 2.5 ... Leave it at 'auto'"),
            ("batch_points", 0, "batch_points ... >= 1 ... got 0 ... Leave it at 'auto'"),
            ("batch_features", -1, "batch_features ... >= 1 ... got -1 ... Leave it at 'auto'"),
            ("support_points", "many", "support_points ... got 'many' ... Leave it at 'auto'"),
            ("max_iter", True, "max_iter ... whole number ... got True ... Leave it at 'auto'"),
            ("max_time", 0, "max_time ... > 0 ... got 0 ... Leave it out"),
            ("max_time", "1h", "max_time ... > 0 ... got '1h' ... Leave it out"),
            ("tol", -1, "tol ... > 0 ... got -1 ... Leave it out"),
            ("tol", np.nan, "tol ... > 0 ... got nan ... Leave it out"),
            ("max_memory", "lots", "max_memory ... 16.8 MB ... got 'lots' ... 'auto'"),
            ("max_memory", "1MB", "max_memory ... 16.8 MB ... got '1MB' ... 'auto'"),
            ("max_memory", -1, "max_memory ... 16.8 MB ... got -1 ... 'auto'"),
            ("random_state", "a", "'a' cannot be used to seed"),
            ("random_state", -1, "between 0 and 2**32 - 1"),
            ("checkpoint", 5, "checkpoint ... folder ... 5"),
            ("learn_hyperparameters", "no", "learn_hyperparameters ... 'no'"),
        ]
    },
    "more dense columns than features": (
        lambda _: fit(**TABLE, covariance="chevron", dense_columns=21),
        "dense_columns <= m = 20 ... got 21 ... Use 0",
    ),
    "a kernel no grid takes": (
        lambda _: fit(basis="grid", kernel="matern32"),
        "'rbf' ... got 'matern32' ... Use 'rbf'",
    ),
    "a linear mean of classes": (lambda _: fit(y=LABELS, cls=QSGPClassifier, mean="linear"), "mean ... 'linear'"),
    "a likelihood for numbers, on classes": (
        lambda _: fit(y=LABELS, cls=QSGPClassifier, likelihood="gaussian"),
        "likelihood among 'auto', 'logistic' ... got 'gaussian' ... Choose",
    ),
    "a table larger than max_memory": (
        lambda _: fit(basis="fourier", n_features=10**6, max_memory="20MB"),
        "max_memory = 20 MB ... got ... Lower n_features (now 1000000)",
    ),
    "checkpoint at a file": (
        lambda folder: fit(**TABLE, checkpoint=a_file(folder)),
        "checkpoint ... folder ... a_file",
    ),
    "time without end": (lambda _: fit(max_time=np.inf), "max_time to be a finite number > 0 ... got inf ... Leave it"),
    # --- targets after fit, portions
    "complex targets of a density": (
        lambda _: fitted().log_density(X, 1j * y),
        "Complex data not supported ... y.real",
    ),
    "complex targets": (lambda _: fit(y=1j * y), "Complex data not supported ... y.real"),
    "no targets of a density": (lambda _: fitted().log_density(X, []), f"each of the {N} rows ... got 0 ... Check y"),
    "other classes in a later portion": (
        lambda _: new(QSGPClassifier).fit(X, LABELS).partial_fit(X, LABELS, classes=[0, 1, 2]),
        "the classes of the first portion, [0, 1], got [0, 1, 2] ... Name all classes in the first call",
    ),
    "portions over inducing points": (
        lambda _: new(basis="inducing").partial_fit(X, y),
        "basis 'auto' or 'fourier' for partial_fit ... got 'inducing' ... Fourier features",
    ),
    "portions over an odd number of features": (
        lambda _: new(n_features=7).partial_fit(X, y),
        "an even n_features of at most 8192 for partial_fit, got 7",
    ),
    "a model among the checkpoints": (
        lambda folder: fit(**TABLE, checkpoint=saved_as_checkpoint(folder)),
        "data and arguments of the checkpoint ... kernel was nothing and is now ... empty folder",
    ),
    # --- files to read
    "a path without target": (from_csv("a,y\n1,2\n", target=None), "target='name of a column' ... got none ... Say"),
    "target with a table": (
        lambda _: new().fit(X, y, target="y"),
        "target= with a path ... got 'y' ... Pass y instead",
    ),
    "no such column": (
        from_csv("a,y\n1,2\n", target="Y"),
        "a column 'Y' in ... got 'a', 'y' ... Did you mean 'y'",
    ),
    "no such weight column": (
        from_csv("a,y\n1,2\n", sample_weight="w"),
        "a column 'w' in ... got 'a', 'y' ... Name one",
    ),
    "no such file": (lambda folder: new().fit(folder / "no.csv", target="y"), "files at ... no.csv ... Check the path"),
    "no file for a glob": (lambda folder: new().fit(f"{folder}/*.csv", target="y"), "files at ... *.csv ... Check"),
    "a folder": (lambda folder: new().fit(folder, target="y"), "files, got the folder ... Name those in it"),
    "a list of words": (lambda _: new().fit(["a", "b"], [1, 2]), "files at a, got none ... Check the path"),
    "an empty CSV": (from_csv(""), "csv file at ... got an empty file ... Check that it was written"),
    "a CSV of names alone": (from_csv("a,b,y\n"), "rows ... none"),
    "a CSV without names": (from_csv("1,2,3\n2,3,4\n"), "a column 'y' ... got '1', '2', '3' ... Name one"),
    "a ragged CSV": (from_csv("a,b,y\n1,2,3\n2,3\n"), "csv file at ... cannot be read ... Expected 3 columns, got 2"),
    "a gap in the target of a CSV": (from_csv("a,y\n1,2\n2,\n"), f"target y ... NaN ... 1 of 2 ... {DROP}"),
    "a gap in the labels of a CSV": (
        from_csv("a,y\n1,u\n2,\n3,v\n", QSGPClassifier),
        f"a target for every row ... 1 of 3 ... {DROP}",
    ),
    "a gap in the weights of a CSV": (from_csv("a,y,w\n1,2,1\n2,3,\n", sample_weight="w"), "weight contains NaN"),
    "a typo in a CSV": (
        from_csv("a,b,y\n" + "".join(f"{k},{'1O' if k == 7 else k},{k}\n" for k in range(9))),
        "Expected numbers in column 'b', got '1O' in row 8 ... a categorical type",
    ),
    "a target of dates in a CSV": (from_csv("a,y\n1,2020-01-01\n2,2020-01-02\n"), "numbers ... date ... days"),
    "a target of text in a CSV": (from_csv("a,y\n1,u\n2,v\n"), "numbers as target ... got ... 'u' ... classifier"),
    "a CSV of the target alone": (from_csv("y\n1\n2\n"), "input columns beside the target, got none in 'y'"),
    "a CSV with a name twice": (from_csv("a,a,y\n1,2,3\n"), "every column ... once ... 'a', 'a' ... Rename"),
    "a CSV in Latin-1": (from_csv("größe,y\n1,2\n".encode("latin-1")), "UTF-8"),
    "a spreadsheet": (from_csv(b"PK", name="rows.xlsx"), "a file ending in .csv ... got rows.xlsx ... Convert"),
    "a broken Parquet": (from_csv(b"nonsense", name="rows.parquet"), "parquet file at ... cannot be read"),
    "an empty Parquet": (from_csv(b"", name="rows.parquet"), "parquet file at ... got an empty file"),
    "a broken Feather": (from_csv(b"nonsense", name="rows.feather"), "arrow file at ... cannot be read"),
    "a broken NPZ": (from_csv(b"nonsense", name="rows.npz"), "NPZ ... rows.npz ... cannot be read"),
    "an empty NPZ": (from_csv(b"", name="rows.npz"), "NPZ ... rows.npz ... cannot be read"),
    "an NPZ of objects": (
        lambda folder: new().fit(npz(folder, X=np.array([[1, "a"]], object), y=[1.0]), target="y"),
        "NPZ ... rows.npz ... cannot be read",
    ),
    "an NPZ without X": (
        lambda folder: new().fit(npz(folder, Z=X, y=y), target="y"),
        "'X' in ... got Z, y ... Name one",
    ),
    "an NPZ without the target": (lambda folder: new().fit(npz(folder, X=X), target="y"), "'y' in ... got X ... Name"),
    "files of different columns": (
        lambda folder: new().fit(
            [holding("1.csv", "a,y\n1,2\n")(folder), holding("2.csv", "b,y\n1,2\n")(folder)], target="y"
        ),
        "the columns of ... 1.csv in ... 2.csv ... got others ... equal files",
    ),
    "files of different types": (
        lambda folder: new().fit(
            [holding("1.csv", "a,y\n1,2\n2,3\n3,4\n4,5\n")(folder), holding("2.csv", "a,y\nu,2\n")(folder)],
            target="y",
        ),
        "Expected numbers in column 'a', got 'u' in row 5 (1 of 5 ... Correct it",
    ),
    "a file to predict that lacks a column": (
        lambda folder: fit(FRAME).predict(holding("rows.csv", "a,c\n1,2\n")(folder)),
        "a column 'b' in ... got 'a', 'c' ... Name one",
    ),
    # --- files to write and load
    **{
        f"{cls.__name__} saved before fit": (lambda f, cls=cls: new(cls).save(f / "m"), "not fitted yet") for cls in ALL
    },
    "saved to no folder": (lambda folder: fitted().save(folder / "no" / "m.qsgp"), "No such file|folder ... no"),
    "saved to a folder": (lambda folder: fitted().save(folder), "directory|folder"),
    "export before fit": (lambda folder: new().export(folder / "m.onnx"), "not fitted yet"),
    "export of another kind": (
        lambda folder: fitted().export(folder / "m.pkl"),
        ".onnx ... or .pt2 ... got m.pkl ... save",
    ),
    "export of a grid": (
        lambda folder: fit(**TABLE | {"basis": "grid"}).export(folder / "m.pt2"),
        "Fourier, inducing ... got basis='grid' ... Fit another",
    ),
    "load of nothing": (lambda folder: qsgp.load(folder / "m.qsgp"), "No such file ... m.qsgp"),
    "load of a folder": (lambda folder: qsgp.load(folder), "model file ... got a folder ... Name the file"),
    "load of text": (lambda folder: qsgp.load(a_file(folder)), "model file ... a_file ... written by save"),
    "load of an empty file": (lambda f: qsgp.load(holding("m", "")(f)), "got an empty file ... written by save"),
    "load onto no device": (
        lambda folder: loaded_on(folder, "gpu"),
        "device 'auto' ... got 'gpu' ... Leave it at 'auto'",
    ),
}


def saved_as_checkpoint(folder: Path) -> Path:
    fitted().save(folder / "step-000000005.qsgp")
    return folder


def loaded_on(folder: Path, device: str) -> Any:
    fitted().save(folder / "m.qsgp")
    return qsgp.load(folder / "m.qsgp", device=device)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_in_words(name, tmp_path):
    call, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError, OSError, NotFittedError, AttributeError)) as refused:
        call(tmp_path)
    options = [".*".join(map(re.escape, part.split(" ... "))) for part in message.split("|")]
    assert re.search("|".join(options), str(refused.value), re.DOTALL), str(refused.value)


def several(count: int) -> np.ndarray:
    return np.digitize(y, np.quantile(y, np.linspace(0, 1, count + 1)[1:-1]))


def hard(X: Any = X, y: Any = y, weight: Any = None, *, signal: bool = True, **keywords: Any) -> tuple:
    """Data, keywords, and whether a model must beat the best constant."""
    return X, y, weight, signal, keywords


def columns(*parts: Any) -> np.ndarray:
    return np.column_stack([np.broadcast_to(part, (N, *np.shape(part)[1:])) for part in parts])


SENSIBLE: dict[str, tuple] = {
    "plain": hard(),
    "one row": hard(X[:1], y[:1], signal=False),
    "two rows": hard(X[:2], y[:2], signal=False),
    "one column": hard(X[:, :1]),
    "a constant column": hard(columns(X, 7.0)),
    "a column constant up to rounding": hard(columns(X, 0.1 + 1e-17 * np.arange(N))),
    "constant inputs": hard(np.ones((N, 2)), signal=False),
    "a constant target": hard(y=np.full(N, 4.2), signal=False),
    "a huge constant target": hard(y=np.full(N, 1.2345e28), signal=False),
    "a huge constant column": hard(columns(X, 1.2345e28)),
    "a target of zeros": hard(y=np.zeros(N), signal=False),
    "every row five times": hard(np.repeat(X[:8], 5, 0), np.repeat(y[:8], 5)),
    "equal rows, other targets": hard(np.repeat(X[:1], N, 0), signal=False),
    "inputs near 1e300": hard(1e299 * X),
    "inputs near 1e-300": hard(1e-300 * X),
    "columns 1e100 apart in scale": hard(X * [1e-50, 1e50]),
    "inputs with a large offset": hard(X + 1e9),
    "targets near 1e150": hard(y=1e148 * y),
    "targets near 1e-300": hard(y=1e-300 * y),
    "targets with a large offset": hard(y=y + 1e9),
    "one enormous target": hard(y=replaced(y, 1e12), signal=False),
    "one enormous input": hard(replaced(X, 1e12), signal=False),
    "heavy tails": hard(y=np.tan(np.linspace(-1.57, 1.57, N)), signal=False),
    "more columns than rows": hard(np.random.default_rng(0).normal(size=(N, 200)), signal=False),
    "a column twice": hard(columns(X, X)),
    "whole numbers": hard(np.arange(2 * N).reshape(N, 2), np.arange(N)),
    "truth values": hard(columns(X[:, 0] > 0, X[:, 1] > 0), y),
    "truth values as target": hard(y=y > 10),
    "small unsigned numbers": hard(np.round(20 * (X + 3)).astype(np.uint8)),
    "half precision": hard(X.astype(np.float16)),
    "extended precision": hard(X.astype(np.longdouble)),
    "decimals": hard(np.array([[Decimal(f"{v:.6f}") for v in row] for row in X], object)),
    "numbers written out": hard(X.astype(str)),
    "polars decimals": hard(pl.DataFrame({"a": [Decimal(f"{v:.6f}") for v in X[:, 0]], "b": X[:, 1]})),
    "pandas of several types": hard(pd.DataFrame({"a": X[:, 0].astype("f4"), "b": pd.array(X[:, 1] > 0, "boolean")})),
    "pandas objects that are numbers": hard(FRAME.astype(object)),
    "column names that are numbers": hard(pd.DataFrame(X)),
    "weights from 1e-3 to 1e3": hard(weight=np.logspace(-3, 3, N), signal=False),
    "one row against all others": hard(weight=replaced(np.ones(N), 1e9), signal=False),
    "a weight for all": hard(weight=2.0),
    "one row with weight": hard(weight=replaced(np.zeros(N), 1.0), signal=False),
    "pandas weights": hard(weight=pd.Series(np.ones(N))),
    "two outputs": hard(y=np.c_[y, 3 - y]),
    "two outputs 1e100 apart": hard(y=np.c_[1e50 * y, 1e-50 * y]),
    "a column as target": hard(y=y[:, None]),
    "a linear mean": hard(mean="linear"),
    "a linear mean of constant inputs": hard(np.ones((N, 2)), mean="linear", signal=False),
    "no time": hard(max_time=1e-9),
    "no tolerance": hard(tol=None),
    "outliers and the Laplace likelihood": hard(
        y=replaced(y, 1e3, slice(0, N, 10)), likelihood="laplace", signal=False
    ),
    "half the weight of a class": hard(y=LABELS, weight=1.0 + LABELS),
}
# where no small number of centres or features can follow, or the case speaks of the closed form
NO_TABLE = {"no time", "outliers and the Laplace likelihood"}

MODELS = {
    "closed form": lambda **keywords: new(**keywords),
    "fourier": lambda **keywords: new(basis="fourier", n_features=60, max_iter=20, **keywords),
    "inducing": lambda **keywords: new(basis="inducing", n_features=20, max_iter=120, **keywords),
    "relevance vectors": lambda **keywords: new(QSRVMRegressor, n_features=20, max_iter=100, **keywords),
}
PAIRS = [(model, name) for model in MODELS for name in SENSIBLE if model == "closed form" or name not in NO_TABLE]


@pytest.mark.parametrize(("model", "name"), PAIRS)
@pytest.mark.filterwarnings("ignore:Stopped while the hyperparameters")
def test_hard_data_give_a_sensible_model(model, name):
    rows, target, weight, signal, keywords = SENSIBLE[name]
    made = MODELS[model](**keywords).fit(rows, target, weight)
    mean, deviation = made.predict(rows, return_std=True)
    truth = np.asarray(target, dtype=float)
    assert mean.shape == deviation.shape == truth.shape
    assert np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()
    lower, upper = made.predict_interval(rows)
    assert (lower < mean).all() and (mean < upper).all() and np.isfinite(upper - lower).all()
    assert np.isfinite(made.sample_y(rows, 2)).all() and np.isfinite(made.log_density(rows, target)).all()
    if signal:
        size = np.abs(truth).max(0)  # squares of 1e-300 are zero
        error, spread = (((a - truth) / size) ** 2 for a in (mean, truth.mean(0)))
        assert (error.mean(0) < 0.5 * spread.mean(0)).all()


LABELLED = {
    "numbers": LABELS,
    "text": WORDS,
    "truth values": LABELS > 0,
    "floats": 1.0 * LABELS,
    "large numbers": LABELS + 2**60,
    "negative numbers": 2 * LABELS - 1,
    "small unsigned numbers": LABELS.astype(np.uint8),
    "objects": WORDS.astype(object),
    "a pandas category": pd.Series(pd.Categorical(WORDS)),
    "a frame of one column": pd.DataFrame({"label": WORDS}),
    "polars text": pl.Series(WORDS.tolist()),
    "Arrow text": pa.array(WORDS.tolist()),
    "torch numbers": torch.tensor(LABELS),
    "five classes": several(5),
    "a class of one row": np.r_[7, several(3)[1:]],
    "a class for every row": np.arange(N),
}


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in LABELLED])
@pytest.mark.parametrize("cls", [QSGPClassifier, QSRVMClassifier])
@pytest.mark.filterwarnings("ignore:A column-vector y was passed", "ignore:The number of unique classes")
def test_labels_of_any_kind_come_back(cls, name, tmp_path):
    labels = np.ravel(np.asarray(LABELLED[name]))
    model = new(cls, n_features="auto").fit(X, LABELLED[name])
    proba = model.predict_proba(X)
    assert np.isfinite(proba).all() and (proba > 0).all()
    np.testing.assert_allclose(proba.sum(1), 1)
    np.testing.assert_array_equal(model.classes_, np.unique(labels))
    if "class" not in name:
        assert np.mean(model.predict(X) == labels) > 0.85
    assert np.isfinite(model.log_density(X, LABELLED[name])).all()
    model.save(tmp_path / "m.qsgp")
    np.testing.assert_array_equal(qsgp.load(tmp_path / "m.qsgp").predict(X), model.predict(X))


FAR = [1e10, 1e20, 1e40, 1e200, 1e299]


@cache
def far_model(model: str, mean: str, kernel: str) -> Any:
    return MODELS[model](mean=mean, kernel=kernel).fit(X, y)


@pytest.mark.parametrize("scale", FAR)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("mean", "kernel"), [("constant", "rbf"), ("constant", "matern52"), ("linear", "matern32")])
def test_far_from_the_data_the_model_still_answers(model, mean, kernel, scale):
    """Finite in, finite out: however far, with the deviation of the prior or of the table."""
    made, rows = far_model(model, mean, kernel), scale / 3 * X
    means, deviation = made.predict(rows, return_std=True)
    assert np.isfinite(means).all() and np.isfinite(deviation).all() and (deviation > 0).all()
    assert np.isfinite(made.sample_y(rows, 2)).all() and np.isfinite(made.predict_quantiles(rows, 0.1)).all()


@pytest.mark.parametrize("scale", FAR)
@pytest.mark.parametrize("cls", [QSGPClassifier, QSRVMClassifier])
def test_far_from_the_data_classes_are_uncertain(cls, scale):
    proba = fitted(cls).predict_proba(scale / 3 * X)
    assert np.isfinite(proba).all() and (proba > 0.05).all()


@pytest.mark.parametrize("keywords", [{}, TABLE], ids=["closed form", "fourier"])
def test_an_exported_model_answers_far_away(keywords, tmp_path):
    made = fit(**keywords)
    made.export(tmp_path / "m.pt2")
    module = torch.export.load(tmp_path / "m.pt2").module()
    for values, expected in zip(module(torch.tensor(X)), made.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(values[:, 0].numpy(), expected, rtol=1e-4)
    for scale in (1e10, 1e40, 1e200):
        mean, deviation = module(torch.tensor(scale * X))
        assert torch.isfinite(mean).all() and torch.isfinite(deviation).all() and (deviation > 0).all()


@pytest.mark.parametrize("model", ["closed form", "fourier", "grid"])
def test_a_fitted_model_takes_more_rows(model):
    """Rows after ``fit`` count as if they had been there: the error at new points falls."""
    made = fit(X[:10], y[:10], basis="grid", n_features=60, max_iter=20) if model == "grid" else None
    made = made or MODELS[model]().fit(X[:10], y[:10])
    X_new, y_new = wave(200, seed=1)
    before = made.score(X_new, y_new)
    made.partial_fit(X[10:], y[10:])
    assert made.score(X_new, y_new) > max(0.8, before)
    _, deviation = made.predict(X_new, return_std=True)
    assert np.isfinite(deviation).all() and (deviation > 0).all()


def test_a_portion_that_fails_leaves_no_trace():
    model = new()
    with pytest.raises(ValueError, match="weights"):
        model.partial_fit(X, y, np.full(N, 1e308))
    np.testing.assert_allclose(model.partial_fit(X, y).predict(X), fitted().predict(X), rtol=1e-6)
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(replaced(X, np.inf), y)
    np.testing.assert_allclose(model.predict(X), fitted().predict(X), rtol=1e-6)


@pytest.mark.parametrize("cls", ALL)
def test_a_fit_that_fails_leaves_the_model_before(cls):
    """Bad data after good: the error is said, and the fitted model still predicts as it did."""
    target = y if is_regressor(cls()) else LABELS
    model = new(cls).fit(X, target)
    before = model.predict(X)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(replaced(X, np.inf), target)
    with pytest.raises(ValueError, match="kernel among"):  # of other columns and labels: no half of them may stay
        model.set_params(kernel="cubic").fit(X[:, :1], target if is_regressor(model) else WORDS)
    after = model.set_params(kernel="auto").predict(X)
    assert np.allclose(after, before, rtol=1e-9) if is_regressor(model) else (after == before).all()


finite = st.floats(-1e30, 1e30, allow_subnormal=False)


@st.composite
def tables(draw: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows of any shape and type with duplicates, constant columns and wild scales; targets; weights or none."""
    n, d, outputs = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.normal(size=(n, d)) * 10.0 ** draw(st.integers(-30, 30)) + draw(finite)
    rows = rows[rng.integers(0, draw(st.integers(1, n)), n)]
    rows[:, : draw(st.integers(0, d))] = draw(finite)
    kind = draw(st.sampled_from(["f8", "f4", "f2", "i8", "i1", "u4", "?"]))
    if kind in ("f2", "i8", "i1", "u4", "?"):
        rows = rng.integers(0, 100, (n, d))
    target = np.array(draw(st.lists(finite, min_size=n * outputs, max_size=n * outputs))).reshape(n, outputs)
    weight = rng.uniform(0.1, 3, n) if draw(st.booleans()) else None
    return rows.astype(kind), target if outputs > 1 else target[:, 0], weight


@settings(max_examples=60)
@given(tables(), st.sampled_from(list(MODELS)))
def test_made_up_tables_give_finite_models(table, model):
    rows, target, weight = table
    made = MODELS[model]().fit(rows, target, weight)
    mean, deviation = made.predict(rows, return_std=True)
    assert mean.shape == deviation.shape == target.shape
    assert np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()
    lower, upper = made.predict_interval(rows, 0.5)
    assert (lower <= upper).all()


@settings(max_examples=30)
@given(tables(), st.integers(2, 4), st.sampled_from([QSGPClassifier, QSRVMClassifier]))
def test_made_up_tables_give_probabilities(table, classes, cls):
    rows, _, weight = table
    rows = np.concatenate([rows] * 2)
    labels = np.arange(len(rows)) % classes
    if len(np.unique(labels)) < 2:
        return
    made = new(cls, max_iter=5).fit(rows, labels, None if weight is None else np.r_[weight, weight])
    proba = made.predict_proba(rows)
    assert np.isfinite(proba).all() and (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(1), 1)


anything = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=5), st.just([]), st.just({}), st.just(X)
)
WORDS_OF_ERRORS = "Expected|cannot be used to seed|Seed must be|between 0 and"


@settings(max_examples=100)
@given(st.sampled_from(sorted(set(QSGPRegressor().get_params()) - {"verbose", "checkpoint"})), anything)
def test_any_value_of_a_keyword_is_used_or_refused(name, value):
    """Whatever stands in a keyword: a model, or a ValueError that names what was expected."""
    model = new(**TABLE | {name: value})
    try:
        mean, deviation = model.fit(X, y).predict(X, return_std=True)
    except ValueError as error:
        assert re.search(WORDS_OF_ERRORS, str(error)), str(error)
    else:
        assert np.isfinite(mean).all() and (deviation > 0).all()


def test_the_matrix_is_as_large_as_promised():
    assert len(REFUSED) + len(SENSIBLE) + len(LABELLED) >= 60
