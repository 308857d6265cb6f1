"""Variances of random effects from sums over all rows, against the restricted likelihood written down."""

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.hyperparameters.effects import First, estimated
from qsgp.solvers.mixed import Sums


def simulated(n, sizes, effects, noise, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    y = 1 + 0.5 * x + noise**0.5 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    codes = []
    for size, variance in zip(sizes, effects, strict=True):
        codes.append(torch.randint(0, size, (n,), generator=generator))
        y += (variance**0.5 * torch.randn(size, 1, generator=generator, dtype=torch.float64))[codes[-1]]
    return Rows(x, y, torch.ones(n).double()), torch.stack(codes, 1)


def line(x):
    return torch.cat([torch.ones_like(x), x], 1)


def restricted(logs, rows, codes):
    """-2 log of the restricted likelihood: the constant is fixed, the slope has a variance too."""
    *variances, noise = logs.exp()
    V = noise * torch.eye(rows.n).double() + variances[0] * rows.x @ rows.x.mT
    for code, variance in zip(codes.mT, variances[1:], strict=True):
        V = V + variance * (code[:, None] == code).double()
    one, L = torch.ones(rows.n, 1).double(), torch.linalg.cholesky(V)
    W = torch.cholesky_solve(one, L)
    r = rows.Y - one * (W.mT @ rows.Y) / (W.mT @ one)
    return 2 * L.diagonal().log().sum() + (one.mT @ W).log().sum() + (r.mT @ torch.cholesky_solve(r, L)).sum()


def test_rounds_end_where_the_restricted_likelihood_is_highest():
    rows, codes = simulated(400, (40, 25), (0.6, 0.3), 0.5)
    found = estimated(Sums.of(line, rows, codes, 400, 0))
    logs = torch.tensor([found.functions, *found.variances, found.noise]).double().log().requires_grad_()
    (slope,) = torch.autograd.grad(restricted(logs, rows, codes), logs)
    far = torch.autograd.functional.hessian(lambda at: restricted(at, rows, codes), logs.detach())
    assert (torch.linalg.solve(far, slope).abs() < 0.03).all(), "a Newton step moves no variance by 3 %"


def test_crossed_effects_of_a_simulation_are_found():
    rows, codes = simulated(30_000, (3000, 500), (0.5, 0.1), 1.0)
    found = estimated(Sums.of(line, rows, codes, 16, 0))
    assert found.variances == pytest.approx((0.5, 0.1), rel=0.1)
    assert found.noise == pytest.approx(1.0, rel=0.03)
    assert float(found.weights[1]) == pytest.approx(0.5, abs=0.02)
    assert found.tables.shape == (2, 3001, 1) and (found.tables[:, -1] == 0).all()


def test_effects_that_are_none_have_no_variance():
    rows, codes = simulated(3000, (300,), (0.0,), 1.0)
    assert estimated(Sums.of(line, rows, codes, 16, 0)).variances[0] < 0.02


def test_a_hundred_thousand_levels_take_no_matrix_of_rows_and_levels():
    """Written down, it would take 16 GB."""
    rows, codes = simulated(20_000, (100_000,), (0.5,), 0.5)
    found = estimated(Sums.of(line, rows, codes, 4, 0), First(), iter([False, True]).__next__)
    assert found.rounds == 2 and found.tables.shape == (1, int(codes.max()) + 2, 1)
