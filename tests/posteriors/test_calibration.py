"""Simulation-based calibration (Talts et al., 2018): truth drawn from the model ranks uniformly among posterior draws.

The draws are columns of the system that gives the mean (sample-then-optimise). One test point of every replicate, so
that ranks are independent. `benchmarks/calibration.py` does the same at 2,000 rows, and for the default of regressors.
"""

import jaxtyping
import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from qsgp.bases import Fourier
from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.posteriors.solved_features import Seen, solve
from qsgp.solvers.feature_dual import Descent

DRAWS, BINS, NOISE = 31, 8, 0.01


def replicate(seed: int, n: int, m: int) -> tuple[float, np.ndarray, float]:
    """Where the truth lies about the posterior mean of f at one input, the draws, and their blended deviation."""
    generator = torch.Generator().manual_seed(seed)
    x, new, unseen = (6 * torch.rand(rows, 3, generator=generator) for rows in (n, 1, 100))
    basis = Fourier(BY_NAME["matern32"](*hyperparameters(1.0, 1.0, d=3)), m, seed=seed)
    w = torch.randn(m, 1, generator=generator)
    Y = basis.phi_v(x, w) + NOISE**0.5 * torch.randn(n, 1, generator=generator)
    found = solve(basis, Seen(x, Y, torch.full((n,), NOISE)), x[: n // 2], unseen, DRAWS, seed, Descent(tolerance=1e-3))
    mean, draws = found.pieces(new)
    return float(basis.phi_v(new, w) - mean), draws[0, 0].numpy(), float(found.latent(new)[1].sqrt())


def p_values(found: list[tuple[float, np.ndarray, float]], share: float = 1.0) -> tuple[float, float]:
    """Of uniform ranks among draws, and of a truth normal with the blended deviation; both times ``share``."""
    ranks = np.array([(share * draws < truth).sum() for truth, draws, _ in found])
    pit = torch.special.ndtr(torch.tensor([truth / (share * deviation) for truth, _, deviation in found])).numpy()
    counts = [np.bincount(ranks * BINS // (DRAWS + 1), minlength=BINS), np.histogram(pit, BINS, (0, 1))[0]]
    ranked, predicted = (float(chisquare(count).pvalue) for count in counts)
    return ranked, predicted


@pytest.fixture(scope="module")
def small() -> list[tuple[float, np.ndarray, float]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # shape checks would take four fifths of the time
        return [replicate(seed, 200, 400) for seed in range(96)]


@pytest.mark.slow
def test_ranks_and_predicted_laws_are_uniform(small):
    assert min(p_values(small)) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 1.8])
def test_a_wrong_deviation_is_found_out(small, share):
    assert max(p_values(small, share)) < 0.01


@pytest.mark.slow
def test_ranks_are_uniform_at_2000_rows():
    assert min(p_values([replicate(seed, 2000, 4000) for seed in range(64)])) > 0.01
