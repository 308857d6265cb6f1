"""The command line on files nobody prepared: sensible results, or one clear paragraph on stderr and the right code."""

import contextlib
import gzip
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from programs import write_houses

pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("rich")

import pandas as pd
import pyarrow as pa
from pyarrow import parquet
from typer.testing import CliRunner, Result

from qsgp import QSGPRegressor, load
from qsgp.cli import app
from qsgp.cli.main import EXAMPLES
from qsgp.data.encoding import Encoded

Run = Callable[[str], Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The program in this process, which spares its seconds of imports, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda line: CliRunner().invoke(app, shlex.split(line), prog_name="qsgp")


def fails(result: Result, code: int, *words: str) -> None:
    """One paragraph, and no trace of where it happened."""
    assert result.exit_code == code, result.output
    said = result.stderr.strip().splitlines()[-1]
    assert said.startswith("Error: ") and "Traceback" not in result.output
    for word in words:
        assert word in said, said
    assert not list(Path().glob(".qsgp-*")), "nothing unfinished is left behind"


def write(name: str, header: str, rows: np.ndarray, separator: str = ",", decimal: str = ".") -> None:
    lines = [separator.join(f"{value:.4f}".replace(".", decimal) for value in row) for row in rows]
    Path(name).write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


def numbers(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


# --- odd but readable ---------------------------------------------------------------------------------------------


def test_a_german_spreadsheet_of_ten_rows(run: Run) -> None:
    """Byte order mark, blanks around names, semicolons, decimal commas, a gap, a constant and a trailing separator."""
    x = numbers(10, 2)
    lines = [f"{a:.3f};{b:.3f};1;{3 + 2 * a:.3f};".replace(".", ",") for a, b in x]
    lines[4] = ";" + lines[4].partition(";")[2]
    Path("wohnung.csv").write_text("\n".join([" Größe ; Alter;konstant;Preis €;", *lines]), encoding="utf-8-sig")
    fails(run('fit wohnung.csv -t "Preis €" --missing error'), 1, "'Größe' (1)", "--missing auto", "--missing drop")
    assert "taken as they are: 'Größe' (1)" in run('fit wohnung.csv -t "Preis €"').stderr
    done = run('fit wohnung.csv -t "Preis €" --missing drop')
    assert done.exit_code == 0, done.output
    assert "9 rows" in done.stdout
    for note in ("'column 5'", "because they never change: 'konstant'", "Left out 1 row"):
        assert note in done.stderr
    assert run("predict model.qsgp wohnung.csv -o out.csv").exit_code == 0
    mean = pd.read_csv("out.csv")["mean"]
    assert np.isnan(mean[4]), "a row without an input has no prediction"
    np.testing.assert_allclose(mean.drop(4), 3 + 2 * np.delete(x[:, 0], 4), atol=0.3)


@pytest.mark.parametrize(
    ("header", "separator", "names"),
    [
        (" , ,y", ",", ["column 1", "column 2"]),
        ("a b;c  d;y", ";", ["a b", "c  d"]),
        ('"a, or b";"c ""d""";y', ";", ["a, or b", 'c "d"']),
        ("a\tb\ty", "\t", ["a", "b"]),
        ("a|b|y", "|", ["a", "b"]),
        ("a b y", " ", ["a", "b"]),
        ('"two\nlines",b,y', ",", ["two\nlines", "b"]),
        ("\n\na,b,y", ",", ["a", "b"]),
    ],
)
def test_headers_and_separators(run: Run, header: str, separator: str, names: list[str]) -> None:
    rows = numbers(30, 3)
    write("table.csv", header, rows, separator)
    assert run("fit table.csv -t y -q --kernel rbf").exit_code == 0
    model = load("model.qsgp")
    assert list(model.feature_names_in_) == names
    assert run("predict model.qsgp table.csv -o out.csv").exit_code == 0
    X = pd.DataFrame(rows[:, :2].round(4), columns=names)
    np.testing.assert_allclose(pd.read_csv("out.csv")["mean"], model.predict(X), rtol=1e-6, atol=1e-9)


def test_text_may_be_packed(run: Run) -> None:
    write("t.csv", "a,b,y", numbers(30, 3))
    Path("p.csv.gz").write_bytes(gzip.compress(Path("t.csv").read_bytes()))
    for name in ("t.csv", "p.csv.gz"):
        assert run(f"fit {name} -t y -q -o m.qsgp").exit_code == 0
        assert run(f"predict m.qsgp {name} -o {name[0]}.out.csv").exit_code == 0
    assert Path("p.out.csv").read_text() == Path("t.out.csv").read_text()
    Path("p.csv.gz").write_bytes(Path("p.csv.gz").read_bytes()[:-20])
    fails(run("fit p.csv.gz -t y"), 1, "p.csv.gz", "damaged")
    Path("t.csv").rename("u.csv.gz")
    fails(run("fit u.csv.gz -t y"), 1, "u.csv.gz", "damaged")


@pytest.mark.parametrize(("first", "names"), [("# of 2020, by us\n#\n", ["a", "b"]), ("", ["#a", "b"])])
def test_lines_of_comments_before_the_names(run: Run, first: str, names: list[str]) -> None:
    write("t.csv", ",".join([*names, "y"]), numbers(12, 3))
    Path("t.csv").write_text(first + Path("t.csv").read_text())
    assert run("fit t.csv -t y -q").exit_code == 0
    assert load("model.qsgp").input_names_ == names


def test_columns_are_picked_by_name_even_with_commas_in_it(run: Run) -> None:
    write("table.csv", '"a, or b",c,d,y', numbers(20, 4))
    assert run("""fit table.csv -t y -q --kernel rbf --columns '"a, or b",c'""").exit_code == 0
    assert list(load("model.qsgp").feature_names_in_) == ["a, or b", "c"]
    assert run("fit table.csv -t y -q --kernel rbf --drop 'a, or b' --drop d").exit_code == 0
    assert list(load("model.qsgp").feature_names_in_) == ["c"]


def test_what_is_kept_stays_letter_for_letter(run: Run) -> None:
    Path("train.csv").write_text("key,x,y\n" + "".join(f'"0{k}, ""x""",{k},{k / 2}\n' for k in range(12)))
    assert run("fit train.csv -t y --drop key -q --kernel rbf").exit_code == 0
    assert run("predict model.qsgp train.csv --keep key,x -o out.csv").exit_code == 0
    found = pd.read_csv("out.csv", dtype=str)
    assert list(found["key"]) == [f'0{k}, "x"' for k in range(12)] and list(found) == ["key", "x", "mean", "deviation"]


@pytest.mark.parametrize("ending", ["parquet", "feather", "csv", "npz"])
def test_every_kind_of_file_gives_the_same_model(run: Run, ending: str) -> None:
    rows = pd.DataFrame(numbers(40, 3), columns=["X0", "X1", "y"])
    if ending == "npz":
        np.savez("train.npz", X=rows[["X0", "X1"]], y=rows["y"], mask=np.zeros((3, 40), bool))
    else:
        getattr(rows, f"to_{ending}")(f"train.{ending}", **({"index": False} if ending == "csv" else {}))
    assert run(f"fit train.{ending} -t y -q --kernel rbf").exit_code == 0
    assert run(f"predict model.qsgp train.{ending} --keep y -o out.feather").exit_code == 0
    found = pd.read_feather("out.feather")
    wanted = QSGPRegressor(random_state=0, kernel="rbf").fit(rows[["X0", "X1"]], rows["y"]).predict(rows[["X0", "X1"]])
    np.testing.assert_allclose(found["mean"], wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["y"], rows["y"], rtol=1e-12)


def test_several_files_are_joined_and_read_one_after_the_other(run: Run) -> None:
    rows = numbers(40, 2)
    write("a.csv", "x,y", rows[:25])
    write("b.csv", "x,y", rows[25:])
    assert "40 rows" in run("fit a.csv b.csv -t y --kernel rbf").stdout
    assert run("predict model.qsgp a.csv b.csv --keep x -o out.csv").exit_code == 0
    np.testing.assert_allclose(pd.read_csv("out.csv")["x"], rows[:, 0].round(4))


def test_categories_unseen_and_missing_values_in_another_file(run: Run, tmp_path: Path) -> None:
    write_houses(tmp_path)
    assert run("fit train.csv -t price --drop id,sold --missing mean -q --kernel rbf").exit_code == 0
    Path("odd.csv").write_text("kind,age,size\ncastle,0,1\nvilla,,1\n,0,1\nvilla, 0 , 1 \n")
    done = run("predict model.qsgp odd.csv")
    assert done.exit_code == 0 and "kind=castle (1)" in done.stderr
    mean = [float(line.split(",")[0]) for line in done.stdout.splitlines()[1:]]
    train, model = pd.read_csv("train.csv"), load("model.qsgp")
    share = {kind: (train["kind"] == kind).mean() for kind in ("flat", "house", "villa")}
    wanted = np.array(
        [
            [1, 0, *share.values()],
            [1, train["age"].mean(), 0, 0, 1],
            [1, 0, *share.values()],
            [1, 0, 0, 0, 1],
        ]
    )
    np.testing.assert_allclose(mean, model.predict(Encoded(wanted)), rtol=1e-6)


@pytest.mark.parametrize(
    ("target", "task", "why"),
    [
        (["yes", "no"] * 20, "Classifier", "texts (2 labels)"),
        (["true", "false"] * 20, "Classifier", "yes or no"),
        ([0, 1] * 20, "Classifier", "2 different whole numbers"),
        ([3, 5, 6, 8] * 10, "Classifier", "--task regression"),
        (list(range(40)), "Regressor", "40 different whole numbers"),
        ([0.5, 1.5] * 20, "Regressor", "numbers"),
    ],
)
def test_the_target_decides_the_task_and_says_why(run: Run, target: list[object], task: str, why: str) -> None:
    Path("t.csv").write_text("x,y\n" + "".join(f"{k / 7:.3f},{value}\n" for k, value in enumerate(target)))
    done = run("fit t.csv -t y --kernel rbf")
    assert done.exit_code == 0, done.output
    assert f"QSGP{task}" in done.stdout and why in done.stderr


def test_a_classifier_gives_classes_probabilities_and_scores(run: Run, tmp_path: Path) -> None:
    write_houses(tmp_path)
    assert run("fit train.csv -t sold --columns size,age -q --calibrate --kernel rbf").exit_code == 0
    assert run("predict model.qsgp test.csv --keep id -o out.parquet").exit_code == 0
    found, truth = pd.read_parquet("out.parquet"), pd.read_csv("test.csv")["sold"]
    assert list(found) == ["id", "class", "p_no", "p_yes"]
    np.testing.assert_allclose(found["p_no"] + found["p_yes"], 1)
    scores = json.loads(run("evaluate model.qsgp test.csv --json").stdout)
    assert scores["accuracy"] == pytest.approx((found["class"] == truth).mean()) and scores["accuracy"] > 0.8
    right = np.where(truth == "yes", found["p_yes"], found["p_no"])
    assert scores["log_loss"] == pytest.approx(-np.log(right).mean())


def test_weights_count_rows(run: Run) -> None:
    x = numbers(30, 2)
    write("weighted.csv", "x,y,w", np.column_stack([x, np.where(np.arange(30) < 10, 2, 1)]))
    write("repeated.csv", "x,y", np.concatenate([x, x[:10]]))
    assert run("fit weighted.csv -t y --weight w -o a.qsgp -q --kernel rbf").exit_code == 0
    assert run("fit repeated.csv -t y -o b.qsgp -q --kernel rbf").exit_code == 0
    for name in "ab":
        assert run(f"predict {name}.qsgp weighted.csv -o {name}.csv").exit_code == 0
    np.testing.assert_allclose(pd.read_csv("a.csv")["mean"], pd.read_csv("b.csv")["mean"], atol=0.02)


def test_a_model_from_python_without_names_takes_columns_in_order(run: Run) -> None:
    rows = numbers(30, 3)
    write("t.csv", "a,b,y", rows)
    QSGPRegressor(random_state=0, kernel="rbf").fit(rows[:, :2], rows[:, 2]).save("python.qsgp")
    fails(run("predict python.qsgp t.csv"), 1, "--columns a,b,c")
    assert run("predict python.qsgp t.csv --columns a,b").exit_code == 0
    assert run("evaluate python.qsgp t.csv -t y").exit_code == 0
    assert run("evaluate python.qsgp t.csv").exit_code == 2


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\n\n", ["t.csv"]),
        (b"a,y\n", ["rows", "got none"]),
        ("größe,y\n1,2\n".encode("latin-1"), ["UTF-8"]),
        ("a,y\n1,2\n".encode("utf-16"), ["UTF-8"]),
        (b"a,y\n1,2\n1,2,3\n", ["Expected 2 columns, got 3", "Correct the line"]),
        (b"a,Y \n1,2\n", ["'y'", "Did you mean 'Y'?"]),
        (b"0.1,0.2\n0.3,0.4\n", ["first line seems to hold numbers"]),
        (b"a,a,y\n1,2,3\n", ["every column", "once"]),
        (b"a,y\n,1\n,2\n", ["empty columns"]),
        (b"a,y\n1,\n2,\n", ["values in the target 'y'"]),
        (
            b"a,y\n" + b"".join(b"%d,$%d.50\n" % (k, k) for k in range(20)),
            ["target 'y'", "'$0.50' in row 1", "20 of 20 entries"],
        ),
        (b"y\n1\n2\n", ["input columns beside the target"]),
        (b"n,y\n" + b"".join(b"name%d,%d\n" % (k, k) for k in range(99)), ["'n'", "text of its own"]),
        (b"n,y\n" + b"".join(b"%s,%d\n" % (b"abc" if k == 50 else b"%d" % k, k) for k in range(99)), ["'n'", "'abc'"]),
    ],
)
def test_files_that_cannot_be_learned_from(run: Run, content: bytes, words: list[str]) -> None:
    Path("t.csv").write_bytes(content)
    fails(run("fit t.csv -t y"), 1, *words)
    assert not Path("model.qsgp").exists()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    with contextlib.chdir(folder):
        write("train.csv", "x,kind,y", numbers(20, 3))
        assert CliRunner().invoke(app, shlex.split("fit train.csv -t y -q")).exit_code == 0
    return folder


