"""`qsgp fit --dry-run`: the plan, and nothing trained or written."""

import json
from pathlib import Path

import pytest

from programs import qsgp, write_houses

pytest.importorskip("typer")
pytest.importorskip("rich")


@pytest.mark.slow
def test_a_dry_run_says_what_a_fit_would_do(tmp_path: Path) -> None:
    write_houses(tmp_path)
    asked = ("fit", "train.csv", "-t", "price", "--drop", "id,sold", "--holdout", "0.2")
    done = qsgp(*asked, "--dry-run", "--max-time", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hence regression" in done.stderr and "Training" not in done.stderr
    assert done.stdout.startswith(
        "This would train a QSGPRegressor on 120 rows.\n"
        "The exact GP is solved in closed form, because 120 rows are not more than 3,000.\n"
    )
    assert "It ends after 5 s (max_time)." in done.stdout
    assert not (tmp_path / "model.qsgp").exists()
    found = json.loads(qsgp(*asked, "--dry-run", "--features", "64", "--json", "--quiet", cwd=tmp_path).stdout)
    assert found["road"] == "weights" and found["memory"] > 0 and found["rows"] == found["rows_known"] == 120
    assert found["plan"][0].startswith("n_features asks for Fourier features, so ")


@pytest.mark.slow
def test_info_shows_the_plan_that_the_fit_followed(tmp_path: Path) -> None:
    write_houses(tmp_path)
    fitted = qsgp("fit", "train.csv", "-t", "price", "--drop", "id,sold", "--quiet", cwd=tmp_path)
    assert fitted.returncode == 0, fitted.stderr
    said = qsgp("info", "model.qsgp", cwd=tmp_path).stdout
    assert "The plan of the fit:\nThe exact GP is solved in closed form, because 150 rows" in said
    assert json.loads(qsgp("info", "model.qsgp", "--json", cwd=tmp_path).stdout)["plan"][0] in said


@pytest.mark.slow
def test_the_optimizer_is_an_option(tmp_path: Path) -> None:
    write_houses(tmp_path)
    asked = ("fit", "train.csv", "-t", "price", "--drop", "id,sold", "--features", "64", "--dry-run")
    done = qsgp(*asked, "--optimizer", "adagrad", cwd=tmp_path)
    assert done.returncode == 0 and "Weights move as in the paper: AdaGrad" in done.stdout, done.stderr
    refused = qsgp(*asked, "--optimizer", "adam", cwd=tmp_path)
    assert refused.returncode == 2 and "'adagrad', 'preconditioned'" in refused.stderr
