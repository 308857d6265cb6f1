"""Training by the dual: what rows held out decide. The door's tests fit whole models this way."""

import pytest
import torch

from qsgp.dual_training import _settled
from qsgp.held_out import raised
from qsgp.likelihoods import Gaussian, Laplace, Logistic


def residuals(deviation, n=2000):
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(n, 1, generator=generator)
    Y = mean + deviation * torch.randn(n, 1, generator=generator)
    return Y, mean, torch.full((n, 1), 0.01), torch.ones(n)


def test_noise_is_raised_to_what_rows_held_out_show():
    """Evidence may call a function with jumps noise-free; errors of 0.5 about a deviation of 0.1 say otherwise."""
    found = raised(Gaussian(torch.tensor(1e-5)), *residuals(0.5))
    assert float(found.noise_variance) == pytest.approx(0.24, rel=0.1)
    found = raised(Laplace(torch.tensor(1e-3)), *residuals(0.5))
    assert float(found.scale) > 0.2


def test_rows_that_count_little_say_little():
    Y, mean, variance, weight = residuals(0.1)
    Y[::2] += 50
    weight[::2] = 1e-9
    assert float(raised(Gaussian(torch.tensor(0.01)), Y, mean, variance, weight).noise_variance) < 0.02


def test_noise_is_not_lowered():
    found = raised(Gaussian(torch.tensor(0.3)), *residuals(0.1))
    assert float(found.noise_variance) == pytest.approx(0.3)
    assert isinstance(raised(Logistic(), *residuals(0.1)), Logistic)


def test_when_predictions_have_settled():
    def history(*scores):
        return [{"rmse": rmse, "mnlp": mnlp} for rmse, mnlp in scores]

    same = (1.0, 0.5)
    assert not _settled(history(same)) and not _settled(history(same, same))
    assert _settled(history((1.0, 0.5), (0.999, 0.499), same))
    assert not _settled(history((0.99, 0.5), same, same)) and not _settled(history(same, (1.0, 0.49), same))
    classes = [{"error": 0.1, "mnlp": 0.0300}, {"error": 0.2, "mnlp": 0.0301}, {"error": 0.1, "mnlp": 0.0300}]
    assert _settled(classes) and not _settled([*classes[1:], {"error": 0.1, "mnlp": 0.031}])
