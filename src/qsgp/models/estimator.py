"""What the four estimators share: keywords, checking, scaling, training, blocks of rows, files. No mathematics.

Parameters are stored untouched and checked in ``fit``; what ``fit`` learns ends in an underscore.
"""

import functools
import importlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from qsgp import memory
from qsgp.data.columns import Columns
from qsgp.data.inputs import types_of
from qsgp.data.reading import batches, find, is_path
from qsgp.data.row_groups import held_bytes
from qsgp.data.rows import Rows
from qsgp.data.scaling import Scaling, blocks
from qsgp.data.tables import LARGEST_INPUT, warn_if_few_decide
from qsgp.files import write_model
from qsgp.interrupt import deferred_interrupt
from qsgp.kernels.levels import WithLevels
from qsgp.kernels.relevance import effective_lengthscales, has_map, metric
from qsgp.models.callbacks import CallbackSupportMixin, Watch
from qsgp.models.gaps import Gaps
from qsgp.models.keywords import read_options
from qsgp.models.log_odds import as_log_odds
from qsgp.models.rows import TableInputs
from qsgp.models.spread import several, spread
from qsgp.models.stored import contents
from qsgp.posteriors.export import MissingInputs, Serving, export
from qsgp.posteriors.posteriors import ClosedForm, KernelFunctionsAtRows, Posterior
from qsgp.ranks import ALONE, Ranks, leads, neighbours, present
from qsgp.training.options import SMALL, Options
from qsgp.training.plan import Plan, make_plan, takes_labels_for_numbers
from qsgp.training.portions import (
    Accumulated,
    check_half_life,
    check_portions,
    is_constant,
    need_of,
    rows_to_keep,
    says_more,
    start_accumulating,
    warn_if_unlike,
)
from qsgp.training.sizes import ROWS
from qsgp.training.store import check_same
from qsgp.training.stream import Stream
from qsgp.training.target_map import ROWS_OF_A_MAP
from qsgp.training.target_map import learned as learned_map
from qsgp.training.train import train
from qsgp.training.trained import Record, Trained, told

_LEAST_TIME = 0.5  # of max_time, for what comes after a map of the target

_MOST_OF_NOISE = 0.75  # that gaps of other rows may have caused; with 0.9 intervals of whole rows held 84 % at worst
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
    rows = np.concatenate([np.nan_to_num(X[counted].astype(np.float64), nan=2 * LARGEST_INPUT), Y[counted]], 1)
    _, at, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if len(at) == len(counted) and (weight[counted] == 1).all():
        return X[counted], Y[counted], weight[counted], counted
    first = counted[at]
    return X[first], Y[first], np.bincount(group.ravel(), weight[counted]), first


_ON_GPU = 8  # times the rows at a time of a CPU: draws of the prior cost the same for few rows


def alike(x: Tensor) -> list[Tensor]:
    """Indices of the rows up to 8 deviations long, up to 16, up to 32 and so on, as far as there are any."""
    size = x.abs().amax(1).clamp_min(8).log2().ceil()
    return [torch.nonzero(size == each)[:, 0] for each in size.unique()]


