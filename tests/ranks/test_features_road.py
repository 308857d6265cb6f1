"""Steps over features that ranks share: the same draws, the same sums, the same model as in one process."""

import os
import signal
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

import qsgp
from problems import make_problem, shake
from qsgp import QSGPRegressor
from qsgp.data.rows import Rows as Data
from qsgp.files import read_model
from qsgp.paper import block_gradient, dense
from qsgp.paper.block_training import BlockSteps
from qsgp.paper.blocks import Draw
from qsgp.paper.fitting import _stepper, fit
from qsgp.paper.prediction import predict
from qsgp.paper.problem import at_hyperparameters
from qsgp.paper.settings import Settings
from qsgp.paper.sharing import Shares
from qsgp.paper.starting import start
from qsgp.paper.state import Rows
from qsgp.ranks import ALONE, present
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.road_steps import posterior_of
from qsgp.training.train import train
from ranking import together


@pytest.mark.parametrize(("pairs", "size"), [(1, 2), (7, 3), (64, 4), (1000, 2), (1001, 7)])
def test_every_pair_belongs_to_one_rank_and_knows_its_place(pairs, size):
    every, owned = torch.arange(pairs), []
    for rank in range(size):
        shares = Shares(pairs, replace(ALONE, rank=rank, size=size))
        mine, at = shares.split(every)
        assert at.tolist() == list(range(shares.own // 2))  # places in order, none left free
        functions = shares.functions(torch.arange(shares.own))
        assert functions.tolist() == [2 * pair + parity for pair in every[mine].tolist() for parity in (0, 1)]
        assert shares.part(torch.arange(2.0 * pairs)[:, None])[:, 0].tolist() == functions.tolist()
        owned.append(mine)
    assert torch.stack(owned).sum(0).tolist() == [1] * pairs


@pytest.mark.parametrize("apart", [1, 2, 3, 4, 61, 4096, 48_828, 2**17])
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_blocks_of_pairs_at_any_distance_are_shared_evenly(size, apart):
    """No rank has a third more than its part, where pair modulo size would often give one rank all of them."""
    block = 12_345 + apart * torch.arange(1024)
    for rank in range(size):
        mine, _ = Shares(10**9, replace(ALONE, rank=rank, size=size)).split(block)
        assert abs(int(mine.sum()) - 1024 / size) < 0.34 * 1024 / size


def shaken(k, settings, **sizes):
    """A problem and a state; hyperparameters away from the kernel of the support points."""
    problem = make_problem("fourier", k=k, **sizes)
    state = shake(start(problem, settings), problem)
    for value in state.theta.values():
        value += 0.2 * torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(3))
    return problem, state


def mean_over_draws(k, control):
    """Value and gradients over every draw of rows and blocks: what the ranks know of the table, put together."""
    settings = Settings(2, 4, draws="blocks", control=control)
    problem, state = shaken(k, settings, n=3, m=6, n_bar=2)
    if present().size > 1:
        problem = problem.shared(present())
        state = replace(state, table=problem.shares.part(state.table), sums=problem.shares.part(state.sums))
    given = BlockSteps.of(problem, state, settings).given
    rows = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    batches = [Draw(l, torch.tensor(at)) for l in rows for at in product(range(3), repeat=2)]
    value, table, theta = 0.0, torch.zeros_like(state.table), dict.fromkeys(state.theta, 0.0)
    for batch in batches:
        found = block_gradient.gradient(given, state, batch, tuple(state.theta))
        value += float(found.value) / len(batches)
        table.index_add_(0, found.rows.at, found.table / len(batches))
        theta = {name: theta[name] + found.theta[name] / len(batches) for name in theta}
    table = table if problem.shares is None else problem.shares.whole(table)
    return [part.numpy() for part in (torch.tensor(value, dtype=torch.float64), table, *theta.values())]


def exactly(k, control):
    """The negative ELBO of all rows and functions by the dense twins, and its gradients."""
    problem, state = shaken(k, Settings(2, 4, draws="blocks", control=control), n=3, m=6, n_bar=2)
    table = state.table.clone().requires_grad_()
    theta = {name: value.clone().requires_grad_() for name, value in state.theta.items()}
    basis, likelihood = at_hyperparameters(problem, theta)
    rows, y, sigma2 = Rows.of(table, 1, k), problem.source.y, likelihood.noise_variance
    Phi, S = basis.features(problem.source.x, basis.columns(torch.arange(6))), torch.eye(6, dtype=y.dtype)
    loss = dense.mean_loss(y, Phi, S, rows.mu[:, 0], sigma2) + dense.constant_loss(y, S, sigma2)
    loss = loss + dense.covariance_loss(Phi, S, problem.covariance.to_dense(rows.L, rows.log_c), sigma2)
    gradients = torch.autograd.grad(0.5 * loss, [table, *theta.values()])
    return [part.numpy() for part in (loss.detach(), *gradients)]


@pytest.mark.parametrize(("k", "control", "size"), [(0, "kriging", 2), (2, "gram", 3)])
def test_what_ranks_estimate_is_unbiased_over_every_draw(k, control, size):
    """Value and gradient of the table and of every hyperparameter, beside the exact ones."""
    wanted = exactly(k, control)
    for found in together(size, mean_over_draws, k, control):
        for got, part in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, part, rtol=1e-9, atol=1e-9)


