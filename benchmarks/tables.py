"""Tables as people have them, taken as they are: texts, missing values and all, beside boosted trees on the same rows.

Fold of row i: ``np.random.default_rng(0).permutation(n) % 10``. Without ``--test`` fold 1 is predicted from folds 2 to
9: the choices of the library were made there. With it fold 0 from the nine others. ``kin40k``, ``protein``,
``elevators`` and ``pol`` lose a fifth of their cells at random; ``filled`` is the same model after the mean was put
into them. ``--rows`` learns from so many rows. LightGBM and GPBoost take part where they are installed (GPBoost with
random effects of identifiers), scikit-learn's HistGradientBoosting where no column has more than 255 categories.

    QSGP_DATA=... python benchmarks/tables.py --seconds 60 --json tables.json
"""

import importlib.util
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss

from qsgp import QSGPClassifier, QSGPRegressor, datasets
from qsgp.datasets import stored
from table import Collected, arguments

HOLES = 0.2  # of the cells
HOLED = ["kin40k", "protein", "elevators", "pol"]
GROUPED = ["insteval", "rwm5yr"]  # with identifiers of thousands of levels
_MANY = 50  # levels of one
SETS = ["diamonds", "movies", "income", "income classes", "ticdata", "rwm5yr", "insteval", *HOLED]
_EMPTY = {"keep_default_na": False, "na_values": ["", "NA"]}  # None is a word of income


class Rows(NamedTuple):
    X: pd.DataFrame
    y: np.ndarray
    labels: bool


def rows_of(name: str) -> Rows:
    """A table as its file has it, without what tells its target."""
    if name in HOLED:
        data = datasets.load(name, 0)
        X, y = np.concatenate([data.x_train, data.x_test]).astype(float), np.concatenate([data.y_train, data.y_test])
        holes = np.random.default_rng(1).random(X.shape) < HOLES
        return Rows(pd.DataFrame(np.where(holes, np.nan, X)).add_prefix("x"), (y - y.mean()) / y.std(), False)
    folder, target = stored("kin40k").parent / "tables", TARGETS[name]
    table = pd.read_csv(folder / f"{name.split()[0]}.csv.gz", **_EMPTY)
    y = table.pop(target).to_numpy()
    table = table.drop(columns=[c for c in table.columns if name == "movies" and (c == "title" or c[1:].isdigit())])
    if name == "diamonds":
        y = np.log(y.astype(float))
    if name == "income":  # the lower end of each range tells its place
        lowest = sorted(set(y), key=lambda text: float(text.strip("[)-").replace("-", ",").split(",")[0]))
        y = np.array([lowest.index(text) for text in y], float)
    if name == "insteval":
        table = table.astype({"s": "category", "d": "category", "dept": "category"})
    if name == "rwm5yr":
        table = table.astype({"id": "category"})
    labels = name in ("ticdata", "income classes")
    return Rows(table, y if labels else y.astype(float), labels)


TARGETS = {"diamonds": "price", "movies": "rating", "income": "INCOME", "income classes": "INCOME"}
TARGETS |= {"ticdata": "CARAVAN", "rwm5yr": "docvis", "insteval": "y"}


def qsgp(rows: Rows, seconds: float) -> Any:
    return (QSGPClassifier if rows.labels else QSGPRegressor)(max_time=seconds, random_state=0)


def trees(rows: Rows, seconds: float) -> Any:
    cls = HistGradientBoostingClassifier if rows.labels else HistGradientBoostingRegressor
    return cls(categorical_features="from_dtype", random_state=0)


def lightgbm(rows: Rows, seconds: float) -> Any:
    module = importlib.import_module("lightgbm")
    return (module.LGBMClassifier if rows.labels else module.LGBMRegressor)(verbose=-1)


