"""
Draws of the function
=====================

A mean and a standard deviation say how far off each point may be, not how errors go together. ``sample_y`` draws whole
functions from the posterior: any question about the curve (where is its maximum? when does it first pass a threshold?)
is answered draw by draw.
"""

import matplotlib.pyplot as plt
import numpy as np

from qsgp import QSGPRegressor

rng = np.random.default_rng(2)
hours = np.concatenate([rng.uniform(a, b, 16) for a, b in ((0, 7.5), (10.5, 19.5), (22.5, 30))])[:, None]
load = 5 + 2 * np.sin(hours[:, 0] / 12 * 2 * np.pi) + 0.3 * rng.normal(size=48)  # nobody measured the valleys

model = QSGPRegressor(kernel="rbf", random_state=0).fit(hours, load)
line = np.linspace(0, 30, 200)[:, None]
draws = model.sample_y(line, n_samples=500, random_state=0)

# %%
# When is the load smallest? Each draw has an answer; together they are its distribution, which has two peaks: a mean
# and a standard deviation could not show that.

when = line[draws.argmin(0), 0]
print(f"the minimum comes before 15 hours with probability {np.mean(when < 15):.0%}")

fig, axes = plt.subplots(2, 1, figsize=(7, 4.6), sharex=True, height_ratios=(3, 1), layout="constrained")
axes[0].plot(line, draws[:, :30], color="C0", alpha=0.25, linewidth=1)
axes[0].plot(line, model.predict(line), color="C1", label="mean")
axes[0].plot(hours, load, ".k", label="measured")
axes[0].set_ylabel("load")
axes[0].legend(frameon=False)
axes[1].hist(when, bins=60, range=(0, 30), color="C0", alpha=0.8)
axes[1].set(xlabel="hour", ylabel="draws", xlim=(0, 30), xticks=range(0, 31, 3))
axes[1].set_title("where the minimum is", fontsize="medium")
plt.show()
