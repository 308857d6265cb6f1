"""Training by the dual: what rows held out decide. The door's tests fit whole models this way."""

import math
import threading
from dataclasses import replace

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from qsgp.data.rows import Rows
from qsgp.interrupt import Halt
from qsgp.kernels import Matern12, SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian, LabelsAsNumbers, Laplace, Logistic
from qsgp.posteriors.posteriors import ClosedForm
from qsgp.solvers.system import System
from qsgp.training.held_out import raised, trusted
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.precision import open_between_rows, resolution
from qsgp.training.road_rows import train
from qsgp.training.rows_epochs import Limits, epoch, finished, joined, settled
from qsgp.training.rows_given import Given
from qsgp.training.rows_start import exact_of_first_rows
from qsgp.training.rows_state import init
from qsgp.training.task import Task


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


@pytest.mark.parametrize("rows", [50, 1000])
@pytest.mark.parametrize("classes", [1, 3])
def test_labels_that_are_all_told_leave_half_an_error_in_as_many(rows, classes):
    """No scale of log odds would be large enough for them: new labels would be certain, and some of them wrong."""
    label = torch.ones(rows, 1) if classes == 1 else 2 * torch.eye(3)[torch.arange(rows) % 3] - 1
    numbers, nothing, weight = LabelsAsNumbers(torch.tensor(0.1)), torch.zeros(rows, 1), torch.ones(rows)
    found = raised(numbers, label, 0.9 * label, nothing, weight)
    doubt = 1 - float(found.density_of_class(label, 0.9 * label, nothing.expand_as(label)).exp().mean())
    assert 0.25 / rows < doubt < 1 / rows
    twice = raised(numbers, label, 0.9 * label, nothing, 2 * weight)  # each row given twice
    assert float(twice.scale) >= float(found.scale)

    wrong = torch.arange(rows) % 5 == 0  # a fifth is
    mean = torch.where(wrong[:, None], -label if classes == 1 else label.roll(1, 1), label)
    found = raised(numbers, label, mean, nothing, weight)
    assert 0.1 < 1 - float(found.density_of_class(label, label, nothing.expand_as(label)).exp().mean()) < 0.35


def test_when_predictions_have_settled():
    def history(*scores):
        return tuple({"rmse": rmse, "mnlp": mnlp} for rmse, mnlp in scores)

    same = (1.0, 0.5)
    assert not settled(history(same)) and not settled(history(same, same))
    assert settled(history((1.0, 0.5), (0.999, 0.499), same))
    assert not settled(history((0.99, 0.5), same, same)) and not settled(history(same, (1.0, 0.49), same))
    classes = ({"error": 0.1, "mnlp": 0.0300}, {"error": 0.2, "mnlp": 0.0301}, {"error": 0.1, "mnlp": 0.0300})
    assert settled(classes) and not settled((*classes[1:], {"error": 0.1, "mnlp": 0.031}))


def test_tol_says_how_still_predictions_must_be():
    scores = tuple({"rmse": 1 + 0.01 * k, "mnlp": 0.5} for k in range(3))
    assert not settled(scores) and settled(scores, 0.05) and not settled(scores, 0.015)
    classes = tuple({"error": 0.1, "mnlp": 1 + 0.02 * k} for k in range(3))
    assert not settled(classes) and settled(classes, 0.05) and not settled(classes, 1e-3)
    x, Y = easy(660, 0.1)
    epochs = [
        run(x, Y, sites=Gaussian(torch.tensor(0.01)), options=Options(tol=tol)).iterations for tol in (0.1, None, 1e-3)
    ]
    assert epochs[0] < epochs[1] < epochs[2]


