"""The posterior of a Fourier model with Gaussian noise: its mean and draws about it, solved together, and the variance.

A draw of the weights about their mean is w_s - Phi^T (Phi Phi^T + D)^-1 (Phi w_s + e_s), w_s ~ N(0, I), e_s ~ N(0, D):
its covariance is Sigma = (I + Phi^T D^-1 Phi)^-1 exactly. The systems of all draws are further columns of the one that
gives the mean (`feature_dual`), so that they share its features.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.engine.counter_rng import normals
from qsgp.likelihoods import Gaussian
from qsgp.posteriors.posteriors import FourierWeights
from qsgp.posteriors.spread import Spread
from qsgp.solvers import feature_dual
from qsgp.solvers.feature_dual import USUAL, Descent, Features
from qsgp.solvers.pathwise import noise_draws


class Seen(NamedTuple):
    """What is known: inputs, targets, and the noise variance of each row."""

    x: Float[Tensor, "n d"]
    Y: Float[Tensor, "n o"]
    noise: Float[Tensor, " n"]


def solve(
    basis: Fourier,
    seen: Seen,
    U: Float[Tensor, "p d"],
    unseen: Float[Tensor, "h d"],
    draws: int = 64,
    seed: int = 0,
    descent: Descent = USUAL,
) -> FourierWeights:
    """Mean and ``draws`` from one solve; ``U`` are support points, ``unseen`` inputs like those to come.

    Rows of ``x`` will not do for ``unseen``: there draws are closer together than the support points expect, and the
    blend (`pathwise.fit_blend`) would be too narrow elsewhere. No targets are needed for them.
    """
    x, Y, noise = seen
    W = weight_draws(basis.m, draws, seed, x)
    features = Features.of(basis, x, descent.m_tilde, descent.precision)
    perturbed = features.times(W) + noise.sqrt()[:, None] * noise_draws(len(x), draws, seed, x)
    V = feature_dual.solve(basis, x, torch.cat([Y, perturbed], 1), noise, U, descent).V
    outputs = Y.shape[1]
    V[:, outputs:] = W - V[:, outputs:]
    of_a_row = 1 / (1 / noise).mean()
    spread = Spread.build(basis.kernel, U, len(U) / len(x) * of_a_row)
    found = FourierWeights(basis, Gaussian(of_a_row), V, outputs, spread)
    return replace(found, spread=replace(spread, blend=spread.fitted(found.pieces(unseen)[1], spread.support(unseen))))


def weight_draws(m: int, count: int, seed: int, like: Tensor) -> Float[Tensor, "m count"]:
    """Weights of the prior, the same for the same seed; S = I for a Fourier basis."""
    parts = torch.arange(m, device=like.device).split(1 << 16)
    return torch.cat([normals(seed, part, count, stream=2).to(like) for part in parts])