@pytest.fixture
def model(run: Run, fitted: Path, tmp_path: Path) -> None:
    shutil.copytree(fitted, tmp_path, dirs_exist_ok=True)


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x\n1\n", ["'kind'", "fitted with it"]),
        (b"x,kind\n1,abc\n", ["column 'kind'", "'abc'"]),
        (b"x,kind\n", ["rows", "got none"]),
    ],
)
def test_files_that_cannot_be_predicted(run: Run, content: bytes, words: list[str]) -> None:
    Path("new.csv").write_bytes(content)
    Path("out.csv").write_text("older")
    fails(run("predict model.qsgp new.csv -o out.csv"), 1, *words)
    assert Path("out.csv").read_text() == "older", "a file stays until there is a better one"


@pytest.mark.usefixtures("model")
def test_models_and_places_that_are_not_there(run: Run) -> None:
    whole = Path("model.qsgp").read_bytes()
    Path("cut.qsgp").write_bytes(whole[:-40])
    fails(run("info cut.qsgp"), 1, "cut short")
    fails(run("predict train.csv train.csv"), 1, "Expected a qsgp model file")
    fails(run("info no.qsgp"), 1, "no.qsgp", "no such file")
    fails(run("fit train.csv -t y -o no/model.qsgp"), 1, "no folder no")
    fails(run("fit train.csv -t y -o ."), 1, "folder")
    fails(run(f"fit train.csv -t y -o {os.devnull}"), 1, "device")
    fails(run("predict model.qsgp train.csv -o out.xlsx"), 1, ".parquet")
    fails(run("predict model.qsgp train.csv --keep mean"), 1, "'mean'")
    fails(run("fit no.csv -t y"), 1, "no.csv")
    fails(run("fit . -t y"), 1, "got the folder .", "*.csv")
    fails(run("fit train.csv -t y --task classification"), 1)
    assert Path("model.qsgp").read_bytes() == whole


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("model")
def test_a_folder_without_rights_is_noticed_before_the_work(run: Run) -> None:
    Path("locked").mkdir(mode=0o500)
    fails(run("fit train.csv -t y -o locked/model.qsgp"), 1, "locked")


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    "line",
    [
        "fit train.csv",
        "fit train.csv -t y --kernel cubic",
        "fit train.csv -t y --holdout 2",
        "predict model.qsgp train.csv --interval 95",
        "predict model.qsgp train.csv --quantiles a,b",
        "bench nothing",
        "nothing",
        "fit --nothing",
    ],
)
def test_wrong_usage_has_its_own_code(run: Run, line: str) -> None:
    done = run(line)
    assert done.exit_code == 2 and "Usage: qsgp" in done.stderr and not done.stdout


