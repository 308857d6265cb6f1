"""
Missing values: ratings of movies
=================================

Budgets of nine in ten movies are not known, and most movies have no MPAA rating. Both stay missing: no row is thrown
away and no number is made up. The table ``movies`` is that of R's package ggplot2movies; put it as
``tables/movies.csv.gz`` into the folder that the environment variable ``QSGP_DATA`` names.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from qsgp import QSGPRegressor, plots

table = pd.read_csv(Path(os.environ.get("QSGP_DATA", ".")) / "tables" / "movies.csv.gz")
y = table.pop("rating")
X = table.drop(columns=["title", *(f"r{k}" for k in range(1, 11))])  # r1 to r10 are the votes that make the rating
print((X.isna().mean() * 100).round(1)[lambda share: share > 0].to_string())

# %%
# Where a gap says something of the target, the model has an input for it. It says so.

rows = np.random.default_rng(0).permutation(len(X))
train, test = rows[:1000], rows[1000:4000]
model = QSGPRegressor(max_time=15, random_state=0).fit(X.iloc[train], y.iloc[train])
print(model.columns_)

# %%
# How far off are predictions, and do the intervals hold, with and without a budget?

known = X.iloc[test]["budget"].notna().to_numpy()
judged = plots.evaluate(model, X.iloc[test], y.iloc[test])
print(f"a constant is off by {y.iloc[test].std():.2f}")
for name, part in {"budget known": known, "budget missing": ~known}.items():
    error = np.sqrt(np.mean(judged.residual[part] ** 2))
    print(f"{name:14}  rows {part.sum():4}, off by {error:.2f}, inside 95 % intervals {judged.inside[part].mean():.3f}")

# %%
# A category has a place for what is missing. The number of votes has a long tail, so its axis is that of the model.

fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), sharey=True, layout="constrained")
plots.slice_plot(model, X.iloc[test], column="length", ax=axes[0])
plots.slice_plot(model, X.iloc[test], column="votes", ax=axes[1])
plots.slice_plot(model, X.iloc[test], column="mpaa", ax=axes[2])
axes[0].set(ylabel="rating")
for ax in axes[1:]:
    ax.set(ylabel="")
plt.show()
