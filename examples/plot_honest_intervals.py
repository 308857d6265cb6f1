"""
Intervals that hold what they promise
=====================================

Noise that grows with the input breaks the assumption of equal noise, which ``noise="equal"`` keeps here whatever rows
say; by default they may say how noise depends on the prediction. ``calibrate`` takes rows that training has not seen
and corrects the intervals until they cover what they promise on average (split-conformal). It cannot know *where* they
are wrong; the pictures show both.
"""

import matplotlib.pyplot as plt
import numpy as np

from qsgp import QSGPRegressor, metrics, plots

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (3000, 1))
y = np.sin(X[:, 0]) + 0.6 * (X[:, 0] / 10) ** 2 * rng.standard_t(3, 3000)
train, hold, test = slice(0, 600), slice(600, 1100), slice(1100, None)

model = QSGPRegressor(noise="equal", random_state=0).fit(X[train], y[train])


def promised_and_kept(name: str) -> None:
    for level in (0.5, 0.8, 0.95):
        lower, upper = model.predict_interval(X[test], coverage=level)
        kept = metrics.interval_coverage(y[test], lower, upper)
        print(f"{name:7} promised {level:.0%}, kept {kept:.1%}, width {metrics.interval_width(lower, upper):.2f}")


promised_and_kept("before")
before = plots.evaluate(model, X[test], y[test])
model.calibrate(X[hold], y[hold])
promised_and_kept("after")
after = plots.evaluate(model, X[test], y[test])

# %%
# Left: coverage on average, corrected by 500 rows. Right: the residuals show that the noise depends on the input, which
# one number cannot correct.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
plots.calibration_curve(before, ax=axes[0])
plots.calibration_curve(after, ax=axes[0])
_, first, _, second = axes[0].get_lines()  # each call draws the diagonal, then its curve
second.set_color("C2")
axes[0].legend([first, second], ["before", "after"], frameon=False)
plots.residuals(model, X[test], y[test], column=0, ax=axes[1])
plt.show()
