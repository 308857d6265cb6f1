"""Rows not learned from say what noise predictions have: found where it is there, left alone where it is not."""

import numpy as np
import pytest
import torch

from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Mixture
from qsgp.posteriors.posteriors import ClosedForm
from qsgp.training.road_closed_form import left_out
from qsgp.training.trained import Unseen
from qsgp.training.uneven_noise import judged

NOISE = Gaussian(torch.tensor(0.2, dtype=torch.float64))
COVERAGES = (0.5, 0.8, 0.95)


def rows(n: int, seed: int, shape: str = "normal", slope: float = 0.0) -> Unseen:
    """Targets about a known mean, with log deviation ``slope`` times it beyond what is predicted."""
    generator = torch.Generator().manual_seed(seed)
    mean, variance = (
        torch.randn(n, 1, generator=generator).double(),
        0.1 * torch.rand(n, 1, generator=generator).double(),
    )
    z = torch.randn(n, 1, generator=generator).double()
    if shape == "heavy":
        z = z * torch.where(torch.rand(n, 1, generator=generator) < 0.1, 5.0, 0.5)
    if shape == "skewed":
        z = 3 * (0.4 * z).exp() - 3 * float(np.exp(0.08))
    deviation = (variance + NOISE.noise_variance).sqrt() * (slope * mean).exp()
    return Unseen(mean + deviation * z, mean, variance, torch.ones(n).double())


@pytest.mark.parametrize("seed", range(5))
def test_equal_normal_noise_is_left_alone(seed: int) -> None:
    assert judged(NOISE, rows(400, seed)).likelihood is NOISE


@pytest.mark.parametrize(("shape", "slope"), [("normal", 0.7), ("heavy", 0.0), ("heavy", -0.7), ("skewed", 0.3)])
def test_other_noise_is_found(shape: str, slope: float) -> None:
    """Central intervals hold what they promise, at small and at large predicted deviations; the density gains."""
    found, new = judged(NOISE, rows(1500, 0, shape, slope)).likelihood, rows(8000, 1, shape, slope)
    assert isinstance(found, Mixture)
    inside = (2 * found.cdf(new.Y, new.mean, new.variance) - 1).abs()[:, 0]
    order = found.moments(new.mean, new.variance)[1][:, 0].argsort()
    for level in COVERAGES:
        assert abs(float((inside < level).double().mean()) - level) < 0.025
        for half in order.chunk(2):
            assert abs(float((inside[half] < level).double().mean()) - level) < 0.04
    gain = found.log_density(*new[:3]) - NOISE.log_density(*new[:3])
    assert float(gain.mean()) > 0.05


def test_the_density_of_folds_is_what_new_rows_have() -> None:
    found, new = judged(NOISE, rows(2000, 0, "heavy", 0.5)), rows(8000, 1, "heavy", 0.5)
    other = float(found.likelihood.log_density(*new[:3]).mean())
    assert abs(float(found.density.mean()) - other) < 0.1


def test_a_row_of_weight_2_counts_twice() -> None:
    heavy, light = rows(800, 0, "heavy"), rows(800, 1)
    both = Unseen(*(torch.cat(pair) for pair in zip(heavy, light, strict=True)))
    found = [
        judged(NOISE, both._replace(weight=torch.cat([share * heavy.weight, light.weight]))).likelihood
        for share in (0.1, 10.0)
    ]
    much, little = (float(sites.log_density(*heavy[:3]).mean()) for sites in found[::-1])
    assert much > little + 0.05


def test_outputs_have_their_own_noise_and_constant_ones_none() -> None:
    one, other = rows(1000, 0), rows(1000, 1, "heavy")
    still = torch.full_like(one.Y, 0.4)
    parts = [(one.Y, other.Y, still), (one.mean, other.mean, still), (one.variance, other.variance, other.variance)]
    found = judged(NOISE, Unseen(*(torch.cat(part, 1) for part in parts), one.weight)).likelihood
    assert isinstance(found, Mixture)
    assert [float(found.weights[o].max()) == 1.0 for o in range(3)] == [True, False, True]


