"""kill -9 at random moments: the run goes on from its checkpoint and ends as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

RUN = """
import functools, sys, warnings
sys.path.insert(0, sys.argv[1])
import numpy as np, torch
from qsgp import QSGPRegressor
from qsgp.models import keywords
from qsgp.training.options import Options
torch.set_num_threads(1)
warnings.simplefilter("ignore")
keywords.Options = functools.partial(Options, checkpoint_seconds=0.02)
rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (400, 2))
y = 10 + 5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=400)
model = QSGPRegressor(
    basis="fourier", n_features=400, batch_features=60, batch_points=50, support_points=40, covariance="chevron",
    dense_columns=3, max_iter=400, tol=1e-12, kernel="rbf", random_state=0, checkpoint=sys.argv[2],
)
print("training", flush=True)
model.fit(X, y)
mean, std = model.predict(X, return_std=True)
np.savez(sys.argv[3], mean=mean, std=std, elbo=[record["elbo"] for record in model.history_])
"""


def start(folder, result):
    source = str(Path(__file__).parents[2] / "src")
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, source, str(folder), str(result)], stdout=subprocess.PIPE, env=os.environ
    )
    assert process.stdout is not None and process.stdout.readline() == b"training\n"
    process.stdout.close()
    return process


def finish(folder, result):
    process = start(folder, result)
    assert process.wait() == 0
    return np.load(result)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    began = time.monotonic()
    return finish(folder / "run", folder / "result.npz"), time.monotonic() - began


@pytest.mark.parametrize(
    "moments", [pytest.param(3, marks=pytest.mark.slow), pytest.param(20, marks=[pytest.mark.slow, pytest.mark.bench])]
)
def test_a_killed_run_ends_bit_for_bit_as_an_undisturbed_one(moments, undisturbed, tmp_path):
    """Each moment: a fresh run, killed after a random part of its time, then resumed to the end."""
    wanted, seconds = undisturbed
    chance = random.Random(moments)
    for moment in range(moments):
        folder, result = tmp_path / f"run{moment}", tmp_path / f"result{moment}.npz"
        process = start(folder, result)
        time.sleep(chance.uniform(0.1, 0.8) * seconds)
        process.kill()
        assert process.wait() in (-signal.SIGKILL, 0)  # a fast one may have ended before
        found = finish(folder, result)
        for part in ("mean", "std", "elbo"):
            np.testing.assert_array_equal(found[part], wanted[part])


@pytest.mark.slow
def test_one_run_killed_again_and_again(undisturbed, tmp_path):
    wanted, seconds = undisturbed
    chance = random.Random(0)
    for _ in range(3):
        process = start(tmp_path / "run", tmp_path / "result.npz")
        time.sleep(chance.uniform(0.1, 0.5) * seconds)
        process.kill()
        process.wait()
    found = finish(tmp_path / "run", tmp_path / "result.npz")
    np.testing.assert_array_equal(found["mean"], wanted["mean"])


@pytest.mark.slow
def test_a_torn_checkpoint_is_refused_and_the_one_before_it_used(undisturbed, tmp_path):
    wanted, seconds = undisturbed
    process = start(tmp_path / "run", tmp_path / "result.npz")
    while len(list((tmp_path / "run").glob("step-*.qsgp"))) < 2 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    newest = max((tmp_path / "run").glob("step-*.qsgp"))
    newest.write_bytes(newest.read_bytes()[:-100])
    found = finish(tmp_path / "run", tmp_path / "result.npz")
    np.testing.assert_array_equal(found["mean"], wanted["mean"])
