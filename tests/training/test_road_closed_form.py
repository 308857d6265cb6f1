"""The closed form where time ends before it."""

import threading
from dataclasses import replace

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.interrupt import Halt
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Logistic
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.road_closed_form import stopped_early
from qsgp.training.task import Task


@pytest.mark.parametrize("limit", [None, 1e-9])
def test_a_model_that_was_stopped_early_does_not_take_as_long_as_it_likes(limit):
    """Labels of a thousand rows want dozens of rounds of O(n^3), and their time was over."""
    x = torch.linspace(-3, 3, 60, dtype=torch.float64)[:, None]
    rows = Rows(x, torch.where(x > 0, 1.0, -1.0).double(), torch.ones(60, dtype=torch.float64))
    kernel = SquaredExponential(*hyperparameters([1.0], 20.0, dtype=torch.float64))
    options = replace(Options(likelihood="logistic"), max_time=limit)
    task = Task(rows, options, make_plan(60, 1, 1, options).sizes, Halt(threading.Event(), 0.0))
    with pytest.warns(UserWarning, match="Stopped while the hyperparameters"):
        posterior = stopped_early(task, kernel, Logistic()).posterior
    first = Logistic().optimal_xi(rows.Y[:, 0], torch.zeros(60).double(), kernel.diag(x))
    assert torch.allclose(posterior.xi[:, 0], first) == (limit is not None)
