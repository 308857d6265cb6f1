"""The rows road on 1, 2 and 4 ranks is the same model: ranks share sums, not mathematics."""

import math
import os
import signal
import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch

from qsgp import QSGPRegressor, memory
from qsgp.data.rows import Rows
from qsgp.factor import NotPositiveDefinite
from qsgp.interrupt import Halt
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.ranks import ALONE, present
from qsgp.solvers.system import _Noisy
from qsgp.training import road_rows
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.rows_epochs import Limits
from qsgp.training.task import Task
from ranking import together

NEW = 6 * torch.rand(50, 2, generator=torch.Generator().manual_seed(1))


def task_of(ranks=ALONE, likelihood="gaussian", dtype=torch.float64, n=331, outputs=1, folder=None, **sizes):
    generator = torch.Generator().manual_seed(0)
    x = 6 * torch.rand(n, 2, generator=generator)
    f = torch.sin(x[:, :1]) * torch.cos(x[:, 1:])
    Y = torch.cat([f, f.square()], 1)[:, :outputs] + 0.1 * torch.randn(n, outputs, generator=generator)
    Y = (Y - Y.mean(0)).sign() if likelihood == "logistic" else Y
    options = Options(likelihood=likelihood, dtype=dtype, checkpoint=folder, checkpoint_seconds=0.0)
    small = {"block": 50, "held_out": 30, "variance_points": 50, "draws": 4, "exact_rows": 50} | sizes
    sizes = replace(make_plan(n, 2, outputs, options).sizes, **small)
    return Task(Rows(x, Y, torch.ones(n)), options, sizes, Halt(threading.Event(), math.inf), ranks=ranks)


SITES = {"gaussian": Gaussian(torch.tensor(0.01)), "laplace": Laplace(torch.tensor(0.07)), "logistic": Logistic()}


def trained(task, epochs=4, noise=None, variance=1.0):
    kernel = SquaredExponential(*hyperparameters(2.0, variance, d=2))
    sites = SITES[task.options.likelihood] if noise is None else Gaussian(torch.tensor(noise))
    return road_rows.train(task, kernel, sites, Limits(epochs=epochs, draws_epochs=3))


def predicted(keywords, **how):
    ranks = present()
    found = trained(task_of(ranks, **keywords), **how)
    mean, variance = found.posterior.latent(NEW)
    whole = found.posterior.whole()
    history = [{name: value for name, value in record.items() if name != "seconds"} for record in found.history]
    return mean.numpy(), variance.numpy(), whole.A.numpy(), found.posterior.A.shape, history


def assert_same(found, alone, tolerance):
    for one, other in zip(found[:2], alone[:2], strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=tolerance, atol=tolerance)
    assert [record["phase"] for record in found[4]] == [record["phase"] for record in alone[4]]


ROADS = {
    "few blocks": {},
    "accelerated": {"block": 9, "exact_rows": 10},
    "labels": {"likelihood": "logistic", "outputs": 2},
    "heavy tails, no draws": {"likelihood": "laplace", "draws": 0},
}


@pytest.mark.parametrize(
    ("road", "size"),
    [
        ("few blocks", 2),
        ("accelerated", 2),
        *[pytest.param(road, size, marks=pytest.mark.slow) for road in list(ROADS)[2:] for size in (2, 4)],
        *[pytest.param(road, 4, marks=pytest.mark.slow) for road in list(ROADS)[:2]],
    ],
)
def test_ranks_find_what_one_process_finds(road, size):
    keywords = ROADS[road]
    alone = predicted(keywords)
    ranks = together(size, predicted, keywords)
    for found in ranks:
        assert_same(found, alone, 1e-9)
        assert found[4] == ranks[0][4]  # to the last digit, or ranks would part some day
    own = [found[3][0] for found in ranks]
    assert sum(own) == alone[3][0] and len(set(own)) == 2  # not all have the same number


def test_in_float32_they_agree_to_four_digits():
    keywords = {"dtype": torch.float32}
    alone = predicted(keywords)
    assert alone[0].dtype == np.float32
    for found in together(2, predicted, keywords):
        assert_same(found, alone, 1e-4)


@pytest.mark.slow
def test_ranks_begin_again_together(monkeypatch):
    """No block has a factor in float32, of which one rank alone knows at first: all go on in float64."""
    plain = _Noisy.factor

    def factor(self, noise):
        if noise.dtype == torch.float32:
            raise NotPositiveDefinite("here alone")
        return plain(self, noise)

    monkeypatch.setattr(_Noisy, "factor", factor)
    keywords = {"dtype": torch.float32, "block": 9, "exact_rows": 10}
    alone = predicted(keywords)
    assert alone[0].dtype == np.float64 and alone[4][1]["iteration"] == 2
    for found in together(2, predicted, keywords):
        assert_same(found, alone, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("road", ["accelerated", pytest.param("labels", marks=pytest.mark.slow)])
def test_a_run_goes_on_with_another_number_of_ranks(road, tmp_path):
    """4, then 2, then 3, then one process, each from the checkpoint of the one before."""
    stored = ROADS[road] | {"folder": str(tmp_path)}
    whole = predicted(ROADS[road], epochs=5)
    for epochs, size in enumerate((4, 2, 3), 1):
        found = together(size, partial(predicted, epochs=epochs), stored)
        assert [record["iteration"] for record in found[0][4]] == list(range(epochs + 1))
    with pytest.warns(UserWarning, match="Resumed from epoch 3"):
        found = predicted(stored, epochs=5)
    assert_same(found, whole, 1e-9)
    assert [record["iteration"] for record in found[4]] == [record["iteration"] for record in whole[4]]
    assert len(whole[4]) > 4


def killed_in_an_epoch(keywords):
    def report(record, _):
        if record["iteration"] == 2 and present().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    return trained(replace(task_of(present(), **keywords), report=report), epochs=5)


def test_after_a_rank_was_killed_the_others_end_and_the_run_goes_on(tmp_path):
    keywords = {"folder": str(tmp_path)}
    whole = predicted({}, epochs=5)
    first, second, third = together(3, killed_in_an_epoch, keywords)
    assert second is None and first[0] == third[0] == "LostRanks"
    for found in together(2, partial(predicted, epochs=5), keywords):
        assert_same(found, whole, 1e-9)


def budget_of(free):
    model = QSGPRegressor()
    model._trained = SimpleNamespace(ranks=present())
    with mock.patch.object(memory, "budget", lambda *_: free[present().rank]):
        return model._budget("cpu")


def test_ranks_that_predict_together_take_blocks_of_one_size(without_shape_checks):
    """Each adds its part to every block, so that one with less memory would wait for ever."""
    assert together(2, budget_of, (5, 9)) == [5, 5]
