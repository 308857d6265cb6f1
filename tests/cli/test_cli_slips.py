"""The command line on files with a slip in them: the slip is named, or nothing is changed by it without a word."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from programs import COMMAND, ENVIRONMENT

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner, Result

from qsgp import QSGPRegressor, load
from qsgp.cli import app
from qsgp.data.encoding import Encoded

Run = Callable[[str], Result]
N = 40


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return lambda line: CliRunner().invoke(app, shlex.split(line), prog_name="qsgp")


def write(name: str, header: str, row: Callable[[int], str], rows: int = N) -> None:
    Path(name).write_text("\n".join([header, *map(row, range(rows))]) + "\n", encoding="utf-8")


def fit(run: Run, line: str) -> Result:
    done = run(f"fit {line} --kernel rbf")
    assert done.exit_code == 0, done.output
    return done


def refused(done: Result, *words: str) -> None:
    assert done.exit_code == 1 and "Traceback" not in done.output
    for word in words:
        assert word in done.stderr, done.stderr


# --- numbers with a slip ------------------------------------------------------------------------------------------


def test_one_typo_does_not_turn_numbers_into_categories(run: Run) -> None:
    write("t.csv", "a,y", lambda k: f"{'1O' if k == 30 else k % 7},{k / 3:.2f}")
    refused(run("fit t.csv -t y"), "column 'a'", "'1O' in row 31", "1 of 40 entries", "--categories a")
    fit(run, "t.csv -t y --categories a")
    assert {"a=0", "a=1O"} <= set(load("model.qsgp").input_names_)


def test_a_typo_in_one_of_several_files_is_named(run: Run) -> None:
    write("a.csv", "a,y", lambda k: f"{k % 7},{k / 3:.2f}")
    write("b.csv", "a,y", lambda k: f"{'x7' if k == 2 else k % 7},{k / 3:.2f}")
    refused(run("fit a.csv b.csv -t y"), "column 'a'", "'x7'", "1 of 80 entries")


@pytest.mark.parametrize("entry", ["$1,2%02d", "%d %%", '"1,2%02d"', "01.02.20%02d"])
def test_numbers_of_another_style_are_no_categories(run: Run, entry: str) -> None:
    write("t.csv", "a;y", lambda k: f"{entry % (k % 9)};{k / 3:.2f}")
    refused(run("fit t.csv -t y"), "column 'a'", f"{(entry % 0).strip(chr(34))!r} in row 1", "40 of 40 entries")


def test_with_a_decimal_comma_the_word_is_at_fault(run: Run) -> None:
    write("t.csv", "a;y", lambda k: f"{'none' if k == 3 else f'{k % 7},5'};{k / 3:.2f}")
    refused(run("fit t.csv -t y"), "'none' in row 4", "1 of 40 entries")


def test_a_typo_in_the_target_does_not_make_a_classifier(run: Run) -> None:
    write("t.csv", "a,y", lambda k: f"{k / 3:.2f},{'1l' if k == 5 else k % 4}")
    refused(run("fit t.csv -t y"), "target 'y'", "'1l' in row 6", "--task classification")
    refused(run("fit t.csv -t y --task regression"), "target 'y'", "'1l' in row 6")
    refused(run("fit t.csv -t a --weight y --columns a"), "Expected")
    assert "5 labels" not in fit(run, "t.csv -t y --task classification").stderr


def test_numbers_of_which_half_have_a_unit_are_named(run: Run) -> None:
    write("t.csv", "a,y", lambda k: f"{k}{' m2' if k % 2 else ''},{k / 3:.2f}", rows=80)
    refused(run("fit t.csv -t y"), "column 'a'", "'1 m2' in row 2", "40 of 80 entries", "--drop a")


def test_codes_of_letters_and_digits_stay_categories(run: Run) -> None:
    write("t.csv", "a,y", lambda k: f"{'1A2B3'[k % 5]},{k / 3:.2f}")
    fit(run, "t.csv -t y")
    assert len(load("model.qsgp").input_names_) == 5


def test_words_for_missing_values_stay_missing_whatever_blanks_surround_them(run: Run) -> None:
    gaps = ["", " ", "   ", "NA", " NA ", "nan ", " ?", "<NA>", "#DIV/0!"]
    write("t.csv", "a,b,y", lambda k: f"{gaps[k] if k < len(gaps) else k % 7},{k},{k / 3:.2f}")
    refused(run("fit t.csv -t y --missing error"), "missing ones in 'a' (9)")
    done = fit(run, "t.csv -t y --missing mean")
    assert "Filled in by the mean: 'a' (9)" in done.stderr and load("model.qsgp").n_features_in_ == 2
    assert run("predict model.qsgp t.csv -o out.csv").exit_code == 0
    assert pd.read_csv("out.csv")["mean"].notna().all()


def test_a_typo_in_a_file_to_predict_or_to_judge_by_is_named_with_its_row(run: Run) -> None:
    write("t.csv", "a,y", lambda k: f"{k % 7},{k / 3:.2f}")
    fit(run, "t.csv -t y")
    write("new.csv", "a,y", lambda k: f"{'2x' if k == 20 else k},{'y2' if k == 30 else k}")
    refused(run("predict model.qsgp new.csv"), "column 'a'", "'2x' in row 21", "leave it empty")
    write("new.csv", "a,y", lambda k: f"{k},{'y2' if k == 30 else k}")
    refused(run("evaluate model.qsgp new.csv"), "column 'y'", "'y2' in row 31")


# --- names and labels that must stay apart --------------------------------------------------------------------------


def test_a_number_called_like_a_category_is_kept(run: Run) -> None:
    x = np.random.default_rng(0).normal(size=N)
    write("t.csv", "a=x,a,y", lambda k: f"{x[k]:.4f},{'xz'[k % 2]},{2 * x[k] + k % 2:.4f}")
    fit(run, "t.csv -t y")
    model = load("model.qsgp")
    assert len(set(model.input_names_)) == 3 and "a=x" in model.input_names_
    assert run("predict model.qsgp t.csv -o out.csv").exit_code == 0
    X = np.column_stack([x.round(4), 1 - np.arange(N) % 2, np.arange(N) % 2])
    np.testing.assert_allclose(pd.read_csv("out.csv")["mean"], model.predict(Encoded(X)))


def test_two_columns_of_categories_keep_their_names_apart(run: Run) -> None:
    write("t.csv", "a,a=b,y", lambda k: f"{['b=c', 'd'][k % 2]},{'ce'[k // 2 % 2]},{k / 3:.2f}")
    fit(run, "t.csv -t y")
    assert len(set(load("model.qsgp").input_names_)) == 4
    assert run("predict model.qsgp t.csv").exit_code == 0


@pytest.mark.parametrize("gap", [False, True])
def test_labels_beyond_2_to_the_53_stay_distinct(run: Run, gap: bool) -> None:
    labels = [2**53 + j for j in range(3)]
    write("t.csv", "a,y", lambda k: f"{k % 3 + k / 1000},{'' if gap and k == 4 else labels[k % 3]}")
    fit(run, "t.csv -t y --missing drop")
    assert load("model.qsgp").classes_.tolist() == labels
    assert run("predict model.qsgp t.csv -o out.csv").exit_code == 0
    assert set(pd.read_csv("out.csv")["class"]) == set(labels)
    assert "accuracy" in run("evaluate model.qsgp t.csv --missing drop").stdout


def test_identifiers_that_round_to_one_number_are_not_called_constant(run: Run) -> None:
    write("t.csv", "id,a,y", lambda k: f"{2**60 + k % 3},{k},{k % 3 + k / 1000}")
    assert "'id' holds numbers too long to be told apart" in fit(run, "t.csv -t y").stderr
    assert "too long" not in fit(run, "t.csv -t y --categories id").stderr
    assert len(load("model.qsgp").input_names_) == 4


@pytest.mark.parametrize("task", ["auto", "classification"])
def test_labels_too_long_to_be_told_apart_are_refused(run: Run, task: str) -> None:
    write("t.csv", "a,y", lambda k: f"{k},{12345678901234567890 + k % 3}")
    refused(run(f"fit t.csv -t y --task {task}"), "labels of at most 18 digits", "put a letter before each")


# --- the index of a data frame --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "key"])
def test_the_index_of_pandas_is_no_input(run: Run, name: str | None) -> None:
    rows = pd.DataFrame({"a": np.arange(N) % 7.0, "y": np.arange(N) / 3}, index=np.arange(N)[::-1] * 2)
    rows.rename_axis(name).to_parquet("t.parquet")
    done = fit(run, "t.parquet -t y")
    assert "index of a pandas data frame" in done.stderr
    assert list(load("model.qsgp").feature_names_in_) == ["a"]
    with pytest.warns(UserWarning, match="index of a pandas data frame"):
        model = QSGPRegressor(kernel="rbf").fit("t.parquet", target="y")
    assert list(model.feature_names_in_) == ["a"]
    QSGPRegressor(kernel="rbf").fit(rows[["a"]].to_numpy(), rows["y"]).save("plain.qsgp")
    assert run("evaluate plain.qsgp t.parquet -t y").exit_code == 0
    if name is not None:
        fit(run, "t.parquet -t y --columns a,key")
        assert list(load("model.qsgp").feature_names_in_) == ["a", "key"]


def test_the_index_of_pandas_in_a_csv_file_is_no_input(run: Run) -> None:
    pd.DataFrame({"a": np.arange(N) % 7.0, "y": np.arange(N) / 3}).to_csv("t.csv")
    assert "numbers the rows" in fit(run, "t.csv -t y").stderr
    assert list(load("model.qsgp").feature_names_in_) == ["a"]
    write("t.csv", "id,a,y", lambda k: f"{k + 1},{k % 7},{k / 3:.2f}")
    assert "--drop id" in fit(run, "t.csv -t y").stderr, "told, and left to the person"
    assert list(load("model.qsgp").feature_names_in_) == ["id", "a"]
    write("t.csv", "month,a,y", lambda k: f"{k % 12 + 1},{k % 7},{k / 3:.2f}")
    assert "--drop" not in fit(run, "t.csv -t y").stderr


# --- streams and sizes ----------------------------------------------------------------------------------------------


def test_a_field_longer_than_128_kb_is_read(run: Run) -> None:
    write("t.csv", "a,text,y", lambda k: f"{k},{'x' * 200_000 if k == 7 else 'short'},{k / 3:.2f}")
    fit(run, "t.csv -t y")
    assert run("predict model.qsgp t.csv -o out.csv").exit_code == 0
    write("t.csv", "a,text,y", lambda k: f"{k},{'x' * 9_000_000 if k == 7 else 'short'},{k / 3:.2f}")
    refused(run("fit t.csv -t y"), "longer than 4 MB", "quote")


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model whose names no Western code page holds."""
    folder = tmp_path_factory.mktemp("letters")
    X = pd.DataFrame({"größe": np.arange(N) % 7.0, "λ−2": np.arange(N) % 5.0})
    QSGPRegressor(kernel="rbf").fit(X, np.arange(N) / 3).save(folder / "model.qsgp")
    X.to_csv(folder / "rows.csv", index=False, encoding="utf-8")
    return folder


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    typed = f'qsgp() {{ "{sys.executable}" -m qsgp "$@"; }}\n{line}'
    assert COMMAND[0] == sys.executable
    return subprocess.run(["bash", "-c", typed], cwd=folder, env=ENVIRONMENT | environment, capture_output=True)


@pytest.mark.slow
def test_with_stderr_closed_stdout_holds_the_results_alone(letters: Path) -> None:
    done = shell("qsgp predict model.qsgp rows.csv 2>&-", letters)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == N + 1 and lines[0] == "mean,deviation"
    assert all(len(line.split(",")) == 2 for line in lines)


@pytest.mark.slow
def test_a_western_terminal_does_not_end_the_program(letters: Path) -> None:
    done = shell("qsgp info model.qsgp", letters, PYTHONIOENCODING="cp1252")
    assert done.returncode == 0, done.stderr
    assert "größe".encode("cp1252") in done.stdout and rb"\u03bb" in done.stdout