def test_noise_below_the_rounding_of_products_is_not_solved_in_float32():
    kernel, cpu, gpu = SquaredExponential(*hyperparameters(1.0, 80.0, d=2)), Options(), Options(device="cuda")
    tiny, usual = Gaussian(torch.tensor(2e-5)), Gaussian(torch.tensor(1.0))
    x = torch.zeros(1).expand(10**6, 2)
    for options in (cpu, gpu):
        dtype, floor = resolution(kernel, tiny, options, x[:36_000])
        assert dtype == torch.float64 and floor < 1e-4 * 2e-5
        assert resolution(kernel, usual, options, x[:36_000])[0] == torch.float32
        assert resolution(kernel, Logistic(), options, x[:36_000])[0] == torch.float32
        assert resolution(kernel, Laplace(torch.tensor(1e-3)), options, x[:36_000])[0] == torch.float64
    dtype, floor = resolution(kernel, tiny, gpu, x)
    assert dtype == torch.float32 and 1e-3 < floor < 1.0


def test_what_a_rough_kernel_leaves_open_is_like_noise():
    """Rows a tenth of a lengthscale apart: Matern-1/2 stays uncertain between them, a smooth kernel does not."""
    tiny, options = Gaussian(torch.tensor(1e-7)), Options()
    x = 0.1 * torch.arange(2000.0)[torch.randperm(2000, generator=torch.Generator().manual_seed(0)), None]
    rough, smooth = (kind(*hyperparameters(1.0, 1.0, d=1)) for kind in (Matern12, SquaredExponential))
    expected = 0.25 * (1 - math.exp(-0.2))
    assert open_between_rows(rough, x) == pytest.approx(expected, rel=1e-3)
    assert open_between_rows(smooth, x) == 0
    assert resolution(rough, tiny, options, x)[0] == torch.float32
    assert resolution(smooth, tiny, options, x)[0] == torch.float64
    twice = torch.cat([x[:1000], x[:1000]])
    assert open_between_rows(rough, twice) == pytest.approx(0, abs=1e-6)
    assert resolution(rough, tiny, options, twice)[0] == torch.float64


def test_a_solution_that_runs_away_begins_again_with_more_noise(monkeypatch):
    """Products off by -0.005 u u^T make K + D indefinite where K has nothing: blocks drive each other apart."""
    generator = torch.Generator().manual_seed(0)
    n, off = 600, 0.005
    x = 6 * torch.rand(n, 2, generator=generator)
    Y = torch.sin(x[:, :1]) * torch.cos(x[:, 1:]) + 0.01 * torch.randn(n, 1, generator=generator)
    kernel = SquaredExponential(*hyperparameters(2.0, 1.0, d=2))
    u = torch.randn(n, 1, generator=generator)
    plain = System.values

    def rounded(self, block):
        v = u[: len(self.x)] / u[: len(self.x)].norm()
        v = v.to(self.A)
        return plain(self, block) - off * v[block.rows] @ (v.mT @ self.A)

    monkeypatch.setattr(System, "values", rounded)
    options = Options()
    sizes = replace(
        make_plan(n, 2, 1, options).sizes, block=100, held_out=60, variance_points=100, draws=4, exact_rows=50
    )
    halt, sites = Halt(threading.Event(), math.inf), Gaussian(torch.tensor(1e-4))
    trained = train(Task(Rows(x, Y, torch.ones(n)), options, sizes, halt), kernel, sites)
    assert trained.history[1]["iteration"] > 1  # it did run away
    assert trained.history[-1]["rmse"] < 0.05  # a constant leaves 0.5