def trained(k, dtype=torch.float64, likelihood="gaussian", **how):
    """What a rank has, and what all know in the end: predictions, coherent draws, the table, what is known at the
    support points, hyperparameters and records."""
    problem = make_problem("fourier", likelihood, n=200, m=64, n_bar=12, k=k, dtype=dtype)
    problem = problem.shared(present()) if present().size > 1 else problem
    how = {"draws": "blocks", "control": "kriging", "iterations": 60, "learn_hyperparameters": True} | how
    found = fit(problem, Settings(20, 16, every=20, hyper_rate=1e-2, **how))
    state, x = found.state, problem.source.x[:40]
    posterior, _ = posterior_of(problem, state, relevance=False)
    mean, variance = posterior.latent(x)
    draws, elbo = posterior.sample(x, 3, seed=1), torch.tensor([record["elbo"] for record in found.history])
    first = predict(problem, state, x).mean
    parts = (
        mean,
        posterior.mean(x),
        first,
        variance,
        draws,
        posterior.whole().table,
        state.a,
        elbo,
        *state.theta.values(),
    )
    return len(state.table), [part.double().numpy() for part in parts]


STEPS = {
    "blocks": (0, {}),
    "dense columns": (3, {}),
    "scattered": (2, {"draws": "scattered"}),
    "sampled columns": (6, {"draws": "scattered", "r_tilde": 2, "control": "gram"}),
    "labels": (2, {"draws": "scattered", "likelihood": "logistic"}),
    "one block for all": (2, {"control": "gram", "covariance_update": "entry"}),
}


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("blocks", 2),
        ("dense columns", 4),
        ("scattered", 3),
        *[pytest.param(name, 2, marks=pytest.mark.slow) for name in list(STEPS)[3:]],
    ],
)
def test_ranks_train_what_one_process_trains(name, size):
    k, how = STEPS[name]
    _, alone = trained(k, **how)
    ranks = together(size, partial(trained, **how), k)
    for _, found in ranks:
        for got, wanted in zip(found, alone, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
    assert sum(own for own, _ in ranks) == 64 and max(own for own, _ in ranks) < 64 / size + 2
    assert np.ptp(alone[0]) > 0.5  # they have learned something


@pytest.mark.parametrize("draws", ["blocks", "scattered"])
def test_in_float32_they_agree_to_four_digits(draws):
    how = {"dtype": torch.float32, "draws": draws}
    _, alone = trained(0, **how)
    for _, found in together(2, partial(trained, **how), 0):
        for got, wanted in zip(found[:4], alone[:4], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def moved(n, m, draws):
    """Bytes of a step on this rank."""
    problem = make_problem("fourier", n=n, m=m, k=0, n_bar=12, dtype=torch.float32).shared(present())
    settings = Settings(20, 16, draws=draws, control="kriging")
    advance = _stepper(problem, start(problem, settings), settings)
    advance()
    before = present().moved
    advance()
    return present().moved - before


@pytest.mark.parametrize(
    ("draws", "numbers"),
    [
        ("blocks", 20 + 12 + 12 + 12 + 1),  # j at rows and at support points, i there twice, the value
        ("scattered", (16 + 16) * 4),  # mu and log_c of i and j, and their sums
    ],
)
def test_traffic_depends_on_neither_n_nor_m(draws, numbers):
    assert together(2, moved, 100, 4000, draws) == together(2, moved, 5000, 50_000, draws) == [4 * numbers] * 2


def test_other_functions_are_not_shared():
    with pytest.raises(ValueError, match="Expected Fourier features to share among ranks, got Inducing"):
        make_problem("inducing", k=0).shared(present())


# --- through the door ----------------------------------------------------------------------------------------------

N = 190  # few enough for none to be held out: the exact GP would be returned instead of so few steps
ASKED = {"n_features": 64, "batch_features": 16, "batch_points": 20, "support_points": 12, "max_iter": 100}


def wave():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (N, 2))
    return X, 5 + 3 * np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=N)


