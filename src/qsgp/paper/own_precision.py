"""Empirical Bayes for a precision of its own for each function: Appendix I.3."""

import torch
from jaxtyping import Int
from torch import Tensor

from qsgp.paper.problem import Problem
from qsgp.paper.state import Rows

# A function this precise is switched off; larger numbers would only lose digits.
_LARGEST_PRECISION = 1e8


def set_own_precision(rows: Rows, touched: Int[Tensor, " u"], problem: Problem) -> None:
    """``rows.log_s``, and with it ``rows.log_c``, are set to the ELBO's maximum.

    With w = mu^2 + what the other columns of C add to Sigma_ii, the best s given c = c_ii is 1 / (w + c^2). But c is
    (q + s)^-1/2 as in Proposition 1, where q, the data's say, is what c and s imply so far; both together are best at
    s = (sqrt(q^2 + 4 q / w) - q) / 2, where alternating between them would arrive after many steps of at most q. A
    dense row whose column makes q negative has s alone set.
    """
    assert rows.log_s is not None
    arm = problem.covariance.diagonal_rows(touched, rows.mu.dtype) > 0
    dense = problem.covariance.dense_columns(touched, rows.L, rows.log_c)
    c2 = torch.exp(2 * rows.log_c)
    on_diagonal = torch.where(arm, 0.0, c2)
    w = (rows.mu.square().mean(1) + (dense.square().sum(1) - on_diagonal).clamp_min(0)).clamp_min(1e-30)
    q = 1 / c2 - rows.log_s.exp()
    least = 1e-9 / c2
    both = arm | (q > least)
    q = q.clamp_min(least)
    together = 2 * q / w / (q + torch.sqrt(q.square() + 4 * q / w))  # the root without cancellation
    s = torch.where(both, together, 1 / (w + c2)).clamp_max(_LARGEST_PRECISION)
    rows.log_s.copy_(s.log())
    rows.log_c.copy_(torch.where(both, -0.5 * torch.log(q + s), rows.log_c))
