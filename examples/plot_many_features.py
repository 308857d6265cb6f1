"""
More functions are not always better
====================================

The cost of a step does not depend on the number *m* of basis functions, so why not take a million? For the mean more is
better. The variance of a mean field, however, returns to that of the prior as *m* grows: each weight sees only its own
share of the data. This is why ``covariance`` matters and why models should be judged by their density, not their error
(:doc:`numbers </sharp_bits>`).
"""

import matplotlib.pyplot as plt
import torch

from qsgp import metrics
from qsgp.bases import Fourier
from qsgp.datasets import make_robot_arm
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.paper import dense
from qsgp.paper import theorems as estimators

x, y = (torch.from_numpy(part).double() for part in make_robot_arm(1_400, noise=0.3))
train, test = slice(0, 1000), slice(1000, None)
start = SquaredExponential(*hyperparameters(1.0, d=8, dtype=torch.float64))
kernel, sigma2 = fit_exact_gp(start, x[train], y[train], points=300)

# %%
# For every *m* the best mean and the best mean-field variance, in closed form: without any training.

sizes = [100, 300, 1_000, 3_000, 10_000]
rmse, density = [], []
for m in sizes:
    basis = Fourier(kernel, m)
    Phi = basis.features(x, basis.columns(torch.arange(m)))
    # the posterior mean by the n x n system, which suits many functions better than the m x m one
    K = Phi[train] @ Phi[train].mT + sigma2 * torch.eye(1000, dtype=x.dtype)
    mean = Phi[test] @ (Phi[train].mT @ torch.linalg.solve(K, y[train]))
    c = estimators.optimal_diagonal(Phi[train].square().sum(0), torch.ones(m, dtype=x.dtype), sigma2)
    variance = Phi[test].square() @ c.square() + sigma2
    rmse.append(metrics.rmse(y[test], mean))
    density.append(metrics.mnlp(metrics.gaussian_log_density(y[test], mean, variance)))
exact_mean, exact_variance = dense.gaussian_process(kernel, x[train], y[train], sigma2, x[test])
exact = {
    "RMSE": metrics.rmse(y[test], exact_mean),
    "MNLP": metrics.mnlp(metrics.gaussian_log_density(y[test], exact_mean, exact_variance + sigma2)),
}

# %%
# The error falls towards that of the exact GP; the density is best somewhere near *m* = *n*.

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
for ax, (name, value), found in zip(axes, exact.items(), (rmse, density), strict=True):
    ax.semilogx(sizes, found, marker="o", label="mean field")
    ax.axhline(value, color="C1", linewidth=1, label="exact GP")
    ax.set(xlabel="basis functions m", title=f"{name} (less is better)")
axes[0].legend(frameon=False)
plt.show()
