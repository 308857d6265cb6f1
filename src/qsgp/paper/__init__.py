"""The paper, for researchers: a problem, its training step and loop, predictions, and every result as a function.

`theorems`, `bounds` and `control_variates` estimate from sampled blocks, `dense` has the exact values; `objective.loss`
puts them together, `step` differentiates it, `fit` repeats that. `blocks` is a step over contiguous Fourier features.
"""

from qsgp.paper import blocks, bounds, control_variates, dense, objective, theorems
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import Fit, fit
from qsgp.paper.log_determinant import nearest_earlier
from qsgp.paper.prediction import Prediction, augment, predict, relevance_vectors
from qsgp.paper.problem import Problem
from qsgp.paper.sampling import Batch, draw, step_generator
from qsgp.paper.settings import PAPER, Settings
from qsgp.paper.starting import start
from qsgp.paper.state import State
from qsgp.paper.stepping import Info, step
from qsgp.paper.support import Support

__all__ = [
    "PAPER",
    "Batch",
    "Chevron",
    "Fit",
    "Info",
    "Prediction",
    "Problem",
    "Settings",
    "State",
    "Support",
    "augment",
    "blocks",
    "bounds",
    "control_variates",
    "dense",
    "draw",
    "fit",
    "nearest_earlier",
    "objective",
    "predict",
    "relevance_vectors",
    "start",
    "step",
    "step_generator",
    "theorems",
]