def easy(n, noise, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 6 * torch.rand(n, 2, generator=generator)
    return x, torch.sin(x[:, :1]) * torch.cos(x[:, 1:]) + noise * torch.randn(n, 1, generator=generator)


def task_of(x, Y, *, seconds=math.inf, options=None, **sizes):
    options = options or Options()
    small = {"block": 100, "held_out": 60, "variance_points": 100, "draws": 4, "exact_rows": 100} | sizes
    sizes = replace(make_plan(len(x), 2, 1, options).sizes, **small)
    return Task(Rows(x, Y, torch.ones(len(x))), options, sizes, Halt(threading.Event(), seconds))


def run(x, Y, *, sites, variance=1.0, **keywords):
    kernel = SquaredExponential(*hyperparameters(2.0, variance, d=2))
    return train(task_of(x, Y, **keywords), kernel, sites)


def test_without_noise_blocks_agree_with_the_exact_gp():
    """Noise 1e-9 of the signal: float32 products would drive blocks apart, blocks of float32 values have no factor."""
    x, Y = easy(660, 0.0)
    trained = run(x, Y, sites=Gaussian(torch.tensor(1e-5)), variance=1e4)
    assert trained.posterior.x.dtype == torch.float64 and len(trained.posterior.x) == 660
    assert trained.history[-1]["rmse"] < 1e-3
    assert trained.history[-1]["rmse"] <= 1.05 * trained.history[0]["rmse"]


def test_training_that_goes_astray_returns_the_exact_gp_it_began_with(monkeypatch):
    """Solutions that are wrong by a tenth everywhere: no residual is watched here, rows held out are."""
    plain = System.solve

    def astray(self, block, f, R, relax=1.0):
        residual = plain(self, block, f, R, relax)
        self.A[block.rows] += 0.1
        return residual

    monkeypatch.setattr(System, "solve", astray)
    x, Y = easy(660, 0.1)
    with pytest.warns(ConvergenceWarning, match="exact GP on 100 of them"):
        trained = run(x, Y, sites=Gaussian(torch.tensor(0.01)))
    assert len(trained.posterior.x) == 100 and trained.history[0]["rmse"] < 0.2


def last_state(task, sites):
    given = Given.of(task, SquaredExponential(*hyperparameters(2.0, 1.0, d=2)), sites)
    state, _ = init(task, given, exact_of_first_rows(task, given))
    while not finished(task, state):
        state, _ = epoch(task, state)
    return state


def test_rows_held_out_that_join_in_a_bad_epoch_do_not_spoil_the_model():
    """A solution that is wrong everywhere just before: one epoch more leaves it worse than the best one."""
    task = task_of(*easy(660, 0.1))
    state = last_state(task, Gaussian(torch.tensor(0.01)))
    bad = replace(state, system=replace(state.system, A=state.system.A + 10.0))
    assert joined(task, bad) is state.best
    both = joined(task, state)
    assert len(state.best.x) == 600 and len(both.x) == 660


def test_an_epoch_tells_what_only_people_need():
    task = task_of(*easy(660, 0.1))
    given = Given.of(task, SquaredExponential(*hyperparameters(2.0, 1.0, d=2)), Gaussian(torch.tensor(0.01)))
    first, _ = init(task, given, exact_of_first_rows(task, given))
    assert not finished(task, first) and first.best_is_exact and first.epochs == 0
    state, info = epoch(task, first)
    assert info.record["iteration"] == state.epochs == 1 and info.record["phase"] == "mean and draws"
    assert info.scores == state.scores[-1] and info.record["residual"] == state.residual
    assert first.epochs == 0 and not first.judged  # a state is not changed but for its tensors
    assert finished(task, state, Limits(epochs=1))
    with_two, _ = epoch(task, state, Limits(draws_epochs=1))
    assert with_two.system.A.shape[1] == 1 and state.system.A.shape[1] == 5


def test_rows_that_fit_into_the_exact_gp_are_all_in_it():
    """No cliff: one row more than the closed form takes is solved exactly, too."""
    x, Y = easy(660, 0.1)
    trained = run(x, Y, sites=Gaussian(torch.tensor(0.01)), exact_rows=700)
    assert len(trained.posterior.x) == 660 and len(trained.history) == 1
    kernel = SquaredExponential(*hyperparameters(2.0, 1.0, d=2, dtype=torch.float64))
    exact = ClosedForm.build(
        kernel, Gaussian(torch.tensor(0.01).double()), x.double(), Y.double(), torch.ones(660).double()
    )
    new = easy(50, 0.0, seed=1)[0]
    for found, expected in zip(trained.posterior.latent(new), exact.latent(new), strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=0.3, atol=1e-4)  # the trust in the variance differs


@pytest.mark.parametrize("sites", [Laplace(torch.tensor(0.05)), Laplace(torch.tensor(1e-4))])
def test_other_sites_begin_with_an_exact_gp_too(sites):
    x, Y = easy(660, 0.0)
    trained = run(x, Y, sites=sites, options=Options(likelihood="laplace"))
    assert trained.history[0]["phase"] == "exact GP on some rows" and trained.history[0]["rmse"] < 0.2
    assert trained.history[-1]["rmse"] < 0.1


def test_a_clock_that_has_run_out_leaves_the_exact_gp():
    x, Y = easy(3300, 0.1)
    with pytest.warns(ConvergenceWarning, match="There was time for the exact GP on 400 of 3,300 rows"):
        trained = run(
            x, Y, sites=Gaussian(torch.tensor(0.01)), seconds=0.01, options=Options(max_time=0.01), exact_rows=3000
        )
    assert len(trained.posterior.x) == 400 and trained.history[-1]["rmse"] < 0.2


@pytest.mark.parametrize("wide", [1.0, 10.0])
def test_variances_of_unfinished_draws_are_narrowed_and_right_ones_are_not(wide):
    generator = torch.Generator().manual_seed(0)
    mean, true = torch.zeros(2000, 1), 0.02 + 0.1 * torch.rand(2000, 1, generator=generator)
    Y = (true + 0.01).sqrt() * torch.randn(2000, 1, generator=generator)
    found = trusted(Gaussian(torch.tensor(0.01)), Y, mean, wide * true, torch.ones(2000))
    assert found == 1.0 if wide == 1.0 else 0.07 < found < 0.15


def test_rows_that_say_little_of_the_variance_of_f_narrow_it_little():
    """Where noise outweighs it, the most probable share of 100 rows is often 0; what they allow is what counts."""
    generator = torch.Generator().manual_seed(0)
    mean, variance, found = torch.zeros(100, 1), torch.full((100, 1), 0.01), []
    for _ in range(200):
        Y = (0.01 + 0.1) ** 0.5 * torch.randn(100, 1, generator=generator)
        found.append(trusted(Gaussian(torch.tensor(0.1)), Y, mean, variance, torch.ones(100)))
    assert sum(share == 1.0 for share in found) > 190  # and the sum of 1 / share is that of squared errors
    assert sum(1 / share for share in found) / len(found) < 1.5
    assert trusted(Gaussian(torch.tensor(0.1)), Y, mean * math.nan, variance, torch.ones(100)) == 1.0


@pytest.mark.slow
def test_draws_end_before_the_mean_does(monkeypatch):
    """After their share of the time, or some epochs, the columns of draws stay as they are and the mean goes on."""
    generator, n, widths = torch.Generator().manual_seed(0), 600, []
    x = 6 * torch.rand(n, 2, generator=generator)
    Y = torch.sin(3 * x[:, :1]) + 0.1 * torch.randn(n, 1, generator=generator)
    kernel, options = SquaredExponential(*hyperparameters(1.0, 1.0, d=2)), Options()
    sizes = replace(
        make_plan(n, 2, 1, options).sizes, block=10, held_out=60, variance_points=50, draws=4, exact_rows=50
    )
    plain = System.values
    monkeypatch.setattr(System, "values", lambda self, block: (widths.append(self.A.shape[1]), plain(self, block))[1])
    halt, sites = Halt(threading.Event(), math.inf), Gaussian(torch.tensor(0.01))
    task = Task(Rows(x, Y, torch.ones(n)), options, sizes, halt)
    trained = train(task, kernel, sites, Limits(draws_epochs=2))
    assert widths[: 2 * 54] == [5] * 108 and set(widths[108:]) == {1}
    assert len(trained.history) > 1 + math.sqrt(54)  # what acceleration takes to show
    assert trained.posterior.A.shape[1] == 5 and trained.history[-1]["rmse"] < 0.12
    mean, variance = trained.posterior.latent(x[-60:])
    assert mean.shape == (60, 1) and bool((variance > 0).all())
