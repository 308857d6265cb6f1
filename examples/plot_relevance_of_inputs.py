"""
Which inputs matter
===================

Every input has a lengthscale of its own: how far one must go along it before the function changes. Inputs without
influence get long ones (automatic relevance determination). Friedman's function depends on five of the ten inputs it is
given here.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1

from qsgp import QSGPRegressor, plots

X, y = make_friedman1(600, n_features=10, noise=1.0, random_state=0)
model = QSGPRegressor(kernel="rbf", random_state=0).fit(X[:400], y[:400])
print("lengthscales", model.lengthscale_.round(1))
print(f"R^2 on rows not seen: {model.score(X[400:], y[400:]):.3f}")

# %%
# The first five inputs stand out: the first two in a product under a sine, the third squared, the last two linear. A
# linear input has a long lengthscale however strong it is, so the bars rank how *wiggly* the function is along an
# input; slices show what it does.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), width_ratios=(1.2, 1, 1), layout="constrained")
plots.input_relevance(model, ax=axes[0])
plots.slice_plot(model, X, column=2, ax=axes[1])
plots.slice_plot(model, X, column=3, ax=axes[2])
axes[2].set(ylabel="")
low = min(ax.get_ylim()[0] for ax in axes[1:])
high = max(ax.get_ylim()[1] for ax in axes[1:])
for ax in axes[1:]:
    ax.set_ylim(low, high)
plt.show()
