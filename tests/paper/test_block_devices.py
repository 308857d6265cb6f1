"""Training by blocks on a GPU: its graphs and fused kernels against the step called one by one, and what they may do.

Every test that takes ``device`` runs on a CPU as well, where a step is what it is compared with.
"""

import copy
import sys
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from qsgp import QSGPRegressor
from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian, Logistic
from qsgp.paper import Chevron, Fit, Problem, Settings, Support, block_training, fit, predict, start
from qsgp.paper.block_training import BlockSteps
from qsgp.training import road_steps

# control, dense columns, likelihood: what fused kernels take, and what a graph of products takes
SORTS = [
    ("kriging", 0, "gaussian"),
    ("gram", 0, "gaussian"),
    ("none", 0, "gaussian"),
    ("kriging", 10, "gaussian"),
    ("gram", 10, "gaussian"),
    ("kriging", 0, "logistic"),
    ("none", 10, "logistic"),
]
ALL_SORTS = pytest.mark.parametrize(("control", "k", "likelihood"), SORTS)
NEAR = 0.05  # float32, summed in another order, after hundreds of steps


def problem_of(likelihood="gaussian", k=0, device="cpu", n=300, m=400, d=3):
    """Float32, as fused kernels take it."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=g)
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.3 * torch.randn(n, generator=g)
    y = y.sign() if likelihood == "logistic" else y
    kernel = SquaredExponential(*hyperparameters(1.3, 1.7, d=d, dtype=torch.float32, device=device))
    site = Gaussian(torch.tensor(0.1, device=device)) if likelihood == "gaussian" else Logistic(21)
    x, y = x.to(device), y.to(device)
    return Problem(Arrays(x, y), Fourier(kernel, m, seed=3), site, Chevron(m, k), Support.build(kernel, x[:40]))


def settings_of(control="kriging", iterations=300, **options):
    return Settings(60, 80, control=control, bound="Q", draws="blocks", iterations=iterations, **options)


def differing(first, second):
    """Names of tensors of two states whose difference is not small beside them, with how large it is.

    Not entry by entry: where a gradient is nearly zero AdaGrad's first step has the size of the rate and the sign of a
    rounding.
    """
    found = {}
    for name, value in first.tensors().items():
        other = second.tensors()[name].to(value)
        distance = float((value - other).double().norm() / value.double().norm().clamp_min(1e-6))
        if not distance < NEAR and not name.startswith(("first.", "second.")):  # Adam's moments are noise at first
            found[name] = distance
    return found


@pytest.mark.gpu
@ALL_SORTS
def test_a_replayed_step_is_the_step_called_one_by_one(control, k, likelihood):
    """On the same draws, hyperparameters frozen and then moving, across the end of what is drawn at once."""
    settings = settings_of(control, learn_hyperparameters=True, hyper_rate=1e-3, frozen=0.5)
    problem = problem_of(likelihood, k, "cuda")
    quick, plain = start(problem, settings), start(problem, settings)
    replays, once = BlockSteps.of(problem, quick, settings), BlockSteps.of(problem, plain, settings)
    once.fused = None
    assert (replays.fused is not None) == ((control, k, likelihood) == SORTS[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing may be left out
        for _ in range(block_training.CHUNK + 100):
            names = tuple(block_training.moving(plain, settings))
            once.replays[names] = partial(once.once, names)
            torch.testing.assert_close(replays(), once(), rtol=0.05, atol=5.0)
    assert len(replays.replays) == 2 and not differing(plain, quick), differing(plain, quick)
    assert (quick.rows.mu != 0).any() and quick.t == plain.t == block_training.CHUNK + 100


@pytest.mark.gpu
@ALL_SORTS
def test_a_step_on_a_gpu_is_that_on_a_cpu(control, k, likelihood, monkeypatch):
    """With the draws of the CPU: generators of two devices draw different numbers."""
    drawn = block_training.draws

    def draws(n, pairs, settings, chunk, device):
        return tuple(part.to(device) for part in drawn(n, pairs, settings, chunk, "cpu"))

    monkeypatch.setattr(block_training, "draws", draws)
    states = []
    for device in ("cpu", "cuda"):
        settings = settings_of(control)
        problem = problem_of(likelihood, k, device)
        state = start(problem, settings)
        steps = BlockSteps.of(problem, state, settings)
        for _ in range(20):
            steps()
        states.append(state)
    assert not differing(*states), differing(*states)


@pytest.mark.parametrize(("control", "k", "likelihood"), [SORTS[at] for at in (0, 1, 4, 5)])
def test_short_training_is_good_and_goes_on_bit_for_bit(control, k, likelihood, device, monkeypatch):
    monkeypatch.setattr(block_training, "CHUNK", 32)
    settings = settings_of(control, 120, learn_hyperparameters=True, hyper_rate=1e-3, frozen=0.5, every=35)
    problem = problem_of(likelihood, k, device)
    whole, seen = fit(problem, settings), []

    def save(run):
        if run.state.t == 50:
            seen.append((copy.deepcopy(run.state.tensors()), list(run.history), list(run.pending)))

    fit(problem, settings, past=Fit(start(problem, settings)), save=save)
    ((tensors, history, pending),) = seen
    again = Fit(start(problem, settings), history, pending)
    again.state.restore(tensors)
    resumed = fit(problem, settings, past=again)
    assert all(torch.equal(resumed.state.tensors()[name], value) for name, value in whole.state.tensors().items())
    x, y = problem.source.x, problem.source.y
    mean = predict(problem, whole.state, x).mean
    score = (mean * y > 0).float().mean() if likelihood == "logistic" else 1 - (mean - y).square().mean() / y.var()
    assert score > 0.6


def test_the_door_trains_by_blocks(device, monkeypatch):
    seen = []

    def watched(problem, settings, **others):
        seen.append((settings.draws, str(problem.support.U.device)))
        return fit(problem, settings, **others)

    monkeypatch.setattr(road_steps, "fit", watched)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=600)
    many = {"n_features": 4000, "batch_features": 400, "optimizer": "adagrad", "max_iter": 300}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)  # that a short run ended worse than an exact GP
        model = QSGPRegressor(device=str(device), random_state=0, **many).fit(X[:500], y[:500])
    assert [(draws, where.partition(":")[0]) for draws, where in seen] == [("blocks", device.type)]
    assert np.sqrt(np.mean((model.predict(X[500:]) - y[500:]) ** 2)) < 0.3


# --- what a graph may do, and what happens where there is none: on a CPU


class Asked(TorchDispatchMode):
    """What a recording forbids: reading a number on the host, sizes that depend on numbers, numbers from the host."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "lift_fresh", "unique", "bincount")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().removeprefix("aten::").partition(".")[0]
        if name in self.FORBIDDEN and not _unread_on_a_gpu():
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def _unread_on_a_gpu():
    """Whether one of those asks that leave the numbers of a GPU unread."""
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_code.co_filename.endswith(("qsgp/checks.py", "engine/cpu.py", "paper/chevron.py")):
            return True
    return False


