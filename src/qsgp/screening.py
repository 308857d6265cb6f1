"""Which inputs matter, told from one input at a time: where a search for lengthscales may begin.

Searches that begin with equal lengthscales stop where everything is noise when one input of twenty matters: 1,000 rows
of a sine ended 4,000 nats below the best lengthscales. Means of the target over a few groups of equal size of an input
show such an input at once, those of its square also one that acts through others alone (x1 x2). Cost O(n d log n).
"""

import torch
from jaxtyping import Float64
from torch import Tensor

GROUPS = 8  # of rows, by the order of an input
SURE = 26.0  # n R^2 of chance has a mean of 7 and a deviation of 3.7
WIGGLY, STRAIGHT, IDLE = 1.0, 4.0, 30.0  # first lengthscales, in deviations of the input
LEAST_ROWS = 50


@torch.no_grad()
def first_lengthscales(x: Float64[Tensor, "n d"], Y: Float64[Tensor, "n o"]) -> Float64[Tensor, " d"] | None:
    """Of standardised inputs: short where means change with them, long where nothing does; None if all are alike."""
    if len(x) < LEAST_ROWS or x.shape[1] < 2:
        return None
    targets = Y - Y.mean(0)
    squares = targets.square() - targets.square().mean(0)
    grouped = torch.stack([_grouped(column, targets) for column in x.mT])
    straight = torch.stack([_straight(column, targets) for column in x.mT])
    scattered = torch.stack([_grouped(column, squares) for column in x.mT])
    wiggly = (grouped - straight > SURE).any(1)
    matters = ((straight > SURE) | (scattered > SURE)).any(1)
    found = torch.where(wiggly, WIGGLY, torch.where(matters, STRAIGHT, IDLE)).to(x)
    return None if bool((found == found[0]).all()) else found


def _grouped(column: Float64[Tensor, " n"], targets: Float64[Tensor, "n o"]) -> Float64[Tensor, " o"]:
    """n R^2 of means over groups of neighbouring values; equal values share a group."""
    edges = torch.quantile(column, torch.arange(1, GROUPS, dtype=column.dtype, device=column.device) / GROUPS)
    group = torch.searchsorted(edges, column.contiguous())
    count = torch.bincount(group, minlength=GROUPS).clamp_min(1).to(targets)
    sums = targets.new_zeros(GROUPS, targets.shape[1]).index_add_(0, group, targets)
    return len(column) * (sums.square() / count[:, None]).sum(0) / targets.square().sum(0).clamp_min(1e-300)


def _straight(column: Float64[Tensor, " n"], targets: Float64[Tensor, "n o"]) -> Float64[Tensor, " o"]:
    """n R^2 of a straight line."""
    centred = column - column.mean()
    scale = centred.square().sum() * targets.square().sum(0)
    return len(column) * (centred @ targets).square() / scale.clamp_min(1e-300)
