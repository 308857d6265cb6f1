"""
A pipeline and a grid search
============================

The estimators follow scikit-learn: they work in a ``Pipeline``, and ``GridSearchCV`` tries their keywords. Here
the question is which kernel, and how many principal components, predict the progression of diabetes best. The search is
scored by density rather than by error, because a model should know what it does not know.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from qsgp import QSGPRegressor

X, y = load_diabetes(return_X_y=True)


def density(model: Pipeline, X: np.ndarray, y: np.ndarray) -> float:
    """Mean log density of the rows left out: more is better."""
    return model[-1].log_density(model[:-1].transform(X), y).mean()


pipeline = Pipeline([("scale", StandardScaler()), ("pca", PCA()), ("gp", QSGPRegressor(random_state=0))])
grid = {"pca__n_components": [2, 5, 8], "gp__kernel": ["rbf", "matern32"]}
search = GridSearchCV(pipeline, grid, scoring=density, cv=3).fit(X, y)
print("best:", search.best_params_, f"log density {search.best_score_:.3f}")

# %%
# Scaling is not needed for the estimator itself, which standardises inputs and target; the principal components need
# it. A search for the kernel is not needed either: ``kernel="auto"`` takes the one with the highest evidence.

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
found = search.cv_results_
for kernel, aside in zip(grid["gp__kernel"], (-0.06, 0.06), strict=True):
    rows = found["param_gp__kernel"] == kernel
    components = found["param_pca__n_components"][rows].astype(int)
    ax.errorbar(
        components + aside,
        found["mean_test_score"][rows],
        found["std_test_score"][rows] / 3**0.5,
        marker="o",
        capsize=3,
        label=kernel,
    )
ax.set(xlabel="principal components", ylabel="log density of rows left out", xticks=grid["pca__n_components"])
ax.legend(frameon=False)
plt.show()
