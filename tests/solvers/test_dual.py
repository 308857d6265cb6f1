"""The dual by blocks, against the dense solve."""

import pytest
import torch

from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.solvers.dual import shuffled, solve
from qsgp.solvers.system import Ahead, System


def problem(n=120, columns=1, dtype=torch.float64, name="matern32", device="cpu"):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=generator, dtype=dtype).to(device)
    Y = torch.sin(x[:, :1]) + 0.1 * torch.randn(n, columns, generator=generator, dtype=dtype).to(device)
    kernel = BY_NAME[name](*hyperparameters(1.5, 1.3, d=3, dtype=dtype, device=device))
    return kernel, x, Y, torch.full((n,), 0.05, dtype=dtype, device=device)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("block", [7, 40, 120, 500])
def test_the_solution_is_the_dense_one(name, block):
    kernel, x, Y, noise = problem(columns=2, name=name)
    noise[::3] *= 4  # a noise for each row: weights
    exact = torch.linalg.solve(kernel(x, x) + torch.diag(noise), Y)
    found = solve(System.start(kernel, x, noise, 2), Y, block=block, epochs=400, tolerance=1e-9)
    torch.testing.assert_close(found.A, exact, rtol=1e-5, atol=1e-6)
    new = torch.randn(9, 3, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found.mean(new, block_rows=4), kernel(new, x) @ exact, rtol=1e-5, atol=1e-6)


def test_a_block_of_all_rows_needs_one_epoch():
    kernel, x, Y, noise = problem()
    found = solve(System.start(kernel, x, noise, 1), Y, block=120, tolerance=1e-9)
    assert len(found.residuals) == 2  # the second sees it is done


def test_residuals_fall_and_a_start_is_used():
    kernel, x, Y, noise = problem()
    system = System.start(kernel, x, noise, 1)
    found = solve(system, Y, block=20, epochs=8, tolerance=0.0)
    assert len(found.residuals) == 8 and found.residuals[-1] < 0.1 * found.residuals[0]
    again = solve(system, Y, block=20, epochs=1, tolerance=0.0)
    assert again.residuals[0] < found.residuals[-1]


def test_float32_with_little_noise():
    kernel, x, Y, noise = problem(400, dtype=torch.float32, name="rbf")
    found = solve(System.start(kernel, x, 0.002 * noise, 1), Y, block=100, epochs=60, tolerance=1e-3)
    double = problem(400, name="rbf")[0]
    exact = torch.linalg.solve(double(x.double(), x.double()) + torch.diag(0.002 * noise.double()), Y.double())
    wanted = double(x.double(), x.double()) @ exact
    assert (found.mean(x).double() - wanted).norm() < 0.05 * wanted.norm()


def test_what_cannot_be_solved_is_refused(without_shape_checks):
    kernel, x, Y, noise = problem()
    with pytest.raises(ValueError, match="noise.*positive|> 0"):
        solve(System.start(kernel, x, 0 * noise, 1), Y)
    with pytest.raises(ValueError, match="rows"):
        solve(System.start(kernel, x, noise, 1), Y[:5])


def test_columns_may_have_noises_of_their_own():
    kernel, x, Y, noise = problem(columns=3)
    noises = torch.stack([noise, 5 * noise], 1)
    system = System(kernel, x, noises, torch.zeros_like(Y), torch.tensor([0, 1, 0]))
    for epoch in range(60):
        for rows in shuffled(len(x), 40, epoch, x.device):
            system.visit(system.block(rows), Y[rows])
    for column, own in enumerate([0, 1, 0]):
        exact = torch.linalg.solve(kernel(x, x) + torch.diag(noises[:, own]), Y[:, column])
        torch.testing.assert_close(system.A[:, column], exact, rtol=1e-5, atol=1e-6)


def accelerated(epochs, ahead):
    """Values of A (its mean over the path when accelerated) after ``epochs`` of 40 blocks, and the exact ones."""
    kernel, x, Y, noise = problem(120, name="rbf")
    noise = 0.1 * noise
    system = System(kernel, x, noise[:, None], torch.zeros_like(Y))
    system.ahead = Ahead.of(system.A, 40.0) if ahead else None
    total = torch.zeros_like(Y)
    for epoch in range(epochs):
        total.zero_()
        for rows in shuffled(120, 3, epoch, x.device):
            system.visit(system.block(rows), Y[rows])
            total += system.A / 40
    H = kernel(x, x) + torch.diag(noise)
    found = total if system.ahead is None else system.ahead.mean
    return kernel(x, x) @ found, kernel(x, x) @ torch.linalg.solve(H, Y)


@pytest.mark.slow
def test_accelerated_blocks_come_to_the_same_solution_sooner():
    plain, exact = accelerated(25, False)
    ahead, _ = accelerated(25, True)
    assert (ahead - exact).norm() < 0.7 * (plain - exact).norm()
    ahead, _ = accelerated(100, True)
    assert (ahead - exact).norm() < 1e-2 * exact.norm()


def test_acceleration_stays_where_the_solution_is():
    kernel, x, Y, noise = problem(60)
    solution = torch.linalg.solve(kernel(x, x) + torch.diag(noise), Y)
    system = System(kernel, x, noise[:, None], solution.clone(), ahead=Ahead(solution.clone(), solution.clone(), 6.0))
    for rows in shuffled(60, 10, 0, x.device):
        system.visit(system.block(rows), Y[rows])
    torch.testing.assert_close(system.A, solution)
    torch.testing.assert_close(system.ahead.mean, solution)


def test_the_mean_of_the_path_is_not_rounded_in_every_step():
    """Nothing corrects it, and K multiplies the noise of rounding by sqrt(n)."""
    generator, n = torch.Generator().manual_seed(0), 50
    ahead = Ahead.of(torch.zeros(n, 1), 100.0)
    truth, rows = torch.zeros(n, 1, dtype=torch.float64), torch.arange(3)
    for step in range(1, 2001):
        A = 25 * torch.randn(n, 1, generator=generator)
        ahead.follow(A, rows, torch.zeros(3, 1))
        truth = truth.lerp(A.double(), min(1.0, 4 / (step + 3)))
    assert (ahead.mean - truth).abs().max() < 1e-10
    first = ahead.first(1)
    assert torch.equal(first.mean, ahead.mean) and first.steps == 2000
