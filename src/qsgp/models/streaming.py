"""A fit whose rows are too many for the memory: files, and arrays mapped from the disk, read a piece at a time.

One pass takes scales and a uniform sample of the rows; what is trained by steps or sums then reads the others.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from qsgp import memory
from qsgp.data.inputs import FLOATS, chosen_categories
from qsgp.data.reading import find, is_path
from qsgp.data.row_groups import held_bytes
from qsgp.data.rows import Rows
from qsgp.data.scaling import Scaling
from qsgp.data.scanning import Survey, survey
from qsgp.data.sources import ArraySource, FileSource, Piece, RowSource, Without, of_files
from qsgp.data.tables import check_weights
from qsgp.models.estimator import shared
from qsgp.models.gaps import Gaps
from qsgp.models.keywords import read_options
from qsgp.ranks import leads, neighbours, present
from qsgp.training.options import Options
from qsgp.training.plan import Plan, make_plan, takes_labels_for_numbers
from qsgp.training.sizes import Shape, rows_held
from qsgp.training.store import check_same
from qsgp.training.stream import Stream

_HELD = 24  # bytes of a number that is read, checked and standardised


def too_large(paths: Any, max_memory: Any) -> bool:
    """What reading these files whole would take is more than ``max_memory``."""
    return _exceeds(held_bytes(find(paths)), max_memory)


def _exceeds(need: int, max_memory: Any) -> bool:
    """Ranks of one machine share what is free of its memory. The first rank decides: the others may find more."""
    apart = neighbours() if max_memory == "auto" else 1
    return present().agreed(need > memory.budget(max_memory, "cpu") // apart)


def source_of(model: Any, X: Any, y: Any, sample_weight: Any, target: str | None) -> RowSource | None:
    """Where the rows of a fit come from if the memory does not hold them; else None."""
    if isinstance(X, FileSource | ArraySource | Without):
        return X
    if isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "fiub":
        if not _exceeds(_HELD * X.size, model.max_memory) or isinstance(sample_weight, str):
            return None
        if chosen_categories(model.categorical_features, [f"x{j}" for j in range(X.shape[1])]):
            raise ValueError(
                "Expected an array that fits into max_memory with categorical_features, got a larger one, which is "
                "streamed as numbers. Write it as Parquet and fit the file, or raise max_memory."
            )
        if y is None or len(y) != len(X):
            return None  # what is wrong is said where arrays are read
        weight = None if sample_weight is None else np.asarray(sample_weight)
        return ArraySource(X, np.asanyarray(y), weight, model._labels)
    if not is_path(X) or target is None or y is not None or not too_large(X, model.max_memory):
        return None
    named = sample_weight if isinstance(sample_weight, str) else None
    if sample_weight is not None and named is None:
        return None
    return of_files(find(X), target, named, labels=model._labels, categories=model.categorical_features)


def fit(model: Any, source: RowSource, given: tuple[Any, Any, Any]) -> None:
    """As `Estimator._fit`, with a sample of the rows in memory."""
    ranks = present()
    options = ranks.agreed(shared(read_options(model), ranks.size, model.max_memory == "auto"))
    options = options.without_map("for rows that are streamed")
    if options.optimizer == "preconditioned":
        raise ValueError(
            "Expected rows that fit into max_memory with optimizer='preconditioned', which solves for all of them at "
            "once, got more. Leave optimizer out, or raise max_memory."
        )
    if model.devices != 1:
        raise ValueError(
            f"Expected devices=1 with rows that are read a piece at a time, got {model.devices!r}. Raise max_memory, "
            "so that they are read whole, or start the script with torchrun."
        )
    width = _know_inputs(model, source)
    if model._planning and not model._labels:
        model.plan_ = make_plan(source.n, width, 1, options, streamed=True)
        return
    first = make_plan(source.n, width, 1, options, streamed=True)
    most = rows_held(first.sizes, Shape(source.n, width, 1, streamed=True), options)
    found = survey(source, most, options.seed, labels=model._labels)
    Y = _know_targets(model, found)
    check_same(ranks, found.sample.X, Y, found.sample.weight)
    if found.weighted and found.sample.weight.max() > 1e5 * found.sample.weight.min():
        options = replace(options, dtype=torch.float64)  # as in `_fit`
    if np.isnan(found.sample.X).any():
        options = replace(options, noise="equal")
    plan = make_plan(found.n, width, Y.shape[1], options, streamed=True)
    model.plan_, model.memory_ = plan, plan.memory
    if model._planning:
        return
    if model.verbose and leads():
        print(plan)
    scaling = _scaling(model, source, found, takes_labels_for_numbers(plan, options))
    _train(model, source, found, (options, plan, scaling), given)


def _know_inputs(model: Any, source: RowSource) -> int:
    """How many there are, the names of the columns they come of, and what these hold."""
    pieces = (piece for part in source.parts for piece in source.pieces(part) if len(piece.number))
    first = next(pieces, None)
    if first is None:
        raise ValueError("Expected rows that count, got none. Check that these are the right rows, and their weights.")
    some = first.X[:1]
    origin = source.source if isinstance(source, Without) else source
    if isinstance(origin, FileSource):
        model.columns_, names = origin.columns, [column.name for column in origin.columns.given]
        model.n_features_in_, model.feature_names_in_ = len(names), np.array(names, dtype=object)
    else:
        validate_data(model, some, reset=True, dtype=FLOATS, ensure_all_finite=False)
        vars(model).pop("columns_", None)
    return int(some.shape[1])


def _know_targets(model: Any, found: Survey) -> np.ndarray:
    """Those of the sample as columns of numbers; a classifier learns its classes."""
    y = found.sample.y
    check_weights(found.sample.weight)
    if model._labels:
        check_classification_targets(y)
        model.classes_ = np.unique(np.array(list(found.labels), dtype=y.dtype))
    else:
        model._one_output = y.ndim == 1
    columns: np.ndarray = model._columns(y)
    return columns


def _scaling(model: Any, source: RowSource, found: Survey, by_numbers: bool) -> Scaling:
    x_mean, x_scale = found.inputs.found()
    if hasattr(model, "columns_"):  # some inputs keep their units
        x_scale = np.where(np.isnan(model.columns_.scales), x_scale, model.columns_.scales)
    if found.targets is not None:
        y_mean, y_scale = found.targets.found()
    else:
        counts = np.array([found.labels[label] for label in model.classes_.tolist()]) / found.total
        of = counts[1:] if len(counts) == 2 else counts
        y_mean, y_scale = (2 * of - 1 if by_numbers else np.zeros(len(of))), np.ones(len(of))
    scaling = Scaling(x_mean, x_scale, y_mean, y_scale, np.zeros((len(x_mean), len(y_mean))))
    if model.mean != "linear":
        return scaling
    pieces = (piece for part in source.parts for piece in source.pieces(part))
    return scaling.with_trend((piece.X, model._columns(piece.y), piece.weight) for piece in pieces)


def _train(
    model: Any, source: RowSource, found: Survey, how: tuple[Options, Plan, Scaling], given: tuple[Any, Any, Any]
) -> None:
    options, plan, scaling = how
    shape = Shape(found.n, len(scaling.x_mean), len(scaling.y_mean), streamed=True)
    kept = found.sample.take(slice(rows_held(plan.sizes, shape, options)))

    def standardised(piece: Piece) -> Rows:
        x, targets = scaling.standardised(piece.X, model._columns(piece.y), np.dtype(plan.dtype))
        return Rows(torch.from_numpy(x), torch.from_numpy(targets), torch.from_numpy(piece.weight))

    stream = Stream(source, found.n, found.total, standardised, kept.number)
    model._gaps = Gaps.of(kept.X, scaling)
    trained = model._train(standardised(kept), options, plan, scaling, given, stream)
    if model._relevance:
        model.relevance_ = np.array([]) if trained.relevant is None else kept.number[trained.relevant.numpy()]
    model._learned_on = found.n
    origin = source.source if isinstance(source, Without) else source
    if isinstance(origin, FileSource):
        model.columns_ = replace(origin.columns, rows=found.n)
