"""`qsgp reproduce`: which rows it measures, what it prints and writes, and how it goes on."""

import json
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner, Result

from qsgp.cli import app
from qsgp.cli import reproduce as command
from qsgp.reproduce import EXPERIMENTS
from qsgp.reproduce.experiment import Asked, Case, Choice, Experiment, Row, picked

Run = Callable[[str], Result]


class Toy:
    """An experiment of one row for each split, which notes what it measures and can be interrupted."""

    def __init__(self) -> None:
        self.measured: list[int] = []
        self.interrupt_at: int | None = None
        self.choice = Choice()

    def cases(self, choice: Choice) -> Iterable[Case]:
        self.choice = choice
        for split in choice.splits:
            yield Case({"split": split, "seed": choice.seed}, lambda split=split: self.measure(split))

    def measure(self, split: int) -> Row:
        if split == self.interrupt_at:
            raise KeyboardInterrupt
        self.measured.append(split)
        return {"rmse": 0.12345678 + split, "curves": {"line": [0, split]}}

    def experiment(self) -> Experiment:
        def picture(rows: list[Row], figure: object) -> None:
            figure.subplots().plot(rows[0]["curves"]["line"])  # type: ignore[attr-defined]

        return Experiment("toy", "A toy", "the paper says 1.", self.cases, lambda rows: f"{len(rows)} rows.", picture)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    made = Toy()
    monkeypatch.setattr(command, "EXPERIMENTS", {"toy": made.experiment()})
    return made


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return lambda line: CliRunner().invoke(app, ["reproduce", *shlex.split(line)], prog_name="qsgp")


def test_the_names_are_those_of_the_paper() -> None:
    assert {"table-1", "figure-1", "figure-2", "figure-3"} <= set(EXPERIMENTS)
    assert all(name == each.name for name, each in EXPERIMENTS.items())


def test_cases_are_told_apart_by_their_keys_and_by_fast_and_seed() -> None:
    for each in EXPERIMENTS.values():
        keys = [json.dumps(case.key) for case in each.cases(Choice())]
        assert keys and len(set(keys)) == len(keys), each.name


def test_a_table_a_file_and_a_picture(run: Run, toy: Toy) -> None:
    pytest.importorskip("matplotlib")
    done = run("toy --splits 0,2 --seed 5 -o out --device cpu")
    assert done.exit_code == 0, done.output
    for words in ("A toy", "0.1235", "2.123", "The paper: the paper says 1.", "2 rows."):
        assert words in done.stdout
    assert "curves" not in done.stdout
    stored = json.loads(Path("out/toy.json").read_text())
    assert [row["curves"]["line"] for row in stored["rows"]] == [[0, 0], [0, 2]] and stored["seed"] == 5
    assert Path("out/toy.csv").read_text() == "split,seed,rmse\n0,5,0.12345678\n2,5,2.12345678\n"
    assert Path("out/toy.png").read_bytes().startswith(b"\x89PNG")
    assert toy.choice == Choice(False, "cpu", (0, 2), 5)


def test_the_same_command_goes_on_and_measures_nothing_twice(run: Run, toy: Toy) -> None:
    toy.interrupt_at = 2
    done = run("toy --splits 0,1,2,3 --device cpu")
    assert done.exit_code == 130 and "goes on from there" in done.stderr
    toy.interrupt_at = None
    assert run("toy --splits 0,1,2,3 --device cpu").exit_code == 0
    assert toy.measured == [0, 1, 2, 3]
    done = run("toy --splits 1 --device cpu --json")
    assert toy.measured == [0, 1, 2, 3] and "was there already" in done.stderr
    assert [row["split"] for row in json.loads(done.stdout)["toy"]["rows"]] == [1], "only what was asked for"


def test_json_has_rows_words_of_the_paper_and_a_summary(run: Run, toy: Toy) -> None:
    done = run("all --json --quiet --device cpu")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)["toy"]
    assert found["paper"] == "the paper says 1." and found["summary"] == "1 rows."
    assert found["rows"][0]["rmse"] == pytest.approx(0.12345678)