def test_few_rows_and_targets_that_are_no_numbers_change_nothing() -> None:
    strange = rows(300, 0, "heavy")
    strange.mean[3] = torch.nan
    for unseen in (rows(60, 0, "heavy"), strange):
        assert judged(NOISE, unseen).likelihood is NOISE


def test_rows_left_out_are_predicted_as_by_a_model_without_them() -> None:
    generator = torch.Generator().manual_seed(0)
    x, Y = torch.randn(14, 2, generator=generator).double(), torch.randn(14, 2, generator=generator).double()
    weight = torch.rand(14, generator=generator).double() + 0.5
    kernel = BY_NAME["matern32"](*hyperparameters(1.0, 1.0, d=2, dtype=torch.float64))
    Y = 3 * Y  # errors larger than the model says are as they are
    found = left_out(ClosedForm.build(kernel, NOISE, x, Y, weight))
    assert found is not None
    for row in (0, 5, 13):
        others = torch.arange(14) != row
        mean, variance = ClosedForm.build(kernel, NOISE, x[others], Y[others], weight[others]).latent(x[row : row + 1])
        torch.testing.assert_close(found.mean[row], mean[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found.variance[row], variance[0], rtol=1e-6, atol=1e-6)


def test_errors_that_are_too_small_count_as_what_variances_say() -> None:
    x = torch.linspace(0, 9, 40, dtype=torch.float64)[:, None]
    kernel = BY_NAME["rbf"](*hyperparameters(1.0, 1.0, d=1, dtype=torch.float64))
    found = left_out(ClosedForm.build(kernel, NOISE, x, x.sin(), torch.ones(40).double()))
    assert found is not None
    surprise = (found.Y - found.mean).square() / (found.variance + NOISE.noise_variance)
    assert abs(float(surprise.mean()) - 1) < 1e-9


def test_sites_that_are_not_gaussian_leave_nothing_out() -> None:
    x = torch.linspace(0, 9, 20, dtype=torch.float64)[:, None]
    kernel = BY_NAME["rbf"](*hyperparameters(1.0, 1.0, d=1, dtype=torch.float64))
    sites = Laplace(torch.tensor(0.3, dtype=torch.float64))
    assert left_out(ClosedForm.build(kernel, sites, x, x.sin(), torch.ones(20).double())) is None


def test_outputs_that_are_known_exactly_stand_beside_others() -> None:
    """A function without noise leaves no variance at some rows, whose logarithm would be no number."""
    plain, heavy = rows(600, 0), rows(600, 0, "heavy")
    plain.variance[::20] = 0.0
    both = Unseen(*(torch.cat([one, other], 1) for one, other in zip(plain[:3], heavy[:3], strict=True)), plain.weight)
    found = judged(NOISE, both).likelihood
    assert isinstance(found, Mixture)
    density = found.log_density(*both[:3])
    assert torch.isfinite(density).all()


@pytest.mark.parametrize("seed", range(3))
def test_rows_left_out_do_not_give_their_targets_away(seed: int) -> None:
    """Without a signal all means are nearly equal, and that of a row that is left out is higher the lower its target
    is. Half of the targets are equal: where such means are, noise would seem to be tiny."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1000, 2, generator=generator, dtype=torch.float64)
    Y = torch.randn(1000, 1, generator=generator, dtype=torch.float64).clamp_min(0)
    Y = (Y - Y.mean()) / Y.std()
    noise = Gaussian(torch.tensor(1.0, dtype=torch.float64))
    kernel = BY_NAME["rbf"](*hyperparameters(30.0, 1e-4, d=2, dtype=torch.float64))
    posterior = ClosedForm.build(kernel, noise, x[:500], Y[:500], torch.ones(500).double())
    unseen = left_out(posterior)
    assert unseen is not None
    found = judged(noise, unseen).likelihood
    mean, variance = posterior.latent(x[500:])
    assert isinstance(found, Mixture)  # the equal targets are seen
    inside = (2 * found.cdf(Y[500:], mean, variance) - 1).abs() < 0.95
    assert float(inside.double().mean()) > 0.93
    gain = found.log_density(Y[500:], mean, variance) - noise.log_density(Y[500:], mean, variance)
    assert float(gain.mean()) > 0
