"""Maps of targets: they rise, their inverse undoes them, and means are those of the law in the unit of y."""

from dataclasses import replace

import numpy as np
import torch

from qsgp.data.scaling import Scaling
from qsgp.data.target_maps import TargetMap

U = torch.cat([torch.linspace(-4, 4, 41).double(), torch.tensor([-1e9, -1e3, 1e3, 1e9]).double()])[:, None]


def made() -> TargetMap:
    """Like a logarithm, a power, the identity."""
    rows = [[-0.9, 0.2, 0.0], [0.1, 1.5, 1.0], [0.05, 1.7, 1.0], [0.3, 0.0, 0.0], [1.4, 0.7, 1.0]]
    return TargetMap.from_rows(torch.tensor(rows, dtype=torch.float64))


def test_maps_rise_and_are_undone() -> None:
    t = made()(U.expand(-1, 3))
    assert (t[U[:, 0].argsort()].diff(dim=0) > 0).all()
    torch.testing.assert_close(made().inverse(t), U.expand(-1, 3), rtol=1e-7, atol=1e-9)
    assert torch.equal(t[:, 2], U[:, 0])
    assert made().plain.tolist() == [False, False, True]


def test_the_slope_is_that_of_the_map() -> None:
    u = U.expand(-1, 3).clone().requires_grad_()
    (slope,) = torch.autograd.grad(made()(u).sum(), u)
    torch.testing.assert_close(made().log_slope(u.detach()), slope.log(), rtol=1e-7, atol=1e-9)


def test_standardised_maps_have_mean_0_and_deviation_1_and_the_identity_stays() -> None:
    u, weight = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double(), torch.rand(50).double() + 0.1
    found = made().standardised(u, weight)
    t, share = found(u), weight / weight.sum()
    torch.testing.assert_close((share @ t)[:2], torch.zeros(2).double())
    torch.testing.assert_close((share @ t.square())[:2], torch.ones(2).double())
    assert torch.equal(t[:, 2], u[:, 2])


def test_means_and_deviations_are_those_of_draws() -> None:
    X = np.zeros((2, 1))
    plain = Scaling.of(np.ones((5, 1)), np.arange(15.0).reshape(5, 3), np.ones(5), scale_y=True)
    scaling = replace(plain, target_map=made().rows.numpy())
    mean, variance = np.array([[0.2, -0.4, 0.3], [1.0, 0.5, 2.0]]), np.array([[0.04, 0.25, 0.1], [0.2, 0.01, 0.5]])
    draws = mean + np.sqrt(variance) * np.random.default_rng(0).normal(size=(200_000, 2, 3))
    values = scaling.restore(draws, X)
    middle, deviation = scaling.moments(mean, variance, X)
    np.testing.assert_allclose(middle, values.mean(0), rtol=0.01)
    np.testing.assert_allclose(deviation, values.std(0), rtol=0.02)
    np.testing.assert_array_equal(middle[:, 2], plain.restore(mean, X)[:, 2])


def test_numbers_stay_finite_however_far_off() -> None:
    far = torch.tensor([[1e100], [-1e100]], dtype=torch.float64).expand(-1, 3)
    for found in (made().inverse(far), made().log_slope(far)):
        assert torch.isfinite(found).all()
