"""`benchmarks/battery.py`, reduced: its design, its rule, its guard against crashes, and problems of each other kind.

Kinds that factors of low noise used to break on are in `test_solid_ground.py`.
"""

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import battery
from battery import References, Worker, fit_and_score, reference_of, row
from battery_problems import KINDS, LEVELS, REFUSED, Problem, design, table
from battery_verdict import markdown, verdict
from busy import slow, waiting

pytestmark = pytest.mark.usefixtures("without_shape_checks")

FACTORS = {"kind": list(KINDS), **LEVELS}


# --- design and tables ------------------------------------------------------------------------------------------


def test_each_pair_of_levels_appears() -> None:
    problems = [vars(problem) for problem in design()]
    for a, b in itertools.combinations(FACTORS, 2):
        found = {(problem[a], problem[b]) for problem in problems}
        assert set(itertools.product(FACTORS[a], FACTORS[b])) <= found


def test_the_design_is_the_same_each_time() -> None:
    names = [problem.name for problem in design()]
    assert names == [problem.name for problem in design()]
    assert len(names) == len(set(names)) >= 150


@pytest.mark.parametrize("kind", [*KINDS, *REFUSED])
@pytest.mark.parametrize("d", LEVELS["d"])
def test_fewer_rows_are_the_first_of_more(kind: str, d: int) -> None:
    some, all_ = (table(Problem(kind, n, 0.03, d, None)) for n in (300, 700))
    assert len(some.x) == len(some.y) == 300
    inside = slice(0, 300) if kind != "missing value" else slice(0, 100)
    np.testing.assert_array_equal(some.x[inside], all_.x[inside])
    np.testing.assert_array_equal(some.y[inside], all_.y[inside])
    np.testing.assert_array_equal(some.y_new, all_.y_new)


def test_noise_has_the_deviation_it_is_said_to_have() -> None:
    plain, noisy = (table(Problem("sine", 20000, noise, 1, None)) for noise in (0.0, 0.3))
    assert np.std(noisy.y - plain.y) == pytest.approx(0.3 * plain.deviation, rel=0.03)
    assert plain.deviation == pytest.approx(plain.y.std(), rel=0.05)


# --- the rule ---------------------------------------------------------------------------------------------------

GOOD = {"exception": None, "finite": True, "seconds": 3.0, "rmse": 0.31, "rmse_ref": 0.3, "coverage": 0.95}
SURE = {"exception": None, "finite": True, "seconds": 3.0, "log_loss": 0.2, "log_loss_ref": 0.2} | {
    "error": 0.05,
    "error_ref": 0.05,
}


@pytest.mark.parametrize(
    ("kind", "noise", "change", "expected"),
    [
        ("sine", 0.3, {}, "ok"),
        ("sine", 0.3, {"rmse": 0.361}, "rmse"),
        ("sine", 0.3, {"rmse": 0.359}, "ok"),
        ("sine", 0.0, {"rmse": 0.0010, "rmse_ref": 1e-5}, "ok"),
        ("sine", 0.0, {"rmse": 0.0012, "rmse_ref": 1e-5}, "rmse"),
        ("sine", 1e-3, {"rmse": 0.0015, "rmse_ref": 1e-3}, "rmse"),
        ("sine", 0.3, {"coverage": 0.995}, "coverage"),
        ("sine", 0.0, {"coverage": 1.0}, "ok"),
        ("step", 0.3, {"coverage": 1.0}, "ok"),
        ("step", 0.3, {"coverage": 0.89}, "coverage"),
        ("sine", 0.0, {"coverage": 0.89}, "coverage"),
        ("sine", 0.3, {"rmse": 0.4, "coverage": 0.5, "seconds": 5.0}, "rmse, coverage, time"),
        ("sine", 0.3, {"seconds": 4.3}, "ok"),
        ("sine", 0.3, {"finite": False}, "non-finite"),
        ("sine", 0.3, {"exception": "_LinAlgError: no factor"}, "exception"),
        ("sine", 0.3, {"exception": "ValueError: Expected more rows"}, "exception"),
        ("sine", 0.3, {"exception": "Hung: no answer after 99 s"}, "hung"),
        ("sine", 0.3, {"rmse_ref": None}, "no reference"),
        ("missing value", 0.3, {"exception": "ValueError: Expected numbers, got NaN"}, "ok"),
        ("missing value", 0.3, {"exception": "ValueError: array must not contain infs"}, "exception"),
        ("missing value", 0.3, {}, "not refused"),
        ("two classes", 0.3, {}, "ok"),
        ("two classes", 0.3, {"log_loss": 0.23}, "log loss"),
        ("two classes", 0.3, {"error": 0.08}, "error"),
    ],
)
def test_the_verdict_names_what_is_wrong(kind: str, noise: float, change: dict[str, Any], expected: str) -> None:
    problem = Problem(kind, 3001, noise, 3, 3.0)
    assert verdict(problem, (SURE if problem.classes else GOOD) | change) == expected


