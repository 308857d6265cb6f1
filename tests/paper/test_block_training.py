"""Training by blocks: unbiased over every draw, a dense step at the full batch, resumed bit for bit."""

import copy
from dataclasses import replace
from itertools import product

import pytest
import torch
from test_step import dense_loss, descended, leaves, sampled_loss

from problems import make_problem, shake
from qsgp.data.arrays import Arrays
from qsgp.likelihoods import Gaussian
from qsgp.paper import block_gradient, block_training, dense
from qsgp.paper.block_training import BlockSteps, draws
from qsgp.paper.blocks import Draw
from qsgp.paper.fitting import Fit, fit
from qsgp.paper.problem import at_hyperparameters
from qsgp.paper.sampling import draw
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start

CONTROLS = ["none", "gram", "kriging"]


def blocks(n_tilde, m_tilde, **options):
    return Settings(n_tilde, m_tilde, draws="blocks", **options)


def prepared(likelihood, settings, *, k, m=6, n=3, outputs=1, weight=None):
    problem = make_problem("fourier", likelihood, n=n, m=m, k=k, n_bar=2)
    y = problem.source.y
    y = torch.stack([y, -y.flip(0)], 1) if outputs == 2 else y
    weight = None if weight is None else torch.tensor(weight, dtype=torch.float64)
    problem = replace(problem, source=Arrays(problem.source.x, y, weight))
    state = shake(start(problem, settings), problem)
    for value in state.theta.values():  # away from the kernel of the support points
        value += 0.2 * torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(3))
    return problem, state


def mean_over_draws(problem, state, settings, starts):
    """Value, gradient of the table and of every hyperparameter over all draws of l and the given starts."""
    given = BlockSteps.of(problem, state, settings).given
    rows = torch.cartesian_prod(*[torch.arange(problem.source.n)] * settings.n_tilde).reshape(-1, settings.n_tilde)
    batches = [Draw(l, torch.tensor(at)) for l in rows for at in starts]
    value, table, theta = 0.0, torch.zeros_like(state.table), dict.fromkeys(state.theta, 0.0)
    for batch in batches:
        found = block_gradient.gradient(given, state, batch, tuple(state.theta))
        value = value + found.value / len(batches)
        table.index_add_(0, found.rows.at, found.table / len(batches))
        theta = {name: theta[name] + found.theta[name] / len(batches) for name in theta}
    return value, table, list(theta.values())