def fitted(folder, **keywords):
    """What a user's script finds; the file is read again by this process alone."""
    X, y = wave()
    how = {"kernel": "rbf", "random_state": 0, "dtype": "float64"} | ASKED | keywords
    model = QSGPRegressor(**how).fit(X, y)
    found = *model.predict(X[:30], return_std=True), model.sample_y(X[:30], 2, random_state=1)
    path = folder / "model.qsgp"
    model.save(path)
    read = qsgp.load(path)
    elbo = [record["elbo"] for record in model.history_]
    table = read._posterior.table
    return [*found, np.array(elbo), table.numpy(), *read.predict(X[:30], return_std=True)], str(model.plan_)


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_an_estimator_finds_the_same_model_and_file_on_ranks(size, tmp_path):
    alone, _ = fitted(tmp_path)
    names = read_model(tmp_path / "model.qsgp")[1].keys()
    for found, plan in together(size, fitted, tmp_path):
        assert f"{size} ranks share the features, about {64 // size} each" in plan
        for got, wanted in zip(found, alone, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
    header, tensors = read_model(tmp_path / "model.qsgp")
    assert tensors.keys() == names and tensors["table"].shape == (64, 2) and header["posterior"]["m"] == 64


def test_what_ranks_do_not_share_each_trains_by_itself():
    features = {"n_features": 64, "batch_features": 16, "ranks": 2}
    for shared in (Options(**features), Options(**features, likelihood="laplace")):
        assert "2 ranks share the features, about 32 each" in str(make_plan(N, 9, 1, shared))
    for alone in (Options(**features, basis="grid"), Options(n_features=64, ranks=2)):
        assert "Each of the 2 ranks trains the same model" in str(make_plan(N, 9, 1, alone))


def steps_of(folder, killed, **options):
    """Steps of a run with a folder; rank 1 may be killed at the second record."""
    X, y = wave()
    rows = Data(torch.tensor(X), torch.tensor(y - y.mean())[:, None], torch.ones(N, dtype=torch.float64))
    how = Options(kernel="rbf", dtype=torch.float64, checkpoint=folder, checkpoint_seconds=0.0, ranks=present().size)
    how = replace(how, **ASKED, learn_hyperparameters=False, **options)

    def report(record, posterior):
        assert posterior().mean(rows.x[:3]).isfinite().all()
        if killed and record["iteration"] > 50 and present().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    found = train(rows, how, make_plan(N, 2, 1, how), report)
    elbo = [record["elbo"] for record in found.history]
    return [*(part.numpy() for part in found.posterior.latent(rows.x[:30])), np.array(elbo)]


def test_a_run_that_lost_a_rank_goes_on_with_another_number(tmp_path):
    whole = steps_of(None, False)
    first, second = together(2, steps_of, str(tmp_path), True)
    assert second is None and first[0] == "LostRanks"
    for found in together(3, steps_of, str(tmp_path), False):
        for got, wanted in zip(found, whole, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
    assert len(whole[2]) == 50


def one_presses_stop():
    """Rank 1 asks for the end after some records: the first rank decides, and says no."""
    X, y = wave()
    rows = Data(torch.tensor(X), torch.tensor(y - y.mean())[:, None], torch.ones(N, dtype=torch.float64))
    how = replace(Options(kernel="rbf", dtype=torch.float64, ranks=2), **ASKED, learn_hyperparameters=False)
    return train(rows, how, make_plan(N, 2, 1, how), lambda record, _: present().rank == 1).iterations


def test_the_first_rank_alone_decides_when_to_stop():
    assert together(2, one_presses_stop) == [100, 100]