# --- the run ----------------------------------------------------------------------------------------------------


def test_a_reference_is_made_once_unless_it_hung(tmp_path: Any) -> None:
    made: list[Problem] = []

    def measure(problem: Problem) -> dict[str, Any]:
        made.append(problem)
        return {"rmse": 0.1, "exception": None} if len(made) > 1 else {"exception": "Hung: no answer"}

    problem = Problem("sine", 500, 0.0, 1, None)
    found = [References(tmp_path / "references.json").get(problem, measure).get("rmse") for _ in range(3)]
    assert found == [None, 0.1, 0.1]
    assert len(made) == 2


def test_a_reference_knows_few_rows_and_has_time() -> None:
    known = reference_of(Problem("sine", 30000, 0.0, 1, 3.0, 2, "float64"), 3000)
    assert known == Problem("sine", 3000, 0.0, 1, None, 1, "float32")
    assert reference_of(replace(known, kind="two classes"), 3000).n == 1000


@pytest.mark.slow
def test_a_fit_that_dies_costs_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next has a process of its own."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    worker, problem = Worker("cpu", 100), Problem("linear", 100, 0.3, 1, 3.0)
    worker._start()
    worker._process.kill()
    assert worker.measure(problem, "cpu")["exception"].startswith("Died")
    again = worker.measure(problem, "cpu")
    assert again["exception"] is None and 0.2 < again["rmse"] < 0.5
    worker._end()


def test_a_file_that_has_a_problem_does_not_measure_it_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file, measured = tmp_path / "rows.json", []

    def measure(self: Worker, problem: Problem, device: str) -> dict[str, Any]:
        measured.append(problem)
        return {**GOOD, "load": 0.0, "warnings": []}

    monkeypatch.setattr(Worker, "measure", measure)
    command = f"battery --json {file} --references {tmp_path / 'references.json'} --only sine --part 1/4"
    monkeypatch.setattr("sys.argv", command.split())
    battery.main()
    once = len(measured)
    battery.main()
    rows = json.loads(file.read_text())["rows"]
    assert once == len(measured) == 2 * len(rows) > 2  # a reference for each
    assert {each["kind"] for each in rows} == {"sine"}
    assert f"{len(rows)} problems" in markdown([json.loads(file.read_text())])


# --- problems ---------------------------------------------------------------------------------------------------

QUICK = [
    Problem("outlier in y", 500, 0.3, 3, 3.0),
    Problem("two classes", 300, 0.3, 1, 3.0),
    Problem("missing value", 500, 0.3, 3, 3.0),
    Problem("one class", 500, 0.3, 3, 3.0),
]
REDUCED = [
    Problem("weights", 500, 0.3, 3, 3.0),
    Problem("clipped", 500, 0.03, 3, 3.0),
    Problem("many duplicates", 3001, 1e-6, 3, 3.0),
    Problem("mixed", 3001, 0.3, 3, 3.0),
    Problem("constant columns", 500, 1e-6, 3, 3.0),
    Problem("outlier in x", 500, 0.3, 3, 3.0),
    Problem("scales apart", 500, 0.03, 20, 3.0, dtype="float64"),
    Problem("far from zero", 3001, 0.03, 1, 3.0),
    Problem("skewed inputs", 500, 0.3, 3, 3.0),
    Problem("rounded target", 500, 0.3, 1, 3.0),
    Problem("three classes", 300, 0.3, 3, 5.0),
]
LARGER = [problem for problem in design() if problem.n == 8000 and problem.max_time == 10 and problem.threads == 1]


@pytest.mark.parametrize("problem", [*QUICK, *slow(REDUCED)], ids=lambda problem: problem.name)
def test_a_problem_passes(problem: Problem) -> None:
    """By the rule, with as many seconds more as others on the machine take."""
    patient = replace(problem, max_time=problem.max_time and problem.max_time * waiting())
    found = row(patient, "cpu", fit_and_score, References(None), most=1000)
    told = ("verdict", "exception", "rmse", "rmse_ref", "coverage", "log_loss", "log_loss_ref", "seconds", "max_time")
    assert found["verdict"] == "ok", {name: found.get(name) for name in told}


@pytest.mark.slow
@pytest.mark.bench
@pytest.mark.parametrize("problem", LARGER, ids=lambda problem: problem.name)
def test_a_larger_problem_passes(problem: Problem) -> None:
    test_a_problem_passes(problem)