def every_start(problem):
    return list(product(range(problem.basis.m // 2), repeat=2))


def same(found, loss, table, theta):
    value, of_table, of_theta = found
    torch.testing.assert_close(value, 2 * loss.detach(), rtol=1e-9, atol=1e-9)
    for got, wanted in zip([of_table, *of_theta], torch.autograd.grad(loss, [table, *theta.values()]), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("k", "m_tilde"), [(0, 2), (2, 4), (3, 2), (6, 4)])
@pytest.mark.parametrize("control", CONTROLS)
def test_value_and_gradient_are_unbiased_over_every_draw(control, k, m_tilde):
    settings = blocks(2, m_tilde, control=control)
    problem, state = prepared("gaussian", settings, k=k)
    table, theta = leaves(state)
    same(
        mean_over_draws(problem, state, settings, every_start(problem)),
        dense_loss(problem, table, theta, k),
        table,
        theta,
    )


@pytest.mark.parametrize("likelihood", ["gaussian", "laplace", "logistic"])
@pytest.mark.parametrize("control", ["none", "kriging"])
@pytest.mark.parametrize("k", [0, 2])
def test_bound_q_outputs_and_weights_are_unbiased_over_every_draw(likelihood, control, k):
    """Against the scattered objective with everything drawn."""
    settings = blocks(1, 4, control=control, bound="Q")
    problem, state = prepared(likelihood, settings, k=k, outputs=2, weight=[0.5, 1.7, 1.0])
    table, theta = leaves(state)
    everything = draw(3, 6, 3, 6, torch.Generator(), sets=3)
    loss = sampled_loss(problem, state, everything, settings, table, theta)
    same(mean_over_draws(problem, state, settings, every_start(problem)), loss, table, theta)


def test_one_block_for_both_or_no_wrap_around_would_be_biased():
    settings = blocks(1, 2, control="none")
    problem, state = prepared("gaussian", settings, k=2)
    table, theta = leaves(state)
    (wanted,) = torch.autograd.grad(dense_loss(problem, table, theta, 2), [table])
    for starts in ([(s, s) for s in range(3)], list(product(range(2), repeat=2))):
        assert (mean_over_draws(problem, state, settings, starts)[1] - wanted).abs().max() > 0.1


@pytest.mark.parametrize("update", ["row", "entry"])
@pytest.mark.parametrize("control", CONTROLS)
def test_a_full_batch_step_is_a_dense_gradient_step(control, update):
    problem = make_problem("fourier")
    settings = blocks(30, 12, control=control, covariance_update=update, frozen=1.0)
    state = shake(start(problem, settings), problem)
    table, theta = leaves(state)
    (gradient,) = torch.autograd.grad(dense_loss(problem, table, theta, state.k), [table])
    wanted, sums = descended(table.detach(), state.sums.clone(), gradient, settings, state.k)
    BlockSteps.of(problem, state, settings)()
    torch.testing.assert_close(state.table, wanted, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(state.sums, sums, rtol=1e-9, atol=1e-9)
    assert state.t == 1


@pytest.mark.parametrize(
    ("likelihood", "control", "k"),
    [("gaussian", "kriging", 3), ("gaussian", "gram", 0), ("logistic", "kriging", 3), ("laplace", "none", 12)],
)
def test_running_products_stay_those_of_the_table(likelihood, control, k):
    """After many steps with moving hyperparameters: Proposition 3 and Appendix F.3."""
    problem = make_problem("fourier", likelihood, k=k)
    settings = blocks(
        8, 4, control=control, bound="Q", iterations=60, learn_hyperparameters=True, hyper_rate=1e-2, every=20
    )
    state = fit(problem, settings).state
    wanted = shake(copy.deepcopy(state), problem, scale=0.0)
    assert state.t == 60
    torch.testing.assert_close(state.a, wanted.a, rtol=1e-9, atol=1e-9)
    if likelihood != "gaussian":
        torch.testing.assert_close(state.variance, wanted.variance, rtol=1e-9, atol=1e-9)
    first = start(problem, settings).theta
    assert all((state.theta[name] != first[name]).all() for name in first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_resumed_run_ends_bit_for_bit_the_same(monkeypatch, dtype):
    """Across the end of what is drawn at once, records included."""
    monkeypatch.setattr(block_training, "CHUNK", 8)
    problem = make_problem("fourier", dtype=dtype)
    settings = blocks(8, 4, control="kriging", iterations=20, learn_hyperparameters=True, hyper_rate=1e-2, every=6)
    whole = fit(problem, settings)
    half, seen = Fit(start(problem, settings)), []

    def save(result):
        if result.state.t in (1, 13):
            seen.append((copy.deepcopy(result.state.tensors()), list(result.history), list(result.pending)))

    fit(problem, settings, past=half, save=save)
    for tensors, history, pending in seen:
        again = Fit(start(problem, settings))
        again.state.restore(tensors)
        again.history, again.pending = history, pending
        resumed = fit(problem, settings, past=again)
        for name, value in whole.state.tensors().items():
            assert torch.equal(resumed.state.tensors()[name], value), name
        elbos = [record["elbo"] for record in whole.history]
        assert [record["elbo"] for record in resumed.history] == elbos and len(elbos) == 4


def test_a_chevron_ends_at_a_better_bound_than_mean_field():
    """L_Sigma of Eq. (2), exactly, after training by blocks."""
    found = []
    for k in (0, 10):
        problem = make_problem("fourier", n=100, m=30, k=k, n_bar=30)
        problem = replace(problem, likelihood=Gaussian(torch.tensor(1e-3, dtype=torch.float64)))
        rows = fit(problem, blocks(30, 10, iterations=100, control="kriging", every=1000)).state.rows
        columns = problem.basis.columns(torch.arange(30))
        Phi, C = problem.basis.features(problem.source.x, columns), problem.covariance.to_dense(rows.L, rows.log_c)
        sigma2 = problem.likelihood.noise_variance
        found.append(float(dense.covariance_loss(Phi, torch.eye(30, dtype=C.dtype), C, sigma2)))
    assert found[0] > found[1] + 5


def test_rows_drawn_without_replacement_are_equally_likely_and_all_of_them_at_the_full_batch():
    l, at = draws(7, 5, blocks(7, 2), 3, "cpu")
    assert torch.equal(l, torch.arange(7).expand(len(l), 7)) and set(at.flatten().tolist()) == set(range(5))
    # over v = 0 .. n - 1 in each stratum every row is drawn n_tilde times
    n, n_tilde = 7, 3
    v = torch.arange(n)[:, None].expand(n, n_tilde)
    l = (torch.arange(n_tilde) * n + v) // n_tilde
    assert torch.equal(torch.bincount(l.flatten(), minlength=n), torch.full((n,), n_tilde))
    many = torch.cat([draws(n, 5, blocks(n_tilde, 2), chunk, "cpu")[0] for chunk in range(40)])
    share = torch.bincount(many.flatten(), minlength=n) / len(many)
    assert (share - n_tilde / n).abs().max() < 0.03
    assert not torch.equal(draws(50, 5, blocks(7, 2), 0, "cpu")[0], draws(50, 5, blocks(7, 2), 1, "cpu")[0])


def test_steps_before_a_graph_is_recorded_are_taken_back(monkeypatch):
    """What a GPU runs, with the calls of the step in place of the graph."""
    problem = make_problem("fourier", "laplace")
    settings = blocks(8, 4, control="kriging", bound="Q", iterations=20, learn_hyperparameters=True, hyper_rate=1e-2)
    plain, recorded = (start(problem, settings) for _ in range(2))
    once, replay = BlockSteps.of(problem, plain, settings), BlockSteps.of(problem, recorded, settings)
    modes = []

    def replayed(step, _):
        modes.append([step() for _ in range(3)])
        return step

    monkeypatch.setattr(block_training, "replayed", replayed)
    for _ in range(20):
        names = tuple(block_training.moving(recorded, settings))
        if names not in replay.replays:
            replay.replays[names] = replay._recorded(names)
        assert torch.equal(once(), replay())
    assert len(modes) == 2  # with and without hyperparameters
    for name, value in plain.tensors().items():
        assert torch.equal(recorded.tensors()[name], value), name


@pytest.mark.parametrize(
    ("basis", "likelihood", "options", "message"),
    [
        ("inducing", "gaussian", {}, "independent Fourier features"),
        ("fourier", "gaussian", {"m_tilde": 5}, "even m_tilde"),
        ("fourier", "gaussian", {"mean_update": "newton"}, "trains by AdaGrad.*'newton'"),
        ("fourier", "gaussian", {"r_tilde": 1}, "r_tilde = 1.*scattered"),
        ("fourier", "logistic", {"bound": "B"}, "quadratic bound.*'B'.*bound='Q'"),
    ],
)
def test_what_blocks_cannot_do_is_refused(basis, likelihood, options, message):
    settings = replace(blocks(8, 4, control="none"), **options)
    with pytest.raises(ValueError, match=message):
        fit(make_problem(basis, likelihood), settings)


def test_learned_hyperparameters_come_near_those_of_the_dense_gradient():
    """With all rows and functions blocks follow the scattered step, noise and kernel included."""
    problem = make_problem("fourier")
    common = {"control": "none", "iterations": 40, "learn_hyperparameters": True, "hyper_rate": 0.05, "frozen": 0.25}
    by_blocks, scattered = (
        fit(problem, Settings(30, 12, draws=kind, **common)).state for kind in ("blocks", "scattered")
    )
    torch.testing.assert_close(by_blocks.table, scattered.table, rtol=1e-4, atol=1e-5)
    for name, value in scattered.theta.items():
        torch.testing.assert_close(by_blocks.theta[name], value, rtol=1e-5, atol=1e-6)
    moved, _ = at_hyperparameters(problem, by_blocks.theta)
    assert (moved.kernel.lengthscale / problem.basis.kernel.lengthscale).log().abs().min() > 0.05