@pytest.mark.usefixtures("model")
def test_debug_shows_where_an_error_comes_from(run: Run) -> None:
    for line in ("--debug fit train.csv -t z", "fit train.csv -t z --debug"):
        assert "Traceback" in run(line).stderr
    assert "Traceback" not in run("fit train.csv -t z").stderr


@pytest.mark.usefixtures("model")
def test_a_file_that_exists_is_replaced_whole_and_links_stay_links(run: Run) -> None:
    Path("real.csv").write_text("older")
    Path("link.csv").symlink_to("real.csv")
    assert run("predict model.qsgp train.csv -o link.csv").exit_code == 0
    assert Path("link.csv").is_symlink() and Path("real.csv").read_text().startswith("mean,deviation\n")
    assert not list(Path().glob(".qsgp-*"))


# --- what the program says of itself ------------------------------------------------------------------------------


def test_version_and_help(run: Run) -> None:
    assert re.fullmatch(r"qsgp \S.*\n", run("--version").stdout)
    page = run("--help").stdout
    for command in EXAMPLES:
        name = getattr(command, "__name__")  # noqa: B009
        assert f"\n  {name} " in page
        shown = run(f"{name} --help").stdout
        for example in EXAMPLES[command]:
            assert f"\n    {example}\n" in shown, "examples are shown as they are typed"


