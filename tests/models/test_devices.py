"""A fit that starts its own processes: the model is that of one process, and whatever ends one of them is told."""

import os
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from qsgp import QSGPRegressor
from qsgp.models import estimator
from qsgp.models.one_rank import _write
from qsgp.models.spread import _why, several
from qsgp.training.options import Options


def rows(n):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n, 2))
    return X, 10 + np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=n)


def regressor(**keywords):
    fixed = {"kernel": "rbf", "metric": "ard", "learn_hyperparameters": False, "random_state": 0, "device": "cpu"}
    return QSGPRegressor(**(fixed | {"target_map": "none", "dtype": "float64"} | keywords))


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


@pytest.mark.slow
def test_the_model_of_two_processes_is_that_of_one(two_cores):
    X, y = rows(4200)
    generator = np.random.RandomState(3)
    alone = regressor(random_state=np.random.RandomState(3)).fit(X, y)
    found = regressor(random_state=generator, devices=2).fit(X, y)
    for one, other in zip(found.predict(X[:200], True), alone.predict(X[:200], True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    assert "2 ranks share the rows, about 2,100 each" in str(found.plan_)
    assert found.devices == 2 and found.random_state is generator
    assert [record["phase"] for record in found.history_] == [record["phase"] for record in alone.history_]
    pickle.dumps(found)  # one process holds all of it


@pytest.mark.slow
def test_what_a_rank_says_is_said_here(two_cores, tmp_path):
    X, y = rows(3100)
    (tmp_path / "step-000000001.qsgp").write_text("nothing")
    with pytest.raises(ValueError, match="Expected a sound checkpoint"):
        regressor(devices=2, checkpoint=tmp_path).fit(X, y)


def test_the_plan_tells_of_them_and_starts_none(two_cores):
    X, y = rows(3100)
    assert "2 ranks share the rows, about 1,550 each" in str(regressor(devices=2).plan(X, y))


@pytest.mark.parametrize("keywords", [{}, {"n_features": 20}])
def test_what_ranks_do_not_share_is_left_to_one_process(keywords, two_cores, monkeypatch):
    monkeypatch.setattr(estimator, "spread", None)
    X, y = rows(100)
    found = regressor(devices=2, **keywords).fit(X, y)
    np.testing.assert_array_equal(found.predict(X), regressor(**keywords).fit(X, y).predict(X))
    assert "ranks" not in str(found.plan_)


@pytest.mark.parametrize(
    ("devices", "device", "gpus", "ranks", "words"),
    [
        ("all", "cpu", 0, 1, "a machine with GPUs for devices='all', got device 'cpu'"),
        ("both", "cpu", 0, 1, "'all' or a whole number >= 1, got 'both'"),
        (0, "cpu", 0, 1, "got 0"),
        (True, "cpu", 0, 1, "got True"),
        (2.0, "cpu", 0, 1, "got 2.0"),
        (3, "cpu", 0, 1, "at most 2, the number of cores"),
        (3, "cuda", 2, 1, "at most 2, the number of GPUs here, got 3"),
        (2, "cuda:1", 2, 1, "device 'auto', 'cuda' or 'cpu' with devices=2, got 'cuda:1'"),
        (2, "cpu", 0, 4, "devices=1 in a run of 4 ranks, got 2. Leave it out"),
    ],
)
def test_devices_that_cannot_be_meant_are_named(devices, device, gpus, ranks, words, two_cores, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ValueError) as caught:
        several(SimpleNamespace(devices=devices), Options(device=device), ranks)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("devices", "device", "gpus", "wanted"),
    [("all", "cuda", 8, 8), ("all", "cuda", 1, 1), (1, "cuda:1", 2, 1), (np.int64(2), "cpu", 0, 2)],
)
def test_devices_that_are_there_are_taken(devices, device, gpus, wanted, two_cores, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert several(SimpleNamespace(devices=devices), Options(device=device), 1) == wanted


def test_a_small_fit_refuses_them_too():
    X, y = rows(50)
    with pytest.raises(ValueError, match="Expected devices to be 'all' or a whole number"):
        regressor(devices="two").fit(X, y)


def test_rows_read_a_piece_at_a_time_are_refused(two_cores, tmp_path):
    X, y = rows(400_000)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(ValueError, match=r"devices=1 with rows that are read a piece at a time, got 2\. Raise"):
        regressor(devices=2, max_memory="17MB").fit(mapped, y)


def test_the_cause_is_told_and_not_what_it_led_to(tmp_path):
    _write(tmp_path / "error-0.json", ("LostRanks", "another rank has ended"))
    assert "rank 1 was ended by SIGKILL; the others end" in str(_why(tmp_path, [1, -9]))
    _write(tmp_path / "error-1.json", ("Fussy", "no"))
    found = _why(tmp_path, [1, 1])
    assert type(found) is RuntimeError and str(found) == "Fussy: no"
    _write(tmp_path / "error-1.json", ("UnicodeDecodeError", "takes five arguments"))
    assert type(_why(tmp_path, [1, 1])) is RuntimeError
    _write(tmp_path / "error-1.json", ("ValueError", "no such column"))
    assert repr(_why(tmp_path, [1, 1])) == "ValueError('no such column')"
