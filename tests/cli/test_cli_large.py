"""`qsgp fit` on files that are too large for the memory: the same command, rows read a piece at a time."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

from typer.testing import CliRunner

from qsgp import load
from qsgp.cli import app
from qsgp.cli.large import prepare_large
from qsgp.data.choosing import Wanted

N = 600


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    found = pd.DataFrame({"size": rng.normal(size=N), "kind": rng.choice(["flat", "house"], N)})
    noise = 0.1 * rng.normal(size=N)
    return found.assign(price=np.sin(2 * found["size"]) + (found["kind"] == "house") + noise)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is said to be too large."""
    monkeypatch.setattr("qsgp.cli.fit.too_large", lambda *_: True)
    rows().to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    return tmp_path / "rows.parquet"


def run(*arguments: Any) -> dict[str, Any]:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == 0, found.output
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


FAST = ["--features", 64, "--kernel", "rbf", "--json", "--quiet"]


def test_a_large_file_is_fitted_and_judged_by_rows_kept_apart(file: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.qsgp"
    found = run("fit", file, "-t", "price", "-o", model, "--holdout", 0.2, "--calibrate", *FAST)
    assert found["rows"] == N - N // 5 - N // 10
    assert found["holdout"]["rows"] == N // 5
    fitted = load(model)
    assert fitted.feature_names_in_.tolist() == ["size", "kind"]
    assert fitted.input_names_ == ["size", "kind=flat", "kind=house"]
    assert "streamed" in str(fitted.plan_)
    assert (fitted.columns_.rows, fitted.columns_.target) == (found["rows"], "price")
    assert fitted.calibration_ is not None
    assert run("evaluate", model, file, "--json", "--quiet")["rmse"] < 0.3


def test_rows_with_gaps_are_taken_as_they_are_or_as_is_asked(file: Path, tmp_path: Path) -> None:
    some = rows()
    some.loc[:9, "size"] = np.nan
    some.loc[10:14, "price"] = np.nan
    some.to_parquet(file)
    found = run("fit", file, "-t", "price", "-o", tmp_path / "m.qsgp", "--missing", "drop", *FAST)
    assert found["rows"] == N - 15
    assert run("fit", file, "-t", "price", "-o", tmp_path / "m.qsgp", *FAST)["rows"] == N - 5
    gaps = pd.DataFrame({"size": [np.nan], "kind": ["flat"]}), pd.DataFrame({"size": [0.5], "kind": ["flat"]})
    without, known = (load(tmp_path / "m.qsgp").predict(each, return_std=True)[1] for each in gaps)
    assert without > 1.5 * known
    failed = CliRunner().invoke(app, ["fit", str(file), "-t", "price", "--missing", "error"])
    assert failed.exit_code != 0
    assert isinstance(failed.exception, ValueError | SystemExit)


def test_means_of_gaps_are_not_known_beforehand(file: Path) -> None:
    with pytest.raises(ValueError, match="--missing auto, error or drop for files larger than max_memory"):
        prepare_large([file], Wanted("price"), "auto", "mean")


def test_the_task_is_decided_by_targets_from_all_over_the_file(file: Path) -> None:
    rows().sort_values("price").assign(price=lambda t: (t["price"] > 0).astype(int)).to_parquet(
        file, row_group_size=100
    )
    assert prepare_large([file], Wanted("price"), "auto", "error").task == "classification"


def test_the_plan_of_a_large_file_says_what_is_held(file: Path) -> None:
    plan = run("fit", file, "-t", "price", "--dry-run", "--json", "--features", 64)
    assert any("600 of 600 rows, drawn uniformly, are held in memory" in sentence for sentence in plan["plan"])