LONG = {"demo", "bench small --json small.json"}  # minutes, or data that must be there; reproduce has its own tests
SHORT = [line.removeprefix("qsgp ") for lines in EXAMPLES.values() for line in lines]


def test_the_examples_of_the_help_run(run: Run, tmp_path: Path) -> None:
    """In order: later ones use what earlier ones have written."""
    write_houses(tmp_path)
    for line in SHORT:
        if line in LONG or line.startswith(("demo", "report ", "reproduce")):
            continue
        done = run(line.partition(" > ")[0])
        assert done.exit_code == 0, f"{line}: {done.output}"
        if " > " in line:
            assert done.stdout.startswith("mean,deviation,q0.1")


@pytest.mark.slow
def test_the_longer_examples_of_the_help_run(run: Run, tmp_path: Path) -> None:
    write_houses(tmp_path)
    assert run("fit train.csv -t price --drop id,sold").exit_code == 0
    for line in SHORT:
        if line not in LONG and line.startswith(("demo", "report ")):
            assert run(line).exit_code == 0, line


def test_the_names_of_benchmarks_in_examples_exist(run: Run) -> None:
    assert "small" in run("bench").stdout


@pytest.mark.parametrize("missing", ["auto", "mean"])
def test_durations_and_long_whole_numbers_with_gaps(missing: str, run: Run) -> None:
    rng, n = np.random.default_rng(0), 40
    columns = {
        "constant": pa.array([7] * n, pa.duration("s")),
        "took": pa.array([None, *range(n - 1)], pa.duration("ms")),
        "long": pa.array([None, *(2**60 + 1000 * k for k in range(n - 1))], pa.int64()),
        "y": rng.normal(size=n),
    }
    parquet.write_table(pa.table(columns), "rows.parquet")
    result = run(f"fit rows.parquet --target y --kernel rbf --missing {missing} -o m.qsgp")
    assert result.exit_code == 0, result.output
    assert [column.name for column in load("m.qsgp").columns_.inputs] == ["took", "long"]


def test_a_number_that_is_infinite_is_refused(run: Run) -> None:
    write("rows.csv", "a,b,y", numbers(40, 3))
    assert run("fit rows.csv --target y --kernel rbf -o m.qsgp").exit_code == 0
    Path("new.csv").write_text("a,b\n1.0,inf\n")
    fails(run("predict m.qsgp new.csv"), 1, "infinity", "'b' (1)")