class WithRandomEffects:
    """GPBoost: trees, and an effect for each level of the identifiers."""

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "WithRandomEffects":
        module = importlib.import_module("gpboost")
        self.groups = [c for c in X.columns if isinstance(X[c].dtype, pd.CategoricalDtype) and X[c].nunique() > _MANY]
        effects = module.GPModel(group_data=X[self.groups].astype(str).to_numpy(), likelihood="gaussian")
        rows = module.Dataset(self._others(X), y, free_raw_data=False)
        self.model = module.train({"verbose": -1}, rows, gp_model=effects, num_boost_round=100)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        groups = X[self.groups].astype(str).to_numpy()
        found = self.model.predict(data=self._others(X), group_data_pred=groups, predict_var=False)
        return np.asarray(found["response_mean"])

    def _others(self, X: pd.DataFrame) -> np.ndarray:
        parts = [X[c].cat.codes if isinstance(X[c].dtype, pd.CategoricalDtype) else X[c] for c in X.columns]
        return np.stack(parts, 1)[:, [c not in self.groups for c in X.columns]].astype(float)


def gpboost(rows: Rows, seconds: float) -> Any:
    return WithRandomEffects()


MODELS: dict[str, Callable[[Rows, float], Any]] = {"qsgp": qsgp, "filled": qsgp, "trees": trees}
for peer in (lightgbm, gpboost):
    if importlib.util.find_spec(peer.__name__):
        MODELS[peer.__name__] = peer
# scikit-learn's trees take 255 categories at most
ONLY = {"filled": HOLED, "gpboost": GROUPED, "trees": [name for name in SETS if name not in GROUPED]}


def for_trees(X: pd.DataFrame) -> pd.DataFrame:
    """Texts as categories, and names that LightGBM takes."""
    texts = [name for name in X.columns if not pd.api.types.is_numeric_dtype(X[name])]
    return X.astype(dict.fromkeys(texts, "category")).set_axis([f"c{j}" for j in range(X.shape[1])], axis=1)


def row(name: str, model: str, seconds: float, test: bool, most: int | None = None) -> dict[str, Any]:
    rows = rows_of(name)
    fold = np.random.default_rng(0).permutation(len(rows.y)) % 10
    known, judged = (fold != 0, fold == 0) if test else (fold > 1, fold == 1)
    known = known & (np.cumsum(known) <= (most or len(known)))
    X = rows.X if model in ("qsgp", "filled") else for_trees(rows.X)
    X = X.fillna(X[known].mean()) if model == "filled" else X
    began = time.perf_counter()
    fitted = MODELS[model](rows, seconds).fit(X[known], rows.y[known])
    found: dict[str, Any] = {"rows": int(known.sum()), "columns": X.shape[1], "fit_s": time.perf_counter() - began}
    if rows.labels:
        p = fitted.predict_proba(X[judged])
        error = float((fitted.classes_[p.argmax(1)] != rows.y[judged]).mean())
        return (
            found
            | {"rmse": None, "log_loss": log_loss(rows.y[judged], p, labels=fitted.classes_), "error": error}
            | {"coverage95": None}
        )
    mean = fitted.predict(X[judged])
    found |= {"rmse": float(np.sqrt(np.mean(np.square(mean - rows.y[judged])))), "log_loss": None, "error": None}
    if model not in ("qsgp", "filled"):
        return found | {"coverage95": None}
    low, high = fitted.predict_interval(X[judged])
    return found | {"coverage95": float(((low <= rows.y[judged]) & (rows.y[judged] <= high)).mean())}


if __name__ == "__main__":
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seconds", type=float, default=60.0, help="for the training of each model of ours")
    parser.add_argument("--rows", type=int, help="learn from so many rows at most")
    parser.add_argument("--test", action="store_true", help="judge by fold 0, once a version")
    given = parser.parse_args()
    collected = Collected(given.json, "Tables as they are", seed=0)
    for name in given.data:
        for model in given.models:
            if name not in ONLY.get(model, SETS):
                continue
            key = {"data": name, "model": model, "fold": 0 if given.test else 1}
            collected.add(key, lambda name=name, model=model: row(name, model, given.seconds, given.test, given.rows))
    collected.show()
