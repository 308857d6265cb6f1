"""The closed form against the exact GP, numerical integration and repeated rows."""

import pytest
import torch

from qsgp import metrics
from qsgp.data.rows import Rows
from qsgp.kernels import Matern32, SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.paper import dense
from qsgp.solvers.closed_form import Effort, Sites, density_of_others, fit_hyperparameters, solve, tighten


def problem(n=25, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = 3 * torch.rand(n, 2, generator=g, dtype=torch.float64)
    y = torch.sin(2 * x[:, 0]) + 0.2 * torch.randn(n, generator=g, dtype=torch.float64)
    kernel = SquaredExponential(torch.tensor([0.7, 1.5], dtype=torch.float64), torch.tensor(1.2, dtype=torch.float64))
    return kernel, x, y, torch.ones(n, dtype=torch.float64)


def likelihood_of(name):
    scale = torch.tensor(0.3, dtype=torch.float64)
    return {"gaussian": Gaussian(scale), "laplace": Laplace(scale), "logistic": Logistic()}[name]


def labels(name, y):
    return torch.where(y > 0, 1.0, -1.0).double() if name == "logistic" else y


def test_gaussian_sites_give_the_exact_gp():
    kernel, x, y, one = problem()
    likelihood, Gram = likelihood_of("gaussian"), kernel(x, x)
    solved = solve(Gram, Sites.of(likelihood, y, tighten(Gram, likelihood, y, one), one))
    torch.testing.assert_close(solved.evidence, dense.log_marginal_likelihood(Gram, y, likelihood.noise_variance))
    mean, variance = dense.gaussian_process(kernel, x, y, likelihood.noise_variance, x[:7] + 0.1)
    k_star = kernel(x, x[:7] + 0.1)
    half = torch.linalg.solve_triangular(solved.factor, solved.sites.root[:, None] * k_star, upper=False)
    torch.testing.assert_close(k_star.mT @ solved.alpha, mean, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(kernel.diag(x[:7]) - half.square().sum(0), variance, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["laplace", "logistic"])
def test_the_evidence_is_a_lower_bound_that_tightening_raises(name):
    """One point: the true evidence is a one-dimensional integral."""
    likelihood, one = likelihood_of(name), torch.ones(1, dtype=torch.float64)
    y, Gram = labels(name, 0.4 * one), torch.full((1, 1), 1.5, dtype=torch.float64)
    truth = likelihood.log_density(y, 0 * one, Gram[0])[0]
    best = solve(Gram, Sites.of(likelihood, y, tighten(Gram, likelihood, y, one), one)).evidence
    assert truth - 0.3 < best < truth
    for other in (0.2, 3.0):
        assert solve(Gram, Sites.of(likelihood, y, other * one, one)).evidence < best


@pytest.mark.parametrize("name", ["gaussian", "laplace", "logistic"])
def test_weights_are_repeats_and_zero_is_absence(name):
    kernel, x, y, one = problem()
    y, likelihood = labels(name, y), likelihood_of(name)
    weight = one.clone()
    weight[:5], weight[5:9] = 2.0, 0.0
    keep = torch.cat([torch.arange(5), torch.arange(5), torch.arange(9, 25)])
    kernels = []
    for inputs, targets, weights in ((x, y, weight), (x[keep], y[keep], torch.ones(len(keep), dtype=torch.float64))):
        Gram = kernel(inputs, inputs)
        xi = tighten(Gram, likelihood, targets, weights)
        solved = solve(Gram, Sites.of(likelihood, targets, xi, weights))
        kernels.append((solved.evidence, kernel(x[:6] + 0.2, inputs) @ solved.alpha))
    torch.testing.assert_close(kernels[0][0], kernels[1][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kernels[0][1], kernels[1][1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "logistic"])
def test_hyperparameters_raise_the_evidence(name):
    kernel, x, y, one = problem(40)
    y, likelihood = labels(name, y), likelihood_of(name)
    wide = SquaredExponential(torch.full((2,), 5.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
    Gram = wide(x, x)
    before = solve(Gram, Sites.of(likelihood, y, tighten(Gram, likelihood, y, one), one)).evidence
    found, learned, after = fit_hyperparameters(wide, likelihood, Rows(x, y[:, None], one), Effort(30))
    assert after > float(before) + 1
    assert type(learned) is type(likelihood) and torch.isfinite(found.lengthscale).all()


def test_a_search_cut_short_gives_the_best_it_has_seen():
    """Asked before every evaluation: not even a line search outlasts its time."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    Y = torch.sin(2 * x[:, :1]) + 0.1 * torch.randn(60, 1, generator=generator, dtype=torch.float64)
    kernel = SquaredExponential(*hyperparameters(3.0, d=2, dtype=torch.float64))
    sites, weight = Gaussian(torch.tensor(0.1, dtype=torch.float64)), torch.ones(60, dtype=torch.float64)

    def found(evaluations):
        left = iter(range(evaluations))
        return fit_hyperparameters(kernel, sites, Rows(x, Y, weight), halt=lambda: next(left, None) is None)

    values = [found(evaluations)[2] for evaluations in (0, 3, 8, 1000)]
    assert values == sorted(values) and values[0] < values[-1] - 1
    torch.testing.assert_close(found(0)[0].lengthscale, kernel.lengthscale)


def test_density_of_others_is_that_of_the_exact_gp():
    kernel, x, y, one = problem(40)
    sites, weight = likelihood_of("gaussian"), torch.tensor([1.0, 2.0] * 5, dtype=torch.float64)
    known, others = Rows(x[:30], y[:30, None], one[:30]), Rows(x[30:], y[30:, None], weight)
    found = density_of_others(kernel, sites, known, others)
    mean, variance = dense.gaussian_process(kernel, x[:30], y[:30], sites.noise_variance, x[30:])
    density = metrics.gaussian_log_density(y[30:], mean, variance + sites.noise_variance)
    assert found == pytest.approx(float(weight @ density / weight.sum()), rel=1e-9)


def test_a_gram_matrix_of_many_equal_rows_has_a_factor():
    """Rank 27 of 600, noise 1e-15 of the signal: rounding alone makes it indefinite."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(3, (600, 3), generator=generator).double()
    y = x.sum(1) - 3
    kernel = SquaredExponential(*hyperparameters(30.0, 1e10, d=3, dtype=torch.float64))
    sites = Sites.of(Gaussian(torch.tensor(1e-5).double()), y, torch.zeros_like(y), torch.ones_like(y))
    solved = solve(kernel(x, x), sites)
    assert bool(solved.evidence.isfinite())
    torch.testing.assert_close(kernel(x, x) @ solved.alpha, y, atol=1e-4, rtol=0)


def test_a_search_that_begins_with_far_too_little_noise_does_not_end_in_noise():
    """A jump that 100 rows did not show: slopes of the evidence are huge there, and a step along them leads astray."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=generator, dtype=torch.float64)
    y = (x[:, :1] > 0).double() + 0.5 * x[:, 1:]
    y = (y - y.mean()) / y.std()
    kernel = Matern32(*hyperparameters([11.0, 400.0], 2.4e3, dtype=torch.float64))
    few = Gaussian(torch.tensor(8e-6).double())
    found = fit_hyperparameters(kernel, few, Rows(x, y, torch.ones(400).double()), Effort(20, 1e-4))
    assert found[2] / 400 > 0.5  # nothing but noise has -1.42


def test_sites_of_a_search_are_tightened_no_longer_than_there_is_time():
    """Labels want dozens of rounds before the first evaluation ends: a limit of time must not wait for them."""
    kernel, x, y, one = problem()
    sites, rounds = likelihood_of("logistic"), []
    effort = Effort(1, late=lambda: bool(rounds.append(0)) or len(rounds) >= 2)
    rows = Rows(x, labels("logistic", y)[:, None], one)
    _, _, value = fit_hyperparameters(kernel, sites, rows, effort, halt=lambda: True)
    assert len(rounds) == 2
    assert value < fit_hyperparameters(kernel, sites, rows, Effort(1), halt=lambda: True)[2]
