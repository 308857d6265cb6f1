"""A linear model and boosted trees beside the model, taught by the rows of the report.

A fitted model does not hold the table it learned from. So each row is predicted by a baseline that learned from four
fifths of the *other* rows of the report: a fair prediction, but often from fewer rows than the model had, which
`in_words` says.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

from qsgp.evaluation import Classification, Evaluation, Regression
from qsgp.plots.drawing import some_rows
from qsgp.plots.views import Values, View
from qsgp.report.subject import Subject

Array = np.ndarray
LINEAR, TREES = "linear model", "boosted trees"
_FOLDS = 5
_LEAST_ROWS, _MOST_ROWS = 50, 20_000
_MOST_NUMBERS, _MOST_INPUTS = 2_000_000, 1000  # rows times inputs times functions: some seconds
_PENALTIES = np.logspace(-2, 4, 13)


@dataclass(frozen=True)
class Baselines:
    """What each predicted for some rows of the report: one evaluation for every output."""

    rows: Array  # their positions
    found: dict[str, list[Evaluation]]
    learned_from: int  # rows, in every fold

    @classmethod
    def of(cls, subject: Subject) -> "Baselines | None":
        """None where rows are too few, inputs too many, or all targets alike."""
        functions = sum(_functions(found) for found in subject.found)
        most = min(_MOST_ROWS, _MOST_NUMBERS // (subject.X.shape[1] * functions))
        wide = subject.X.shape[1] > _MOST_INPUTS
        if wide or min(len(subject.X), most) < _LEAST_ROWS or not all(map(_differs, subject.found)):
            return None
        rows = some_rows(len(subject.X), most)
        X = subject.X[rows].astype(float)
        found: dict[str, list[Evaluation]] = {}
        for name, inputs, models in (
            (LINEAR, X, _linear(subject)),
            (TREES, np.stack([view.along(X) for view in subject.all_views], 1), _trees(subject)),
        ):
            found[name] = [_crossed(models, inputs, taken(each, rows)) for each in subject.found]
        return cls(rows, found, len(rows) - len(rows) // _FOLDS)


def taken(found: Evaluation, rows: Array) -> Evaluation:
    """The evaluation of some rows."""
    if isinstance(found, Classification):
        return Classification(found.label[rows], found.probability[rows], found.classes)
    return Regression(**{name: values[rows] for name, values in vars(found).items()})


def _functions(found: Evaluation) -> int:
    return len(found.classes) if isinstance(found, Classification) else 1


def _differs(found: Evaluation) -> bool:
    target = found.label if isinstance(found, Classification) else found.y
    return bool(target.min() < target.max())


def _crossed(models: tuple[Any, Any], X: Array, found: Evaluation) -> Evaluation:
    """Every row predicted by what the other folds teach."""
    if isinstance(found, Classification):
        return _classes(models[1], X, found)
    mean = np.empty(len(X))
    folds = list(KFold(_FOLDS, shuffle=True, random_state=0).split(X))
    for known, judged in folds:
        mean[judged] = _fitted(models[0], X[known], found.y[known]).predict(X[judged])
    # one deviation for all, from the errors of the other folds
    square, deviation = np.square(found.y - mean), np.empty(len(X))
    for known, judged in folds:
        deviation[judged] = np.sqrt(square[known].mean())
    return Regression.of(found.y, mean, deviation)


def _classes(model: Any, X: Array, found: Classification) -> Classification:
    """Nothing is impossible: a class that a fold has not seen keeps the probability of one row more."""
    probability = np.zeros_like(found.probability, dtype=float)
    for known, judged in _stratified(X, found.label):
        fitted = _fitted(model, X[known], found.label[known])
        probability[np.ix_(judged, fitted.classes_)] = fitted.predict_proba(X[judged])
        probability[judged] += 1 / (len(known) + len(found.classes))
    return Classification(found.label, probability / probability.sum(1, keepdims=True), found.classes)


def _stratified(X: Array, label: Array) -> Iterator[tuple[Array, Array]]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")
        yield from list(StratifiedKFold(_FOLDS, shuffle=True, random_state=0).split(X, label))


def _fitted(model: Any, X: Array, target: Array) -> Any:
    """Warnings are about a baseline: those of the model it stands beside must not drown in them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, target)


def _linear(subject: Subject) -> tuple[Any, Any]:
    """Of numbers and one input for each category, gaps filled by the mean; a regressor and a classifier."""
    identifiers = [view.inputs[0] for view in subject.all_views if _is_identifier(subject, view)]
    first = _encoding(identifiers, subject.X.shape[1])
    ready = (SimpleImputer(keep_empty_features=True), StandardScaler())
    return (
        make_pipeline(first, *ready, RidgeCV(_PENALTIES)),
        make_pipeline(first, *ready, LogisticRegression(max_iter=300)),
    )


def _trees(subject: Subject) -> tuple[Any, Any]:
    """Of columns: categories as such, gaps as they are."""
    views = subject.all_views
    identifiers = [j for j, view in enumerate(views) if _is_identifier(subject, view)]
    # behind the encoding stand identifiers, then the others in their order
    others = [view for view in views if not _is_identifier(subject, view)]
    is_category = [isinstance(view, Values) and not view.coded for view in others]
    categorical = np.array([False] * len(identifiers) + is_category)
    how: Any = {"categorical_features": categorical if categorical.any() else None, "random_state": 0}
    first = _encoding(identifiers, len(views))
    return (
        make_pipeline(first, HistGradientBoostingRegressor(**how)),
        make_pipeline(first, HistGradientBoostingClassifier(**how)),
    )


def _encoding(identifiers: list[int], inputs: int) -> Any:
    """Levels of identifiers by the mean of their targets in other rows. Only regressors have identifiers."""
    if not identifiers:
        return "passthrough"
    others = [j for j in range(inputs) if j not in identifiers]
    return ColumnTransformer(
        [
            ("levels", TargetEncoder(target_type="continuous", random_state=0), identifiers),
            ("others", "passthrough", others),
        ]
    )


def _is_identifier(subject: Subject, view: View) -> bool:
    columns = getattr(subject.model, "columns_", None)
    return columns is not None and view.column in columns.levels
