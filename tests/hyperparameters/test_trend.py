"""Lengthscales for many rows: shorter where their trend is confirmed, as they are where it is not."""

import math
import threading
from dataclasses import replace

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.hyperparameters.trend import STEEPEST, Trying, effective, followed, scaled, surely_less, trend
from qsgp.interrupt import Halt
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.road_rows import train
from qsgp.training.task import Task


def rough(n, seed=0):
    """A cone, which no lengthscale suits for ever: the more rows, the shorter."""
    generator = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(n, 2, generator=generator) - 2
    return Rows(x, x.norm(dim=1, keepdim=True) + 0.02 * torch.randn(n, 1, generator=generator), torch.ones(n))


def smooth(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(n, 2, generator=generator) - 2
    f = torch.exp(-0.5 * x.square().sum(1, keepdim=True))  # the kernel itself, with its lengthscale
    return Rows(x, f + 0.02 * torch.randn(n, 1, generator=generator), torch.ones(n))


def kernel(lengthscale=1.0):
    return SquaredExponential(*hyperparameters(lengthscale, 1.0, d=2))


def sites():
    return Gaussian(torch.tensor(0.02**2))


def found(data, first, **keywords):
    trying = Trying(**{"block": 200, "seed": 0} | keywords)
    return followed(first, sites(), data, torch.full((data.n, 1), 0.02**2), (200, 200), trying)


def test_the_evidence_of_more_rows_asks_for_shorter_lengthscales_of_a_cone():
    power = trend(kernel(), sites(), rough(800), lambda: False)
    assert STEEPEST <= power < -0.02
    assert trend(kernel(), sites(), rough(800), lambda: True) == 0.0  # no time: no trend


def test_inputs_of_no_use_do_not_count():
    with_useless = SquaredExponential(*hyperparameters(torch.tensor([1.0, 1.0, 1e4]), 1.0, d=3))
    assert effective(with_useless) == pytest.approx(effective(kernel()), rel=1e-6)


def test_a_trend_that_is_confirmed_is_followed_to_all_rows(monkeypatch):
    monkeypatch.setattr("qsgp.hyperparameters.trend.trend", lambda *_: -0.1)
    first = kernel(2.0)  # too long for 1,000 rows of a cone
    data = rough(4000)
    last, trials = found(data, first)
    assert [trial.kernel.lengthscale[0].item() for trial in trials] == pytest.approx([2.0, 2.0 * 5**-0.1])
    assert trials[1].rmse < trials[0].rmse
    torch.testing.assert_close(last.lengthscale, first.lengthscale * 20**-0.1)
    torch.testing.assert_close(last.variance, first.variance)


def test_a_trend_that_others_do_not_confirm_is_not(monkeypatch):
    monkeypatch.setattr("qsgp.hyperparameters.trend.trend", lambda *_: -0.1)
    first = kernel(1.0)
    last, trials = found(smooth(4000), first)
    assert len(trials) == 2 and torch.equal(last.lengthscale, first.lengthscale)


def test_without_a_trend_or_time_nothing_is_tried(monkeypatch):
    monkeypatch.setattr("qsgp.hyperparameters.trend.trend", lambda *_: 0.0)
    first = kernel(2.0)
    last, trials = found(rough(1000), first)
    assert last is first and trials == []
    monkeypatch.setattr("qsgp.hyperparameters.trend.trend", lambda *_: -0.1)
    visits = []
    last, trials = found(rough(4000), first, halt=lambda: visits.append(1) or len(visits) > 40)
    assert len(trials) == 1 and last is first  # five blocks, six epochs: in the middle of the second


@pytest.mark.slow
def test_many_blocks_are_accelerated(monkeypatch):
    monkeypatch.setattr("qsgp.hyperparameters.trend.trend", lambda *_: -0.1)
    many = [trial.rmse for trial in found(rough(4000), kernel(2.0), block=25)[1]]
    monkeypatch.setattr("qsgp.solvers.system.MANY_BLOCKS", math.inf)
    plain = [trial.rmse for trial in found(rough(4000), kernel(2.0), block=25)[1]]
    assert many == pytest.approx(plain, rel=0.3) and many != pytest.approx(plain, rel=1e-3)


def test_a_gain_must_be_more_than_chance():
    generator = torch.Generator().manual_seed(0)
    before, by_chance = torch.rand(2, 1000, generator=generator, dtype=torch.float64)
    one = torch.ones(1000)
    assert not surely_less(by_chance, before, one) and not surely_less(before, by_chance, one)
    assert surely_less(before - 0.001, before, one)  # pairs: far less than errors vary
    gains = 0.1 + torch.randn(1000, generator=generator, dtype=torch.float64)  # three standard errors of their mean
    assert surely_less(before - gains, before, one) and not surely_less((before - gains)[:100], before[:100], one[:100])
    assert not surely_less(before, before, one)
    assert not surely_less(before * math.nan, before, one)
    weight = torch.cat([torch.full((500,), 3.0), torch.full((500,), 0.0)])
    better = before - torch.cat([torch.full((500,), 0.1), torch.full((500,), -0.2)])
    assert surely_less(better, before, weight) and not surely_less(better, before, one)


def trained(learn_most, learn=True, outputs=1):
    n, options = 3600, Options(learn_hyperparameters=learn)
    x, Y, weight = rough(n)
    if outputs > 1:
        Y, weight = torch.cat([Y, -Y], 1), 1.0 + torch.arange(n) % 3
    sizes = make_plan(n, 2, outputs, options).sizes
    sizes = replace(sizes, block=400, held_out=300, variance_points=100, draws=4, learn_points=200)
    sizes = replace(sizes, learn_most=learn_most, exact_rows=200)
    halt = Halt(threading.Event(), math.inf)
    return train(Task(Rows(x, Y, weight), options, sizes, halt), kernel(2.0), sites())


def test_training_follows_the_trend_where_rows_are_many():
    many, few = trained(200), trained(300)
    phases = [record["phase"] for record in many.history]
    assert phases[1:4] == ["lengthscales", "lengthscales", "mean and draws"]
    assert all(record["phase"].startswith("mean") for record in few.history[1:])
    shorter, usual = many.posterior.kernel.lengthscale, few.posterior.kernel.lengthscale
    assert bool((shorter < 0.95 * usual).all())
    torch.testing.assert_close(many.posterior.spread.kernel.lengthscale, shorter)
    assert many.history[-1]["rmse"] < few.history[-1]["rmse"]


@pytest.mark.slow
def test_several_outputs_and_weights_follow_it_too():
    found = trained(200, outputs=2)
    assert [record["phase"] for record in found.history[1:3]] == ["lengthscales"] * 2
    assert bool((found.posterior.kernel.lengthscale < 1.9).all()) and found.history[-1]["rmse"] < 0.05


def test_a_trend_that_is_no_number_is_none(monkeypatch):
    monkeypatch.setattr("qsgp.hyperparameters.trend.effective", lambda _: math.inf)
    assert trend(kernel(), sites(), rough(80), lambda: False) == 0.0


def test_lengthscales_that_were_given_are_not_touched():
    assert torch.equal(trained(200, learn=False).posterior.kernel.lengthscale, kernel(2.0).lengthscale)


def test_a_factor_of_one_changes_nothing():
    assert torch.equal(scaled(kernel(1.4), 1.0).lengthscale, kernel(1.4).lengthscale)
