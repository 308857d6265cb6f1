"""The user's door: scikit-learn estimators. Plain words here, paper symbols inside; no mathematics.

Parameters are stored untouched and checked in ``fit``; what ``fit`` learns ends in an underscore.
"""

import numbers
import os
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from qsgp.conformal import Conformal, fit_conformal
from qsgp.defaults import Options, train
from qsgp.files import read_model, write_model
from qsgp.likelihoods import Gaussian, Laplace
from qsgp.posteriors import posterior_from
from qsgp.scaling import Scaling

_CHOICES = {
    "kernel": ("auto", "rbf", "matern12", "matern32", "matern52"),
    "basis": ("auto", "fourier", "inducing"),
    "covariance": ("auto", "meanfield", "chevron", "full"),
    "optimizer": ("auto", "adagrad"),
    "dtype": ("float32", "float64"),
    "mean": ("constant", "linear"),
}


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What the four estimators share: checking, scaling, training, files."""

    _relevance = False
    _likelihoods: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        kernel: str = "auto",
        basis: str = "auto",
        n_features: int | str = "auto",
        covariance: str = "auto",
        dense_columns: int = 10,
        likelihood: str = "gaussian",
        mean: str = "constant",
        batch_points: int | str = "auto",
        batch_features: int | str = "auto",
        support_points: int | str = "auto",
        optimizer: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | str = "auto",
        max_time: float | None = None,
        device: str = "auto",
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.kernel = kernel
        self.basis = basis
        self.n_features = n_features
        self.covariance = covariance
        self.dense_columns = dense_columns
        self.likelihood = likelihood
        self.mean = mean
        self.batch_points = batch_points
        self.batch_features = batch_features
        self.support_points = support_points
        self.optimizer = optimizer
        self.learn_hyperparameters = learn_hyperparameters
        self.max_iter = max_iter
        self.max_time = max_time
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def _options(self) -> Options:
        for name, choices in {**_CHOICES, "likelihood": self._likelihoods}.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(
                    f"Expected {name} among {', '.join(map(repr, choices))}, got {value!r}. Choose one of these."
                )
        device = ("cuda" if torch.cuda.is_available() else "cpu") if self.device == "auto" else self.device
        return Options(
            kernel=self.kernel,
            basis=self.basis,
            covariance=self.covariance,
            dense_columns=self.dense_columns if self.covariance == "chevron" else 0,
            optimizer=self.optimizer,
            learn_hyperparameters=self.learn_hyperparameters,
            max_time=self.max_time,
            device=device,
            dtype=getattr(torch, self.dtype),
            seed=self._seed(),
            relevance=self._relevance,
            checkpoint=None if self.checkpoint is None else os.fspath(self.checkpoint),
            n_features=self._count("n_features"),
            batch_points=self._count("batch_points"),
            batch_features=self._count("batch_features"),
            support_points=self._count("support_points"),
            max_iter=self._count("max_iter"),
        )

    def _seed(self) -> int:
        if self.random_state is None and self.checkpoint is not None:
            return 0  # a run can be resumed only if it can be repeated
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _count(self, name: str) -> int | None:
        value = getattr(self, name)
        if isinstance(value, str) and value == "auto":
            return None
        if not isinstance(value, numbers.Integral) or value < 1:
            raise ValueError(f"Expected {name} to be a whole number >= 1 or 'auto', got {value!r}. Leave it at 'auto'.")
        return int(value)

    def _fit(self, X: np.ndarray, Y: np.ndarray, sample_weight: Any, *, scale_y: bool) -> "_Estimator":
        """Train on targets Y (one column an output), already numbers."""
        options = self._options()
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        X64 = np.asarray(X, dtype=np.float64)
        self._scaling = Scaling.of(X64, Y, weight, scale_y=scale_y, linear=self.mean == "linear")
        x, targets = self._scaling.inputs(X64), self._scaling.targets(Y, X64)
        trained = train(
            torch.tensor(x), torch.tensor(targets), torch.tensor(weight), self.likelihood, options, self._report()
        )
        self._posterior = trained.posterior
        self._conformal: Conformal | None = None
        self.history_, self.n_iter_ = trained.history, max(trained.iterations, 1)
        if self._relevance:
            self.relevance_ = np.array([]) if trained.relevant is None else trained.relevant.numpy()
        self._set_learned()
        return self

    def _report(self) -> Any:
        return (lambda record: print({k: round(v, 4) for k, v in record.items()})) if self.verbose else None

    def _set_learned(self) -> None:
        """Hyperparameters in the units of the data."""
        kernel, sites = self._posterior.kernel, self._posterior.likelihood
        names = {"SquaredExponential": "rbf"}
        self.kernel_ = names.get(type(kernel).__name__, type(kernel).__name__.lower())
        self.lengthscale_ = kernel.lengthscale.double().cpu().numpy() * self._scaling.x_scale  # type: ignore[attr-defined]
        unit = float(self._scaling.y_scale[0]) ** 2 if len(self._scaling.y_scale) == 1 else self._scaling.y_scale**2
        self.signal_variance_ = float(kernel.variance) * unit  # type: ignore[attr-defined]
        if isinstance(sites, Gaussian):
            self.noise_variance_ = float(sites.noise_variance) * unit
        elif isinstance(sites, Laplace):
            self.noise_variance_ = 2 * float(sites.scale) ** 2 * unit

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, dtype=[np.float64, np.float32]).astype(np.float64)

    def _latent(self, X: np.ndarray) -> tuple[Tensor, Tensor]:
        """Standardised mean and variance of f, in float64 on the CPU."""
        mean, variance = self._posterior.latent(torch.tensor(self._scaling.inputs(X)))
        return mean.double().cpu(), variance.double().cpu()

    def _sites(self) -> Any:
        """The likelihood in float64 on the CPU, where predictions are finished."""
        sites = self._posterior.likelihood
        return sites.with_parameters({name: v.double().cpu() for name, v in sites.parameters().items()})

    # --- files --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file that `qsgp.load` reads on any machine; never a pickle."""
        check_is_fitted(self)
        header, tensors = self._posterior.parts()
        tensors |= {f"scaling.{name}": torch.tensor(value) for name, value in self._scaling.arrays().items()}
        if self._conformal is not None:
            tensors |= {f"conformal.{name}": value for name, value in self._conformal.to_tensors().items()}
        about = {
            "estimator": type(self).__name__,
            "parameters": {name: _plain(value) for name, value in self.get_params(deep=False).items()},
            "posterior": header,
            "fitted": self._fitted_header(),
        }
        write_model(path, about, tensors)

    def _fitted_header(self) -> dict[str, Any]:
        found: dict[str, Any] = {"n_features_in_": int(self.n_features_in_), "n_iter_": int(self.n_iter_)}
        if hasattr(self, "feature_names_in_"):
            found["feature_names_in_"] = [str(name) for name in self.feature_names_in_]
        if self._relevance:
            found["relevance_"] = self.relevance_.tolist()
        return found

    def _restore(self, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        scaling = {n.removeprefix("scaling."): v.cpu().numpy() for n, v in tensors.items() if n.startswith("scaling.")}
        conformal = {n.removeprefix("conformal."): v.cpu() for n, v in tensors.items() if n.startswith("conformal.")}
        self._scaling = Scaling(**scaling)
        self._posterior = posterior_from(about["posterior"], tensors)
        self._conformal = Conformal.from_tensors(conformal) if conformal else None
        self.history_ = []
        for name, value in about["fitted"].items():
            setattr(self, name, np.array(value) if isinstance(value, list) else value)
        self._set_learned()


class _Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    _likelihoods = ("gaussian", "laplace")

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "_Estimator":
        """Learn from rows X and targets y (one column an output); weights say how often a row counts."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=[np.float64, np.float32])
        y = np.asarray(y, dtype=np.float64)
        self._one_output = y.ndim == 1
        return self._fit(X, y.reshape(len(y), -1), sample_weight, scale_y=True)

    def _shape(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self._one_output else values

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean of y, and with ``return_std`` its deviation, noise included."""
        X = self._inputs(X)
        mean, variance = self._sites().moments(*self._latent(X))
        centre = self._shape(self._scaling.restore(mean.numpy(), X))
        return (centre, self._shape(variance.sqrt().numpy() * self._scaling.y_scale)) if return_std else centre

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """The quantiles ``q`` of y: one more axis in front when q is a list."""
        X = self._inputs(X)
        latent = self._latent(X)
        found = [
            self._shape(self._scaling.restore(self._sites().quantile(float(p), *latent).numpy(), X))
            for p in np.ravel(q)
        ]
        return np.stack(found) if np.ndim(q) else found[0]

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Central interval that holds y with probability ``coverage``; recalibrated after `calibrate`."""
        if not 0 < coverage < 1:
            raise ValueError(f"Expected 0 < coverage < 1, got {coverage}. Give 0.95 for a 95 % interval.")
        check_is_fitted(self)
        if self._conformal is not None:
            mean, deviation = self.predict(X, return_std=True)
            lower, upper = self._conformal.interval(torch.tensor(mean), torch.tensor(deviation), coverage)
            return lower.numpy(), upper.numpy()
        lower, upper = self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])
        return lower, upper

    def calibrate(self, X: Any, y: Any) -> "_Estimator":
        """Make `predict_interval` honest by split-conformal scores of rows that were not used in ``fit``."""
        if not self._one_output:
            raise ValueError("Expected a model of one output to calibrate, got several. Fit one model for each output.")
        mean, deviation = self.predict(X, return_std=True)
        self._conformal = fit_conformal(
            torch.tensor(np.asarray(y, dtype=np.float64)), torch.tensor(mean), torch.tensor(deviation)
        )
        return self

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """log Pr(y) row by row, in the unit of y; its negative mean is MNLP."""
        X = self._inputs(X)
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        targets = torch.tensor(self._scaling.targets(Y, X))
        density = self._sites().log_density(targets, *self._latent(X)).numpy() - np.log(self._scaling.y_scale)
        return self._shape(density)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of the function, coherent over the rows of X (without noise): shape (rows, [outputs,] n_samples)."""
        X = self._inputs(X)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        draws = self._posterior.sample(torch.tensor(self._scaling.inputs(X)), n_samples, seed).double().cpu().numpy()
        return np.moveaxis(self._shape(self._scaling.restore(draws, X)), 0, -1)

    def _fitted_header(self) -> dict[str, Any]:
        return super()._fitted_header() | {"_one_output": self._one_output}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class QSGPRegressor(_Regressor):
    """Gaussian process regression for any number of rows, with calibrated deviations.

    ``QSGPRegressor().fit(X, y)`` needs no settings. Up to 3,000 rows are solved in closed form; more are trained
    stochastically over random Fourier features. Every keyword may stay at its default.
    """


class QSRVMRegressor(_Regressor):
    """Relevance vector regression: kernel functions at training rows, most of them switched off by the data."""

    _relevance = True


class _Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    _likelihoods = ("logistic",)

    def __init__(
        self,
        *,
        kernel: str = "auto",
        basis: str = "auto",
        n_features: int | str = "auto",
        covariance: str = "auto",
        dense_columns: int = 10,
        likelihood: str = "logistic",
        mean: str = "constant",
        batch_points: int | str = "auto",
        batch_features: int | str = "auto",
        support_points: int | str = "auto",
        optimizer: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | str = "auto",
        max_time: float | None = None,
        device: str = "auto",
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            kernel=kernel,
            basis=basis,
            n_features=n_features,
            covariance=covariance,
            dense_columns=dense_columns,
            likelihood=likelihood,
            mean=mean,
            batch_points=batch_points,
            batch_features=batch_features,
            support_points=support_points,
            optimizer=optimizer,
            learn_hyperparameters=learn_hyperparameters,
            max_iter=max_iter,
            max_time=max_time,
            device=device,
            dtype=dtype,
            random_state=random_state,
            verbose=verbose,
            checkpoint=checkpoint,
        )

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "_Estimator":
        """Learn from rows X and labels y of two or more classes."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Expected labels of two classes or more, got 1 class: {self.classes_[0]!r}. Check the target column."
            )
        columns = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        Y = np.stack([np.where(codes == c, 1.0, -1.0) for c in columns], 1)
        return self._fit(X, Y, sample_weight, scale_y=False)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over the posterior; with several classes one-versus-rest, normalised."""
        X = self._inputs(X)
        p = self._sites().moments(*self._latent(X))[0].numpy()
        p = np.concatenate([1 - p, p], 1) if p.shape[1] == 1 else p
        return p / p.sum(1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(1)]

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """log Pr(label) row by row."""
        p = self.predict_proba(X)
        codes = np.searchsorted(self.classes_, np.asarray(y)).clip(0, len(self.classes_) - 1)
        unknown = self.classes_[codes] != np.asarray(y)
        if unknown.any():
            raise ValueError(
                f"Expected labels among {self.classes_.tolist()}, got {str(np.asarray(y)[unknown][0])!r}. "
                "Leave out rows of classes the model has not seen."
            )
        return np.log(p[np.arange(len(p)), codes].clip(np.finfo(float).tiny))

    def _fitted_header(self) -> dict[str, Any]:
        return super()._fitted_header() | {"classes_": self.classes_.tolist()}


class QSGPClassifier(_Classifier):
    """Gaussian process classification for any number of rows; several classes one-versus-rest over shared features."""


class QSRVMClassifier(_Classifier):
    """Relevance vector classification: kernel functions at training rows, most of them switched off by the data."""

    _relevance = True


ESTIMATORS = {cls.__name__: cls for cls in (QSGPRegressor, QSGPClassifier, QSRVMRegressor, QSRVMClassifier)}


def load(path: str | os.PathLike[str], device: str = "cpu") -> Any:
    """A model written by ``save``, on ``device``. Runs no code from the file."""
    about, tensors = read_model(path, device)
    model = ESTIMATORS[about["estimator"]](**about["parameters"])
    model._restore(about, tensors)
    return model


def _plain(value: Any) -> Any:
    """A constructor argument as JSON can hold it; a random state that is an object is not kept."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else None
