"""Write the golden model files of this version: `python tests/golden/make.py`. Older files stay as they are.

Every file has its predictions beside it in `predictions.json`; `tests/models/test_golden.py` reads all of them.
"""

import json
from pathlib import Path

import numpy as np

from qsgp import QSGPClassifier, QSGPRegressor, QSRVMClassifier, QSRVMRegressor
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.posteriors.spread import Spread

FOLDER = Path(__file__).parent
FORMAT = 1
X_NEW = [[0.0, 0.0], [1.5, -2.0], [-2.5, 0.5], [30.0, 10.0]]


def models() -> dict:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (25, 2))
    y = 10 + 5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=25)
    labels = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-1, 1])]
    table = {"n_features": 12, "max_iter": 30, "random_state": 0}
    return {
        "closed-form": QSGPRegressor(kernel="matern32", random_state=0).fit(X, y),
        "laplace-linear": QSGPRegressor(likelihood="laplace", mean="linear", random_state=0).fit(X, y),
        "two-outputs": QSGPRegressor(kernel="rbf", random_state=0).fit(X, np.stack([y, X[:, 1]], 1)),
        "fourier": QSGPRegressor(basis="fourier", kernel="matern52", **table).fit(X, y),
        "chevron": QSGPRegressor(basis="fourier", covariance="chevron", dense_columns=3, **table).fit(X, y),
        "inducing": QSGPRegressor(basis="inducing", kernel="matern12", **table).fit(X, y),
        "grid": QSGPRegressor(basis="grid", **table).fit(X, y),
        "calibrated": QSGPRegressor(random_state=0).fit(X, y).calibrate(X + 0.1, y),
        "relevance": QSRVMRegressor(random_state=0, kernel="rbf").fit(X, y),
        "classes": QSGPClassifier(random_state=0, kernel="rbf").fit(X, labels),
        "relevance-classes": QSRVMClassifier(random_state=0, kernel="rbf").fit(X, X[:, 0] > 0),
        "rows": at_rows(),
        "classes-rows": at_rows(classes=3),
        "weights": QSGPRegressor(kernel="rbf", n_features=12, optimizer="preconditioned", random_state=0).fit(X, y),
    }


def at_rows(classes: int = 0) -> QSGPRegressor | QSGPClassifier:
    """Kernel functions at more rows than the closed form takes, cut down to forty of them to keep the file small."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (3100, 2))
    settings = {"learn_hyperparameters": False, "random_state": 0}
    if classes:
        model = QSGPClassifier(**settings).fit(X, np.digitize(X[:, 0], [-1, 1]))
    else:
        model = QSGPRegressor(**settings).fit(X, np.sin(X[:, 0]))
    whole = model._posterior
    spread = Spread.build(whole.kernel, whole.spread.U[:30], whole.spread.noise[:30], whole.spread.blend)
    parts = (whole.kernel, whole.likelihood, whole.x[:40], whole.A[:40])
    model._trained = KernelFunctionsAtRows(*parts, whole.outputs, whole.seed, spread)
    return model


def predictions(model) -> dict:
    if hasattr(model, "predict_proba"):
        return {"proba": model.predict_proba(X_NEW).tolist(), "classes": model.classes_.tolist()}
    mean, deviation = model.predict(X_NEW, return_std=True)
    lower, upper = model.predict_interval(X_NEW, 0.8)
    return {"mean": mean.tolist(), "std": deviation.tolist(), "interval": [lower.tolist(), upper.tolist()]}


if __name__ == "__main__":
    record = FOLDER / "predictions.json"
    known = json.loads(record.read_text()) if record.exists() else {}
    for name, model in models().items():
        path = FOLDER / f"format{FORMAT}-{name}.qsgp"
        if path.exists():
            continue  # written by an earlier version: it must stay readable as it is
        model.save(path)
        known[path.name] = predictions(model)
    record.write_text(json.dumps(known, indent=1) + "\n")
