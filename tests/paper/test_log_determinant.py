"""log |S| of a dense S from sampled rows: exact on average, with its gradient; near it with short lists; flat in m."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from test_step import dense_loss, every_batch, leaves, sampled_loss

from enumeration import assert_same
from problems import make_problem, shake
from qsgp.bases import Inducing
from qsgp.kernels import Matern32, SquaredExponential, hyperparameters
from qsgp.paper import dense
from qsgp.paper.fitting import fit
from qsgp.paper.log_determinant import Looked, level_sizes, log_determinant, look, nearest_earlier
from qsgp.paper.problem import at_hyperparameters
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start

FIRST, CHANCE = 1, 0.3


def inducing(m, d=2, kernel=Matern32, dtype=torch.float64, length=1.0):
    Z = torch.randn(m, d, generator=torch.Generator().manual_seed(m)).to(dtype)
    return Inducing(kernel(*hyperparameters(length, 1.3, d=d, dtype=dtype)), Z)


def exact(basis):
    columns = basis.columns(torch.arange(basis.m))
    return torch.logdet(basis.precision(columns, columns))


def every_look(m, levels, chance):
    """Each row with each level, and how probable it is."""
    for row, level in product(range(m), range(levels)):
        probability = chance**level * (1 - chance if level < levels - 1 else 1.0)
        yield Looked(torch.tensor([row]), torch.tensor([level])), probability / m


def test_the_average_over_every_look_is_the_log_determinant_with_its_gradient():
    basis = inducing(6)
    parameters = {name: value.requires_grad_() for name, value in basis.kernel.parameters().items()}
    basis = replace(basis, kernel=basis.kernel.with_parameters(parameters))
    earlier = nearest_earlier(basis, most=5)
    assert level_sizes(5, FIRST) == [1, 2, 4, 5]
    found = sum(
        probability * log_determinant(basis, earlier, looked, first=FIRST, chance=CHANCE)
        for looked, probability in every_look(6, 4, CHANCE)
    )
    assert_same(found, exact(basis), list(parameters.values()), 1e-6)


def test_looks_have_the_probabilities_that_their_weights_undo():
    looked = look(7, 40_000, 4, torch.Generator().manual_seed(0), CHANCE)
    shares = torch.bincount(looked.levels, minlength=4) / 40_000
    wanted = torch.tensor([0.7, 0.7 * 0.3, 0.7 * 0.09, 0.027])
    torch.testing.assert_close(shares, wanted, rtol=0, atol=0.01)
    torch.testing.assert_close(torch.bincount(looked.rows) / 40_000, torch.full((7,), 1 / 7), rtol=0, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_short_lists_are_near_and_never_below(dtype):
    basis = inducing(400, 3, dtype=dtype)
    wanted = exact(inducing(400, 3)).item()
    found = []
    for most in (8, 32, 128):
        earlier = nearest_earlier(basis, most)
        last = len(level_sizes(earlier.shape[1])) - 1
        everything = Looked(torch.arange(400), torch.full((400,), last))
        found.append(log_determinant(basis, earlier, everything, chance=1.0).item() - wanted)
    slack = 1e-6 if dtype == torch.float64 else 0.1
    assert found[0] > found[1] > found[2] - slack > -2 * slack
    assert found[1] < 1e-2 * abs(wanted) and found[2] < 1e-3 * abs(wanted)


def test_lists_hold_the_strongest_of_the_earlier_functions():
    basis = inducing(1500)  # more than one block of rows
    earlier = nearest_earlier(basis, 4)
    assert earlier[0].tolist() == [-1] * 4 and sorted(earlier[2].tolist()) == [-1, -1, 0, 1]
    distance = (basis.Z[1400] - basis.Z[:1400]).norm(dim=1)
    assert earlier[1400].tolist() == distance.argsort()[:4].tolist()


@pytest.mark.parametrize("kernel", [SquaredExponential, Matern32])
def test_functions_that_cannot_be_told_apart_have_a_finite_log_determinant(kernel):
    for dtype in (torch.float64, torch.float32):
        basis = inducing(300, 1, kernel, dtype, length=30.0)
        basis = replace(basis, Z=torch.cat([basis.Z, basis.Z[:50]]))
        looked = look(350, 64, 5, torch.Generator().manual_seed(0))
        assert log_determinant(basis, nearest_earlier(basis), looked).isfinite()


def problem_of(n=4, m=4, **keywords):
    problem = make_problem("inducing", n=n, m=m, k=1, n_bar=2, **keywords)
    return replace(problem, earlier=nearest_earlier(problem.basis, m))


@pytest.mark.parametrize("likelihood", ["gaussian", "logistic"])
def test_the_objective_with_log_s_is_unbiased_in_the_hyperparameters(likelihood):
    """Value and gradient of every hyperparameter, averaged over all batches and all looks, as for a diagonal S."""
    problem = problem_of(likelihood=likelihood)
    settings = Settings(n_tilde=4, m_tilde=4, control="none", bound="A", determinant_rows=1)
    state = shake(start(problem, settings), problem)
    table, theta = leaves(state)
    (batch,) = every_batch(4, 4, 4, 4, sets=2)
    levels = len(level_sizes(problem.earlier.shape[1]))
    got = sum(
        probability * sampled_loss(problem, state, replace(batch, looked=looked), settings, table, theta)
        for looked, probability in every_look(4, levels, 2**-1.5)
    )
    basis, sites = at_hyperparameters(problem, theta)
    columns = basis.columns(torch.arange(4))
    S = basis.precision(columns, columns)
    wanted = dense_loss(problem, table, theta, state.k)
    if likelihood == "gaussian":
        wanted = wanted + 0.5 * dense.constant_loss(problem.source.y, S, sites.noise_variance)
    else:
        wanted = wanted - 0.5 * (torch.logdet(S) + len(S))
    assert_same(got, wanted, [table, *theta.values()], 1e-6)


def test_hyperparameters_of_a_dense_prior_are_learned():
    """With a full C the bound is the evidence, and training raises it; without log |S| it would shrink the kernel."""
    settings = Settings(
        n_tilde=30, m_tilde=12, iterations=120, rate=0.1, hyper_rate=0.05, frozen=0.1, control="none",
        learn_hyperparameters=True, determinant_rows=4,
    )  # fmt: skip
    problem = make_problem("inducing", n=30, m=12, k=12)
    problem = replace(problem, earlier=nearest_earlier(problem.basis, 11))

    def bound(state):
        basis, sites = at_hyperparameters(problem, state.theta)
        columns = basis.columns(torch.arange(12))
        S = basis.precision(columns, columns)
        constant = dense.constant_loss(problem.source.y, S, sites.noise_variance)
        return -(dense_loss(problem, state.table, state.theta, 12) + 0.5 * constant).item()

    learned = fit(problem, settings).state
    fixed = fit(problem, replace(settings, learn_hyperparameters=False)).state
    assert bound(learned) > bound(fixed) + 1
