"""The mixture that predictions have: its formulas against numbers added up on a fine grid."""

import math

import pytest
import torch

from qsgp.likelihoods import Gaussian, Mixture
from qsgp.likelihoods.mixture import between


def made(outputs: int = 1) -> Mixture:
    def rows(*values: float) -> torch.Tensor:
        return torch.tensor([values] * outputs, dtype=torch.float64)

    return Mixture(
        torch.tensor(0.3, dtype=torch.float64),
        weights=rows(0.2, 0.5, 0.3),
        scales=torch.tensor([0.4, 0.8, 2.0], dtype=torch.float64),
        shifts=torch.tensor([-0.9, 0.0, 0.6], dtype=torch.float64),
        mean_knots=rows(-1.0, 0.0, 2.0),
        by_mean=rows(-1.0, 0.2, 0.9),
        variance_knots=rows(-3.0, 0.0),
        by_variance=rows(0.5, -0.5),
    )


MEAN = torch.tensor([[-3.0], [-0.4], [1.1]], dtype=torch.float64)
VARIANCE = torch.tensor([[0.01], [0.2], [1.5]], dtype=torch.float64)
GRID = torch.linspace(-60, 60, 240_001, dtype=torch.float64)
STEP = float(GRID[1] - GRID[0])


def density(sites: Mixture) -> torch.Tensor:
    return sites.log_density(GRID[:, None, None], MEAN, VARIANCE).exp()[..., 0]


def test_the_density_has_the_mass_mean_and_variance_it_says() -> None:
    sites, p = made(), density(made())
    mean, variance = (part[:, 0] for part in sites.moments(MEAN, VARIANCE))
    torch.testing.assert_close(p.sum(0) * STEP, torch.ones(3).double())
    torch.testing.assert_close((GRID @ p) * STEP, mean)
    torch.testing.assert_close((GRID.square() @ p) * STEP - mean.square(), variance)


def test_distribution_function_quantiles_and_crps_are_those_of_the_density() -> None:
    sites = made()
    below = (density(sites).cumsum(0) - density(sites) / 2) * STEP
    found = sites.cdf(GRID[:, None, None], MEAN, VARIANCE)[..., 0]
    torch.testing.assert_close(found, below, atol=1e-6, rtol=0)
    for q in (1e-6, 0.1, 0.5, 0.975):
        at = sites.quantile(q, MEAN, VARIANCE)
        torch.testing.assert_close(sites.cdf(at, MEAN, VARIANCE), torch.full_like(at, q), rtol=1e-9, atol=1e-15)
    y = torch.tensor([[0.3], [-2.0], [1.1]], dtype=torch.float64)
    brier = (found - (GRID[:, None] >= y[:, 0]).double()).square().sum(0) * STEP
    torch.testing.assert_close(sites.crps(y, MEAN, VARIANCE)[:, 0], brier, atol=1e-3, rtol=0)


def test_one_normal_law_is_gaussian_noise() -> None:
    y, noise = torch.tensor([[0.1], [0.2], [5.0]], dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    for name in ("log_density", "cdf", "crps"):
        own, other = (getattr(sites, name)(y, MEAN, VARIANCE) for sites in (Mixture(noise), Gaussian(noise)))
        torch.testing.assert_close(own, other)
    torch.testing.assert_close(
        Mixture(noise).quantile(0.9, MEAN, VARIANCE), Gaussian(noise).quantile(0.9, MEAN, VARIANCE)
    )


def test_outputs_have_their_own_numbers() -> None:
    both = made(2)
    by_mean = both.by_mean.clone()
    by_mean[1] += math.log(4.0)
    both = Mixture(**{**vars(both), "by_mean": by_mean})
    mean, variance = MEAN.expand(3, 2), VARIANCE.expand(3, 2)
    first, second = both.moments(mean, variance)[1].mT
    torch.testing.assert_close(first, made().moments(MEAN, VARIANCE)[1][:, 0])
    torch.testing.assert_close(second, 4 * first)


def test_lines_between_knots_are_constant_beyond() -> None:
    knots, values = torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[5.0, 7.0, 3.0]])
    at = torch.tensor([[-9.0], [0.0], [0.5], [2.0], [3.0], [9.0]])
    assert between(at, knots, values)[:, 0].tolist() == [5.0, 5.0, 6.0, 5.0, 3.0, 3.0]


@pytest.mark.parametrize("part", ["weights", "scales", "mean_knots"])
def test_numbers_that_make_no_law_are_refused(part: str) -> None:
    with pytest.raises(ValueError, match="Expected"):
        Mixture(**{**vars(made()), part: -vars(made())[part]})
