"""
A relevance vector machine
==========================

The boundary between two half moons from a handful of kernel functions. ``QSRVMClassifier`` puts one function at every
training row and lets the data switch most of them off; prediction costs what is left.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from qsgp import QSRVMClassifier

X, y = make_moons(400, noise=0.25, random_state=0)
train, test = slice(0, 250), slice(250, None)

model = QSRVMClassifier(kernel="rbf", random_state=0).fit(X[train], y[train])
svm = SVC().fit(X[train], y[train])
print(f"relevance vectors {len(model.relevance_):3}, accuracy {model.score(X[test], y[test]):.3f}")
print(f"support vectors   {len(svm.support_):3}, accuracy {svm.score(X[test], y[test]):.3f}")

# %%
# Unlike a support vector machine it gives probabilities. Far from the data these rest on few functions: where
# extrapolation matters, take ``QSGPClassifier``.

side = np.linspace(-2, 3, 120), np.linspace(-1.5, 2, 120)
grid = np.stack(np.meshgrid(*side), -1).reshape(-1, 2)
probability = model.predict_proba(grid)[:, 1].reshape(120, 120)

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
picture = ax.contourf(*side, probability, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.6)
ax.contour(*side, probability, levels=[0.5], colors="black", linewidths=1)
ax.scatter(*X[train].T, c=np.where(y[train], "#b2182b", "#2166ac"), s=14, linewidths=0.4, edgecolors="white")
ax.scatter(*X[train][model.relevance_].T, s=90, facecolors="none", edgecolors="black", label="relevance vectors")
fig.colorbar(picture, ax=ax, label="probability of the red class")
ax.legend(loc="upper right", fontsize="small")
ax.set(xlabel="first input", ylabel="second input")
plt.show()
