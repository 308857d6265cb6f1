"""Every command as the real program: what it writes, what it prints where, and how it ends."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from programs import COMMAND, ENVIRONMENT, qsgp, write_houses
from qsgp import QSGPRegressor, datasets, load

pytest.importorskip("typer")
pytest.importorskip("rich")

from qsgp.cli import demo
from qsgp.data.encoding import Encoded


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a model fitted by the program."""
    folder = tmp_path_factory.mktemp("houses")
    write_houses(folder)
    done = qsgp("fit", "train.csv", "-t", "price", "--drop", "id,sold", "--holdout", "0.2", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "fit.out").write_text(done.stdout)
    (folder / "fit.err").write_text(done.stderr)
    return folder


def test_fit_says_what_it_decided_and_how_good_it_is(houses: Path) -> None:
    printed, notes = (houses / "fit.out").read_text(), (houses / "fit.err").read_text()
    assert "Wrote model.qsgp: QSGPRegressor" in printed and "RMSE" in printed
    assert "hence regression" in notes and "'kind' holds texts: 3 categories, one input for each" in notes
    assert "\x1b" not in printed + notes, "no escape codes where there is no terminal"
    model = load(houses / "model.qsgp")
    assert model.input_names_ == ["size", "age", "kind=flat", "kind=house", "kind=villa"]
    assert model.columns_.rows == 120


def encoded(rows: pd.DataFrame, model: Any) -> Encoded:
    """What the program makes of the columns, by another route."""
    made = pd.get_dummies(rows[["size", "age", "kind"]], columns=["kind"], prefix_sep="=", dtype=float)
    return Encoded(made[model.input_names_].to_numpy())


def test_predict_writes_what_the_model_says_beside_the_kept_columns(houses: Path) -> None:
    done = qsgp("predict", "model.qsgp", "new.csv", "--keep", "id", "--interval", "0.9", cwd=houses)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(io.StringIO(done.stdout), dtype={"id": str})
    rows = pd.read_csv(houses / "new.csv", dtype={"id": str})
    model = load(houses / "model.qsgp")
    X = encoded(rows, model)
    mean, deviation = model.predict(X, return_std=True)
    lower, upper = model.predict_interval(X, 0.9)
    assert list(found["id"]) == list(rows["id"]), "a key keeps its leading zeros"
    for name, wanted in {"mean": mean, "deviation": deviation, "lower": lower, "upper": upper}.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-8)
    assert done.stderr == "Predicted 70 rows.\n"


def test_evaluate_gives_the_scores_of_an_independent_computation(houses: Path) -> None:
    done = qsgp("evaluate", "model.qsgp", "test.csv", "--json", cwd=houses)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    rows = pd.read_csv(houses / "test.csv")
    y, model = rows["price"], load(houses / "model.qsgp")
    mean, deviation = model.predict(encoded(rows, model), return_std=True)
    z = (y - mean) / deviation
    assert found["rows"] == 80
    assert found["rmse"] == pytest.approx(((y - mean) ** 2).mean() ** 0.5)
    assert found["mnlp"] == pytest.approx((z**2 / 2 + np.log(deviation * np.sqrt(2 * np.pi))).mean())
    assert found["coverage95"] == pytest.approx((z.abs() < 1.959964).mean())
    assert found["rmse"] < 0.2 * found["constant_rmse"]


def test_info_tells_what_the_model_holds(houses: Path) -> None:
    done = qsgp("info", "model.qsgp", "--json", cwd=houses)
    assert (done.returncode, done.stderr) == (0, "")
    found, model = json.loads(done.stdout), load(houses / "model.qsgp")
    assert found["estimator"] == "QSGPRegressor" and found["target"] == "price" and found["rows"] == 120
    scales = {entry["name"]: entry["lengthscale"] for entry in found["inputs"]}
    assert scales == pytest.approx(dict(zip(model.input_names_, model.lengthscale_, strict=True)))
    assert found["noise_deviation"] == pytest.approx(model.noise_variance_**0.5)
    assert set(found["versions"]) == {"qsgp", "torch", "python"}


