"""
A table as it is: diamonds
==========================

Prices of diamonds by carat, cut, colour, clarity and measures: numbers and texts side by side. Nothing has to be
prepared. The table ``diamonds`` is that of R's package ggplot2; put it as ``tables/diamonds.csv.gz`` into the folder
that the environment variable ``QSGP_DATA`` names.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from qsgp import QSGPRegressor, plots

table = pd.read_csv(Path(os.environ.get("QSGP_DATA", ".")) / "tables" / "diamonds.csv.gz")
rows = np.random.default_rng(0).permutation(len(table))
train, test = table.iloc[rows[:1000]], table.iloc[rows[1000:4000]]
X, X_test = train.drop(columns="price"), test.drop(columns="price")
y, y_test = np.log(train["price"]), np.log(test["price"])
print(X.head(3).to_string())

# %%
# A thousand of the 53,940 rows are enough for a first look, and the page builds in seconds. The model says what it made
# of each column.

model = QSGPRegressor(max_time=15, random_state=0).fit(X, y)
print(model.columns_)

# %%
# Of the logarithm of a price an error of 0.1 is an error of some ten percent.

lower, upper = model.predict_interval(X_test, coverage=0.95)
print(f"root mean squared error of log price: {np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)):.3f}")
print(f"prices inside their 95 % intervals: {np.mean((lower <= y_test) & (y_test <= upper)):.3f}")

# %%
# Pictures speak of columns: a category has one bar, and a slice with a dot for each of its values. The other columns
# stay where most rows are: numbers at their medians, categories at the most frequent one.

fig, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
plots.input_relevance(model, ax=axes[0])
plots.slice_plot(model, X_test, column="carat", ax=axes[1])
plots.slice_plot(model, X_test, column="clarity", ax=axes[2])
axes[1].set(ylabel="log price")
axes[2].set(ylabel="")
plt.show()
