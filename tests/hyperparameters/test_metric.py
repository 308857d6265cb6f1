"""A metric from gradients of the mean: it finds the directions along which a function changes."""

import math

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.hyperparameters.metric import directions, outer_products, slopes_of_mean
from qsgp.kernels import Laplacian, Mapped, Matern12, Matern32, SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian

NOISE = Gaussian(torch.tensor(0.01, dtype=torch.float64))


def normals(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", [SquaredExponential, Matern32, Matern12, Laplacian])
def test_slopes_of_the_mean_are_its_differences(kind: type) -> None:
    kernel = kind(*hyperparameters([0.8, 1.5, 2.0], 1.3, dtype=torch.float64))
    x, A, at, step = normals(20, 3), normals(20, 2, seed=1), normals(5, 3, seed=2), 1e-6
    found = slopes_of_mean(kernel, x, A, at)
    for j in range(3):
        moved = torch.zeros(3, dtype=torch.float64)
        moved[j] = step
        expected = (kernel(at + moved, x) - kernel(at - moved, x)) @ A / (2 * step)
        torch.testing.assert_close(found[:, :, j], expected, rtol=1e-5, atol=1e-5)


def test_long_slopes_do_not_rule() -> None:
    slopes = torch.zeros(101, 1, 2, dtype=torch.float64)
    slopes[:100, 0, 0], slopes[100, 0, 1] = 1.0, 1e6
    M = outer_products(slopes)
    torch.testing.assert_close(M, torch.diag(torch.tensor([100 / 101, 1 / 101], dtype=torch.float64)))


def test_the_direction_of_a_wave_is_found() -> None:
    """sin(w^T x) changes along w alone, which a lengthscale for each input cannot say."""
    w = torch.tensor([1.0, -2.0, 1.0, 0.0, 0.5], dtype=torch.float64)
    x = normals(600, 5)
    y = torch.sin(x @ w) + 0.05 * normals(600, seed=1)
    rows = Rows(x, y[:, None], torch.ones(600, dtype=torch.float64))
    kernel = SquaredExponential(*hyperparameters(1.5, 1.0, d=5, dtype=torch.float64))
    found = directions(kernel, NOISE, rows)
    first = found.map[:, 0] / found.map[:, 0].norm()
    assert math.degrees(math.acos(min(1.0, float((first @ w).abs() / w.norm())))) < 4
    assert found.lengthscale[0] == found.lengthscale.min()
    assert found.lengthscale[1:].min() > 3 * found.lengthscale[0]
    torch.testing.assert_close((x @ found.map).std(0, correction=0), torch.ones(found.map.shape[1]).double())
    again = found.mapped(found.mapped(kernel))
    assert isinstance(again, Mapped) and not isinstance(again.kernel, Mapped)


def test_a_function_without_slopes_has_a_metric_all_the_same() -> None:
    rows = Rows(normals(20, 2), torch.zeros(20, 1, dtype=torch.float64), torch.ones(20, dtype=torch.float64))
    kernel = SquaredExponential(*hyperparameters(1.0, 1.0, d=2, dtype=torch.float64))
    found = directions(kernel, NOISE, rows)
    assert torch.isfinite(found.map).all() and torch.isfinite(found.lengthscale).all()
