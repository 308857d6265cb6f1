"""Which inputs matter: told from one input at a time, and worth it where equal lengthscales lead nowhere."""

import numpy as np
import pytest
import torch

from busy import waiting
from qsgp import QSGPRegressor
from qsgp.data.rows import Rows
from qsgp.hyperparameters import screening
from qsgp.hyperparameters.screening import IDLE, STRAIGHT, WIGGLY


def inputs(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def first_lengthscales(x: torch.Tensor, Y: torch.Tensor) -> torch.Tensor | None:
    return screening.first_lengthscales(Rows(x, Y, torch.ones_like(x[:, 0])))


def test_a_row_of_weight_two_is_the_row_twice() -> None:
    x, weight = inputs(200, 4), torch.arange(200).remainder(4).double()
    y = standardised(x[:, 0] + 0.5 * inputs(200, 5)[:, 4])
    often = torch.repeat_interleave(torch.arange(200), weight.long())
    for column in x.mT:
        for statistic in (screening._grouped, screening._straight):
            once = statistic(column, y, weight)
            torch.testing.assert_close(once, statistic(column[often], y[often], torch.ones(len(often)).double()))


def standardised(y: torch.Tensor) -> torch.Tensor:
    return ((y - y.mean()) / y.std())[:, None]


def test_wiggly_straight_and_idle_inputs_are_told_apart() -> None:
    x = inputs(1000, 6)
    found = first_lengthscales(x, standardised(torch.sin(3 * x[:, 0]) + x[:, 1]))
    assert found is not None and found.tolist() == [WIGGLY, STRAIGHT, IDLE, IDLE, IDLE, IDLE]


def test_inputs_that_act_through_each_other_alone_are_seen() -> None:
    x = inputs(1000, 6)
    found = first_lengthscales(x, standardised(x[:, 2] * x[:, 4]))
    assert found is not None and (found < IDLE).tolist() == [False, False, True, False, True, False]


def test_noise_is_rarely_taken_for_an_input() -> None:
    y = torch.randn(200, 1000, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = inputs(1000, 5)
    assert sum(first_lengthscales(x, each) is not None for each in y) < 0.05 * len(y)


@pytest.mark.parametrize("kind", ["alike", "constant target", "few rows", "few inputs", "constant input"])
def test_where_nothing_can_be_told_there_is_no_start(kind: str) -> None:
    x = inputs(40 if kind == "few rows" else 1000, 4 if kind == "few inputs" else 5)
    y = torch.sin(x).sum(1) if kind == "alike" else torch.sin(x[:, 0])
    if kind == "constant target":
        y = torch.zeros_like(y)
    if kind == "constant input":
        x, y = torch.zeros_like(x), inputs(1000, 1)[:, 0]
    assert first_lengthscales(x, y[:, None] - y.mean()) is None


def test_a_category_of_two_values_and_several_outputs() -> None:
    x = inputs(1000, 5)
    x[:, 1] = (x[:, 1] > 0.5).double()
    found = first_lengthscales(x, torch.cat([standardised(x[:, 1]), standardised(torch.sin(3 * x[:, 2]))], 1))
    assert found is not None and (found < IDLE).tolist() == [False, True, True, False, False]


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("n", [600, pytest.param(3100, marks=pytest.mark.slow)])
def test_one_input_of_twenty_is_found(n: int) -> None:
    """Searches from equal lengthscales took this sine for noise, whatever the time (RMSE 0.94 of the deviation)."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (n + 500, 20))
    y = np.sin(2 * X[:, 0]) + 0.03 * rng.normal(size=n + 500)
    model = QSGPRegressor(max_time=4.0 * waiting(), random_state=0, device="cpu").fit(X[:n], y[:n])
    assert np.sqrt(np.mean(np.square(model.predict(X[n:]) - y[n:]))) < 0.1
