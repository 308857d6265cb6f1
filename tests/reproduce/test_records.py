"""Files of measured rows: nothing is measured twice, nothing is lost, and a file that is something else is refused."""

import csv
import json
from pathlib import Path

import pytest

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
