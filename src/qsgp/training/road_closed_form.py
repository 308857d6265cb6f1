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
from qsgp.solvers.closed_form import threads_worth
from qsgp.training.exact import affordable
from qsgp.training.options import LEARN_POINTS
from qsgp.training.precision import put
from qsgp.training.task import Task
from qsgp.training.trained import Trained, Unseen

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
    return _with_rows_left_out(task, ClosedForm.build(kernel, likelihood, *rows, halt=task.halt))


def _with_rows_left_out(task: Task, posterior: ClosedForm) -> Trained:
    return Trained(posterior, unseen=left_out(posterior) if task.options.noise == "auto" else None)


@torch.no_grad()
def left_out(posterior: ClosedForm) -> Unseen | None:
    """Each row as all others predict it, from one factor (Rasmussen and Williams, section 5.4.2); None for sites
    that are not Gaussian.

    Hyperparameters know all rows: errors may be a little too small. On average they count as what variances say.
    """
    noise = posterior.likelihood.noise_variance
    if not posterior.likelihood.fixed_sites or noise is None:
        return None
    root = posterior.solved[0].sites.root  # of all outputs
    with threads_worth(len(root)):
        precision = root.square() * torch.cholesky_inverse(posterior.solved[0].factor).diagonal()
    error = torch.stack([solved.alpha for solved in posterior.solved], 1) / precision[:, None]
    variance = (1 / precision - 1 / root.square()).clamp_min(1e-12 * noise)[:, None].expand_as(error)
    surprise = error.square() / (variance + noise)
    too_small = (posterior.weight @ surprise / posterior.weight.sum()).sqrt().clamp(1e-6, 1.0)
    return Unseen(posterior.Y, posterior.Y - error / too_small, variance, posterior.weight)


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
    return _with_rows_left_out(task, ClosedForm.build(put(kernel, x), put(likelihood, x), x, Y, weight, halt=grace))
