"""The user's door: four scikit-learn estimators and `load`. Plain words here, paper symbols inside."""

import os
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from qsgp.data.tables import as_target
from qsgp.files import FileError, read_model
from qsgp.memory import budget
from qsgp.models.callbacks import with_callbacks
from qsgp.models.conformal import Conformal, Temperature, fit_conformal
from qsgp.models.estimator import Estimator, all_or_nothing
from qsgp.models.keywords import device as usable_device
from qsgp.models.stored import restore


def _takes_portions(estimator: Estimator) -> bool:
    return not estimator._relevance


class _Regressor(RegressorMixin, Estimator):  # type: ignore[misc]
    _likelihoods = ("gaussian", "laplace")

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, target: str | None = None) -> "_Regressor":
        """Learn from rows X and targets y (one column an output); weights say how often a row counts.

        X may be a path, a glob or a list of paths (CSV, Parquet, Arrow, NPZ) with ``target`` naming the column.
        """
        return self._learn(X, y, sample_weight, target, self._fit)

    @available_if(_takes_portions)
    @all_or_nothing
    @with_callbacks
    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, target: str | None = None
    ) -> "_Regressor":
        """Learn from one more portion of rows. Scales and hyperparameters come from the first 1,000 rows or so;
        after that the portions' order and sizes do not matter (Gaussian noise)."""
        return self._learn(X, y, sample_weight, target, self._partial_fit)

    def _learn(self, X: Any, y: Any, sample_weight: Any, target: str | None, learn: Any) -> "_Regressor":
        first, given = learn == self._fit or not hasattr(self, "_trained"), (X, y, sample_weight)
        X, y, weight = self._rows(X, y, sample_weight, target, multi_output=True, y_numeric=True, reset=first)
        Y = np.asarray(y, dtype=np.float64)
        outputs = Y.ndim == 1, Y.reshape(len(Y), -1).shape[1]
        if first:
            self._one_output = outputs[0]
        elif outputs != (self._one_output, len(self._scaling.y_scale)):
            raise ValueError(f"Expected targets as in the first portion, got shape {Y.shape}. Keep their columns.")
        learn(X, Y.reshape(len(Y), -1), weight, given, scale_y=True)
        return self

    def _shape(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self._one_output else values

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of y, and with ``return_std`` its deviation, noise included, which takes several times as long."""
        if not return_std:  # the mean of y is that of f for every likelihood of numbers
            means = [self._scaling.restore(self._mean(rows).numpy(), rows) for rows in self._blocks(X)]
            return self._shape(np.concatenate(means))
        means, deviations = [], []
        for rows in self._blocks(X):
            mean, variance = self._sites().moments(*self._latent(rows))
            means.append(self._scaling.restore(mean.numpy(), rows))
            deviations.append(variance.sqrt().numpy() * self._scaling.y_scale)
        return self._shape(np.concatenate(means)), self._shape(np.concatenate(deviations))

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """The quantiles ``q`` of y: one more axis in front when q is a list."""
        check_is_fitted(self)
        levels = _probabilities(q, "q", "Give 0.5 for the median, or a list of levels.")
        found = []
        for rows in self._blocks(X):
            latent = self._latent(rows)
            values = [self._sites().quantile(float(p), *latent).numpy() for p in levels]
            found.append(np.stack([self._shape(self._scaling.restore(value, rows)) for value in values]))
        quantiles = np.concatenate(found, 1)
        return quantiles if np.ndim(q) else quantiles[0]

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Central interval that holds y with probability ``coverage``; recalibrated after `calibrate`."""
        check_is_fitted(self)
        if np.ndim(coverage):
            raise ValueError(f"Expected one coverage, got {coverage!r}. Ask for predict_quantiles to get several.")
        coverage = float(_probabilities(coverage, "coverage", "Give 0.95 for a 95 % interval.")[0])
        coverage = min(coverage, 1 - 1e-12)
        if self._calibration is not None:
            mean, deviation = self.predict(X, return_std=True)
            lower, upper = self._calibration.interval(torch.tensor(mean), torch.tensor(deviation), coverage)
            return lower.numpy(), upper.numpy()
        lower, upper = self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])
        return lower, upper

    def calibrate(self, X: Any, y: Any) -> "_Regressor":
        """Make `predict_interval` honest by split-conformal scores of rows that were not used in ``fit``."""
        check_is_fitted(self)
        if not self._one_output:
            raise ValueError("Expected a model of one output to calibrate, got several. Fit one model for each output.")
        mean, deviation = self.predict(X, return_std=True)
        targets = column_or_1d(as_target(y, numeric=True)).astype(np.float64)
        _check_length(targets, len(mean))
        self._calibration = fit_conformal(torch.tensor(targets), torch.tensor(mean), torch.tensor(deviation))
        return self

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """log Pr(y) row by row, in the unit of y; its negative mean is MNLP."""
        check_is_fitted(self)
        X = self.prepare_inputs(X)
        Y = as_target(y, numeric=True).astype(np.float64)
        _check_length(Y, len(X))
        Y = Y.reshape(len(Y), -1)
        if Y.shape[1] != len(self._scaling.y_scale):
            raise ValueError(f"Expected {len(self._scaling.y_scale)} targets for every row, got {Y.shape[1]}. Check y.")
        found, at = [], 0
        for rows in self._checked_blocks(X):
            targets = torch.tensor(self._scaling.targets(Y[at : at + len(rows)], rows))
            found.append(self._sites().log_density(targets, *self._latent(rows)).numpy())
            at += len(rows)
        return self._shape(np.concatenate(found) - np.log(self._scaling.y_scale))

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of the function, coherent over the rows of X (without noise): shape (rows, [outputs,] n_samples)."""
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ValueError(f"Expected n_samples to be a whole number >= 1, got {n_samples!r}. Draw at least one.")
        found = []
        for rows in self._blocks(X, draws=int(n_samples)):
            draws = self._computed(rows, lambda x: self._posterior.sample(x, int(n_samples), seed))
            found.append(self._shape(self._scaling.restore(draws.numpy(), rows)))
        return np.moveaxis(np.concatenate(found, 1), 0, -1)

    def _fitted_header(self) -> dict[str, Any]:
        return super()._fitted_header() | {"_one_output": self._one_output}

    def _calibration_from(self, tensors: Any) -> Conformal:
        return Conformal.from_tensors(tensors)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class QSGPRegressor(_Regressor):
    """Gaussian process regression for any number of rows, with calibrated deviations.

    ``QSGPRegressor().fit(X, y)`` needs no settings. Up to 3,000 rows are solved in closed form, more by blocks of rows;
    naming features, steps or a checkpoint trains random Fourier features stochastically instead.
    """


class QSRVMRegressor(_Regressor):
    """Relevance vector regression: kernel functions at training rows, most of them switched off by the data."""

    _relevance = True


class _Classifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    _likelihoods = ("logistic",)

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, target: str | None = None) -> "_Classifier":
        """Learn from rows X and labels y of two or more classes; X may be a path with ``target``, as for regression."""
        given = (X, y, sample_weight)
        X, y, weight = self._rows(X, y, sample_weight, target)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        self._fit(X, self._columns(y), weight, given, scale_y=False)
        return self

    @available_if(_takes_portions)
    @all_or_nothing
    @with_callbacks
    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, *, target: str | None = None
    ) -> "_Classifier":
        """Learn from one more portion of rows; the first call names all ``classes`` unless its rows hold them all."""
        first, given = not hasattr(self, "_trained"), (X, y, sample_weight)
        X, y, weight = self._rows(X, y, sample_weight, target, reset=first)
        check_classification_targets(y)
        named = None if classes is None else np.unique(as_target(classes, numeric=False))
        if first:
            self.classes_ = np.unique(y) if named is None else named
        elif named is not None and named.tolist() != self.classes_.tolist():
            raise ValueError(
                f"Expected the classes of the first portion, {self.classes_.tolist()}, got {named.tolist()}. "
                "Name all classes in the first call; later ones may leave them out."
            )
        self._partial_fit(X, self._columns(y), weight, given, scale_y=False)
        return self

    def _columns(self, y: np.ndarray) -> np.ndarray:
        """+1 and -1: one column for two classes, else one for each class against the rest."""
        if len(self.classes_) < 2:
            raise ValueError(
                f"Expected labels of two classes or more, got 1 class: {self.classes_.tolist()[0]!r}. "
                "Check the target column."
            )
        codes = self.class_codes(y)
        columns = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return np.stack([np.where(codes == c, 1.0, -1.0) for c in columns], 1)

    def class_codes(self, y: Any) -> np.ndarray:
        """Positions of the labels y among ``classes_``; labels the model has not seen are refused."""
        labels = np.atleast_1d(as_target(y, numeric=False)).ravel()
        if labels.dtype.kind != self.classes_.dtype.kind and {labels.dtype.kind, self.classes_.dtype.kind} & set("OUS"):
            labels = labels.astype(str)  # names of labels and numbers do not compare: look them up as text
            names = self.classes_.astype(str)
            order = np.argsort(names)
            codes = order[np.searchsorted(names, labels, sorter=order).clip(0, len(names) - 1)]
            self._refuse_unknown(labels, names[codes] != labels)
            return codes
        codes = np.searchsorted(self.classes_, labels).clip(0, len(self.classes_) - 1)
        self._refuse_unknown(labels, self.classes_[codes] != labels)
        return codes

    def _refuse_unknown(self, labels: np.ndarray, unknown: np.ndarray) -> None:
        if unknown.any():
            raise ValueError(
                f"Expected labels among {self.classes_.tolist()}, got {str(labels[unknown][0])!r}. "
                "Leave out rows of classes the model has not seen."
            )

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over the posterior; with several classes one-versus-rest, normalised."""
        p = np.concatenate([self._against_others(rows) for rows in self._blocks(X)])
        if self._calibration is not None:
            p = self._calibration(torch.tensor(p)).numpy()
        p = np.concatenate([1 - p, p], 1) if p.shape[1] == 1 else p
        return p / p.sum(1, keepdims=True)

    def predict_proba_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Quantiles ``q`` of the probability of each class against the others (of the second class if there are two).

        They show how well the model knows the probability. One more axis in front when q is a list.
        """
        check_is_fitted(self)
        levels, found = _probabilities(q, "q", "Give 0.5 for the median, or a list of levels."), []
        for rows in self._blocks(X):
            latent = self._latent(rows)
            values = [self._sites().quantile(float(p), *latent) for p in levels]
            if self._calibration is not None:
                values = [self._calibration(value) for value in values]
            found.append(torch.stack(values).numpy())
        quantiles = np.concatenate(found, 1)
        return quantiles if np.ndim(q) else quantiles[0]

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        check_is_fitted(self)
        if not self._posterior.one_variance:
            return self.classes_[self.predict_proba(X).argmax(1)]
        # No variance moves a probability across a half, or past that of a class with the same variance.
        p = np.concatenate([torch.sigmoid(self._mean(rows)).numpy() for rows in self._blocks(X)])
        return self.classes_[p.argmax(1) if p.shape[1] > 1 else (p[:, 0] > 0.5).astype(int)]

    def _against_others(self, rows: np.ndarray) -> np.ndarray:
        """The probability of each class (of the second, if there are two) against all others, before calibration."""
        found: np.ndarray = self._sites().moments(*self._latent(rows))[0].numpy()
        return found

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """log Pr(label) row by row."""
        p = self.predict_proba(X)
        codes = self.class_codes(y)
        _check_length(codes, len(p))
        return np.log(p[np.arange(len(p)), codes].clip(np.finfo(float).tiny))

    def calibrate(self, X: Any, y: Any) -> "_Classifier":
        """Temper the probabilities by rows that were not used in ``fit``: one temperature, which keeps the order."""
        check_is_fitted(self)
        p = np.concatenate([self._against_others(rows) for rows in self._blocks(X)])
        labels = self._columns(y)
        _check_length(labels, len(p))
        self._calibration = Temperature.fit(torch.tensor(p), torch.tensor(labels))
        return self

    def _fitted_header(self) -> dict[str, Any]:
        return super()._fitted_header() | {"classes_": self.classes_.tolist()}

    def _calibration_from(self, tensors: Any) -> Temperature:
        return Temperature(float(tensors["temperature"]))


class QSGPClassifier(_Classifier):
    """Gaussian process classification for any number of rows; several classes one-versus-rest over shared features."""


class QSRVMClassifier(_Classifier):
    """Relevance vector classification: kernel functions at training rows, most of them switched off by the data."""

    _relevance = True


def _check_length(targets: np.ndarray, rows: int) -> None:
    if len(targets) != rows:
        raise ValueError(f"Expected one target for each of the {rows} rows of X, got {len(targets)}. Check y.")


def _probabilities(values: Any, name: str, remedy: str) -> np.ndarray:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if isinstance(values, str) or found.size == 0 or found.ndim > 1 or not ((found > 0) & (found < 1)).all():
        raise ValueError(f"Expected 0 < {name} < 1, got {values!r}. {remedy}")
    return np.ravel(found)


ESTIMATORS = {cls.__name__: cls for cls in (QSGPRegressor, QSGPClassifier, QSRVMRegressor, QSRVMClassifier)}


def load(path: str | os.PathLike[str], device: str = "cpu", max_memory: int | str = "auto") -> Any:
    """A model written by ``save``, on ``device`` ("auto": a GPU if there is one). Runs no code from the file.

    It takes ``max_memory`` at most, or is refused before it is made. "auto" is half of what is free, and for a small
    file less: one that claims more than it looks like needs a word from you.
    """
    device = usable_device(device)
    limit = min(budget(max_memory, place) for place in {"cpu", device})
    about, tensors = read_model(path, device, limit)
    match about:
        case {"estimator": str(name), "parameters": dict(parameters)} if name in ESTIMATORS:
            try:
                model = ESTIMATORS[name](**parameters)
            except TypeError as error:
                raise FileError(f"Expected keywords of {name} in {path}, got others: {error}.") from error
        case _:
            raise FileError(f"Expected a model of {', '.join(ESTIMATORS)} in {path}, got something else.")
    restore(model, about, tensors, limit, trusted=max_memory != "auto")
    return model
