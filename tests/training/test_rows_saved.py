"""Checkpoints of the rows road: a run that ends anywhere goes on as if it had not."""

import math
import threading
from dataclasses import replace

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.files import read_model
from qsgp.interrupt import Halt
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.training import road_rows
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.rows_epochs import Limits
from qsgp.training.task import Task

SITES = {"gaussian": Gaussian(torch.tensor(0.01)), "laplace": Laplace(torch.tensor(0.07)), "logistic": Logistic()}


class Killed(Exception):
    pass


def task_of(folder=None, likelihood="gaussian", report=None, n=330, outputs=1, seconds=30.0, **sizes):
    generator = torch.Generator().manual_seed(0)
    x = 6 * torch.rand(n, 2, generator=generator)
    f = torch.sin(x[:, :1]) * torch.cos(x[:, 1:])
    Y = torch.cat([f, f.square()], 1)[:, :outputs] + 0.1 * torch.randn(n, outputs, generator=generator)
    Y = (Y - Y.mean(0)).sign() if likelihood == "logistic" else Y
    folder = None if folder is None else str(folder)
    options = Options(likelihood=likelihood, checkpoint=folder, checkpoint_seconds=seconds)
    small = {"block": 50, "held_out": 30, "variance_points": 50, "draws": 4, "exact_rows": 50} | sizes
    sizes = replace(make_plan(n, 2, outputs, options).sizes, **small)
    return Task(Rows(x, Y, torch.ones(n)), options, sizes, Halt(threading.Event(), math.inf), report)


def train(task, variance=1.0, sites=None):
    kernel = SquaredExponential(*hyperparameters(2.0, variance, d=2))
    return road_rows.train(task, kernel, sites or SITES[task.options.likelihood], Limits(epochs=5, draws_epochs=3))


def ends_after(epochs, kill=False):
    """A report that ends the run after so many epochs."""
    told = []

    def report(record, _):
        told.append(record)
        if len(told) == epochs + 1 and kill:  # the first record is that of the exact GP
            raise Killed
        return len(told) == epochs + 1

    return report


def assert_same(found, expected):
    new = task_of().rows.x[:50] + 0.01
    for one, other in zip(found.posterior.latent(new), expected.posterior.latent(new), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(found.posterior.A, expected.posterior.A) and found.iterations == expected.iterations
    told, wanted = ([{**record, "seconds": 0} for record in each.history] for each in (found, expected))
    assert told == wanted


@pytest.mark.parametrize(
    ("likelihood", "kill", "more"),
    [
        ("gaussian", True, {}),
        ("gaussian", False, {"block": 9, "exact_rows": 10}),  # so many blocks that their steps are accelerated
        ("laplace", False, {"outputs": 2}),
        ("logistic", True, {}),
    ],
)
def test_a_run_that_ends_after_an_epoch_goes_on_bit_for_bit(likelihood, kill, more, tmp_path):
    whole = train(task_of(likelihood=likelihood, **more))
    assert whole.iterations > 2
    first = task_of(tmp_path, likelihood, ends_after(2, kill), seconds=0.0, **more)
    if kill:
        with pytest.raises(Killed):
            train(first)
    else:
        train(first)
    with pytest.warns(UserWarning, match="Resumed from epoch 2 in"):
        again = train(task_of(tmp_path, likelihood, **more))
    assert_same(again, whole)


def test_a_run_in_float64_goes_on_there(tmp_path):
    """Noise 1e-9 of the signal. While the exact GP is the best, its posterior is stored beside the last one."""
    noise = Gaussian(torch.tensor(1e-5))
    whole = train(task_of(), 1e4, noise)
    train(task_of(tmp_path, report=ends_after(3), seconds=0.0), 1e4, noise)
    with pytest.warns(UserWarning, match=r"Resumed from epoch \d in"):
        again = train(task_of(tmp_path), 1e4, noise)
    assert_same(again, whole)
    assert again.posterior.x.dtype == torch.float64


def test_a_run_that_had_ended_gives_the_same_model_at_once(tmp_path):
    whole = train(task_of(tmp_path))
    told = []
    with pytest.warns(UserWarning, match="Resumed from epoch"):
        again = train(task_of(tmp_path, report=lambda record, _: told.append(record) or False))
    assert told == []
    assert_same(again, whole)


def test_the_hyperparameters_are_stored_before_the_first_epoch(tmp_path):
    with pytest.raises(Killed):
        train(task_of(tmp_path, report=ends_after(0, kill=True)))
    (path,) = tmp_path.glob("step-*.qsgp")
    header, tensors = read_model(path)
    assert header["kernel"] == "rbf" and "state" not in header
    torch.testing.assert_close(tensors["kernel.lengthscale"], torch.full((2,), 2.0))
    assert_same(train(task_of(tmp_path)), train(task_of()))


def test_states_are_stored_at_most_as_often_as_is_asked(tmp_path):
    with pytest.raises(Killed):
        train(task_of(tmp_path, report=ends_after(3, kill=True), seconds=3600.0))
    assert [path.name for path in tmp_path.glob("step-*.qsgp")] == ["step-000000000.qsgp"]
    with pytest.raises(Killed):
        train(task_of(tmp_path, report=ends_after(3, kill=True), seconds=0.0))
    assert sorted(path.name for path in tmp_path.glob("step-*.qsgp")) == ["step-000000002.qsgp", "step-000000003.qsgp"]


def test_an_epoch_cut_short_is_repeated(tmp_path):
    """Ctrl-C in the third epoch: what it left is handed over, and who goes on begins it anew."""
    whole, visits = train(task_of()), []
    task = task_of(tmp_path, seconds=0.0)

    class Pressed(Halt):
        def __call__(self):
            visits.append(1)
            if len(visits) > 17:
                self.pressed.set()
            return super().__call__()

    with pytest.warns(UserWarning, match="Interrupted in epoch"):
        cut = train(replace(task, halt=Pressed(threading.Event(), math.inf)))
    assert cut.iterations < whole.iterations
    with pytest.warns(UserWarning, match=f"Resumed from epoch {cut.iterations - 1} in"):
        again = train(task_of(tmp_path))
    assert_same(again, whole)


def test_other_data_is_refused(tmp_path):
    train(task_of(tmp_path))
    with pytest.raises(ValueError, match="Expected the data and arguments of the checkpoint"):
        train(task_of(tmp_path, outputs=2))


def test_more_time_may_go_on_with_the_sizes_of_less(tmp_path):
    """Sizes that were chosen for another limit of time are those of the run that is resumed."""
    whole = train(task_of())
    train(task_of(tmp_path, report=ends_after(2), seconds=0.0))
    with pytest.warns(UserWarning, match="Resumed from epoch 2 in"):
        again = train(task_of(tmp_path, block=100, draws=8))
    assert_same(again, whole)


def test_a_failed_save_does_not_lose_the_model(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("qsgp.training.checkpoints.write_model", full)
    with pytest.warns(UserWarning, match="The checkpoint of epoch . was not written .*No space left"):
        found = train(task_of(tmp_path))
    assert_same(found, train(task_of()))
