"""
Figure 3: relevance vectors of a noisy sinc
===========================================

500 training points, 500 kernel functions centred at them, each with a prior precision of its own. Empirical Bayes
drives most precisions to infinity; the functions that are left are the relevance vectors. The paper keeps 13 of 500.
"""

import matplotlib.pyplot as plt
import numpy as np

from qsgp import QSRVMRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-10, 10, (500, 1))
y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=500)

model = QSRVMRegressor(kernel="rbf", random_state=0).fit(X, y)
print(
    f"{len(model.relevance_)} of {len(X)} functions are left; noise standard deviation {model.noise_variance_**0.5:.3f}"
)

# %%
# ``relevance_`` holds the rows whose functions are left. The band is one standard deviation of *y*, noise included.

line = np.linspace(-10, 10, 400)[:, None]
mean, deviation = model.predict(line, return_std=True)

fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.fill_between(line[:, 0], mean - deviation, mean + deviation, alpha=0.25, linewidth=0)
ax.plot(line, mean, label="mean and one standard deviation")
ax.plot(line, np.sinc(line / np.pi), "--", color="C1", linewidth=1, label="truth")
ax.plot(X, y, ".k", markersize=2, label="training points")
kept = model.relevance_
ax.plot(X[kept], y[kept], "ok", markersize=7, label="relevance vectors")
ax.set(xlabel="x", ylabel="y")
ax.legend(frameon=False, fontsize="small", loc="upper left")
plt.show()
