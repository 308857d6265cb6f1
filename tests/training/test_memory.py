"""Memory: what is said beforehand is what is taken, and less is taken when less is allowed."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from qsgp import QSGPRegressor, memory
from qsgp.training.options import Options
from qsgp.training.plan import make_plan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 10**9), ("3.5 GiB", int(3.5 * 2**30)), ("500mb", 5 * 10**8), (10**9, 10**9), ("20000000", 2 * 10**7)],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert memory.parse(text) == size


@pytest.mark.parametrize("wrong", ["much", "4XB", "-3GB", 5, "1.2.3GB", ""])
def test_other_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match="max_memory to be at least 16.8 MB.*'4GB'.*got"):
        memory.parse(wrong)


def test_a_container_limits_what_is_free(tmp_path):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert memory._container(tmp_path) == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._container(tmp_path) is None
    assert memory.free("cpu") >= memory.LEAST


def test_sizes_shrink_with_the_budget_and_then_there_is_an_error():
    assert make_plan(3000, 8, 1, Options()).road == "closed form"
    tight = make_plan(3000, 8, 1, Options(max_memory=200 * 10**6))
    assert tight.road == "rows" and tight.memory <= 200 * 10**6
    least = make_plan(3000, 8, 1, Options(max_memory=17 * 10**6))
    assert least.sizes.block < tight.sizes.block and least.memory <= 17 * 10**6
    plenty, tiny = (make_plan(10**6, 8, 1, Options(max_memory=size * 10**6)).sizes for size in (900, 75))
    assert plenty.road == "rows" and plenty.block > tiny.block and plenty.dual_rows > tiny.dual_rows
    plenty, tiny = (make_plan(10**6, 8, 1, Options(max_memory=size * 10**6, max_iter=5)).sizes for size in (900, 110))
    assert plenty.road == "steps" and tiny.m < plenty.m


def test_sizes_follow_the_time():
    """More time: more rows in the mean, and more behind the hyperparameters."""
    brief, usual, long = (make_plan(10**7, 8, 1, Options(max_time=seconds)).sizes for seconds in (5.0, None, 600.0))
    assert brief.dual_rows < usual.dual_rows < long.dual_rows < 10**7
    assert brief.learn_points <= usual.learn_points < long.learn_points
    assert make_plan(5000, 8, 1, Options()).sizes.dual_rows == 5000
    gpu = make_plan(10**6, 8, 1, Options(device="cuda")).sizes
    assert gpu.dual_rows == 10**6 and gpu.draws > usual.draws
    with pytest.raises(ValueError, match=r"at most max_memory = 20 MB, got .*table.*Lower n_features \(now 100000\)"):
        make_plan(
            3000, 8, 1, Options(max_memory=20 * 10**6, n_features=100_000, covariance="chevron", dense_columns=50)
        )


def test_predictions_say_what_they_take_and_refuse_what_does_not_fit(capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    model = QSGPRegressor(learn_hyperparameters=False, verbose=1).fit(X, X[:, 0])
    assert "This fit takes about" in capsys.readouterr().out and model.memory_ > 0
    model.predict(X)
    assert "Predicting 50 rows takes about" in capsys.readouterr().out
    model.set_params(max_memory=17 * 10**6, verbose=0)
    with pytest.raises(ValueError, match="results .* Predict fewer rows in one call"):
        model.sample_y(X, n_samples=100_000)


# A run of its own, since the memory of a process never shrinks for sure: the peak of the resident set over what it
# was before the fit, beside what was said.
PEAK = """
import sys, threading, time, warnings
import numpy as np
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
from qsgp import QSGPRegressor
n, limit, features = int(sys.argv[2]), sys.argv[3], sys.argv[4]
rng = np.random.default_rng(0)
X = rng.normal(size=(n, 8)).astype(np.float32)
y = np.sin(X[:, 0])
def resident():
    return 4096 * int(open("/proc/self/statm").read().split()[1])
QSGPRegressor(basis="fourier", n_features=64, max_iter=2, random_state=0).fit(X[:50], y[:50])  # load the libraries
peak, done = resident(), False
def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.001)
thread = threading.Thread(target=watch, daemon=True)  # or an error would wait for it for ever
before = resident()
thread.start()
settings = {"auto": {"max_iter": 5}, "dual": {}, "50000": {"n_features": 50_000, "max_iter": 5}}[features]
model = QSGPRegressor(max_memory=limit, random_state=0, **settings).fit(X, y)
fitted, peak = peak - before, resident()
before = peak
model.predict(X[:20_000], return_std=True)
done = True
thread.join()
print(model.memory_, fitted, peak - before)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident set from /proc")
@pytest.mark.parametrize(
    ("n", "limit", "features"),
    [
        (2000, "120MB", "auto"),
        pytest.param(20_000, "200MB", "50000", marks=pytest.mark.slow),
        pytest.param(2000, "1GB", "auto", marks=pytest.mark.slow),
        pytest.param(300_000, "300MB", "auto", marks=pytest.mark.slow),
        pytest.param(6000, "500MB", "dual", marks=pytest.mark.slow),
    ],
)
def test_a_fit_and_a_prediction_stay_inside(n, limit, features):
    command = [sys.executable, "-c", PEAK, str(ROOT / "src"), str(n), limit, features]
    said, fitted, predicted = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
    allowed = memory.parse(limit)
    assert said <= allowed
    assert fitted <= allowed and predicted <= allowed
    assert fitted <= 1.5 * said  # and not far more than was said: allocators keep what is freed


def test_more_time_makes_nothing_smaller():
    """The search for hyperparameters grows with the time; where memory ends, it must not take it from the rest."""
    gpu = [
        make_plan(10**7, 8, 1, Options(device="cuda", max_time=time, max_memory=65 * 10**9)).sizes
        for time in (60.0, 110.0, 300.0)
    ]
    for less, more in pairwise(gpu):
        for name in ("dual_rows", "block", "draws", "variance_points", "learn_points", "learn_most"):
            assert getattr(less, name) <= getattr(more, name), name
