"""What the four estimators share: keywords, checking, scaling, training, blocks of rows, files. No mathematics.

Parameters are stored untouched and checked in ``fit``; what ``fit`` learns ends in an underscore.
"""

import functools
import importlib
import numbers
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from qsgp import memory
from qsgp.data.columns import Columns
from qsgp.data.inputs import applied, learned, read_inputs, read_portion, read_rows
from qsgp.data.reading import is_path
from qsgp.data.rows import Rows
from qsgp.data.scaling import Scaling
from qsgp.data.tables import as_array_like, as_target, check_inputs, check_weights, dense
from qsgp.files import write_model
from qsgp.kernels.relevance import effective_lengthscales, has_map, metric
from qsgp.models.callbacks import CallbackSupportMixin, Watch
from qsgp.models.keywords import read_options
from qsgp.models.log_odds import as_log_odds
from qsgp.models.stored import contents
from qsgp.posteriors.export import Serving, export
from qsgp.posteriors.posteriors import ClosedForm, Posterior
from qsgp.training.options import SMALL, Options
from qsgp.training.plan import Plan, make_plan, takes_labels_for_numbers
from qsgp.training.portions import (
    Accumulated,
    check_portions,
    is_constant,
    need_of,
    rows_to_keep,
    says_more,
    start_accumulating,
    warn_if_unlike,
)
from qsgp.training.train import train
from qsgp.training.trained import Record, told

Given = tuple[Any, Any, Any]  # X, y and weights as they came


def all_or_nothing(method: Any) -> Any:
    """A fit that fails leaves the model as it was: not half of another, with its columns or classes."""

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **keywords: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *args, **keywords)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return whole


