"""`benchmarks/peers.py`: its scores, and what becomes of a model that is not installed, fails or hangs."""

import time
from typing import Any

import numpy as np
import pytest

import peers
from peer_models import MODELS, Predicted, Task, with_errors
from qsgp.datasets import Dataset


class Answer:
    """Stands for the pipe to the process that asked."""

    def send(self, found: dict[str, Any]) -> None:
        self.found = found


@pytest.fixture
def noisy_line(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 1)).astype(np.float32)
    y = x[:, 0] + 0.5 * rng.normal(size=1500)
    data = Dataset("line", x[:1000], y[:1000], x[1000:], y[1000:])
    monkeypatch.setattr(peers, "table_of", lambda name, split: data)


def answered(model: str) -> dict[str, Any]:
    answer: Any = Answer()
    peers.fit("line", 0, model, 1.0, "cpu", answer)
    return answer.found


def test_a_model_without_deviations_gets_those_of_the_rows_held_out() -> None:
    rng = np.random.default_rng(1)
    x, x_new = rng.normal(size=(20000, 1)), rng.normal(size=(5000, 1))
    y, y_new = x[:, 0] + rng.laplace(size=20000), x_new[:, 0] + rng.laplace(size=5000)
    found = with_errors(Task(x, y, x_new, 1.0, "cpu"), lambda rows: rows[:, 0], 0.5)
    scores = peers.scores_of(found, y_new)
    assert scores["rmse"] == pytest.approx(np.sqrt(2), rel=0.05)
    assert scores["coverage95"] == pytest.approx(0.95, abs=0.02)
    # of the Laplace distribution: half width log 20, and 2 / 0.05 times what is missed on average, 1 / 20
    assert scores["interval95"] == pytest.approx(2 * np.log(20) + 2, rel=0.05)


@pytest.mark.usefixtures("noisy_line")
def test_a_model_of_the_list_is_measured() -> None:
    found = answered("nystroem")
    assert found["rmse"] == pytest.approx(0.5 / np.sqrt(1.25), rel=0.1)
    assert 0.9 < found["coverage95"] < 0.99
    assert found["fit_s"] > 0 and found["predict_s"] > 0


@pytest.mark.usefixtures("noisy_line")
def test_a_library_that_is_missing_or_fails_costs_its_own_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(task: Task) -> Predicted:
        raise ModuleNotFoundError("No module named 'peer'", name="peer")

    def broken(task: Task) -> Predicted:
        raise ZeroDivisionError("of rows")

    monkeypatch.setitem(MODELS, "missing", missing)
    monkeypatch.setitem(MODELS, "broken", broken)
    assert answered("missing") == {"skipped": "peer is not installed"}
    assert answered("broken") == {"failed": "ZeroDivisionError: of rows"}


@pytest.mark.slow
def test_a_fit_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_OVERHEAD", 0.0)
    began = time.monotonic()
    key = {"data": "no such set", "split": 0, "model": "qsgp", "seconds": 0.01, "device": "cpu"}
    row = peers.measured(key)
    assert time.monotonic() - began < 20
    assert row["rmse"] is None and row["note"] == "no result after 0 s"
