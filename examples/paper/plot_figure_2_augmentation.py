"""
Figure 2: variance far from the data
====================================

Finitely many basis functions know nothing beyond the data: where all of them are zero, so is the variance. Proposition
4 adds one more function at every test point, which brings the variance of the prior back. The paper shows it for 20
noisy points of the sinc function, with a kernel function at each of them (Φ = S = K).
"""

import matplotlib.pyplot as plt
import torch

from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.paper import dense, theorems

torch.manual_seed(0)
x = torch.sort(8 * torch.rand(20, 1, dtype=torch.float64) - 4, 0).values
y = torch.sinc(x[:, 0]) + 0.1 * torch.randn(20, dtype=torch.float64)
kernel = SquaredExponential(*hyperparameters([0.7], 0.3, dtype=torch.float64))
sigma2 = torch.tensor(0.01, dtype=torch.float64)

# %%
# The exact posterior of the weights gives the mean of all models and, as a full covariance, one of the variances. Mean
# field takes the best diagonal instead (Proposition 1).

K = kernel(x, x) + 1e-10 * torch.eye(20, dtype=torch.float64)
mu, Sigma = dense.posterior(y, K, K, sigma2)
diagonal = theorems.optimal_diagonal(K.square().sum(0), K.diagonal(), sigma2)

line = torch.linspace(-8, 8, 400, dtype=torch.float64)[:, None]
phi = kernel(line, x)
mean, exact = dense.gaussian_process(kernel, x, y, sigma2, line)
added = theorems.augmentation(phi.square().sum(1), kernel.diag(line), sigma2)  # Proposition 4
mean_field = (phi * diagonal).square().sum(1)
variances = {
    "mean field": mean_field,
    "mean field, augmented": mean_field + added,
    "full covariance": (phi @ Sigma * phi).sum(1),
    "full covariance, augmented": (phi @ Sigma * phi).sum(1) + added,
}
assert torch.allclose(phi @ mu, mean, atol=1e-4)

# %%
# Without augmentation both variances return to zero outside the data, where the exact one returns to the prior's.
# Near the data mean field is close; the augmented full covariance counts a little twice there.

fig, axes = plt.subplots(2, 2, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
for ax, (name, variance) in zip(axes.flat, variances.items(), strict=True):
    deviation = variance.clamp_min(0).sqrt()
    ax.fill_between(line[:, 0], mean - 2 * deviation, mean + 2 * deviation, alpha=0.3, linewidth=0, label=name)
    for sign in (-2, 2):
        ax.plot(line, mean + sign * exact.sqrt(), "--", color="C1", linewidth=1, label="exact GP" if sign > 0 else None)
    ax.plot(line, mean, color="C0")
    ax.plot(x, y, ".k", markersize=4)
    ax.set_title(name, fontsize="medium")
axes[0, 0].legend(frameon=False, fontsize="small", loc="lower left")
for ax in axes[1]:
    ax.set_xlabel("x")
plt.show()
