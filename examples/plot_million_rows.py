"""
A million rows
==============

The distance of a robot arm's tip to a point, from its eight joint angles. ``max_time`` limits the training, and the
model learns what it can in this time. Six seconds are little for a million rows; ``make demo`` gives it a minute. The
boosted trees get their default of 100 rounds, which take about as long here. With more rounds they go on improving, as
the process does with more time.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from qsgp import QSGPRegressor, metrics, plots
from qsgp.datasets import make_robot_arm

noise = 0.1
X, y = make_robot_arm(1_000_000, noise=noise)
train, test = slice(0, -2000), slice(-2000, None)

models = {
    "linear": LinearRegression(),
    "boosted trees": HistGradientBoostingRegressor(random_state=0),
    "QSGP": QSGPRegressor(max_time=6, random_state=0),
}
for name, model in models.items():
    begun = time.perf_counter()
    model.fit(X[train], y[train])
    seconds = time.perf_counter() - begun
    print(f"{name:15} RMSE {metrics.rmse(y[test], model.predict(X[test])):.3f} after {seconds:4.1f} s")
print(f"{'noise floor':15} RMSE {noise:.3f}")

# %%
# At most half of this time goes to the hyperparameters, the rest to mean and variance; ``history_`` and
# :doc:`the page on training </training>` tell how. In so little time the mean learns from a part of the rows only, and
# the standard deviation is larger for it.

model = models["QSGP"]
found = plots.evaluate(model, X[test], y[test])
fig, axes = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
plots.predicted_against_observed(found, ax=axes[0])
plots.calibration_curve(found, ax=axes[1])
axes[0].set_title("2,000 rows not seen")
axes[1].set_title(f"{np.mean(found.inside):.0%} inside 95 % intervals")
plt.show()
