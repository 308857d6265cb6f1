"""
Figure 1: what a control variate saves
======================================

A step of training looks at a few data points and a few basis functions, so that every estimate is noisy. The paper's
first figure shows how a control variate lowers the variance of μᵀΦᵀΦμ / σ² and of its gradient as the number of its
support points grows. We repeat it with fewer functions and other data (a robot arm instead of kin40k), and set our
kriging control variate beside the paper's. The full study is ``qsgp reproduce figure-1``.
"""

import matplotlib.pyplot as plt
import torch

from qsgp import datasets
from qsgp.bases import Fourier
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.paper import control_variates, theorems
from qsgp.paper.sampling import draw, step_generator
from qsgp.paper.support import Support
from qsgp.paper.theorems import Sampled

n, m, batch_size, repeats = 10_000, 4_000, 200, 150
x, y = map(torch.from_numpy, datasets.make_robot_arm(n, noise=0.3))
kernel, sigma2 = fit_exact_gp(SquaredExponential(*hyperparameters(1.0, d=8)), x, y, points=200)

# %%
# The weights are a draw from the prior, as in the paper. ``a`` is what Proposition 3 keeps up to date at no cost: the
# exact predictions at the support points.

basis = Fourier(kernel, m)
mu = torch.randn(m, 1, generator=torch.Generator().manual_seed(0))
columns = basis.columns(torch.arange(m))
ranks = [10, 30, 100, 300]
supports = {rank: Support.build(kernel, x[:rank]) for rank in ranks}
at_support = {rank: basis.features(support.U, columns) for rank, support in supports.items()}


def estimate(kind: str, rank: int, t: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and gradient from batch number t; each kind sees the same batches."""
    batch = draw(n, m, batch_size, batch_size, step_generator(0, t))
    V = mu[batch.drawn].requires_grad_()
    V_i, V_j = batch.split(V)
    Phi_i, Phi_j = batch.split(basis.features(x[batch.l], basis.columns(batch.drawn)), 1)
    if kind != "none":
        Phi_pu, a = at_support[rank][:, batch.drawn], at_support[rank] @ mu
        parts = [control_variates.Part(*pair) for pair in zip(batch.split(Phi_pu, 1), (V_i, V_j), strict=True)]
        parts.append(control_variates.Part(Phi_pu, V))
    seen = Sampled.of(Phi_i, Phi_j, V_i, V_j, n, m)
    value = theorems.gram_quadratic(seen)
    if kind == "kriging":
        W, scale = supports[rank].weights(x[batch.l]), m / batch_size
        f_i, f_j = (
            control_variates.kriged(F, scale * part.B @ part.V, a, W)
            for F, part in zip((seen.F_i, seen.F_j), parts[:2], strict=True)
        )
        value = value + control_variates.kriging(torch.zeros_like(f_i), seen.F_i, seen.F_j, f_i, f_j, n)
    if kind == "paper":
        share = batch.share(V.dtype)
        value = value + control_variates.gram(*parts, share, a, n, m)
    (at_drawn,) = torch.autograd.grad(value.sum(), V)
    gradient = torch.zeros(m).index_add_(0, batch.drawn, at_drawn[:, 0])
    return value.detach().sum(), gradient


def variances(kind: str, rank: int = 0) -> torch.Tensor:
    values, gradients = zip(*(estimate(kind, rank, t) for t in range(repeats)), strict=True)
    return torch.stack([torch.stack(values).var(), torch.stack(gradients).var(0).mean()])


without = variances("none")
found = {kind: torch.stack([variances(kind, rank) / without for rank in ranks]) for kind in ("paper", "kriging")}

# %%
# Both fall with every support point, kriging faster. It does less for the gradient than for the value: a gradient that
# is zero outside the drawn rows varies with the draw however exact it is inside. Too few support points make the
# paper's control variate worse than none.

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
for ax, column, title in zip(axes, (0, 1), ("objective", "gradient"), strict=True):
    for kind, label in {"paper": "paper, Eq. (3)", "kriging": "kriging"}.items():
        ax.loglog(ranks, found[kind][:, column], marker="o", label=label)
    ax.axhline(1, color="0.6", linewidth=1)
    ax.set(title=title, xlabel="support points")
axes[0].set_ylabel("variance / without control variate")
axes[0].legend(frameon=False)
plt.show()
