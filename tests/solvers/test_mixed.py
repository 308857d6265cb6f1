"""Mixed-model equations from sums over the rows, against matrices written down."""

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.kernels import SquaredExponential, WithLevels, hyperparameters
from qsgp.solvers.mixed import Equations, Sums, left_open

NOISE, VARIANCES = 0.3, [1.5, 0.8, 0.2]


def functions(x):
    return torch.cat([torch.ones(len(x), 1, dtype=x.dtype), x, x.square()], 1)


def problem(n=150, unknown=True, weights=True, draws=5):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    codes = torch.stack([torch.randint(-1 if unknown else 0, 20, (n,), generator=generator), torch.arange(n) % 7], 1)
    weight = (1 + torch.arange(n) % 3).double() if weights else torch.ones(n).double()
    rows = Rows(x, torch.randn(n, 2, generator=generator, dtype=torch.float64), weight)
    return rows, codes, Sums.of(functions, rows, codes, draws, seed=0)


def design(rows, codes):
    """B and Z side by side."""
    Z = [(code[:, None] == torch.arange(int(code.max()) + 1)).double() for code in codes.mT]
    return torch.cat([functions(rows.x), *Z], 1)


def precision_of(sums):
    found = torch.full((len(sums.right),), 1e-8, dtype=torch.float64)
    for part, variance in zip(sums.parts(), VARIANCES, strict=True):
        found[part] = 1 / variance
    return found


@pytest.mark.parametrize("unknown", [False, True])
def test_the_solution_is_the_dense_one(unknown):
    rows, codes, sums = problem(unknown=unknown)
    A = design(rows, codes)
    S = A.mT @ (rows.weight[:, None] * A)
    torch.testing.assert_close(sums.times(torch.eye(len(S)).double()), S)
    equations, M = Equations.of(sums, NOISE, VARIANCES), S / NOISE + torch.diag(precision_of(sums))
    R = A.mT @ (rows.weight[:, None] * rows.Y) / NOISE
    found = equations.solve(R, torch.zeros_like(R))
    torch.testing.assert_close(found, torch.linalg.solve(M, R), rtol=1e-3, atol=1e-3)
    # bound from above, so that conjugate gradients are well conditioned
    above = torch.linalg.inv(equations.preconditioned(torch.eye(len(M)).double()))
    assert torch.linalg.eigvalsh(above - M).min() > -1e-6 * M.diagonal().max()


def test_a_weight_of_two_is_the_row_given_twice():
    rows, codes, sums = problem(draws=0)
    twice = torch.arange(rows.n).repeat_interleave(rows.weight.long())
    every = rows.take(twice)._replace(weight=torch.ones(len(twice)).double())
    other = Sums.of(functions, every, codes[twice], 0)
    for name in ("BB", "BZ", "count", "right", "squares"):
        torch.testing.assert_close(getattr(sums, name), getattr(other, name))
    assert abs(sums.pairs - other.pairs).max() < 1e-12 and sums.total == other.total


def test_draws_tell_what_is_left_open_without_bias():
    rows, codes, sums = problem(draws=3000)
    equations, A = Equations.of(sums, NOISE, VARIANCES), design(rows, codes)
    M = A.mT @ (rows.weight[:, None] * A) / NOISE + torch.diag(precision_of(sums))
    normal = torch.randn(sums.noise.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    R = sums.noise / NOISE**0.5 - precision_of(sums).sqrt()[:, None] * normal
    left = equations.left(torch.linalg.solve(M, R), R)
    torch.testing.assert_close(left[1:], torch.linalg.inv(M).diagonal()[1:], rtol=0.1, atol=1e-4)
    assert (left[3:] >= equations.single).all()  # draws only add to what is exact


def with_levels(effects, codes):
    x = torch.cat([torch.zeros(len(codes), 1), codes], 1).double()
    return WithLevels(SquaredExponential(*hyperparameters([1.0], 1.0, dtype=torch.float64)), effects), x


def test_what_one_identifier_leaves_open_is_exact():
    codes = torch.tensor([0, 0, 0, 1, -1])[:, None]
    kernel, x = with_levels(torch.tensor([0.5]).double(), codes)
    noise = torch.tensor([0.1, 0.2, 0.4, 0.1, 0.1]).double()
    expected = [1 / (2 + 10 + 5 + 2.5), 1 / (2 + 10), 0.5]  # the last is of a level the rows lack
    torch.testing.assert_close(left_open(kernel, x, noise), torch.tensor([expected]).double())


def test_levels_that_are_not_known_are_in_the_noise_and_count_once():
    codes = torch.tensor([[0, -1], [0, -1], [1, -1]])
    effects, noise = torch.tensor([0.5, 2.0]).double(), torch.full((3,), 2.1).double()
    left = left_open(*with_levels(effects, codes), noise)
    alone = left_open(*with_levels(effects[:1], codes[:, :1]), noise)
    torch.testing.assert_close(left[:1], alone)
    assert (left[1] == 2.0).all()


def test_what_crossed_identifiers_leave_open_in_all_is_nearly_exact():
    """In the sum, which is what rows see: that all of one are higher and all of the other lower cancels there."""
    rows, codes, sums = problem(n=400, unknown=False, weights=False, draws=0)
    effects = torch.tensor(VARIANCES[1:]).double()
    left = left_open(*with_levels(effects, codes), torch.full((400,), NOISE).double())
    A = design(rows, codes)[:, 3:]
    covariance = torch.linalg.inv(A.mT @ A / NOISE + torch.diag(precision_of(sums))[3:, 3:])
    exact = torch.einsum("ni,ij,nj->n", A, covariance, A)
    found = left[0, codes[:, 0]] + left[1, codes[:, 1]]
    assert exact.mean() <= found.mean() < 1.2 * exact.mean() and ((found / exact - 1).abs() < 0.25).all()
