"""Regression: what is particular to targets that are numbers."""

import functools
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from qsgp.data.grouping import Groups
from qsgp.data.inputs import without_groups
from qsgp.data.reading import is_path
from qsgp.data.tables import as_target
from qsgp.models import streaming
from qsgp.models.callbacks import with_callbacks
from qsgp.models.conformal import Conformal, fit_by_group, fit_conformal
from qsgp.models.estimator import Estimator, all_or_nothing
from qsgp.models.inputs import check_length, probabilities, takes_portions
from qsgp.models.law import Law


class _Regressor(RegressorMixin, Estimator):  # type: ignore[misc]
    _labels = False

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, target: str | None = None) -> "_Regressor":
        """Learn from rows and targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), data frame, or path, glob or list of paths
            Inputs. Paths lead to CSV, Parquet, Arrow or NPZ files; then `target` names the column to predict. Files and
            memory-mapped arrays that would take more than `max_memory` are read a piece at a time.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), optional
            Targets, one column for each output. Left out if `target` is given.
        sample_weight : array-like of shape (n_samples,) or str, optional
            How often each row counts. With a path: the name of the column that says so.
        target : str, optional
            Column to predict, if `X` is a path.

        Returns
        -------
        self
            The fitted model.
        """
        if (source := streaming.source_of(self, X, y, sample_weight, target)) is not None:
            streaming.fit(self, source, (X, y, sample_weight))
            return self
        return self._learn(X, y, sample_weight, target, self._fit)

    @available_if(takes_portions)
    @all_or_nothing
    @with_callbacks
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
        half_life: Any = None,
    ) -> "_Regressor":
        """Learn from one more portion of rows, without the rows before.

        Scales and hyperparameters come from the first 1,000 rows or so. After that the order and the sizes of the
        portions do not matter (Gaussian noise), unless rows are to be forgotten.

        Parameters
        ----------
        X, y, sample_weight, target
            As for `fit`.
        half_life : float, optional
            For data that drift: after so many new rows all earlier ones count half as much. It begins after the first
            1,000 rows; scales and hyperparameters stay those of these rows.

        Returns
        -------
        self
            The model, fitted to all portions so far.
        """
        learn = functools.partial(self._partial_fit, half_life=half_life)
        return self._learn(X, y, sample_weight, target, learn)

    def _learn(self, X: Any, y: Any, sample_weight: Any, target: str | None, learn: Any) -> "_Regressor":
        first, given = learn == self._fit or not hasattr(self, "_trained"), (X, y, sample_weight)
        checks = {"multi_output": True, "y_numeric": True, "later": learn != self._fit}
        X, y, weight = self._rows(X, y, sample_weight, target, reset=first, **checks)
        Y = np.asarray(y, dtype=np.float64)
        outputs = Y.ndim == 1, Y.reshape(len(Y), -1).shape[1]
        if first:
            self._one_output = outputs[0]
        elif outputs != (self._one_output, len(self._scaling.y_scale)):
            raise ValueError(f"Expected targets as in the first portion, got shape {Y.shape}. Keep their columns.")
        learn(X, Y.reshape(len(Y), -1), weight, given, scale_y=True)
        return self

    def _columns(self, y: np.ndarray) -> np.ndarray:
        """One for each output."""
        return np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def _shape(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self._one_output else values

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows to predict, with the inputs of `fit`.
        return_std : bool, default=False
            Whether to return the standard deviation of the target too, noise included. It takes several times as long.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Mean of the predicted distribution.
        std : ndarray of the same shape
            Its standard deviation; only with `return_std`.
        """
        check_is_fitted(self)
        # the mean of y is that of f for every likelihood of numbers, unless a map stands between them
        if not return_std and self._scaling.target_map is None:
            means = [self._scaling.restore(self._mean(rows).numpy(), rows) for rows in self._blocks(X)]
            return self._shape(np.concatenate(means))
        means, deviations = [], []
        for rows in self._blocks(X):
            mean, deviation = Law(self._scaling, self._sites(), rows, *self._latent(rows)).moments()
            means.append(mean)
            deviations.append(deviation)
        mean, deviation = self._shape(np.concatenate(means)), self._shape(np.concatenate(deviations))
        return (mean, deviation) if return_std else mean

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Predict quantiles of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows to predict, with the inputs of `fit`.
        q : float or list of float
            Probabilities between 0 and 1, such as 0.5 for the median.

        Returns
        -------
        ndarray of shape (n_samples,), (n_samples, n_outputs), or the same with one axis more in front
            The quantiles; the first axis counts them if `q` is a list.
        """
        check_is_fitted(self)
        levels = probabilities(q, "q", "Give 0.5 for the median, or a list of levels.")
        found = []
        for rows in self._blocks(X):
            law = Law(self._scaling, self._sites(), rows, *self._latent(rows))
            found.append(np.stack([self._shape(law.quantile(float(p))) for p in levels]))
        quantiles = np.concatenate(found, 1)
        return quantiles if np.ndim(q) else quantiles[0]

    def predict_interval(self, X: Any, coverage: float = 0.95, groups: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Predict a central interval that holds the target with a given probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows to predict, with the inputs of `fit`.
        coverage : float, default=0.95
            The probability. After `calibrate` intervals are recalibrated to it.
        groups : array-like of shape (n_samples,) or str, optional
            The group of each row, or the name of a column of `X` that has it, after `calibrate` with groups: intervals
            then hold in each group. Rows of groups that `calibrate` had not, or of which it had too few rows, get the
            interval of all groups together, with a warning.

        Returns
        -------
        lower, upper : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The ends of the intervals.
        """
        check_is_fitted(self)
        if np.ndim(coverage):
            raise ValueError(f"Expected one coverage, got {coverage!r}. Ask for predict_quantiles to get several.")
        coverage = float(probabilities(coverage, "coverage", "Give 0.95 for a 95 % interval.")[0])
        coverage = min(coverage, 1 - 1e-12)
        own = None if groups is None else self._groups(groups, X, coverage)
        X = without_groups(X, groups, getattr(self, "feature_names_in_", None))
        if self._calibration is not None:
            return self._recalibrated(X, coverage, own)
        lower, upper = self.predict_quantiles(X, [(1 - coverage) / 2, (1 + coverage) / 2])
        return lower, upper

    def _recalibrated(self, X: Any, coverage: float, groups: Groups | None) -> tuple[np.ndarray, np.ndarray]:
        """Under a map of the target its intervals are those of the mapped target, mapped back."""
        if self._scaling.map is None:
            mean, deviation = self.predict(X, return_std=True)
            own = None if groups is None else groups.checked(len(mean))
            lower, upper = self._calibration.interval(torch.tensor(mean), torch.tensor(deviation), coverage, own)
            return lower.numpy(), upper.numpy()
        found, at = [], 0
        for rows in self._blocks(X):
            mean, variance = self._sites().moments(*self._latent(rows))
            own = None if groups is None else groups.take(slice(at, at + len(rows))).checked(len(rows))
            ends = self._calibration.interval(mean, variance.sqrt(), coverage, own)
            found.append(np.stack([self._shape(self._scaling.restore(end.numpy(), rows)) for end in ends]))
            at += len(rows)
        lower, upper = np.concatenate(found, 1)
        if groups is not None:
            groups.checked(at)
        return lower, upper

    def _groups(self, given: Any, X: Any, coverage: float) -> Groups:
        """Of rows to predict; a warning says which of them get the interval of all rows."""
        if self._calibration is None or not self._calibration.groups:
            raise ValueError(
                "Expected a model that was calibrated by groups, got one that was not. Call calibrate(X, y, groups) "
                "first, or leave groups out."
            )
        found = Groups.of(given, X)
        if not self._calibration.knows(found):
            raise ValueError(
                f"Expected groups of column {self._calibration.column!r}, by which the model was calibrated, got "
                f"{found.column!r}. Name that column, or pass the groups as a plain array."
            )
        if not is_path(X):  # rows of files are counted when they are read
            found.checked(X.shape[0] if hasattr(X, "shape") else len(X))
        if said := self._calibration.pooled_words(found, coverage):
            warnings.warn(said, stacklevel=3)
        return found

    def calibrate(self, X: Any, y: Any, groups: Any = None) -> "_Regressor":
        """Correct `predict_interval` by rows that were not used in `fit` (split-conformal).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows that `fit` has not seen, some hundreds of them.
        y : array-like of shape (n_samples,)
            Their targets.
        groups : array-like of shape (n_samples,) or str, optional
            The group of each row, or the name of a column of `X` that has it. Then `predict_interval` with groups
            covers what it promises in each group with rows enough: 19 of them for 95 %.

        Returns
        -------
        self
            The model, whose intervals now cover what they promise on average over rows like these.
        """
        check_is_fitted(self)
        if not self._one_output:
            raise ValueError("Expected a model of one output to calibrate, got several. Fit one model for each output.")
        targets = column_or_1d(as_target(y, numeric=True)).astype(np.float64)
        own = None if groups is None else Groups.of(groups, X).checked(len(targets))
        X = without_groups(X, groups, getattr(self, "feature_names_in_", None))
        if self._scaling.map is None:
            mean, deviation = self.predict(X, return_std=True)
            check_length(targets, len(mean))
            parts = torch.tensor(targets), torch.tensor(mean), torch.tensor(deviation)
        else:
            score = torch.tensor(self.assess(X, targets)["deviations_off"])
            parts = score, torch.zeros_like(score), torch.ones_like(score)
        self._calibration = fit_conformal(*parts) if own is None else fit_by_group(*parts, own)
        return self

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """Log density of each observed target, in its own unit; the negative mean is MNLP.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows with the inputs of `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observed targets.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            One log density for each target.
        """
        return self.assess(X, y)["log_density"]

    def assess(self, X: Any, y: Any) -> dict[str, np.ndarray]:
        """Predictions beside observed targets, from one pass: what scores and pictures are made of.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows with the inputs of `fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observed targets.

        Returns
        -------
        dict of ndarray of shape (n_samples,) or (n_samples, n_outputs)
            ``mean`` and ``std`` of each target, and where it lies in its predicted law: ``cdf``, the probability
            below it, ``log_density``, ``crps``, the continuous ranked probability score, and ``deviations_off``, the
            deviations between it, mapped if there is a map, and its mean.
        """
        check_is_fitted(self)
        X = self.prepare_inputs(X)
        Y = as_target(y, numeric=True).astype(np.float64)
        check_length(Y, len(X))
        Y = Y.reshape(len(Y), -1)
        if Y.shape[1] != len(self._scaling.y_scale):
            raise ValueError(f"Expected {len(self._scaling.y_scale)} targets for every row, got {Y.shape[1]}. Check y.")
        found, at = list[dict[str, np.ndarray]](), 0
        for rows in self._checked_blocks(X):
            law = Law(self._scaling, self._sites(), rows, *self._latent(rows))
            found.append(law.beside(Y[at : at + len(rows)]))
            at += len(rows)
        return {name: self._shape(np.concatenate([part[name] for part in found])) for name in found[0]}

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw functions from the posterior, without noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows to predict, with the inputs of `fit`.
        n_samples : int, default=1
            Number of functions.
        random_state : int, RandomState or None, default=0
            Seed. Equal seeds draw the same functions.

        Returns
        -------
        ndarray of shape (rows, n_samples) or (rows, n_outputs, n_samples)
            Values of the functions. Each function is one and the same over all rows.
        """
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        if not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise ValueError(f"Expected n_samples to be a whole number >= 1, got {n_samples!r}. Draw at least one.")
        found = []
        for rows in self._blocks(X, draws=int(n_samples)):
            draws = self._computed(rows, lambda x: self._posterior.sample(x, int(n_samples), seed))
            found.append(self._shape(self._scaling.restore(draws.numpy(), rows)))
        return np.moveaxis(np.concatenate(found, 1), 0, -1)

    @property
    def target_map_(self) -> Any:
        """The map of the target in front of the noise: "none" or "sinh-arcsinh"; one for each of several outputs."""
        found = self._scaling.map
        plain = np.ones(len(self._scaling.y_scale), bool) if found is None else found.plain.numpy()
        names = np.where(plain, "none", "sinh-arcsinh")
        return str(names[0]) if self._one_output else names

    def _fitted_header(self) -> dict[str, Any]:
        return super()._fitted_header() | {"_one_output": self._one_output}

    def _calibration_from(self, tensors: Any, header: Any) -> Conformal:
        return Conformal.from_tensors(tensors, header)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


class QSGPRegressor(_Regressor):
    """Gaussian process regression for any number of rows, with a standard deviation for every prediction.

    `QSGPRegressor().fit(X, y)` needs no settings. Up to 3,000 rows the exact GP is solved in closed form. With more
    rows its mean is solved by blocks of rows, on as many rows as the time allows. Keywords that name basis functions or
    training steps train those instead.

    Parameters
    ----------
    kernel : {"auto", "rbf", "matern12", "matern32", "matern52", "laplacian"} or sum, default="auto"
        Kernel of the process, or a sum of kernels such as "matern12+laplacian". "auto" takes the best of "rbf",
        "matern32" and "matern52"; with more rows than the closed form takes also of "matern12", "laplacian" and sums.
    metric : {"auto", "ard", "full"}, default="auto"
        What distances are made of. "ard": a lengthscale for each input. "full": a lengthscale for each of some linear
        combinations of the inputs, learned from the directions in which the function changes. "auto": with more rows
        than the closed form takes, whichever predicts rows that nothing was learned from better.
    categorical_features : "from_dtype", list of str or int, or mask, default="from_dtype"
        Columns that hold categories, whatever they look like: names, positions, or a mask with an entry for each
        column. "from_dtype" takes texts and columns of a categorical type for categories; these always are.
    basis : {"auto", "fourier", "inducing", "grid"}, default="auto"
        Basis functions in place of the kernel. With "auto" there are none, unless another keyword asks for them; then
        they are random Fourier features. "grid" needs the kernel "rbf" or "laplacian" and few inputs. Naming a basis
        skips the exact solution.
    n_features : int or "auto", default="auto"
        Number of basis functions. Naming it asks for Fourier features. "auto" is 2,048, fewer if `max_time` is short.
    covariance : {"auto", "meanfield", "chevron", "full", "support", "samples"}, default="auto"
        Shape of the posterior covariance. "meanfield", "chevron" and "full" belong to basis functions; "support" and
        "samples" to the solution at the rows: support points alone, or blended with posterior draws ("auto").
    dense_columns : int, default=10
        Number of dense columns of the covariance "chevron".
    likelihood : {"auto", "gaussian", "laplace"}, default="auto"
        Distribution of the noise. "auto" is "gaussian"; "laplace" is for heavy tails and outliers.
    noise : {"auto", "equal"}, default="auto"
        Noise of predictions, if it is Gaussian. "equal": one variance for all rows. "auto": also a function of the
        prediction, and a mixture of normal laws for heavy tails, if rows not learned from are predicted better so. With
        missing inputs it is equal, and what gaps cost is added to it; beside identifiers of many levels it is equal.
    target_map : {"auto", "none", "sinh-arcsinh"}, default="auto"
        A monotone map of the target, learned with the model and undone in all that is predicted. With Gaussian noise
        "auto" takes one if rows not learned from are predicted better with it, as those of skewed targets may be.
        "sinh-arcsinh" takes it in any case.
    mean : {"constant", "linear"}, default="constant"
        Mean of the prior. "linear" puts a linear trend beside the process, which helps to extrapolate.
    batch_points : int or "auto", default="auto"
        Rows in a training step over basis functions. Naming it asks for such steps.
    batch_features : int or "auto", default="auto"
        Basis functions in a training step. Naming it asks for such steps.
    support_points : int or "auto", default="auto"
        Points of the control variate, which lowers the noise of sampled basis functions. Naming it asks for steps.
    optimizer : {"auto", "adagrad", "preconditioned"}, default="auto"
        How the weights of basis functions are trained. "adagrad" trains as the paper does, with its rates, control
        variate and schedule: 100,000 steps unless `max_iter` or `max_time` says less, which move hyperparameters too.
        "preconditioned" solves for all weights of Fourier features together (Gaussian noise only).
    learn_hyperparameters : bool, default=True
        Whether to learn lengthscales, signal variance and noise, by the evidence of some thousand rows.
    max_iter : int or "auto", default="auto"
        Number of training steps. Naming it asks for basis functions and steps when there are more than 3,000 rows.
    max_time : float or None, default=None
        Seconds that a fit may take. It also decides how many rows the solution at the rows knows. With None sizes are
        made for about a minute, and equal seeds give equal models.
    tol : float or "auto", default="auto"
        When training ends: the relative change of the error of held-out rows over the last epochs (0.003; for
        classes, of their density, 0.01). Steps end when the evidence lower bound gains less than this share over five
        records.
    max_memory : int or str, default="auto"
        Bytes, or a string such as "4GB", that a fit or a prediction may take beyond the data it is given. "auto" is
        half of what is free.
    device : str, default="auto"
        "cpu", "cuda" or "cuda:1". "auto" takes an NVIDIA GPU if PyTorch sees one.
    devices : int or "all", default=1
        Processes that share a fit by blocks of rows, on as many GPUs, or on CPU cores with device="cpu". "all" takes
        all GPUs. `fit` starts and ends them; other fits, small ones among them, are left to this process alone.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the training beyond 3,000 rows. The exact solution of few rows always has float64.
    random_state : int, RandomState or None, default=None
        Seed of all random draws. Give a number to get the same model again.
    verbose : int, default=0
        1 prints beforehand what a fit will take, and then how it goes.
    checkpoint : str, path or None, default=None
        Folder where training stores its state, so that the same call goes on after a kill. The closed form of up to
        3,000 rows stores nothing.

    Attributes
    ----------
    kernel_ : str
        Name of the kernel.
    lengthscale_ : ndarray of shape (n_inputs,)
        How far each input alone must change for the function to change, in the unit of the input.
    metric_ : ndarray of shape (n_inputs, n_directions)
        The linear map in front of the kernel: distances are those of rows times this matrix. Its columns are the
        directions, in units of their lengthscales; for a sum those of all terms.
    signal_variance_ : float or ndarray of shape (n_outputs,)
        Variance of the function before it has seen data, in the unit of the target, squared.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Variance of the noise, in the unit of the target, squared; of a mapped target in units in which it varies as
        much as the target. Of a mixture the one that the function was learned with.
    n_iter_ : int
        Number of iterations of the training; 1 for a solution in closed form.
    history_ : list of dict
        Records of the training, in order: its phase, the iteration, and errors on held-out rows where there are any.
    memory_ : int
        Bytes that the last fit said it would take.
    plan_ : Plan
        What the last fit was to do, and why. ``print(model.plan_)`` shows it.
    posterior_ : dict
        What kind of solution was found, with its likelihood and its numbers of rows and functions.
    likelihood_ : str
        The distribution of the target given the function: "gaussian", "laplace", "logistic", or "mixture" if the noise
        was learned from rows that the function was not learned from.
    target_map_ : str or ndarray of str
        The map of the target, "none" or "sinh-arcsinh"; one for each of several outputs.
    calibration_ : object or None
        What `calibrate` has found.
    input_scale_ : ndarray of shape (n_inputs,)
        Standard deviation of each input over the training rows.
    target_mean_, target_scale_ : ndarray
        Mean and standard deviation of each output over the training rows; for a classifier the log odds far from all
        rows, and 1.
    n_features_in_ : int
        Number of columns of the training data.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names; only if they had names.
    columns_ : Columns
        What was made of each column of the table or file; ``print(model.columns_)`` says it in words. An array of known
        numbers is taken as it is and has none.
    input_names_ : list of str
        Names of the model's inputs: columns, or what was made of them.

    See Also
    --------
    QSGPClassifier : Gaussian process classification.
    QSRVMRegressor : Relevance vector regression: a smaller model.
    load : Read a model that `save` wrote.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from qsgp import QSGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = QSGPRegressor(random_state=0).fit(X[:300], y[:300])
    >>> mean, std = model.predict(X[300:], return_std=True)
    >>> lower, upper = model.predict_interval(X[300:], coverage=0.9)
    >>> bool((lower < mean).all() and (mean < upper).all() and (std > 0).all())
    True
    >>> bool(model.score(X[300:], y[300:]) > 0.4)
    True
    """


class QSRVMRegressor(_Regressor):
    """Relevance vector regression: a small, fast model of few kernel functions.

    One kernel function stands at every training row, at most 2,000 of them. The data switch most of them off. Far from
    the functions that are left the standard deviation shrinks to that of the noise: take `QSGPRegressor` where honest
    extrapolation matters.

    Parameters
    ----------
    kernel : {"auto", "rbf", "matern12", "matern32", "matern52", "laplacian"} or sum, default="auto"
        Kernel of the process, or a sum of kernels such as "matern12+laplacian". "auto" takes the best of "rbf",
        "matern32" and "matern52"; with more rows than the closed form takes also of "matern12", "laplacian" and sums.
    metric : {"auto", "ard", "full"}, default="auto"
        What distances are made of. "ard": a lengthscale for each input. "full": a lengthscale for each of some linear
        combinations of the inputs, learned from the directions in which the function changes. "auto": with more rows
        than the closed form takes, whichever predicts rows that nothing was learned from better.
    categorical_features : "from_dtype", list of str or int, or mask, default="from_dtype"
        Columns that hold categories, whatever they look like: names, positions, or a mask with an entry for each
        column. "from_dtype" takes texts and columns of a categorical type for categories; these always are.
    basis : {"auto"}, default="auto"
        Only "auto": the basis functions are kernel functions at the training rows.
    n_features : int or "auto", default="auto"
        Number of kernel functions to begin with, drawn from the training rows. "auto" is 2,000, or all rows if there
        are fewer.
    covariance : {"auto", "meanfield"}, default="auto"
        Shape of the posterior covariance: mean field in both cases.
    dense_columns : int, default=10
        Not used: it belongs to a covariance that these estimators do not have.
    likelihood : {"auto", "gaussian", "laplace"}, default="auto"
        Distribution of the noise. "auto" is "gaussian"; "laplace" is for heavy tails and outliers.
    noise : {"auto", "equal"}, default="auto"
        Not used: relevance vector machines have one variance for all rows.
    target_map : {"auto", "none", "sinh-arcsinh"}, default="auto"
        A monotone map of the target, learned with the model and undone in all that is predicted. With Gaussian noise
        "auto" takes one if rows not learned from are predicted better with it, as those of skewed targets may be.
        "sinh-arcsinh" takes it in any case.
    mean : {"constant", "linear"}, default="constant"
        Mean of the prior. "linear" puts a linear trend beside the process, which helps to extrapolate.
    batch_points : int or "auto", default="auto"
        Rows in a training step over basis functions. Naming it asks for such steps.
    batch_features : int or "auto", default="auto"
        Basis functions in a training step. Naming it asks for such steps.
    support_points : int or "auto", default="auto"
        Points of the control variate, which lowers the noise of sampled basis functions. Naming it asks for steps.
    optimizer : {"auto", "adagrad"}, default="auto"
        How the weights of basis functions are trained. "adagrad" trains as the paper does, with its rates, control
        variate and schedule: 100,000 steps unless `max_iter` or `max_time` says less, which move hyperparameters too.
    learn_hyperparameters : bool, default=True
        Whether to learn lengthscales, signal variance and noise, by the evidence of some thousand rows.
    max_iter : int or "auto", default="auto"
        Number of training steps. Naming it asks for basis functions and steps when there are more than 3,000 rows.
    max_time : float or None, default=None
        Seconds that a fit may take. It also decides how many rows the solution at the rows knows. With None sizes are
        made for about a minute, and equal seeds give equal models.
    tol : float or "auto", default="auto"
        When training ends: the relative change of the error of held-out rows over the last epochs (0.003; for
        classes, of their density, 0.01). Steps end when the evidence lower bound gains less than this share over five
        records.
    max_memory : int or str, default="auto"
        Bytes, or a string such as "4GB", that a fit or a prediction may take beyond the data it is given. "auto" is
        half of what is free.
    device : str, default="auto"
        "cpu", "cuda" or "cuda:1". "auto" takes an NVIDIA GPU if PyTorch sees one.
    devices : int or "all", default=1
        Not used: relevance vector machines are trained by one process.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the training beyond 3,000 rows. The exact solution of few rows always has float64.
    random_state : int, RandomState or None, default=None
        Seed of all random draws. Give a number to get the same model again.
    verbose : int, default=0
        1 prints beforehand what a fit will take, and then how it goes.
    checkpoint : str, path or None, default=None
        Folder where training stores its state, so that the same call goes on after a kill. The closed form of up to
        3,000 rows stores nothing.

    Attributes
    ----------
    kernel_ : str
        Name of the kernel.
    lengthscale_ : ndarray of shape (n_inputs,)
        How far each input alone must change for the function to change, in the unit of the input.
    metric_ : ndarray of shape (n_inputs, n_directions)
        The linear map in front of the kernel: distances are those of rows times this matrix. Its columns are the
        directions, in units of their lengthscales; for a sum those of all terms.
    signal_variance_ : float or ndarray of shape (n_outputs,)
        Variance of the function before it has seen data, in the unit of the target, squared.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Variance of the noise, in the unit of the target, squared; of a mapped target in units in which it varies as
        much as the target. Of a mixture the one that the function was learned with.
    relevance_ : ndarray of int
        Positions of the relevance vectors among the training rows: the rows whose functions are left.
    n_iter_ : int
        Number of iterations of the training; 1 for a solution in closed form.
    history_ : list of dict
        Records of the training, in order: its phase, the iteration, and errors on held-out rows where there are any.
    memory_ : int
        Bytes that the last fit said it would take.
    plan_ : Plan
        What the last fit was to do, and why. ``print(model.plan_)`` shows it.
    posterior_ : dict
        What kind of solution was found, with its likelihood and its numbers of rows and functions.
    likelihood_ : str
        The distribution of the target given the function: "gaussian", "laplace", "logistic", or "mixture" if the noise
        was learned from rows that the function was not learned from.
    target_map_ : str or ndarray of str
        The map of the target, "none" or "sinh-arcsinh"; one for each of several outputs.
    calibration_ : object or None
        What `calibrate` has found.
    input_scale_ : ndarray of shape (n_inputs,)
        Standard deviation of each input over the training rows.
    target_mean_, target_scale_ : ndarray
        Mean and standard deviation of each output over the training rows; for a classifier the log odds far from all
        rows, and 1.
    n_features_in_ : int
        Number of columns of the training data.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names; only if they had names.
    columns_ : Columns
        What was made of each column of the table or file; ``print(model.columns_)`` says it in words. An array of known
        numbers is taken as it is and has none.
    input_names_ : list of str
        Names of the model's inputs: columns, or what was made of them.

    See Also
    --------
    QSGPRegressor : Gaussian process regression.
    QSRVMClassifier : Relevance vector classification: a smaller model.
    load : Read a model that `save` wrote.

    Examples
    --------
    >>> import numpy as np
    >>> from qsgp import QSRVMRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-10, 10, (200, 1))
    >>> y = np.sinc(X[:, 0] / np.pi) + 0.1 * rng.normal(size=200)
    >>> model = QSRVMRegressor(kernel="rbf", random_state=0).fit(X, y)
    >>> len(model.relevance_) < 50
    True
    """

    _relevance = True