def merged(X: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A row given twice is one row of twice the weight; where each row came first. Of small tables only.

    Both say the same, so both must give the same model to the last digit: the search for hyperparameters enlarges a
    difference of rounding. Tables with neither copies nor weights stay as they are, others are sorted.
    """
    as_given = X, Y, weight, np.arange(len(X))
    if len(X) > SMALL:
        return as_given
    counted = np.flatnonzero(weight > 0)
    rows = np.concatenate([X[counted], Y[counted]], 1)
    _, at, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if len(at) == len(counted) and (weight[counted] == 1).all():
        return X[counted], Y[counted], weight[counted], counted
    first = counted[at]
    return X[first], Y[first], np.bincount(group.ravel(), weight[counted]), first


def alike(x: Tensor) -> list[Tensor]:
    """Indices of the rows up to 8 deviations long, up to 16, up to 32 and so on, as far as there are any."""
    size = x.abs().amax(1).clamp_min(8).log2().ceil()
    return [torch.nonzero(size == each)[:, 0] for each in size.unique()]


class Estimator(CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Keywords of the contract; every one may stay at its default."""

    _relevance = False
    _labels: bool  # classes are predicted, not numbers

    # what `fit` sets; documented with each estimator
    kernel_: str
    lengthscale_: np.ndarray
    signal_variance_: float | np.ndarray
    n_iter_: int
    n_features_in_: int
    feature_names_in_: np.ndarray
    history_: list[Record]
    memory_: int
    columns_: dict[str, Any]
    plan_: Plan
    _planning = False  # `plan` is at work: nothing is to be trained

    _scaling: Scaling
    _trained: Posterior | None  # None: to be made from what has accumulated
    _accumulated: Accumulated | None  # of `partial_fit`, once there are too many rows to keep
    _calibration: Any

    def __init__(
        self,
        *,
        kernel: str = "auto",
        metric: str = "auto",
        basis: str = "auto",
        n_features: int | str = "auto",
        covariance: str = "auto",
        dense_columns: int = 10,
        likelihood: str = "auto",
        mean: str = "constant",
        batch_points: int | str = "auto",
        batch_features: int | str = "auto",
        support_points: int | str = "auto",
        optimizer: str = "auto",
        learn_hyperparameters: bool = True,
        max_iter: int | str = "auto",
        max_time: float | None = None,
        tol: float | str = "auto",
        max_memory: int | str = "auto",
        device: str = "auto",
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.kernel = kernel
        self.metric = metric
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
        self.tol = tol
        self.max_memory = max_memory
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    # --- data ---------------------------------------------------------------------------------------------------

    def _rows(self, X: Any, y: Any, sample_weight: Any, target: str | None, **checks: Any) -> tuple[Any, Any, Any]:
        """Checked inputs, targets and weights, from tables or files."""
        columns, first = None, checks.get("reset", True)
        if is_path(X):
            if y is not None and target is not None:
                raise ValueError("Expected target= or y with a path, got both. Leave one out.")
            named = sample_weight if isinstance(sample_weight, str) else None
            if first:
                X, found, weight, columns = read_rows(X, target, named)
            else:
                X, found, weight = read_portion(X, Columns.known_to(self), target, named)
            y = found if target is not None else y
            sample_weight = weight if weight is not None else sample_weight
            if y is None:
                raise ValueError("Expected target='name of a column' with a path, got none. Say what to predict.")
        elif target is not None:
            raise ValueError(f"Expected target= with a path as X only, got {target!r} with a table. Pass y instead.")
        elif isinstance(sample_weight, str):
            raise ValueError(
                f"Expected the name of a weight column with a path as X only, got {sample_weight!r} with a table. "
                "Pass the weights themselves."
            )
        elif first:
            X, columns = learned(self._table(X))
        else:
            X = applied(Columns.learned_by(self), self._table(X))
        y = as_target(y, numeric=not self._labels)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_all_finite=False, **checks)
        check_inputs(X, getattr(self, "feature_names_in_", None))
        if first:
            self._keep_columns(columns)
        if sample_weight is not None and not isinstance(sample_weight, numbers.Number):
            sample_weight = np.array(as_array_like(sample_weight))
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        check_weights(weight)
        return X, y, weight

    def _keep_columns(self, columns: Columns | None) -> None:
        """``columns_`` says how a table becomes the model's inputs; without files and categories there is none."""
        if columns is not None:
            self.columns_ = columns.header()
        elif hasattr(self, "columns_"):
            del self.columns_

    def _table(self, X: Any) -> Any:
        """Whatever holds the inputs as scikit-learn can read it."""
        if sparse.issparse(X):
            X = dense(X, memory.budget(self.max_memory, "cpu"))
        return as_array_like(X)

    def prepare_inputs(self, X: Any) -> np.ndarray:
        """Turn rows of a table or a path into the array of numbers the model works with.

        Categories become a column for each of those known from ``fit``. Missing values and columns are refused.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or path
            Rows to predict, or a file that holds them.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
        """
        check_is_fitted(self)
        if is_path(X):
            X = read_inputs(X, Columns.known_to(self))
        else:
            X = applied(Columns.learned_by(self), self._table(X))
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], ensure_all_finite=False)
        check_inputs(X, getattr(self, "feature_names_in_", None))
        return X

    def _blocks(self, X: Any, draws: int = 0) -> Iterator[np.ndarray]:
        """Checked rows in float64, as many at a time as ``max_memory`` allows; the results are kept for all."""
        return self._checked_blocks(self.prepare_inputs(X), draws)

    def _checked_blocks(self, X: np.ndarray, draws: int = 0) -> Iterator[np.ndarray]:
        limit = memory.budget(self.max_memory, self._device)
        per_row = self._posterior.bytes_per_row(draws) + 24 * X.shape[1]
        size = memory.block_rows(limit, per_row, len(X), self._posterior.rows_at_a_time)
        need = memory.Need(
            {
                "results": 16 * len(X) * len(self._scaling.y_scale) * max(1, draws),
                f"{size} rows at a time": per_row * size,
            }
        )
        if self.verbose:
            print(f"Predicting {len(X)} rows takes about {need}; max_memory is {memory.readable(limit)}.")
        memory.check_fits(need, limit, "Predict fewer rows in one call.")
        return (X[start : start + size].astype(np.float64) for start in range(0, len(X), size))

    def _latent(self, X: np.ndarray) -> tuple[Tensor, Tensor]:
        """Standardised mean and variance of f, in float64 on the CPU."""
        mean, variance = self._computed(X, lambda x: torch.stack(self._posterior.latent(x)))
        return mean, variance

    def _mean(self, X: np.ndarray) -> Tensor:
        """The mean of `_latent` alone, many times faster."""
        return self._computed(X, lambda x: self._posterior.mean(x))

    def _computed(self, X: np.ndarray, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """``compute`` at the standardised rows, which are the last axis but one of its result; float64 on the CPU.

        A GPU scales its numbers by the largest of a call: there only rows of about the same size share one.
        """
        x = torch.tensor(self._scaling.inputs(X))
        groups = alike(x) if self._device.startswith("cuda") else [torch.arange(len(x))]
        found = torch.cat([compute(x[at]).double().cpu() for at in groups], -2)
        return found[..., torch.cat(groups).argsort(), :]

    @property
    def _device(self) -> str:
        return str(getattr(self._posterior.kernel, "variance").device)  # noqa: B009  # no part of the protocol

    def _sites(self) -> Any:
        """The likelihood in float64 on the CPU, where predictions are finished."""
        sites = self._posterior.likelihood
        return sites.with_parameters({name: v.double().cpu() for name, v in sites.parameters().items()})

    # --- what a fitted model tells ------------------------------------------------------------------------------

    @property
    def calibration_(self) -> Any:
        """What `calibrate` found: conformal scores of a regressor, the temperature of a classifier, or None."""
        return self._calibration

    @property
    def likelihood_(self) -> str:
        """The distribution of the target given the function: "gaussian", "laplace" or "logistic"."""
        return str(self.posterior_["likelihood"])

    @property
    def posterior_(self) -> dict[str, Any]:
        """A description of the solution: its kind, likelihood, sizes, and the number of rows and support points."""
        header, tensors = self._posterior.parts()
        rows = {"rows": len(tensors["x"])} if "x" in tensors else {}
        support = {"support_points": len(tensors["U"])} if "U" in tensors else {}
        return header | rows | support | {"metric": "full" if has_map(self._posterior.kernel) else "ard"}

    @property
    def metric_(self) -> np.ndarray:
        """The linear map in front of the kernel: a column for each direction, in units of its lengthscale."""
        return np.asarray(metric(self._posterior.kernel).numpy() / self._scaling.x_scale[:, None])

    @property
    def input_scale_(self) -> np.ndarray:
        """The standard deviation of each input over the training rows; 1 for a constant input."""
        return self._scaling.x_scale.copy()

    @property
    def target_mean_(self) -> np.ndarray:
        """The mean of each output over the training rows; for a classifier the log odds far from all rows."""
        return self._scaling.y_mean.copy()

    @property
    def target_scale_(self) -> np.ndarray:
        """The standard deviation of each output over the training rows; 1 for a classifier."""
        return self._scaling.y_scale.copy()

    def predict_latent(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Predict the function itself, without noise.

        For a regressor in the unit of y, for a classifier the log odds of each class against the others (of the second
        class if there are two).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or path
            Rows to predict, or a file that holds them.

        Returns
        -------
        mean, std : ndarray of shape (n_samples, n_outputs)
            Mean and standard deviation, one column for each output.
        """
        means, deviations = [], []
        for rows in self._blocks(X):
            mean, variance = self._latent(rows)
            means.append(self._scaling.restore(mean.numpy(), rows))
            deviations.append(variance.sqrt().numpy() * self._scaling.y_scale)
        return np.concatenate(means), np.concatenate(deviations)

    # --- training -----------------------------------------------------------------------------------------------

    def plan(self, X: Any, y: Any = None, sample_weight: Any = None, *, target: str | None = None) -> Plan:
        """Say what ``fit`` would do with these rows: on which road, with which sizes, in how much memory, and why.

        The rows are read and checked; nothing is trained, and the estimator stays as it is.

        Parameters
        ----------
        X, y, sample_weight, target
            As for ``fit``.

        Returns
        -------
        Plan
            Print it to read it.
        """
        other: Any = clone(self)
        other._planning = True
        other.fit(X, y, sample_weight, target=target)
        found: Plan = other.plan_
        return found

    def _fit(
        self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray, given: Given, *, scale_y: bool, keep: bool = False
    ) -> "Estimator":
        """Train on targets Y (one column an output), already numbers; callbacks see what the user has ``given``.

        ``keep`` takes the closed form whatever the keywords say of features: it keeps the rows for later portions.
        """
        options = read_options(self)
        X, Y, weight, first = merged(X, Y, weight)
        if weight.max() > 1e5 * weight[weight > 0].min():
            options = replace(options, dtype=torch.float64)  # float32 cannot carry weights that far apart
        plan = make_plan(int((weight > 0).sum()), X.shape[1], Y.shape[1], options, keep=keep)
        self.plan_, self.memory_ = plan, plan.memory
        if self._planning:
            return self
        if self.verbose:
            print(plan)
        scaling = Scaling.of(X, Y, weight, scale_y=scale_y, linear=self.mean == "linear")
        if takes_labels_for_numbers(plan, options):
            scaling = replace(scaling, y_mean=weight @ Y / weight.sum())
        x, targets = scaling.standardised(X, Y, np.dtype(plan.dtype))
        watch = Watch(self, *given)

        def report(record: Record, posterior: Any) -> bool:
            if self.verbose:
                print(told(record))
            return watch.record(lambda: self._as_fitted(scaling, posterior(), int(record["iteration"])))

        rows = Rows(torch.from_numpy(x), torch.from_numpy(targets), torch.from_numpy(weight))
        trained = train(rows, options, plan, report, torch.from_numpy(scaling.x_scale))
        for name, value in self._as_fitted(scaling, trained.posterior, trained.iterations).items():
            setattr(self, name, value)
        self.history_ = trained.history
        if self._relevance:
            self.relevance_ = np.array([]) if trained.relevant is None else first[trained.relevant.numpy()]
        self._learned_on = int((weight > 0).sum())
        watch.end(dict)
        return self

    @property
    def _posterior(self) -> Posterior:
        if self._trained is None:  # rows have been added since
            assert self._accumulated is not None
            self._trained = self._accumulated.posterior()
        return self._trained

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # as arrays
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trained")

    def _as_fitted(self, scaling: Scaling, posterior: Posterior, iterations: int) -> dict[str, Any]:
        """The attributes of a model with this posterior; hyperparameters in the units of the data."""
        scaling, posterior = as_log_odds(scaling, posterior)
        kernel: Any = posterior.kernel
        sites = posterior.likelihood
        unit = np.square(scaling.y_scale)
        unit = float(unit[0]) if len(unit) == 1 else unit
        found: dict[str, Any] = {
            "_scaling": scaling,
            "_trained": posterior,
            "_accumulated": None,
            "_calibration": None,
            "n_iter_": max(iterations, 1),
            "kernel_": kernel.name,
            "lengthscale_": effective_lengthscales(kernel).numpy() * scaling.x_scale,
            "signal_variance_": float(kernel.variance) * unit,
        }
        if sites.noise_variance is not None:
            found["noise_variance_"] = float(sites.noise_variance) * unit
        return found

    def _partial_fit(
        self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray, given: Given, *, scale_y: bool
    ) -> "Estimator":
        """Up to 1,000 rows are kept and fitted anew whenever they have doubled, or are not what scales came from;
        beyond, they are added up."""
        options, counted, began = read_options(self), weight > 0, time.monotonic()
        X, Y, weight = X[counted], Y[counted], weight[counted]
        most = rows_to_keep(X.shape[1], Y.shape[1], options)
        if not hasattr(self, "_trained"):
            check_portions(options)
            return self._begin(X, Y, weight, given, most, scale_y=scale_y)
        late = self._late(began)
        x, targets = self._scaling.standardised(X, Y, np.dtype("float64"))
        data = (torch.from_numpy(x), torch.from_numpy(targets), torch.from_numpy(weight))
        kept = self._posterior if self._accumulated is None and isinstance(self._posterior, ClosedForm) else None
        if kept is None:
            warn_if_unlike(*data[:2])
            return self._add(data, options, late)
        rows = len(kept.x) + len(X)
        if self._learned_on * 2 <= rows <= most or says_more(kept, *data[:2]):
            X_old = kept.x.cpu().numpy() * self._scaling.x_scale + self._scaling.x_mean
            Y_old = self._scaling.restore(kept.Y.cpu().numpy(), X_old)
            weight = np.concatenate([kept.weight.cpu().numpy(), weight])
            return self._begin(
                np.concatenate([X_old, X]), np.concatenate([Y_old, Y]), weight, given, most, scale_y=scale_y
            )
        if rows > most and not is_constant(kept.Y):
            return self._add(data, options, late)
        # of equal targets no more are kept than of others: they say nothing of scales
        self._trained = kept.with_rows(*(part[: max(0, most - len(kept.x))] for part in data))
        self._calibration = None
        return self

    def _begin(
        self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray, given: Given, most: int, *, scale_y: bool
    ) -> "Estimator":
        """Learn scales and hyperparameters from ``most`` of these rows, and add the others."""
        late = self._late(time.monotonic())
        # Rows of a file may be sorted: those to be kept are drawn.
        order = np.random.RandomState(0).permutation(len(X))
        if np.ptp(Y[order[:most]], 0).max() == 0:  # whatever differs must be among them
            order = order[np.argsort(-np.abs(Y - Y[order[0]]).max(1)[order], kind="stable")]
        first, rest = order[:most], order[most:]
        self._fit(X[first], Y[first], weight[first], given, scale_y=scale_y, keep=True)
        if not len(rest) or np.ptp(Y[first], 0).max() == 0:
            return self
        x, targets = self._scaling.standardised(X[rest], Y[rest], np.dtype("float64"))
        data = (torch.from_numpy(x), torch.from_numpy(targets), torch.from_numpy(weight[rest]))
        return self._add(data, read_options(self), late)

    def _late(self, began: float) -> Callable[[], bool]:
        return lambda: self.max_time is not None and time.monotonic() - began > self.max_time

    def _add(self, data: tuple[Tensor, Tensor, Tensor], options: Options, late: Callable[[], bool]) -> "Estimator":
        """Rows to sums over Fourier weights, which begin with the rows that were kept."""
        if self._accumulated is None:
            self._accumulated = start_accumulating(self._posterior, options)
            m = self._accumulated.basis.m
            self.memory_ = max(getattr(self, "memory_", 0), need_of(m).total)
            if hasattr(self, "plan_"):  # files of before lack it
                self.plan_ = self.plan_.with_sums(m, need_of(m))
        self._accumulated = self._accumulated.add(*data, late)
        self._trained, self._calibration = None, None
        return self

    # --- files --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file that `qsgp.load` reads on any machine; never a pickle.

        Parameters
        ----------
        path : str or path
            Where to write it, such as "model.qsgp". An existing file is replaced once the new one is complete.
        """
        check_is_fitted(self)
        write_model(path, *contents(self))

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the model for serving without qsgp.

        The file takes one input `x` of float64 rows. Its results are `mean_of_y` and `std_of_y`, with one column for
        each output, or `probabilities` for a classifier. Calibration by `calibrate` is not part of it.

        Parameters
        ----------
        path : str or path
            Ends in ".onnx" (opset 18, needs the extra `qsgp[export]`) or ".pt2" (torch.export).
        """
        check_is_fitted(self)
        classes = len(self.classes_) if hasattr(self, "classes_") else None
        export(Serving(self._scaling, self._posterior, self._sites(), classes), path, self.n_features_in_)

    def report(
        self,
        X: Any,
        y: Any,
        path: str | os.PathLike[str] = "report.html",
        *,
        target: str | None = None,
        output: int = 0,
    ) -> Path:
        """Judge the model by rows it has not seen, on one HTML page. Needs the extra `qsgp[plots]`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows that `fit` has not seen.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets or labels.
        path : str or path, default="report.html"
            Where to write the page. It needs no network.
        target : str, optional
            Name of what is predicted; otherwise the name that `y` carries.
        output : int, default=0
            Which of several targets the pictures show.

        Returns
        -------
        Path
            The page.
        """
        # imported on use: matplotlib is optional and slow to load
        return importlib.import_module("qsgp.report").write_report(self, X, y, path, target=target, output=output)

    def _fitted_header(self) -> dict[str, Any]:
        found: dict[str, Any] = {"n_features_in_": int(self.n_features_in_), "n_iter_": int(self.n_iter_)}
        if hasattr(self, "memory_"):  # files of before lack it
            found["memory_"] = int(self.memory_)
        if hasattr(self, "plan_"):
            found["plan_"] = self.plan_.header()
        if hasattr(self, "feature_names_in_"):
            found["feature_names_in_"] = [str(name) for name in self.feature_names_in_]
        if self._relevance:
            found["relevance_"] = self.relevance_.tolist()
        if hasattr(self, "columns_"):  # how a table's columns become numbers
            found["columns_"] = self.columns_
        return found

    def _calibration_from(self, tensors: dict[str, Tensor]) -> Any:
        raise NotImplementedError