def test_report_writes_a_page(houses: Path) -> None:
    pytest.importorskip("matplotlib")
    done = qsgp("report", "model.qsgp", "test.csv", "-o", "report.html", cwd=houses)
    assert done.returncode == 0, done.stderr
    assert "<html" in (houses / "report.html").read_text()[:500].lower()
    assert str(houses / "report.html") in done.stderr
    assert "<title>price: report of a QSGPRegressor</title>" in (houses / "report.html").read_text()


@pytest.mark.slow
def test_bench_lists_names(houses: Path) -> None:
    listed = qsgp("bench", cwd=houses)
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert listed.returncode == 0 and {"step_cost", "engine", "feature_candidates"} <= names


@pytest.mark.slow
def test_bench_runs_a_benchmark_and_passes_its_options(tmp_path: Path) -> None:
    options = ["--sizes", "1e4", "--batches", "100", "--steps", "5", "--tasks", "regression"]
    done = qsgp("bench", "step_cost", "--json", "rows.json", "--", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {row["batch_points"] for row in json.loads((tmp_path / "rows.json").read_text())["rows"]} == {100}


def write_arm(folder: Path, rows: int) -> None:
    x, y = datasets.make_robot_arm(rows, 0.05)
    pd.DataFrame(x).add_prefix("joint").assign(y=y).to_parquet(folder / "arm.parquet")


@pytest.mark.slow
def test_fit_and_info_say_how_many_rows_the_time_allowed(tmp_path: Path) -> None:
    write_arm(tmp_path, 30_000)
    done = qsgp("fit", "arm.parquet", "-t", "y", "--max-time", "1", "--device", "cpu", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    known = load(tmp_path / "model.qsgp")._posterior.parts()[1]["x"].shape[0]
    assert found["rows"] == 30_000 and found["rows_known"] == known < 30_000
    assert json.loads(qsgp("info", "model.qsgp", "--json", cwd=tmp_path).stdout)["basis_functions"] == known


@pytest.mark.parametrize("request_to_end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_keeps_what_was_learned(tmp_path: Path, request_to_end: signal.Signals) -> None:
    write_arm(tmp_path, 30_000)
    running = subprocess.Popen(
        [*COMMAND, "fit", "arm.parquet", "-t", "y"], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("Training"):
            break
    time.sleep(1.5)
    running.send_signal(request_to_end)
    _, notes = running.communicate(timeout=600)
    assert running.returncode == 130
    assert "Interrupted: the model is fitted as far as it came" in notes and "Traceback" not in notes
    x, y = datasets.make_robot_arm(30_500, 0.05)
    X = pd.DataFrame(x[30_000:]).add_prefix("joint")
    assert load(tmp_path / "model.qsgp").score(X, y[30_000:]) > 0.3, "what was learned is in the file"


@pytest.mark.slow
def test_a_terminal_shows_progress_and_time_left(tmp_path: Path) -> None:
    write_arm(tmp_path, 5000)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        os.execve(
            sys.executable,
            [*COMMAND, "fit", "arm.parquet", "-t", "y", "--max-time", "4"],
            ENVIRONMENT | {"TERM": "xterm", "COLUMNS": "100"},
        )
    shown = b""
    while True:
        try:
            portion = os.read(terminal, 65536)
        except OSError:  # the program has ended
            break
        shown += portion
        if not portion:
            break
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"s left" in shown and b"Wrote model.qsgp" in shown


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(houses: Path) -> None:
    line = f"{sys.executable} -m qsgp predict model.qsgp new.csv -q | head -n 1"
    done = subprocess.run(line, shell=True, cwd=houses, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout == "mean,deviation\n" and "Traceback" not in done.stderr


@pytest.mark.slow
def test_without_the_extra_the_program_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(name='typer')")
    path = os.pathsep.join([str(tmp_path), ENVIRONMENT["PYTHONPATH"]])
    done = subprocess.run([*COMMAND, "--help"], env=ENVIRONMENT | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 1 and "pip install 'qsgp[cli,data]'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("first", "second", "trees"),
    [(2.0, 0.0, 10), (1.0, 3.0, 60), (1.0, 2.0, 90), (0.01, 0.03, 2000), (1.2, 4.8, 40)],
    ids=["slow", "all work is trees", "a call costs half", "fast", "time is up"],
)
def test_the_pace_of_the_first_trees_says_how_many_fit_into_the_time(
    first: float, second: float, trees: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``first`` seconds for ten trees, ``second`` for thirty more; six in all."""
    x, y = datasets.make_robot_arm(300, 0.05)
    clock = iter([0.0, first, first + second])
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    made = []
    monkeypatch.setattr(demo, "_with_constant_spread", lambda model, X, y: made.append(model) or model.predict)
    demo._trees(x, y, 6.0)
    assert made[0].n_iter_ == trees


@pytest.mark.slow
def test_the_demo_trains_compares_and_reports(tmp_path: Path) -> None:
    """Few rows and much time: a fit that the clock ends too early is overconfident, more so on a busy machine."""
    done = qsgp("demo", "--rows", "8000", "--seconds", "60", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["QSGP", "linear model", "boosted trees", "noise floor"]
    assert found["noise floor"]["rmse"] < found["QSGP"]["rmse"] < found["boosted trees"]["rmse"]
    assert found["boosted trees"]["rmse"] < found["linear model"]["rmse"]
    assert 0.9 < found["QSGP"]["coverage95"] < 0.99
    for name in ("model.qsgp", "report.html"):
        assert str(tmp_path / "demo" / name) in done.stderr and (tmp_path / "demo" / name).stat().st_size > 1000


# --- files larger than the memory ---------------------------------------------------------------------------------


LIMITED = """
import resource, subprocess, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
rc = subprocess.run(sys.argv[2:]).returncode
print(rc, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def predict_within(folder: Path, name: str, limit: int) -> int:
    """Peak resident bytes of a prediction whose heap may not exceed ``limit``; a system of its own measures it."""
    command = [*COMMAND, "predict", "small.qsgp", name, "--keep", "id", "-q", "-o", f"out-{name}"]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *command],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    code, peak = done.stdout.split()
    assert code == "0", done.stderr
    return int(peak)


def write_rows(path: Path, rows: int, columns: int = 20, seed: int = 0) -> None:
    """Numbers that no compression makes smaller, in one row group or a few."""
    rng = np.random.default_rng(seed)
    for start in range(0, rows, 1_000_000):
        n = min(1_000_000, rows - start)
        whole = pa.table({"id": np.arange(start, start + n)} | {f"x{k}": rng.normal(size=n) for k in range(columns)})
        if start == 0:
            writer = parquet.ParquetWriter(path, whole.schema, compression="none")
        writer.write_table(whole, row_group_size=n)
    writer.close()


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    X = pd.DataFrame(np.random.default_rng(1).normal(size=(6, 20))).add_prefix("x")
    QSGPRegressor(random_state=0).fit(X, X["x0"]).save(tmp_path / "small.qsgp")
    return tmp_path


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(small_model: Path) -> None:
    write_rows(small_model / "some.parquet", 400_000)
    write_rows(small_model / "many.parquet", 1_400_000)
    growth = predict_within(small_model, "many.parquet", 2**40) - predict_within(small_model, "some.parquet", 2**40)
    larger = (small_model / "many.parquet").stat().st_size - (small_model / "some.parquet").stat().st_size
    assert growth < larger / 2
    assert parquet.read_table(small_model / "out-many.parquet")["id"].to_pylist() == list(range(1_400_000))


@pytest.mark.slow
def test_five_million_rows_in_less_memory_than_the_file(small_model: Path) -> None:
    write_rows(small_model / "huge.parquet", 5_000_000)
    size = (small_model / "huge.parquet").stat().st_size
    predict_within(small_model, "huge.parquet", int(0.85 * size))
    assert parquet.ParquetFile(small_model / "out-huge.parquet").metadata.num_rows == 5_000_000