def test_fast_has_files_of_its_own(run: Run, toy: Toy) -> None:
    assert run("toy --fast --device cpu").exit_code == 0
    assert toy.choice.fast
    assert all(path.stem == "toy-fast" for path in Path("results").iterdir())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("table-7", "Expected one of"),
        ("figure-1 --splits 0;1", "Expected numbers with commas between them"),
        ("", "Missing argument"),
        ("figure-2 --rate 0.5", "--rate is for table-2, table-3, mnist, got figure-2"),
        ("table-3 --bound Q", "--bound is for mnist, got table-3"),
        ("all --control none", "--control is for table-2, table-3, mnist, got table-1"),
        ("mnist --bound C", "is not one of 'A', 'B', 'Q', 'printed'"),
        ("table-1 --only lightgbm", "got 'lightgbm'"),
    ],
)
def test_wrong_usage_says_what_was_expected(run: Run, line: str, words: str) -> None:
    done = run(line)
    assert done.exit_code == 2 and words in " ".join(done.stderr.replace("│", " ").split()), done.stderr


def test_a_broken_file_is_refused_in_one_sentence(run: Run, toy: Toy) -> None:
    Path("results").mkdir()
    Path("results/toy.json").write_text("{")
    done = run("toy --device cpu")
    assert done.exit_code == 1 and done.stderr.startswith("Error: Expected measured rows as JSON in results/toy.json")
    assert not toy.measured


def test_a_data_set_that_is_not_there_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QSGP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    done = run("figure-1 --device cpu")
    assert done.exit_code == 1 and "No kin40k.npz in" in done.stderr and "QSGP_DATA" in done.stderr


def models(name: str, *only: str, **asked: str | float) -> list[tuple[str, str]]:
    choice = Choice(asked=Asked(**asked))  # type: ignore[arg-type]
    return [(case.key["data"], case.key["model"]) for case in picked(EXPERIMENTS[name].cases(choice), only)]


def test_words_pick_data_and_models() -> None:
    everything = models("table-2")
    assert models("table-2", "POL") == [(data, model) for data, model in everything if data == "pol"]
    both = models("table-2", "pol", "keggdirected", "as printed", "ours")
    assert both == [
        (data, model)
        for data in ("keggdirected", "pol")
        for model in ("QSGP-0, as printed", "QSGP-100, as printed", "ours")
    ]
    with pytest.raises(ValueError, match="part of one of kin40k; .*; got 'svgp-512'"):
        models("table-2", "svgp-512")


def test_only_and_settings_reach_the_cases(run: Run, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment("toy", "A toy", "", toy.cases, takes=("rate", "control"))
    monkeypatch.setattr(command, "EXPERIMENTS", {"toy": experiment})
    done = run("toy --device cpu --rate 0.5 --control kriging")
    assert done.exit_code == 0, done.output
    assert toy.choice.asked == Asked("kriging", None, 0.5) and toy.choice.unfinished == Path("results/unfinished")


def test_settings_in_place_of_the_printed_ones_make_other_rows() -> None:
    for name in ("table-2", "table-3", "mnist"):
        printed = {json.dumps(case.key) for case in EXPERIMENTS[name].cases(Choice())}
        other = [case.key for case in EXPERIMENTS[name].cases(Choice(asked=Asked(rate=0.5)))]
        told = [key for key in other if "iterations" in key and key["model"] != "SVGP"]
        assert told and all(key["rate"] == 0.5 for key in told), name
        assert not printed & {json.dumps(key) for key in told}
    (key,) = (case.key for case in picked(EXPERIMENTS["mnist"].cases(Choice(asked=Asked(bound="Q"))), ["bound"])[:1])
    assert (key["bound"], key["draws"]) == ("Q", "blocks")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table-1", "figure-1", "figure-2", "figure-3"])
def test_the_fast_experiments_run(run: Run, name: str) -> None:
    pytest.importorskip("matplotlib")
    done = run(f"{name} --fast --device cpu")
    assert done.exit_code == 0, done.output
    assert Path(f"results/{name}-fast.png").stat().st_size > 10_000
