"""Pictures of a fitted model as matplotlib axes: each function takes ``ax`` (or makes one) and returns it.

The first argument is a fitted model, followed by rows X and targets y, or what `evaluate` made of them once, or
``Regression.of(y, mean, deviation)`` from arrays of any model. Needs the extra ``qsgp[plots]``.
"""

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError("Pictures need matplotlib. Run pip install 'qsgp[plots]'.") from error

from qsgp.evaluation import Classification, Regression, evaluate, largest_surprises
from qsgp.plots.classes import confusion_matrix, reliability_diagram, roc_curves
from qsgp.plots.inputs import column_histogram, input_relevance, residuals, slice_plot, target_histogram
from qsgp.plots.numbers import calibration_curve, coverage_by_deciles, pit_histogram, predicted_against_observed
from qsgp.plots.training import training_curve, training_entries

__all__ = [
    "Classification",
    "Regression",
    "calibration_curve",
    "column_histogram",
    "confusion_matrix",
    "coverage_by_deciles",
    "evaluate",
    "input_relevance",
    "largest_surprises",
    "pit_histogram",
    "predicted_against_observed",
    "reliability_diagram",
    "residuals",
    "roc_curves",
    "slice_plot",
    "target_histogram",
    "training_curve",
    "training_entries",
]
