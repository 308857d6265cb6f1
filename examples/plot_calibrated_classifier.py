"""
A classifier whose probabilities mean something
===============================================

A probability of 0.8 should be right eight times in ten. The data are made so that naive Bayes must fail: of sixteen
inputs twelve repeat what the other four say. Naive Bayes counts all of them and is far too sure. A Gaussian process
averages over what it does not know.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from qsgp import QSGPClassifier, plots

X, y = make_classification(
    6000,
    n_features=16,
    n_informative=4,
    n_redundant=12,
    n_clusters_per_class=1,
    class_sep=0.5,
    flip_y=0,
    random_state=3,
)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=600, random_state=0)
X_hold, X_test, y_hold, y_test = train_test_split(X_test, y_test, train_size=400, random_state=0)

bayes = GaussianNB().fit(X_train, y_train)
model = QSGPClassifier(random_state=0).fit(X_train, y_train)
for name, probability in {"naive Bayes": bayes.predict_proba(X_test), "QSGP": model.predict_proba(X_test)}.items():
    right = (probability.argmax(1) == y_test).mean()
    print(f"{name:12} accuracy {right:.3f}, log loss {log_loss(y_test, probability):.3f}")

# %%
# ``calibrate`` corrects all probabilities by one number, learned from rows that were kept apart. It keeps their order
# and so the decisions. These probabilities need little correction, and a number learned from 400 rows is itself
# uncertain: the log loss may even rise a little. One number does not correct everything either: with a tenth of the
# labels flipped at random (``flip_y=0.1``) no probability should come near 0 or 1, which a logistic likelihood cannot
# express, corrected or not.

before = -model.log_density(X_test, y_test).mean()
model.calibrate(X_hold, y_hold)
print(f"log loss before {before:.3f} and after calibration {-model.log_density(X_test, y_test).mean():.3f}")

# %%
# In a reliability diagram the bars of a calibrated classifier cross the line. `Classification` takes the probabilities
# of any model.

classes = model.classes_
fig, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
plots.reliability_diagram(plots.Classification(y_test, bayes.predict_proba(X_test), classes), ax=axes[0])
plots.reliability_diagram(model, X_test, y_test, ax=axes[1])
axes[0].set_title("naive Bayes")
axes[1].set(title="QSGP", ylabel="")
plt.show()
