"""Classification: what is particular to targets that are labels."""

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from qsgp.data.tables import as_target
from qsgp.models import streaming
from qsgp.models.callbacks import with_callbacks
from qsgp.models.conformal import Temperature
from qsgp.models.estimator import Estimator, all_or_nothing
from qsgp.models.inputs import check_length, probabilities, takes_portions


class _Classifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    _labels = True

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, target: str | None = None) -> "_Classifier":
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), data frame, or path, glob or list of paths
            Inputs. Paths lead to CSV, Parquet, Arrow or NPZ files; then `target` names the column to predict. Files and
            memory-mapped arrays that would take more than `max_memory` are read a piece at a time.
        y : array-like of shape (n_samples,), optional
            Labels of two or more classes. Left out if `target` is given.
        sample_weight : array-like of shape (n_samples,) or str, optional
            How often each row counts. With a path: the name of the column that says so.
        target : str, optional
            Column to predict, if `X` is a path.

        Returns
        -------
        self
            The fitted model.
        """
        given = (X, y, sample_weight)
        if (source := streaming.source_of(self, X, y, sample_weight, target)) is not None:
            streaming.fit(self, source, given)
            return self
        X, y, weight = self._rows(X, y, sample_weight, target)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        self._fit(X, self._columns(y), weight, given, scale_y=False)
        return self

    @available_if(takes_portions)
    @all_or_nothing
    @with_callbacks
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
        half_life: Any = None,
    ) -> "_Classifier":
        """Learn from one more portion of rows, without the rows before.

        Parameters
        ----------
        X, y, sample_weight, target
            As for `fit`.
        classes : array-like of shape (n_classes,), optional
            All classes. Needed in the first call, unless its rows hold them all.
        half_life : float, optional
            For data that drift: after so many new rows all earlier ones count half as much. It begins after the first
            1,000 rows; scales and hyperparameters stay those of these rows.

        Returns
        -------
        self
            The model, fitted to all portions so far.
        """
        first, given = not hasattr(self, "_trained"), (X, y, sample_weight)
        X, y, weight = self._rows(X, y, sample_weight, target, reset=first, later=True)
        check_classification_targets(y)
        named = None if classes is None else np.unique(as_target(classes, numeric=False))
        if first:
            self.classes_ = np.unique(y) if named is None else named
        elif named is not None and named.tolist() != self.classes_.tolist():
            raise ValueError(
                f"Expected the classes of the first portion, {self.classes_.tolist()}, got {named.tolist()}. "
                "Name all classes in the first call; later ones may leave them out."
            )
        self._partial_fit(X, self._columns(y), weight, given, scale_y=False, half_life=half_life)
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
        """Find the positions of labels among ``classes_``; labels that the model has not seen are refused.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        ndarray of int of shape (n_samples,)
        """
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
        """Predict the probability of each class, averaged over what the model does not know.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows to predict, with the inputs of `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of `classes_`. Several classes are told apart one against the rest, and their
            probabilities divided by the sum.
        """
        p = np.concatenate([self._against_others(rows) for rows in self._blocks(X)])
        if self._calibration is not None:
            p = self._calibration(torch.tensor(p)).numpy()
        p = np.concatenate([1 - p, p], 1) if p.shape[1] == 1 else p
        return p / p.sum(1, keepdims=True)

    def predict_proba_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Predict quantiles of the probability of each class against the others (of the second class if there are two).

        They show how well the model knows the probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or path
            Rows to predict, or a file that holds them.
        q : float or array-like of float
            Levels between 0 and 1.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            With one more axis in front if q is a list.
        """
        check_is_fitted(self)
        levels, found = probabilities(q, "q", "Give 0.5 for the median, or a list of levels."), []
        for rows in self._blocks(X):
            latent = self._odds(rows)
            values = [self._sites().quantile(float(p), *latent) for p in levels]
            if self._calibration is not None:
                values = [self._calibration(value) for value in values]
            found.append(torch.stack(values).numpy())
        quantiles = np.concatenate(found, 1)
        return quantiles if np.ndim(q) else quantiles[0]

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows to predict, with the inputs of `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        check_is_fitted(self)
        if not self._posterior.one_variance:
            return self.classes_[self.predict_proba(X).argmax(1)]
        # No variance moves a probability across a half, or past that of a class with the same variance.
        offset = torch.tensor(self._scaling.y_mean)
        p = np.concatenate([torch.sigmoid(self._mean(rows) + offset).numpy() for rows in self._blocks(X)])
        return self.classes_[p.argmax(1) if p.shape[1] > 1 else (p[:, 0] > 0.5).astype(int)]

    def _against_others(self, rows: np.ndarray) -> np.ndarray:
        """The probability of each class (of the second, if there are two) against all others, before calibration."""
        found: np.ndarray = self._sites().moments(*self._odds(rows))[0].numpy()
        return found

    def _odds(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of the log odds."""
        mean, variance = self._latent(rows)
        return mean + torch.tensor(self._scaling.y_mean), variance

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of the labels that are predicted right.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows with the inputs of `fit`.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts.

        Returns
        -------
        float
            The accuracy.
        """
        return float(super().score(X, as_target(y, numeric=False), sample_weight))

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """Log probability of each observed label; the negative mean is the log loss.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows with the inputs of `fit`.
        y : array-like of shape (n_samples,)
            Observed labels.

        Returns
        -------
        ndarray of shape (n_samples,)
            One log probability for each row.
        """
        p = self.predict_proba(X)
        codes = self.class_codes(y)
        check_length(codes, len(p))
        return np.log(p[np.arange(len(p)), codes].clip(np.finfo(float).tiny))

    def calibrate(self, X: Any, y: Any) -> "_Classifier":
        """Correct the probabilities by rows that were not used in `fit`: one temperature, which keeps their order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows that `fit` has not seen, some hundreds of them.
        y : array-like of shape (n_samples,)
            Their labels.

        Returns
        -------
        self
            The model with corrected probabilities.
        """
        check_is_fitted(self)
        p = np.concatenate([self._against_others(rows) for rows in self._blocks(X)])
        labels = self._columns(y)
        check_length(labels, len(p))
        self._calibration = Temperature.fit(torch.tensor(p), torch.tensor(labels))
        return self

    def _fitted_header(self) -> dict[str, Any]:
        return super()._fitted_header() | {"classes_": self.classes_.tolist()}

    def _calibration_from(self, tensors: Any, header: Any) -> Temperature:
        return Temperature(float(tensors["temperature"]))


class QSGPClassifier(_Classifier):
    """Gaussian process classification for any number of rows.

    Probabilities are averaged over what the model does not know, so they are cautious where there were no data. Several
    classes are told apart one against the rest; `calibrate` corrects their probabilities.

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
    likelihood : {"auto", "logistic"}, default="auto"
        Probability of a label given the function. "auto" is "logistic".
    noise, target_map : {"auto"}, default="auto"
        Not used: labels have neither.
    mean : {"constant"}, default="constant"
        Mean of the prior. Labels have no linear trend, so "linear" is refused.
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
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes, sorted. The columns of `predict_proba` are in this order.
    kernel_ : str
        Name of the kernel.
    lengthscale_ : ndarray of shape (n_inputs,)
        How far each input alone must change for the function to change, in the unit of the input.
    metric_ : ndarray of shape (n_inputs, n_directions)
        The linear map in front of the kernel: distances are those of rows times this matrix. Its columns are the
        directions, in units of their lengthscales; for a sum those of all terms.
    signal_variance_ : float
        Variance of the function behind the probabilities, before it has seen data.
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
    >>> from sklearn.datasets import load_iris
    >>> from qsgp import QSGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = QSGPClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.predict_proba(X[1::2]).shape[1]
    3
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """


class QSRVMClassifier(_Classifier):
    """Relevance vector classification: a small, fast model of few kernel functions.

    One kernel function stands at every training row, at most 2,000 of them. The data switch most of them off. Several
    classes are told apart one against the rest, over the same functions.

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
    likelihood : {"auto", "logistic"}, default="auto"
        Probability of a label given the function. "auto" is "logistic".
    noise, target_map : {"auto"}, default="auto"
        Not used: labels have neither.
    mean : {"constant"}, default="constant"
        Mean of the prior. Labels have no linear trend, so "linear" is refused.
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
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes, sorted. The columns of `predict_proba` are in this order.
    kernel_ : str
        Name of the kernel.
    lengthscale_ : ndarray of shape (n_inputs,)
        How far each input alone must change for the function to change, in the unit of the input.
    metric_ : ndarray of shape (n_inputs, n_directions)
        The linear map in front of the kernel: distances are those of rows times this matrix. Its columns are the
        directions, in units of their lengthscales; for a sum those of all terms.
    signal_variance_ : float
        Variance of the function behind the probabilities, before it has seen data.
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
    >>> from sklearn.datasets import make_moons
    >>> from qsgp import QSRVMClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = QSRVMClassifier(kernel="rbf", random_state=0).fit(X[:150], y[:150])
    >>> len(model.relevance_) < 75
    True
    >>> bool(model.score(X[150:], y[150:]) > 0.9)
    True
    """

    _relevance = True
