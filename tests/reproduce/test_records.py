"""Files of measured rows: nothing is measured twice, nothing is lost, and a file that is something else is refused."""

import csv
import json
from pathlib import Path

import pytest

import table
from qsgp.reproduce import records
from qsgp.reproduce.records import Records, read_rows, write_csv


def test_rows_are_written_at_once_and_not_measured_again(tmp_path: Path) -> None:
    path, measured = tmp_path / "rows.json", []

    def measure(value: int) -> dict[str, int]:
        measured.append(value)
        return {"value": value}

    first = Records(path, seed=3)
    assert first.add({"name": "a", "size": 1}, lambda: measure(10)) == {"name": "a", "size": 1, "value": 10}
    assert json.loads(path.read_text())["rows"] == first.rows and json.loads(path.read_text())["seed"] == 3
    again = Records(path)
    assert again.add({"name": "a", "size": 1}, lambda: measure(11)) is None
    assert again.add({"name": "a", "size": 2}, lambda: measure(12)) is not None
    assert measured == [10, 12]
    assert [row["value"] for row in read_rows(path)] == [10, 12]


def test_a_measurement_that_ends_early_loses_no_earlier_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    records = Records(path)
    records.add({"size": 1}, lambda: {"value": 1})

    def killed() -> dict[str, int]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        records.add({"size": 2}, killed)
    assert read_rows(path) == [{"size": 1, "value": 1}]
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.json"]


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '{"rows": 3}', '{"rows": [3]}', '{"other": []}'])
def test_a_file_of_something_else_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="Expected measured rows as JSON in .*rows.json.*Move the file away"):
        Records(path)
    assert path.read_text() == content


def test_without_a_path_rows_stay_in_memory() -> None:
    records = Records(None)
    records.add({"size": 1}, lambda: {"value": 1})
    assert records.has({"size": 1}) and not records.has({"size": 2})


def test_a_csv_has_a_column_for_every_name_but_curves(tmp_path: Path) -> None:
    rows = [{"name": "a, b", "x": 1.5, "curves": {"line": [1, 2]}}, {"name": "c", "y": None}]
    write_csv(tmp_path / "rows.csv", rows)
    with (tmp_path / "rows.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert found == [{"name": "a, b", "x": "1.5", "y": ""}, {"name": "c", "x": "", "y": ""}]


def test_a_copied_tree_names_its_commit_or_says_why_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "__file__", str(tmp_path / "src" / "qsgp" / "reproduce" / "records.py"))
    monkeypatch.delenv("QSGP_COMMIT", raising=False)
    assert records.commit() == "unknown: no checkout, and QSGP_COMMIT is not set"
    monkeypatch.setenv("QSGP_COMMIT", "abc1234")
    assert records.commit() == "abc1234"
    (tmp_path / ".git").mkdir()  # of another program: git fails there
    assert records.commit() == "abc1234"


def test_every_file_of_a_benchmark_says_where_it_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no way to write one without a seed."""
    paths = [str(tmp_path / name) for name in ("shown.json", "collected.json")]
    table.show([{"value": 1.0}], paths[0], "a title", seed=7)
    collected = table.Collected(paths[1], "a title", seed=[0, 1])
    collected.add({"name": "a"}, lambda: {"value": 1.0})
    for path, seed in zip(paths, (7, [0, 1]), strict=True):
        found = json.loads(Path(path).read_text())
        assert found["seed"] == seed
        assert all(found[name] for name in ("command", "commit", "machine", "versions", "rows"))
    with pytest.raises(TypeError, match="seed"):
        table.show([{"value": 1.0}], paths[0], "a title")
    with pytest.raises(TypeError, match="seed"):
        table.Collected(paths[1], "a title")
