"""The same script in one process and under torchrun, with ranks that are killed, and the command line."""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qsgp

HERE = Path(__file__).parent
SOURCE = str(HERE.parents[1] / "src")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]


def fitted(folder, result, size=1, *, seconds=0.0, how="SIGKILL", restarts=0, victim=0):
    start = [sys.executable] if size == 1 else [*TORCHRUN, str(size), "--max-restarts", str(restarts)]
    command = [*start, str(HERE / "small_fit.py"), SOURCE, str(folder), str(result), str(seconds), how]
    ended = subprocess.run(command, env=os.environ | {"VICTIM": str(victim)}, capture_output=True, text=True)
    return ended, np.load(result) if result.exists() else None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    _, found = fitted(folder / "run", folder / "result.npz")
    assert len(found["rmse"]) > 4
    return found


def assert_same(found, wanted, tolerance=1e-9):
    for part in ("mean", "std", "rmse"):
        np.testing.assert_allclose(found[part], wanted[part], rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_the_same_script_finds_the_same_model_on_two_ranks(undisturbed, tmp_path):
    _, found = fitted(tmp_path / "run", tmp_path / "result.npz", 2)
    assert_same(found, undisturbed)
    model = qsgp.load(tmp_path / "result.npz.qsgp")  # predicts in one process what ranks have predicted together
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(model.predict(rng.uniform(-3, 3, (3200, 2))[:300]), undisturbed["mean"], rtol=1e-9)
    assert model.posterior_["rows"] == 3200 and "2 ranks share the rows" in str(model.plan_)


@pytest.mark.slow
@pytest.mark.parametrize("moments", [2, pytest.param(10, marks=pytest.mark.bench)])
def test_a_rank_killed_at_a_random_moment_is_started_again_and_the_run_goes_on(moments, undisturbed, tmp_path):
    chance = random.Random(moments)
    for moment in range(moments):
        seconds, victim = chance.uniform(0.05, 1.0), chance.randrange(3)
        folder, result = tmp_path / f"run{moment}", tmp_path / f"result{moment}.npz"
        ended, found = fitted(folder, result, 3, seconds=seconds, restarts=1, victim=victim)
        assert ended.returncode == 0, ended.stderr
        assert_same(found, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("moments", [3, pytest.param(10, marks=pytest.mark.bench)])
def test_a_single_process_killed_at_random_moments_goes_on(moments, undisturbed, tmp_path):
    chance = random.Random(moments - 3)
    for moment in range(moments):
        folder, result = tmp_path / f"run{moment}", tmp_path / f"result{moment}.npz"
        fitted(folder, result, seconds=chance.uniform(0.05, 0.8))
        _, found = fitted(folder, result)
        for part in ("mean", "std", "rmse"):
            np.testing.assert_array_equal(found[part], undisturbed[part])


@pytest.mark.slow
def test_of_the_command_line_the_first_rank_alone_speaks_and_writes(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (200, 2))
    np.savetxt(tmp_path / "t.csv", np.c_[X, np.sin(X[:, 0])], delimiter=",", header="a,b,y", comments="")
    command = [*TORCHRUN, "2", "-m", "qsgp", "fit", "t.csv", "--target", "y", "--kernel", "rbf"]
    environment = os.environ | {"PYTHONPATH": SOURCE}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Wrote model.qsgp") == 1 and ended.stderr.count("Training a QSGPRegressor") == 1
    assert "Each of the 2 ranks trains the same model" in str(qsgp.load(tmp_path / "model.qsgp").plan_)
