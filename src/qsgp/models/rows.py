"""Rows of tables, arrays and files as an estimator works with them: what `fit` learns of columns, `predict` applies."""

import numbers
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from qsgp import memory
from qsgp.data.columns import Columns
from qsgp.data.encoding import ArrayTable, Encoded
from qsgp.data.inputs import (
    FLOATS,
    applied,
    as_numbers,
    chosen_categories,
    learned,
    opened,
    read_inputs,
    read_portion,
    read_rows,
)
from qsgp.data.learning import NO_LEVELS, Learner
from qsgp.data.reading import is_path
from qsgp.data.tables import (
    as_array_like,
    as_target,
    check_inputs,
    check_types,
    check_weights,
    dense,
    is_other,
    names_of,
    types_by_column,
)

_CLASSES_LOOKED_AT = 20  # whose shares may differ where a value is missing


class TableInputs:
    """The part of an estimator that reads rows."""

    columns_: Columns
    n_features_in_: int
    feature_names_in_: np.ndarray
    categorical_features: Any
    max_memory: int | str
    _labels: bool  # classes are predicted, not numbers

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, target: str | None, *, reset: bool = True, **checks: Any
    ) -> tuple[Any, Any, Any]:
        """Checked inputs, targets and weights, from tables or files."""
        if is_path(X):
            X, y, sample_weight = self._from_files(X, y, sample_weight, target, reset)
        elif target is not None:
            raise ValueError(f"Expected target= with a path as X only, got {target!r} with a table. Pass y instead.")
        elif isinstance(sample_weight, str):
            raise ValueError(
                f"Expected the name of a weight column with a path as X only, got {sample_weight!r} with a table. "
                "Pass the weights themselves."
            )
        y = as_target(y, numeric=not self._labels)
        if reset:
            return self._first_rows(X, y, sample_weight, target, **checks)
        checks.pop("later", None)
        X, y = check_X_y(self._inputs(X), y, dtype=FLOATS, ensure_all_finite=False, **checks)
        return X, y, self._weights(sample_weight, X)

    def _from_files(self, X: Any, y: Any, weight: Any, target: str | None, reset: bool) -> tuple[Any, Any, Any]:
        if y is not None and target is not None:
            raise ValueError("Expected target= or y with a path, got both. Leave one out.")
        named = weight if isinstance(weight, str) else None
        known = None if reset else Columns.known_to(self)
        inputs, found, found_weight = read_rows(X, target, named) if reset else read_portion(X, known, target, named)
        y = found if target is not None else y
        if y is None:
            raise ValueError("Expected target='name of a column' with a path, got none. Say what to predict.")
        return inputs, y, weight if found_weight is None else found_weight

    def _first_rows(
        self, X: Any, y: Any, sample_weight: Any, target: str | None, *, later: bool = False, **checks: Any
    ) -> tuple[Any, Any, Any]:
        """Of a fit: what the columns hold is learned. An array of known numbers is taken as it is."""
        X = self._table(X)
        table = opened(X)
        plain = np.zeros((len(table), 1)) if table is not None and not isinstance(table, ArrayTable) else X
        array, y = validate_data(self, plain, y, dtype=FLOATS, ensure_all_finite=False, **checks)
        weight = self._weights(sample_weight, array)
        named = table is not None
        if table is None or isinstance(table, ArrayTable):
            names = [f"x{j}" for j in range(array.shape[1])] if table is None else table.column_names
            check_inputs(array, names if named else None)
            table = ArrayTable(array, names, frozenset() if table is None else table.booleans)
        categories = chosen_categories(self.categorical_features, table.column_names)
        if not named and not categories and not np.isnan(array).any():
            if hasattr(self, "columns_"):
                del self.columns_
            return array, y, weight
        no_levels = NO_LEVELS["classes"] if self._labels else NO_LEVELS["portions"] if later else ""
        columns = learned(Learner(categories, no_levels=no_levels), table, self._as_numbers(y), weight, later)
        self.columns_ = replace(columns, target=target, named=named)
        self.n_features_in_ = len(columns.given)
        if named:
            self.feature_names_in_ = np.array(table.column_names, dtype=object)
        inputs = as_numbers(self.columns_, table)
        check_inputs(inputs, self.input_names_)
        return inputs, y, weight

    def _inputs(self, X: Any) -> np.ndarray:
        """Rows of a table, an array or a file as the inputs of the fitted model, NaN where one is not known."""
        if isinstance(X, Encoded):
            check_inputs(X.array, self.input_names_)
            return X.array
        columns: Columns | None = getattr(self, "columns_", None)
        X = read_inputs(X, Columns.known_to(self)) if is_path(X) else self._table(X)
        by_name = columns is not None and columns.named and bool(names_of(X))
        plain = columns is None or columns.as_they_are and not any(map(is_other, types_by_column(X).values()))
        if plain or not by_name:
            check_types(X)
            X = validate_data(self, X, reset=False, dtype=FLOATS, ensure_all_finite=False)
        found = X if columns is None else applied(columns, X)
        if not len(found):
            raise ValueError("Expected rows, got a table without any. Check how it was made.")
        check_inputs(found, self.input_names_ if columns is not None or by_name else None)
        return np.asarray(found)

    def prepare_inputs(self, X: Any) -> np.ndarray:
        """Turn rows of a table or a path into the array of numbers the model works with.

        A category becomes an input for each of its values, a date several; `columns_` says how. What is missing is NaN.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_), data frame or path
            Rows to predict, or a file that holds them.

        Returns
        -------
        ndarray of shape (n_samples, n_inputs)
            The inputs that `input_names_` names.
        """
        check_is_fitted(self)
        return self._inputs(X)

    @property
    def input_names_(self) -> list[str]:
        """Names of the model's inputs, those of `lengthscale_`: columns, or what was made of them."""
        if hasattr(self, "columns_"):
            return self.columns_.encoded
        named = getattr(self, "feature_names_in_", None)
        return [str(name) for name in named] if named is not None else [f"x{j}" for j in range(self.n_features_in_)]

    def _table(self, X: Any) -> Any:
        """Whatever holds the inputs as scikit-learn can read it."""
        if sparse.issparse(X) or hasattr(X, "iloc") and hasattr(X, "sparse"):  # a matrix, or all columns of pandas
            X = dense(X, memory.budget(self.max_memory, "cpu"))
        return as_array_like(X)

    def _weights(self, sample_weight: Any, X: Any) -> np.ndarray:
        if sample_weight is not None and not isinstance(sample_weight, numbers.Number):
            sample_weight = np.array(as_array_like(sample_weight))
        weight: np.ndarray = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        check_weights(weight)
        return weight

    def _as_numbers(self, y: Any) -> np.ndarray:
        """Targets, or which rows are of each class: whether gaps say something of them is told by these."""
        if self._labels:
            classes = np.unique(y)[:_CLASSES_LOOKED_AT]
            return (np.asarray(y).ravel()[:, None] == classes).astype(np.float64)
        Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        return (Y - Y.mean(0)) / np.maximum(Y.std(0), 1e-300)