def shared(options: Options, ranks: int, freely: bool) -> Options:
    """Of several ranks each takes its share of the memory that is free, unless it is said what each may take."""
    apart = neighbours() if freely and options.device == "cpu" else 1
    return replace(options, ranks=ranks, max_memory=options.max_memory // apart)


class Estimator(TableInputs, CallbackSupportMixin, BaseEstimator):  # type: ignore[misc]
    """Keywords of the contract; every one may stay at its default."""

    _relevance = False

    # what `fit` sets; documented with each estimator
    kernel_: str
    lengthscale_: np.ndarray
    signal_variance_: float | np.ndarray
    effect_variance_: np.ndarray  # of identifiers with many levels, if there are any
    n_iter_: int
    history_: list[Record]
    memory_: int
    plan_: Plan
    _planning = False  # `plan` is at work: nothing is to be trained

    _scaling: Scaling
    _trained: Posterior | None  # None: to be made from what has accumulated
    _accumulated: Accumulated | None  # of `partial_fit`, once there are too many rows to keep
    _calibration: Any
    _gaps: Gaps
    _lost: np.ndarray | None

    def __init__(
        self,
        *,
        kernel: str = "auto",
        metric: str = "auto",
        categorical_features: Any = "from_dtype",
        basis: str = "auto",
        n_features: int | str = "auto",
        covariance: str = "auto",
        dense_columns: int = 10,
        likelihood: str = "auto",
        noise: str = "auto",
        target_map: str = "auto",
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
        devices: int | str = 1,
        dtype: str = "float32",
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.kernel = kernel
        self.metric = metric
        self.categorical_features = categorical_features
        self.basis = basis
        self.n_features = n_features
        self.covariance = covariance
        self.dense_columns = dense_columns
        self.likelihood = likelihood
        self.noise = noise
        self.target_map = target_map
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
        self.devices = devices
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    # --- data ---------------------------------------------------------------------------------------------------

    def _blocks(self, X: Any, draws: int = 0) -> Iterator[np.ndarray]:
        """Checked rows in float64, as many at a time as ``max_memory`` allows; the results are kept for all.

        Files that would take more than that are read in portions.
        """
        check_is_fitted(self)
        columns = Columns.known_to(self)
        if columns is None or not is_path(X) or held_bytes(find(X)) <= self._budget("cpu"):
            return self._checked_blocks(self.prepare_inputs(X), draws)
        tables = batches(find(X), columns.names, types_of(columns))
        return (block for table in tables for block in self._checked_blocks(self.prepare_inputs(table), draws))

    def _checked_blocks(self, X: np.ndarray, draws: int = 0) -> Iterator[np.ndarray]:
        limit = self._budget(self._device)
        per_row = self._posterior.bytes_per_row(draws) + 24 * X.shape[1]
        most = self._posterior.rows_at_a_time * (_ON_GPU if self._device.startswith("cuda") else 1)
        size = memory.block_rows(limit, per_row, len(X), most)
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

    def _budget(self, device: str) -> int:
        """Bytes. Ranks that predict together take that of the first: each adds its part to every block."""
        ranks: Ranks = getattr(self._posterior, "ranks", ALONE)
        return ranks.agreed(memory.budget(self.max_memory, device))

    def _latent(self, X: np.ndarray) -> tuple[Tensor, Tensor]:
        """Standardised mean and variance of f, in float64 on the CPU. The variance has what gaps add to the noise; it
        may be negative where the noise is that of rows with more gaps."""
        mean, variance = self._computed(X, lambda x: torch.stack(self._posterior.latent(x)))
        if np.isnan(X).any() or self._gaps.share.any():
            added = torch.tensor(self._gaps.added(self._scaling.left(X), self._variance_of_gaps()))
            variance = torch.maximum(variance + added, variance.clamp_max(self._least_variance()))
        return mean, variance

    def _least_variance(self) -> float:
        """Of f: less than nothing where the noise is that of rows with gaps."""
        sites = self._sites()
        return -_MOST_OF_NOISE * float(sites.noise_variance) if sites.fixed_sites else 0.0

    def _variance_of_gaps(self) -> np.ndarray:
        """Measured when it is first needed."""
        if self._lost is None:
            names, levels = self.input_names_, set[str]()
            by_column = {name: [name] for name in names}
            if hasattr(self, "columns_"):  # a level that is missing has a code: the model knows what that adds
                by_column, levels = self.columns_.encoded_by_column, set(self.columns_.levels)
            place = {name: k for k, name in enumerate(names)}
            groups = [[place[n] for n in own] for own in by_column.values() if own[0] not in levels]
            self._lost = self._gaps.variance(self._mean, groups, self._scaling)
        return self._lost

    def _mean(self, X: np.ndarray) -> Tensor:
        """The mean of `_latent` alone, many times faster."""
        return self._computed(X, lambda x: self._posterior.mean(x))

    def _computed(self, X: np.ndarray, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """``compute`` at the standardised rows, which are the last axis but one of its result; float64 on the CPU.

        A GPU scales its float32 numbers by the largest of a call: there only rows of about the same size share one.
        """
        x = torch.tensor(self._scaling.inputs(X))
        groups = alike(x) if self._single and self._device.startswith("cuda") else [torch.arange(len(x))]
        found = torch.cat([compute(x[at]).double().cpu() for at in groups], -2)
        return found[..., torch.cat(groups).argsort(), :]

    @property
    def _device(self) -> str:
        return str(getattr(self._posterior.kernel, "variance").device)  # noqa: B009  # no part of the protocol

    @property
    def _single(self) -> bool:
        """Whether it predicts in float32."""
        return bool(getattr(self._posterior.kernel, "variance").dtype == torch.float32)  # noqa: B009  # as above

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
        """The distribution of the target given the function: "gaussian", "laplace", "mixture" or "logistic"."""
        return str(self.posterior_["likelihood"])

    @property
    def posterior_(self) -> dict[str, Any]:
        """A description of the solution: its kind, likelihood, sizes, and the number of rows and support points."""
        header, tensors = self._posterior.parts()
        rows = {"rows": len(tensors["x"])} if "x" in tensors else {}
        if isinstance(self._posterior, KernelFunctionsAtRows) and self._posterior.ranks.size > 1:
            rows = {"rows": self._posterior.n or 0}  # of all ranks
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
            found = self._scaling.moments(mean.numpy(), variance.clamp_min(0).numpy(), rows)
            means.append(found[0])
            deviations.append(found[1])
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
        self,
        X: np.ndarray,
        Y: np.ndarray,
        weight: np.ndarray,
        given: Given,
        *,
        scale_y: bool,
        keep: bool = False,
        options: Options | None = None,
    ) -> "Estimator":
        """Train on targets Y (one column an output), already numbers; callbacks see what the user has ``given``.

        ``keep`` takes the closed form whatever the keywords say of features: it keeps the rows for later portions.
        ``options`` are those of the process that has started this one.
        """
        ranks, read = present(), options or read_options(self)
        devices = several(self, read, ranks.size)
        options = ranks.agreed(shared(read, ranks.size, self.max_memory == "auto"))
        options = replace(options, **self._levels())
        if options.levels:  # effects stand beside equal noise and targets as they are
            options = replace(options.without_map("beside identifiers with many levels"), noise="equal")
        if keep:  # what portions add up has equal noise and targets as they are
            options = replace(options, noise="equal", target_map="none")
        if np.isnan(X).any():  # what gaps cost is taken off an equal noise, and rows with gaps would be judged twice
            options = replace(options, noise="equal")
        check_same(ranks, X, Y, weight)
        X, Y, weight, first = merged(X, Y, weight)
        if weight.max() > 1e5 * weight[weight > 0].min():
            options = replace(options, dtype=torch.float64)  # float32 cannot carry weights that far apart
        shape = int((weight > 0).sum()), X.shape[1], Y.shape[1]
        plan = make_plan(*shape, options, keep=keep)
        spreads = devices > 1 and plan.road == ROWS and not options.levels
        if spreads:
            plan = make_plan(*shape, replace(options, ranks=devices))
        self.plan_, self.memory_ = plan, plan.memory
        if self._planning:
            return self
        if spreads:
            spread(self, (X, Y, weight), read, devices, scale_y=scale_y)
            self._learned_on = shape[0]
            return self
        if self.verbose and leads():
            print(plan)
        began = time.monotonic()
        with deferred_interrupt():  # pressed while a map of the target is looked for, it ends what follows
            scaling = ranks.on_first(functools.partial(self._scaled, X, Y, weight, options, scale_y=scale_y))
            if options.max_time is not None:  # the time that a map of the target has taken
                left = options.max_time - ranks.agreed(time.monotonic() - began)
                options = replace(options, max_time=max(left, _LEAST_TIME * options.max_time))
            if takes_labels_for_numbers(plan, options):
                scaling = replace(scaling, y_mean=weight @ Y / weight.sum())
            x, targets = scaling.standardised(X, Y, np.dtype(plan.dtype))
            rows = Rows(torch.from_numpy(x), torch.from_numpy(targets), torch.from_numpy(weight))
            self._gaps = Gaps.of(X, scaling)
            trained = self._train(rows, options, plan, scaling, given)
        if self._relevance:
            self.relevance_ = np.array([]) if trained.relevant is None else first[trained.relevant.numpy()]
        self._learned_on = int((weight > 0).sum())
        return self

    def _train(
        self,
        rows: Rows,
        options: Options,
        plan: Plan,
        scaling: Scaling,
        given: Given,
        stream: Stream | None = None,
    ) -> Trained:
        """Standardised rows, or a sample of those of a ``stream``, to a fitted model."""
        watch = Watch(self, *given)

        def report(record: Record, posterior: Any) -> bool:
            if self.verbose and leads():
                print(told(record))
            return watch.record(lambda: self._as_fitted(scaling, posterior(), int(record["iteration"])))

        trained = train(rows, options, plan, report, torch.from_numpy(scaling.x_scale), stream)
        for name, value in self._as_fitted(scaling, trained.posterior, trained.iterations).items():
            setattr(self, name, value)
        self.history_ = trained.history
        watch.end(dict)
        return trained

    def _scaled(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray, options: Options, *, scale_y: bool) -> Scaling:
        """Scales, a map of the target where one helps, and the linear mean."""
        units = self.columns_.scales if hasattr(self, "columns_") else None
        scaling = Scaling.of(X, Y, weight, scale_y=scale_y, units=units, levels=options.levels)
        scaling = scaling.with_filling(X, options.levels)
        if options.maps_targets(*Y.shape):
            some = np.random.RandomState(options.seed).permutation(np.flatnonzero(weight > 0))[:ROWS_OF_A_MAP]
            x, u = scaling.standardised(X[some], Y[some], np.dtype("float64"))
            found = learned_map(Rows(torch.from_numpy(x), torch.from_numpy(u), torch.from_numpy(weight[some])), options)
            scaling = scaling if found is None else scaling.with_map(found, Y, weight)
        if scale_y and scaling.target_map is None:
            warn_if_few_decide(Y[weight > 0], scaling.y_scale)
        if self.mean != "linear":
            return scaling
        return scaling.with_trend(((X[rows], Y[rows], weight[rows]) for rows in blocks(len(X))), options.levels)

    def _levels(self) -> dict[str, Any]:
        """Which inputs are codes of levels, the last ones, and how many levels each has."""
        counts = tuple(self.columns_.levels.values()) if hasattr(self, "columns_") else ()
        inputs = len(self.input_names_)
        return {"levels": tuple(range(inputs - len(counts), inputs)), "level_counts": counts}

    @property
    def _posterior(self) -> Posterior:
        if self._trained is None:  # rows have been added since
            assert self._accumulated is not None
            self._trained = self._accumulated.posterior()
        return self._trained

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # as arrays
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
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
            "_lost": None,
            "n_iter_": max(iterations, 1),
            "kernel_": kernel.name,
            "lengthscale_": effective_lengthscales(kernel).numpy() * scaling.x_scale,
            "signal_variance_": float(kernel.variance) * unit,
        }
        if isinstance(kernel, WithLevels):
            found["signal_variance_"] = float(kernel.smooth.variance) * unit
            found["effect_variance_"] = np.multiply.outer(kernel.effects.double().cpu().numpy(), unit)
        if sites.noise_variance is not None:
            found["noise_variance_"] = float(sites.noise_variance) * unit
        return found

    def _partial_fit(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        weight: np.ndarray,
        given: Given,
        *,
        scale_y: bool,
        half_life: Any = None,
    ) -> "Estimator":
        """Up to 1,000 rows are kept and fitted anew whenever they have doubled, or are not what scales came from;
        beyond, they are added up, and what was added fades with ``half_life``."""
        check_half_life(half_life)
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
            return self._add(data, options, late, half_life)
        rows = len(kept.x) + len(X)
        if self._learned_on * 2 <= rows <= most or says_more(kept, *data[:2]):
            X_old = kept.x.cpu().numpy() * self._scaling.x_scale + self._scaling.x_mean
            Y_old = self._scaling.restore(kept.Y.cpu().numpy(), X_old)
            weight = np.concatenate([kept.weight.cpu().numpy(), weight])
            return self._begin(
                np.concatenate([X_old, X]), np.concatenate([Y_old, Y]), weight, given, most, scale_y=scale_y
            )
        if rows > most and not is_constant(kept.Y):
            return self._add(data, options, late, half_life)
        # of equal targets no more are kept than of others: they say nothing of scales
        self._trained = kept.with_rows(*(part[: max(0, most - len(kept.x))] for part in data))
        self._calibration = self._lost = None
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

    def _add(
        self,
        data: tuple[Tensor, Tensor, Tensor],
        options: Options,
        late: Callable[[], bool],
        half_life: Any = None,
    ) -> "Estimator":
        """Rows to sums over Fourier weights, which begin with the rows that were kept."""
        if self._accumulated is None:
            self._accumulated = start_accumulating(self._posterior, options)
            m = self._accumulated.basis.m
            self.memory_ = max(getattr(self, "memory_", 0), need_of(m).total)
            if hasattr(self, "plan_"):  # files of before lack it
                self.plan_ = self.plan_.with_sums(m, need_of(m))
        self._accumulated = self._accumulated.add(*data, late, half_life)
        self._trained = self._calibration = self._lost = None
        return self

    # --- files --------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file that `qsgp.load` reads on any machine; never a pickle.

        Of several ranks each must call it; the first one writes the file.

        Parameters
        ----------
        path : str or path
            Where to write it, such as "model.qsgp". An existing file is replaced once the new one is complete.
        """
        check_is_fitted(self)
        found, ranks = contents(self), present()
        ranks.on_first(lambda: write_model(path, *found))

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
        gaps = MissingInputs(self._variance_of_gaps(), self._gaps.share, self._least_variance())
        module = Serving(self._scaling, self._posterior, self._sites(), classes, gaps)
        export(module, path, len(self.input_names_))

    def report(
        self,
        X: Any,
        y: Any,
        path: str | os.PathLike[str] = "report.html",
        *,
        target: str | None = None,
        output: int = 0,
        groups: Any = None,
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
        groups : array-like of shape (n_samples,) or str, optional
            The group of each row, or the name of a column of `X` that has it: the page then says how good the model is
            in each group. Intervals are those of `predict_interval` with these groups, if `calibrate` had them.

        Returns
        -------
        Path
            The page.
        """
        # imported on use: matplotlib is optional and slow to load
        write = importlib.import_module("qsgp.report").write_report
        return write(self, X, y, path, target=target, output=output, groups=groups)

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
            found["columns_"] = self.columns_.header()
        return found

    def _calibration_from(self, tensors: dict[str, Tensor], header: Any) -> Any:
        raise NotImplementedError
