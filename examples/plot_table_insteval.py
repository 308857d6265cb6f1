"""
Crossed effects: students rate lecturers
========================================

Every student rates several lecturers, and every lecturer is rated by many students. Some students are generous, some
lecturers are good: both identifiers get an effect for each of their levels, with variances that are learned. The table
``insteval`` is ``InstEval`` of R's package lme4; put it as ``tables/insteval.csv.gz`` into the folder that the
environment variable ``QSGP_DATA`` names.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from qsgp import QSGPRegressor, plots

table = pd.read_csv(Path(os.environ.get("QSGP_DATA", ".")) / "tables" / "insteval.csv.gz")
table = table.astype({"s": "category", "d": "category", "dept": "category"})
# those who rated or were rated most
few = table["s"].isin(table["s"].value_counts().index[:200]) & table["d"].isin(table["d"].value_counts().index[:100])
train = table[few].sample(frac=0.5, random_state=0)
test = table[few].drop(train.index)
test = test[test["d"].isin(train["d"])]  # a lecturer without any rating is predicted too, by the mean, with a warning
print(f"{few.sum():,} ratings of {len(table):,}, {len(train):,} of them to learn from")

# %%
# Numbers that stand for names need a word: students, lecturers and departments are categories. Those of more than 50
# values become identifiers.

model = QSGPRegressor(max_time=20, random_state=0).fit(train.drop(columns="y"), train["y"])
print(model.columns_)
for name, variance in zip(model.columns_.levels, np.ravel(model.effect_variance_), strict=True):
    print(f"variance of the effects of {name}: {variance:.3f}")

# %%
# What one student would say of each lecturer, beside the means of their ratings. A lecturer with few ratings is drawn
# to the mean, and one whose students are strict is not blamed for it.

mean = train.groupby("d", observed=True)["y"].agg(["mean", "size"])
one = train.drop(columns="y").iloc[[0]].loc[lambda rows: rows.index.repeat(len(mean))]
one = one.assign(d=pd.Categorical(mean.index, table["d"].cat.categories))
effect = model.predict(one)
print(f"spread of the means {mean['mean'].std():.2f}, of the predictions {effect.std():.2f}")

# %%
# The model judged by ratings it has not seen. On the right what it leaves of them, by department: one mean for each,
# with its 95 % interval.

judged = plots.evaluate(model, test.drop(columns="y"), test["y"])
print(f"off by {judged.scores()['RMSE']:.3f}, a constant by {judged.constant_scores()['RMSE']:.3f}")
print(f"inside 95 % intervals: {judged.scores()['coverage']:.3f}")

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].scatter(mean["mean"], effect, s=mean["size"])
axes[0].axline((mean["mean"].mean(), effect.mean()), slope=1, color="C1", linewidth=1)
axes[0].set(xlabel="mean rating of a lecturer", ylabel="predicted for one student")
plots.residuals(model, test.drop(columns="y"), test["y"], column="dept", ax=axes[1])
plt.show()
