"""Groups on the command line: intervals by group from `fit` to `predict`, scores in each group, and what is refused."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("rich")

import pandas as pd
from typer.testing import CliRunner, Result

from qsgp import load
from qsgp.cli import app

Run = Callable[[str], Result]
FAST = "--kernel rbf --noise equal --target-map none -q"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The program in this process, in a folder with sales of a quiet shop and of a loud one."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, n in {"train": 400, "test": 300}.items():
        table = pd.DataFrame({"size": rng.uniform(-2, 2, n).round(3), "shop": rng.choice([1, 2], n)})
        sold = np.sin(table["size"]) + np.where(table["shop"] == 2, 1, 0.1) * rng.normal(size=n)
        table.assign(sold=sold).to_csv(f"{name}.csv", index=False)
    return lambda line: CliRunner().invoke(app, shlex.split(line), prog_name="qsgp")


def test_from_fit_to_predict_and_evaluate(run: Run) -> None:
    done = run(f"fit train.csv -t sold --drop shop --calibrate --groups shop {FAST}")
    assert done.exit_code == 0, done.output
    model = load("model.qsgp")
    groups = model.calibration_.groups
    assert model.calibration_.column == "shop" and set(groups) == {"1", "2"}
    assert sum(own.n for own in groups.values()) == model.calibration_.n == 40
    rows = pd.read_csv("test.csv")
    inputs = rows[["size", "shop"]]
    assert run("predict model.qsgp test.csv --interval 0.8 -o out.csv").exit_code == 0
    found, wanted = pd.read_csv("out.csv"), model.predict_interval(inputs, 0.8, groups="shop")
    np.testing.assert_allclose(found[["lower", "upper"]].to_numpy().T, wanted, rtol=1e-6)
    width = (found["upper"] - found["lower"]).groupby(rows["shop"]).mean()
    assert width[2] > 3 * width[1]
    rows.drop(columns="shop").to_csv("bare.csv", index=False)
    bare = run("predict model.qsgp bare.csv --interval 0.8 -o out.csv")
    assert bare.exit_code == 0 and "calibrated by 'shop', which the file lacks" in bare.stderr
    np.testing.assert_allclose(
        pd.read_csv("out.csv")["lower"], model.predict_interval(rows[["size"]], 0.8)[0], rtol=1e-6
    )

    scores = json.loads(run("evaluate model.qsgp test.csv --groups shop --json").stdout)["groups"]
    assert list(scores) == ["1", "2"]
    for shop, own in scores.items():
        some = rows[rows["shop"] == int(shop)]
        assert own["rows"] == len(some)
        assert own["rmse"] == pytest.approx(np.sqrt(np.mean((model.predict(some[["size"]]) - some["sold"]) ** 2)))
    said = run("evaluate model.qsgp test.csv --groups shop").stdout
    assert "95 % interval holds" in said.splitlines()[-3] and said.splitlines()[-1].split()[0] == "2"


def test_what_is_refused(run: Run) -> None:
    for line, words in {
        f"fit train.csv -t sold --groups shop {FAST}": "add --calibrate",
        f"fit train.csv -t shop --task classification --calibrate --groups size {FAST}": "is a classification",
        f"fit train.csv -t sold --calibrate --groups shpo {FAST}": "Did you mean 'shop'",
    }.items():
        done = run(line)
        assert done.exit_code in (1, 2) and words in " ".join(done.stderr.split()), done.output
    assert not Path("model.qsgp").exists()


def test_rows_left_out_leave_their_group_out_too(run: Run) -> None:
    """The group stands beside its row, wherever rows without a target were."""
    rows = pd.read_csv("train.csv")
    rows.loc[::3, "sold"] = np.nan
    rows["shop"] = np.where(rows["sold"].isna(), "closed", rows["shop"].astype(str))
    rows.to_csv("gaps.csv", index=False)
    done = run(f"fit gaps.csv -t sold --columns size --calibrate --groups shop {FAST}")
    assert done.exit_code == 0, done.output
    assert set(load("model.qsgp").calibration_.groups) == {"1", "2"}
