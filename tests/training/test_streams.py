"""Fits whose rows are read from the disk: the same models as from arrays, and a window that sees every row."""

import math
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from qsgp import QSGPClassifier, QSGPRegressor, QSRVMRegressor, load, memory
from qsgp.data.arrays import Arrays
from qsgp.data.rows import Rows
from qsgp.data.scanning import survey
from qsgp.data.sources import ArraySource, FileSource, of_files
from qsgp.interrupt import Halt
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.models import streaming
from qsgp.models.keywords import read_options
from qsgp.ranks import present
from qsgp.training import options, sizes
from qsgp.training.basis import make_table
from qsgp.training.plan import make_plan
from qsgp.training.stream import Stream
from qsgp.training.task import Task
from qsgp.training.window import Window
from ranking import together

NAMES = ["a", "b", "c"]
FIXED = {"kernel": "rbf", "learn_hyperparameters": False, "random_state": 0}


def data(n: int = 1200, seed: int = 0, gaps: float = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)
    return np.where(rng.random(X.shape) < gaps, np.nan, X), y


def table(X: np.ndarray) -> pa.Table:
    return pa.table(dict(zip(NAMES, X.T, strict=True)))


def source(folder: Path, n: int = 1200, labels: bool = False, gaps: float = 0) -> FileSource:
    X, y = data(n, gaps=gaps)
    target = pa.array(np.where(y > 0, "up", "down")) if labels else pa.array(y)
    parquet.write_table(table(X).append_column("y", target), folder / "rows.parquet", row_group_size=100)
    return of_files([folder / "rows.parquet"], "y", labels=labels)


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "WINDOW", 700)
    monkeypatch.setattr(sizes, "_LEAST_WINDOW", 700)


