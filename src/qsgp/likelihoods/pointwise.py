"""What training by hand-written steps asks of a site: value, slope and curvature of -log g(f), by rows and columns.

Columns are independent sites that share the inputs (several targets, one class against the rest). Softmax is one site
over all columns: it offers no curvature by columns and trains by gradients.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from qsgp.checks import check_positive

Pointwise = Callable[[Tensor, Tensor], Tensor]


class Site(NamedTuple):
    """Functions of (Y, f), and the largest curvature: step sizes follow from it."""

    value: Pointwise
    slope: Pointwise
    curvature: Pointwise | None
    steepest: float


def gaussian(sigma2: float) -> Site:
    """(Y - f)^2 / (2 sigma2)."""
    check_positive("sigma2", sigma2, "Give the noise variance.")
    return Site(
        lambda Y, f: (Y - f).square() / (2 * sigma2),
        lambda Y, f: (f - Y) / sigma2,
        lambda Y, f: torch.full_like(f, 1 / sigma2),
        1 / sigma2,
    )


def logistic() -> Site:
    """log(1 + exp(-Y f)), Y = +-1."""
    return Site(
        lambda Y, f: softplus(-Y * f),
        lambda Y, f: -Y * torch.sigmoid(-Y * f),
        lambda Y, f: torch.sigmoid(f) * torch.sigmoid(-f),
        0.25,
    )


def softmax() -> Site:
    """-log softmax(f) of the column where Y is 1, Y one-hot. The Hessian of a row is at most 1/2."""
    return Site(
        lambda Y, f: -(Y * torch.log_softmax(f, -1)),
        lambda Y, f: torch.softmax(f, -1) - Y,
        None,
        0.5,
    )
