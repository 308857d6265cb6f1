"""The most probable weights of a Fourier model under sites: Newton's method in the dual, all rows, no sampling.

With slope s and curvature w of the sites at f = Phi V, a Newton step is the Gaussian problem with noise 1/w and target
f - s/w in each column: (Phi Phi^T + W^-1) A = f - W^-1 s. It is solved by `feature_dual`; f of the new A comes with it,
so that outer steps cost no product of their own.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.checks import check_rows
from qsgp.likelihoods.pointwise import Site
from qsgp.solvers.feature_dual import Descent, FeatureDual, Features, Nystrom, descend

INNER = 0.2  # of its first residual is left when a step ends: the next one has another target
FEW_PASSES = Descent(passes=10)
LEAST = 1e-4  # curvature below which a row counts as decided; its noise would have no digits left in float32


def solve(
    basis: Fourier,
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n c"],
    site: Site,
    U: Float[Tensor, "p d"],
    descent: Descent = FEW_PASSES,
    steps: int = 20,
) -> FeatureDual:
    """A, f = Phi V and V = Phi^T A that minimise sum site(Y, f) + |V|^2 / 2, by at most ``steps`` Newton steps.

    Each takes at most ``descent.passes`` over the features; the search ends when no column gains more than
    ``descent.tolerance`` times its objective, or when ``descent.halt`` says so.
    """
    check_rows(x=x, Y=Y)
    if site.curvature is None:
        raise ValueError("Expected a site with a curvature for each column, got none. Train it by steps over blocks.")
    features = Features.of(basis, x, descent.m_tilde, descent.precision)
    A, f = torch.zeros_like(Y), torch.zeros_like(Y)
    value = _objective(site, Y, A, f)
    residuals: list[float] = []
    for _ in range(steps):
        noise = 1 / site.curvature(Y, f).clamp_min(LEAST)
        target = f - noise * site.slope(Y, f)
        preconditioner = Nystrom.build(features, noise, U)
        enough = INNER * (target - f - noise * A).norm(dim=0)
        A_new, f_new, own = descend(features, preconditioner, (A, f), target, noise, enough, descent)
        residuals += own
        step, new = _shortened(site, Y, A, f, A_new - A, f_new - f, value)
        A, f = A + step * (A_new - A), f + step * (f_new - f)
        gain, value = value - new, new
        if descent.halt() or bool((gain <= descent.tolerance * value.abs()).all()):
            break
    return FeatureDual(A, f, features.transposed(A), residuals)


def _objective(site: Site, Y: Tensor, A: Tensor, f: Tensor) -> Float[Tensor, " c"]:
    """sum site + V^T V / 2 for each column; |V|^2 = A^T Phi Phi^T A = A^T f."""
    return site.value(Y, f).sum(0) + 0.5 * (A * f).sum(0)


def _shortened(
    site: Site, Y: Tensor, A: Tensor, f: Tensor, dA: Tensor, df: Tensor, value: Tensor
) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """The longest of 1, 1/2, 1/4, ... that lowers the objective of a column, 0 if none does. No product is needed."""
    best = value.clone()
    step = torch.zeros_like(value)
    for power in range(6):
        new = _objective(site, Y, A + 0.5**power * dA, f + 0.5**power * df)
        better = (step == 0) & (new < best)
        step, best = torch.where(better, 0.5**power, step), torch.where(better, new, best)
    return step, best
