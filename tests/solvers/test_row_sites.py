"""Sites of many rows, made quadratic: valid parabolas, and the posterior of the closed form where they are the same."""

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.posteriors.posteriors import ClosedForm
from qsgp.solvers.closed_form import Sites, solve, variance_at_data
from qsgp.solvers.row_sites import RowSites, quadratic_sites
from qsgp.solvers.system import System

DOUBLE = torch.float64


def problem(n=60, outputs=1):
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(n, 2, generator=generator, dtype=DOUBLE)
    f = torch.stack([torch.sin(x[:, 0] + k) + 0.3 * x[:, 1] for k in range(outputs)], 1)
    Y = f + 0.2 * torch.randn(n, outputs, generator=generator, dtype=DOUBLE)
    weight = torch.ones(n, dtype=DOUBLE)
    weight[::4] = 2.0
    return SquaredExponential(*hyperparameters(1.2, 4.0, d=2, dtype=DOUBLE)), x, Y, weight


@pytest.mark.parametrize("variance", [0.01, 1.0, 30.0])
def test_the_parabola_of_a_logistic_site_touches_from_below(variance):
    """E log g about every mean; a parabola with the curvature there, Newton's, would cross it."""
    sites, y, v = Logistic(), torch.tensor(1.0, dtype=DOUBLE), torch.tensor(variance, dtype=DOUBLE)
    grid = torch.linspace(-12, 12, 241, dtype=DOUBLE)
    h = sites.expected_log_site(y, grid, v.sqrt())
    for at in (-9.0, -2.5, 0.0, 0.7, 6.0):
        mean = torch.tensor(at, dtype=DOUBLE)
        linear, precision = quadratic_sites(sites, y, mean, v)
        touching = sites.expected_log_site(y, mean, v.sqrt())
        slope = linear - precision * mean
        step = grid - mean
        assert (touching + slope * step - 0.5 * precision * step.square() <= h + 1e-6).all()
        near = torch.func.grad(lambda m: sites.expected_log_site(y, m, v.sqrt()))(mean)
        assert slope == pytest.approx(float(near), abs=1e-5)


def test_newton_curvature_would_cross():
    """So that the test above can fail: far on the wrong side the site is nearly straight."""
    sites, one, v = Logistic(), torch.tensor(1.0, dtype=DOUBLE), torch.tensor(0.01, dtype=DOUBLE)

    def h(m):
        return sites.expected_log_site(one, m, v.sqrt())

    at, new = torch.tensor(-9.0, dtype=DOUBLE), torch.tensor(6.0, dtype=DOUBLE)
    slope, curvature = torch.func.grad(h)(at), torch.func.grad(torch.func.grad(h))(at)
    assert h(at) + slope * (new - at) + 0.5 * curvature * (new - at).square() > h(new) + 1


def test_gaussian_sites_stay_as_they_are():
    kernel, x, Y, weight = problem(outputs=2)
    sites = RowSites.build(kernel, Gaussian(torch.tensor(0.3, dtype=DOUBLE)), Rows(x, Y, weight), 3, 0)
    torch.testing.assert_close(sites.noise[:, 0], 0.3 / weight)
    rows = torch.tensor([4, 0, 7])
    R = sites.right(rows, torch.randn(3, 5, dtype=DOUBLE))
    torch.testing.assert_close(R[:, :2], Y[rows])
    torch.testing.assert_close(R[:, 2:], sites.prior[rows] + sites.noise[rows].sqrt() * sites.own[rows])
    assert sites.group is None and sites.draws == 3


def test_columns_and_their_noises():
    kernel, x, Y, weight = problem(outputs=3)
    sites = RowSites.build(kernel, Laplace(torch.tensor(0.3, dtype=DOUBLE)), Rows(x, Y, weight), 2, 0)
    assert sites.noise.shape == (60, 3) and sites.prior.shape == (60, 6)
    assert sites.group.tolist() == [0, 1, 2, 0, 0, 1, 1, 2, 2]
    torch.testing.assert_close(sites.unit_noise, sites.noise * weight[:, None])


def test_laplace_sites_lead_to_the_closed_form():
    """Given the exact variance at the rows, visits end where the closed form does (the same bound Q)."""
    kernel, x, Y, weight = problem()
    likelihood = Laplace(torch.tensor(0.3, dtype=DOUBLE))
    exact = ClosedForm.build(kernel, likelihood, x, Y, weight)
    sites = RowSites.build(kernel, likelihood, Rows(x, Y, weight), 0, 0)
    system, Gram, rows = System(kernel, x, sites.noise, torch.zeros_like(Y)), kernel(x, x), torch.arange(len(x))
    for _ in range(60):
        linear, precision = torch.zeros(len(x), dtype=DOUBLE), 1 / sites.noise[:, 0]
        solved = solve(Gram, Sites(linear.sum(), linear, precision))
        f = system.values(system.block(rows))
        system.solve(system.block(rows), f, sites.right(rows, f, variance_at_data(solved, Gram.diagonal())[:, None]))
    torch.testing.assert_close(system.values(system.block(rows)), exact.latent(x)[0], rtol=1e-4, atol=1e-4)


def test_logistic_sites_end_at_the_optimum_of_the_variational_objective():
    """alpha = d E log g / d mean at every row: nothing is left to gain."""
    kernel, x, Y, weight = problem(outputs=2)
    Y = Y.sign()
    sites = RowSites.build(kernel, Logistic(), Rows(x, Y, weight), 0, 0)
    system = System(kernel, x, sites.noise, torch.zeros_like(Y), sites.group)
    rows, variance = torch.arange(len(x)), torch.full_like(Y, 0.7)
    for _ in range(80):
        f = system.values(system.block(rows))
        system.solve(system.block(rows), f, sites.right(rows, f, variance))
    f = system.values(system.block(rows)).requires_grad_()
    value = (weight[:, None] * Logistic().expected_log_site(Y, f, variance.sqrt())).sum()
    (slope,) = torch.autograd.grad(value, f)
    torch.testing.assert_close(system.A, slope, rtol=1e-4, atol=1e-5)