# --- the same model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "gaps"), [("constant", 0), ("linear", 0), ("constant", 0.2)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_file_gives_the_model_of_its_rows_in_the_order_of_the_sample(mean: str, gaps: float, tmp_path: Path) -> None:
    """All rows are in the sample, so arrays in its order are learned from in the same way."""
    rows, keywords = source(tmp_path, 400, gaps=gaps), {**FIXED, "n_features": 64, "mean": mean}
    order = survey(rows, 400, read_options(QSGPRegressor(**keywords)).seed, labels=False).sample.number
    X, y = data(400, gaps=gaps)
    new = data(20, 1, gaps)[0]
    wanted = QSGPRegressor(**keywords).fit(X[order], y[order]).predict(new, return_std=True)
    found = QSGPRegressor(**keywords).fit(rows).predict(table(new), return_std=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_sums_are_over_all_rows_though_few_are_held(tmp_path: Path, small_window: None) -> None:
    keywords = {**FIXED, "n_features": 64}
    X, y = data()
    new = data(20, seed=1)[0]
    wanted = QSGPRegressor(**keywords).fit(X, y)
    found = QSGPRegressor(**keywords).fit(source(tmp_path))
    assert found.history_[-1]["rows"] == wanted.history_[-1]["rows"]
    assert "700 of 1,200 rows, drawn uniformly, are held in memory" in str(found.plan_)
    np.testing.assert_allclose(found.predict(table(new)), wanted.predict(new), atol=2e-3)


def test_classes_are_those_of_all_rows(tmp_path: Path, small_window: None) -> None:
    X, y = data()
    model = QSGPClassifier(n_features=32, **FIXED).fit(source(tmp_path, labels=True))
    assert model.classes_.tolist() == ["down", "up"]
    assert (model.predict(table(X)) == np.where(y > 0, "up", "down")).mean() > 0.9


@pytest.mark.parametrize("estimator", [QSGPRegressor, QSRVMRegressor])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_steps_train_on_a_window(estimator: type, tmp_path: Path, small_window: None) -> None:
    """As well as on all rows at once."""
    keywords = {**FIXED, "n_features": 64, "batch_points": 200, "max_iter": 100}
    model, (X, y) = estimator(**keywords).fit(source(tmp_path)), data(400, seed=1)
    wanted = np.sqrt(np.mean((estimator(**keywords).fit(*data()).predict(X) - y) ** 2))
    assert np.sqrt(np.mean((model.predict(table(X)) - y) ** 2)) < 1.1 * wanted
    assert model.history_[-1]["waited"] >= 0
    if estimator is QSRVMRegressor:
        assert model.relevance_.max() < 1200


def test_the_rows_road_knows_a_uniform_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 rows 3,100 are read into memory, where time allows no more."""
    monkeypatch.setattr(sizes.Pace, "rows", lambda *_: 3100)
    plan = QSGPRegressor().plan(source(tmp_path, 4000))
    assert (plan.road, plan.given, plan.rows) == ("rows", 4000, 3100)
    assert "3,100 of 4,000 rows, drawn uniformly, are held" in str(plan)


def test_memory_mapped_arrays_are_streamed_when_they_are_large(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.tile(data(1000)[0], (300, 1)))
    X, y = np.load(tmp_path / "X.npy", mmap_mode="r"), np.zeros(300_000)
    assert isinstance(streaming.source_of(QSGPRegressor(max_memory="20MB"), X, y, None, None), ArraySource)
    assert streaming.source_of(QSGPRegressor(max_memory="200MB"), X, y, None, None) is None
    assert streaming.source_of(QSGPRegressor(max_memory="20MB"), np.asarray(X), y, None, None) is None


def test_what_a_stream_cannot_do_is_said(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.tile(data(1000)[0], (300, 1)))
    X, y = np.load(tmp_path / "X.npy", mmap_mode="r"), np.zeros(300_000)
    with pytest.raises(ValueError, match="fits into max_memory with categorical_features"):
        QSGPRegressor(max_memory="20MB", categorical_features=[0]).fit(X, y)
    with pytest.raises(ValueError, match="target_map 'auto' or 'none' for rows that are streamed"):
        QSGPRegressor(max_memory="20MB", target_map="sinh-arcsinh").fit(X, y)
    with pytest.raises(ValueError, match="rows that count, got none"):
        QSGPRegressor(max_memory="20MB").fit(X, y, sample_weight=y)


def too_large_by_rank(path: str, free: tuple[int, ...]) -> bool:
    with mock.patch.object(memory, "budget", lambda *_: free[present().rank]):
        return streaming.too_large(path, "4GB")


@pytest.mark.parametrize("free", [(10**12, 1), (1, 10**12)])
def test_ranks_stream_or_read_whole_as_the_first_one_does(free: tuple[int, ...], tmp_path: Path) -> None:
    """Each finds another memory free."""
    source(tmp_path)
    assert together(2, too_large_by_rank, str(tmp_path / "rows.parquet"), free) == 2 * [free[0] == 1]


def streamed_by_rank(rows: FileSource) -> tuple[np.ndarray, str]:
    model = QSGPRegressor(kernel="rbf", metric="ard", learn_hyperparameters=False, noise="equal").fit(rows)
    return model.predict(table(data(20, seed=1)[0])), str(model.plan_)


@pytest.mark.slow
def test_ranks_that_stream_train_one_model_whatever_their_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"block": 200, "exact_rows": 300, "variance_points": 100, "held_out": 100, "draws": 4}
    monkeypatch.setitem(options.PACES, "cpu", replace(options.PACES["cpu"], **small))
    (first, plan), (second, _) = together(2, streamed_by_rank, source(tmp_path, 3200))
    np.testing.assert_array_equal(first, second)
    assert "2 ranks share the rows" in plan and "streamed" in plan
    y = data(20, seed=1)[1]
    assert np.corrcoef(first, y)[0, 1] > 0.8


def test_a_path_is_streamed_only_where_it_would_not_fit(tmp_path: Path) -> None:
    X, y = data(300_000)
    parquet.write_table(table(X).append_column("y", pa.array(y)), tmp_path / "rows.parquet")
    path = str(tmp_path / "*.parquet")
    plan = QSGPRegressor(max_memory="28MB", n_features=32, learn_hyperparameters=False).plan(path, target="y")
    assert "so they are streamed" in str(plan)
    assert plan.memory <= 28e6
    assert "streamed" not in str(QSGPRegressor(max_memory="4GB").plan(path, target="y"))


def test_all_rows_of_a_file_are_predicted_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = QSGPRegressor(n_features=32, **FIXED).fit(source(tmp_path, 300))
    path = str(tmp_path / "rows.parquet")
    whole = model.predict(path)
    monkeypatch.setattr("qsgp.models.estimator.held_bytes", lambda files: 2**62)
    np.testing.assert_allclose(model.predict(path), whole)


def test_a_streamed_model_is_saved_and_read_back(tmp_path: Path) -> None:
    model = QSGPRegressor(n_features=32, **FIXED).fit(source(tmp_path, 300))
    model.save(tmp_path / "model.qsgp")
    again = load(tmp_path / "model.qsgp")
    assert again.plan_.sentences == model.plan_.sentences
    np.testing.assert_allclose(again.predict(table(data(5)[0])), model.predict(table(data(5)[0])))


def test_a_solver_of_all_rows_says_that_it_needs_them(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rows that fit into max_memory with optimizer='preconditioned'"):
        QSGPRegressor(optimizer="preconditioned").fit(source(tmp_path))


# --- the window -------------------------------------------------------------------------------------------------


def window(n: int = 60, held: int = 20, drawn: int = 4) -> Window:
    """Rows whose input is their number, of which the first ``held`` are in the window."""
    X = np.arange(float(n))[:, None]
    rows = ArraySource(X, X[:, 0])
    x = torch.arange(float(held))[:, None]

    def standardised(piece):
        x = torch.from_numpy(piece.X).float()
        return Rows(x, x.clone(), torch.ones(len(x)))

    stream = Stream(rows, n, float(n), standardised, np.arange(held))
    return Window(stream, Arrays(x, x.clone()), drawn, seed=0)


def test_weights_of_rows_that_the_sample_lacks_count() -> None:
    """All that is in memory may count once, and some row of the stream many times."""
    x = torch.linspace(0, 1, 50)[:, None]
    settings = options.Options(n_features=20, optimizer="adagrad")
    chosen, halt = make_plan(50, 1, 1, settings).sizes, Halt(threading.Event(), math.inf)
    kernel, noise = SquaredExponential(*hyperparameters(0.3, 1.0, d=1)), Gaussian(torch.tensor(0.1))
    found = []
    for total in (4000.0, 4147.0):
        stream = Stream(ArraySource(x.numpy(), x[:, 0].numpy()), 4000, total, lambda piece: piece, np.arange(50))
        task = Task(Rows(x, x, torch.ones(50)), settings, chosen, halt, stream=stream)
        found.append(make_table(task, kernel, noise).rows.source.weight is not None)
    assert found == [False, True]


def test_every_row_comes_into_the_window_once_an_epoch() -> None:
    rows = window()
    met, every = np.zeros(60), torch.arange(60)
    for _ in range(3 * 60 // 4):
        before = rows._oldest
        rows.move()
        new = rows._x[before : before + 4, 0]
        met[new.long().numpy()] += 1
    rows.close()
    assert (met == 3).all()
    assert rows.take(every)[0].shape == (60, 1)


def test_every_place_of_the_window_is_as_likely_as_any_other() -> None:
    rows = window()
    counts = np.bincount(rows.take(torch.arange(60))[0][:, 0].long().numpy(), minlength=20)
    rows.close()
    assert (counts == 3).all()


def test_inputs_and_targets_stay_together() -> None:
    rows = window()
    for _ in range(40):
        rows.move()
    x, y = rows.take(torch.arange(0, 60, 7))
    rows.close()
    assert (x == y).all()


def test_a_window_that_holds_all_rows_stays() -> None:
    rows = window(n=20, held=20)
    before = rows._x.clone()
    rows.move()
    rows.close()
    assert (rows._x == before).all()


# --- memory -----------------------------------------------------------------------------------------------------

CHILD = """
import resource, sys, warnings
from qsgp import QSGPRegressor
warnings.simplefilter("ignore")
empty = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
QSGPRegressor(max_memory=sys.argv[2], n_features=64, random_state=0).fit(sys.argv[1], target="y")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - empty) * 1024)
"""


@pytest.mark.slow
def test_resident_memory_stays_within_what_is_allowed(tmp_path: Path) -> None:
    """3 million rows, which read whole would take 290 MB; in a process of its own, beyond what the program takes."""
    file = parquet.ParquetWriter(tmp_path / "rows.parquet", pa.schema([(name, pa.float64()) for name in [*NAMES, "y"]]))
    with file:
        for seed in range(12):
            X, y = data(250_000, seed)
            file.write_table(table(X).append_column("y", pa.array(y)))
    command = [sys.executable, "-c", CHILD, str(tmp_path / "rows.parquet"), "200MB"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert float(done.stdout.split()[-1]) < 350e6  # PyTorch's own buffers included
