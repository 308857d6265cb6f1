"""
Heavy tails: the Laplace likelihood
===================================

One target in ten is far off. Gaussian noise explains such rows by bending the function towards them, or by noise that
is too large everywhere. A Laplace likelihood, whose tails fall exponentially, leaves them alone.
"""

import matplotlib.pyplot as plt
import numpy as np

from qsgp import QSGPRegressor

rng = np.random.default_rng(0)


def truth(x: np.ndarray) -> np.ndarray:
    return np.sin(x) + 0.3 * np.cos(3 * x)


X = np.sort(rng.uniform(-5, 5, (200, 1)), 0)
y = truth(X[:, 0]) + 0.1 * rng.normal(size=200)
wrong = rng.random(200) < 0.1
y[wrong] += rng.choice([-1, 1], wrong.sum()) * rng.uniform(1.5, 4, wrong.sum())

models = {name: QSGPRegressor(likelihood=name, random_state=0).fit(X, y) for name in ("gaussian", "laplace")}

# %%
# The error is that of the function, which is known here.

line = np.linspace(-5, 5, 300)[:, None]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    mean = model.predict(line)
    lower, upper = model.predict_interval(line, coverage=0.8)
    error = np.sqrt(np.mean((mean - truth(line[:, 0])) ** 2))
    print(f"{name:9} error of the function {error:.3f}, noise standard deviation {model.noise_variance_**0.5:.2f}")
    ax.fill_between(line[:, 0], lower, upper, alpha=0.25, linewidth=0, label="80 % interval")
    ax.plot(line, mean, label="mean")
    ax.plot(line, truth(line), "--", color="C1", linewidth=1, label="truth")
    ax.plot(X, y, ".k", markersize=2.5)
    ax.set(title=f"{name} noise: error {error:.2f}", xlabel="x")
axes[0].set_ylabel("y")
axes[0].legend(frameon=False, fontsize="small", loc="lower left")
plt.show()
