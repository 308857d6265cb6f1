"""The exact GP from one factor of all rows, and of some rows where time ends before that."""

import threading
import warnings

import torch
from sklearn.exceptions import ConvergenceWarning

from qsgp.data.rows import some_rows
from qsgp.interfaces import Kernel, Likelihood
from qsgp.interrupt import Halt
from qsgp.kernels.relevance import stretched
from qsgp.likelihoods import LabelsAsNumbers, Logistic
from qsgp.posteriors.posteriors import ClosedForm
from qsgp.training.exact import affordable
from qsgp.training.options import LEARN_POINTS
from qsgp.training.precision import put
from qsgp.training.task import Task
from qsgp.training.trained import Trained

_LOG_ODDS = 4.0  # of labels that are taken for -1 and +1, where no rows held out have told them
_GRACE = 0.1  # of the time, once it is over, for sites that are not Gaussian


def train(task: Task, kernel: Kernel, likelihood: Likelihood) -> Trained:
    """The exact GP on all rows; with a limit of time on as many of them as it leaves time for, and a word about it."""
    rows, known = task.rows, task.rows.n
    if task.options.max_time is not None:
        known = min(known, max(LEARN_POINTS, affordable(task.halt.left, likelihood, rows.Y.shape[1])))
    if known < rows.n:
        warnings.warn(
            f"There was time for the exact GP on {known:,} of {rows.n:,} rows. Fit again with more time to use all of "
            "them.",
            ConvergenceWarning,
            stacklevel=4,
        )
        rows = rows.take(some_rows(rows.n, known, task.options.seed))
    rows = rows.to("cpu", torch.float64)
    return Trained(ClosedForm.build(kernel, likelihood, *rows, halt=task.halt))


def stopped_early(task: Task, kernel: Kernel, likelihood: Likelihood) -> Trained:
    """The closed form on the rows the hyperparameters were learned on: the best that can be had at once."""
    rows = some_rows(task.rows.n, min(task.sizes.learn_points, LEARN_POINTS), task.options.seed)
    warnings.warn(
        f"Stopped while the hyperparameters were learned: the model knows {len(rows)} of {task.rows.n} rows. "
        "Fit again with more time to use all of them.",
        stacklevel=3,
    )
    x, Y, weight = (part.double() for part in task.rows.take(rows))
    if isinstance(likelihood, LabelsAsNumbers):  # so few have sites of their own
        kernel, likelihood, Y = stretched(kernel, _LOG_ODDS**2), Logistic(), Y.sign()
    limit = task.options.max_time
    grace = None if limit is None else Halt(threading.Event(), _GRACE * limit)
    # those of a run that goes on were stored on the device it had
    return Trained(ClosedForm.build(put(kernel, x), put(likelihood, x), x, Y, weight, halt=grace))