@ALL_SORTS
@pytest.mark.parametrize("names", [(), ("kernel.log_lengthscale", "kernel.log_variance")])
def test_a_step_asks_the_host_nothing(control, k, likelihood, names):
    problem = problem_of(likelihood, k)
    settings = settings_of(control, frozen=0.0)
    steps = BlockSteps.of(problem, start(problem, settings), settings)
    steps.once(names)
    with Asked() as asked:
        steps.once(names)
    assert not asked.found, asked.found


def failing(times, steps=2):
    """In place of `blocks.replayed`: some steps, then an error; the first ``times`` of its calls."""
    calls = []

    def replayed(once, _):
        for _ in range(steps):
            once()
        calls.append(once)
        if len(calls) <= times:
            raise RuntimeError("operation not permitted when stream is capturing\nwith a second line")
        return once

    return replayed


@pytest.mark.parametrize("moves", [False, True])
def test_a_step_that_cannot_be_recorded_is_called(monkeypatch, moves):
    problem = problem_of()
    settings = settings_of(learn_hyperparameters=moves, frozen=0.0)
    plain, guarded = start(problem, settings), start(problem, settings)
    once, steps = BlockSteps.of(problem, plain, settings), BlockSteps.of(problem, guarded, settings)
    names = tuple(block_training.moving(guarded, settings))
    monkeypatch.setattr(block_training, "replayed", failing(times=1))
    with pytest.warns(UserWarning, match=r"called one by one: .* \(RuntimeError: operation not .* capturing\)"):
        steps.replays[names] = steps._replay(names)
    for _ in range(5):
        assert torch.equal(once(), steps())
    assert all(torch.equal(guarded.tensors()[name], value) for name, value in plain.tensors().items())


class Broken:
    """Fused kernels that move something and then fail."""

    def __init__(self, state):
        self.state = state
        self.view = type("View", (), {"t": torch.zeros(())})()

    def step(self, state, batch):
        state.table += 1
        self.view.t += 1
        raise ValueError("no kernel for this device")


def test_kernels_that_fail_are_left_out_and_the_rest_is_recorded(monkeypatch):
    problem, settings = problem_of(), settings_of()
    plain, guarded = start(problem, settings), start(problem, settings)
    once, steps = BlockSteps.of(problem, plain, settings), BlockSteps.of(problem, guarded, settings)
    steps.fused = Broken(guarded)
    monkeypatch.setattr(block_training, "replayed", failing(times=0))
    with pytest.warns(UserWarning, match=r"not fused: the device does not run them \(ValueError: no kernel") as warned:
        steps.replays[()] = steps._replay(())
    assert len(warned) == 1 and steps.fused is None
    for _ in range(5):
        assert torch.equal(once(), steps())
    assert all(torch.equal(guarded.tensors()[name], value) for name, value in plain.tensors().items())


def test_the_look_for_questions_finds_them():
    with Asked() as asked:
        bool(torch.ones(3).any())
        torch.tensor(3.0)
    assert asked.found == ["_local_scalar_dense", "lift_fresh"]


def test_kernels_that_cannot_be_prepared_are_left_out(monkeypatch):
    def broken(*_):
        raise RuntimeError("compiler not found")

    monkeypatch.setattr(block_training.Fused, "of", broken)
    monkeypatch.setattr(block_training, "fusible", lambda _: True)
    problem, settings = problem_of(), settings_of()
    with pytest.warns(UserWarning, match="not fused: the device does not prepare them"):
        assert BlockSteps.of(problem, start(problem, settings), settings).fused is None


def test_weights_are_not_fused():
    problem = problem_of()
    weighted = replace(problem, source=Arrays(problem.source.x, problem.source.y, torch.ones(300)))
    settings = settings_of()
    assert block_training.Fused.of(weighted, start(weighted, settings), settings) is None
