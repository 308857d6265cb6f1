"""Simulation-based calibration (Talts et al., 2018): truth drawn from the model ranks uniformly among posterior draws.

n = 2,000 rows and m = 4,000 features; the draws are columns of the system that gives the mean (sample-then-optimise).
"""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from qsgp.bases import Fourier
from qsgp.feature_dual import solve
from qsgp.kernels import BY_NAME, hyperparameters

DRAWS, POINTS, NOISE = 15, 5, 0.01


def ranks(replicate: int, n: int = 2000, m: int = 4000, spoil: float = 1.0) -> np.ndarray:
    """How many of the posterior draws lie below the truth, at points far from each other."""
    generator = torch.Generator().manual_seed(replicate)
    x, new = (torch.rand(rows, 3, generator=generator) * 6 for rows in (n, POINTS))
    basis = Fourier(BY_NAME["matern32"](*hyperparameters(1.0, 1.0, d=3)), m, seed=replicate)
    w = torch.randn(m, 1 + DRAWS, generator=generator)  # the truth, then the draws' own priors
    noise = torch.full((n,), NOISE)
    Y = basis.phi_v(x, w) + NOISE**0.5 * torch.randn(n, 1 + DRAWS, generator=generator)
    found = solve(basis, x, Y, noise, x[:500], tolerance=1e-3)
    spread = basis.phi_v(new, w[:, 1:]) - basis.phi_v(new, found.V[:, 1:])
    draws = basis.phi_v(new, found.V[:, :1]) + spoil * spread
    return (draws < basis.phi_v(new, w[:, :1])).sum(1).numpy()


def p_value(all_ranks: np.ndarray) -> float:
    return float(chisquare(np.bincount(all_ranks, minlength=DRAWS + 1)).pvalue)


@pytest.mark.slow
def test_ranks_are_uniform():
    found = np.concatenate([ranks(replicate) for replicate in range(64)])
    assert p_value(found) > 0.01


def test_the_test_can_fail():
    """Small problems, at which draws of two thirds of their spread are caught and right ones are not."""
    small = [np.concatenate([ranks(r, 200, 400, spoil) for r in range(60)]) for spoil in (1.0, 0.67)]
    assert p_value(small[0]) > 0.01 > p_value(small[1])
