"""Which inputs matter, told from one input at a time: where a search for lengthscales may begin.

Searches that begin with equal lengthscales can stop where everything is noise when one input of twenty matters. Means
of the target over a few groups of rows, in the order of an input, show such an input at once. Means of its square also
show one that acts through others alone (x1 x2). Cost O(n d log n).
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from qsgp.data.rows import Rows

GROUPS = 8  # of rows, by the order of an input
SURE = 26.0  # n R^2 of chance has a mean of 7 and a deviation of 3.7
WIGGLY, STRAIGHT, IDLE = 1.0, 4.0, 30.0  # first lengthscales, in deviations of the input
LEAST_ROWS, LEAST_INPUTS = 50, 5  # with fewer inputs searches find their way


@torch.no_grad()
def first_lengthscales(rows: Rows) -> Float64[Tensor, " d"] | None:
    """Of standardised inputs: short where means change with them, long where nothing does; None if all are alike."""
    x, Y, weight = rows
    if weight.sum() < LEAST_ROWS or x.shape[1] < LEAST_INPUTS:
        return None
    targets, squares = _centred(Y, weight), _centred(_centred(Y, weight).square(), weight)
    grouped = torch.stack([_grouped(column, targets, weight) for column in x.mT])
    straight = torch.stack([_straight(column, targets, weight) for column in x.mT])
    scattered = torch.stack([_grouped(column, squares, weight) for column in x.mT])
    wiggly = (grouped - straight > SURE).any(1)
    matters = ((straight > SURE) | (scattered > SURE)).any(1)
    found = torch.where(wiggly, WIGGLY, torch.where(matters, STRAIGHT, IDLE)).to(x)
    return None if bool((found == found[0]).all()) else found


def _centred(values: Float64[Tensor, "n *o"], weight: Float64[Tensor, " n"]) -> Float64[Tensor, "n *o"]:
    return values - weight @ values / weight.sum()


def _grouped(
    column: Float64[Tensor, " n"], targets: Float64[Tensor, "n o"], weight: Float64[Tensor, " n"]
) -> Float64[Tensor, " o"]:
    """n R^2 of means over groups of neighbouring values; equal values share a group, a row of weight 2 is two rows."""
    ordered, order = column.sort()
    below = weight[order].cumsum(0)
    shares = torch.arange(1, GROUPS, dtype=below.dtype, device=below.device) / GROUPS
    edges = ordered[torch.searchsorted(below, (1 - 1e-9) * shares * below[-1]).clamp_max(len(ordered) - 1)]
    group = torch.searchsorted(edges, column.contiguous())
    count = weight.new_zeros(GROUPS).index_add_(0, group, weight).clamp_min(1e-300)
    sums = targets.new_zeros(GROUPS, targets.shape[1]).index_add_(0, group, weight[:, None] * targets)
    return weight.sum() * (sums.square() / count[:, None]).sum(0) / (weight @ targets.square()).clamp_min(1e-300)


def _straight(
    column: Float64[Tensor, " n"], targets: Float64[Tensor, "n o"], weight: Float64[Tensor, " n"]
) -> Float64[Tensor, " o"]:
    """n R^2 of a straight line."""
    centred = _centred(column, weight)
    scale = (weight @ centred.square()) * (weight @ targets.square())
    return weight.sum() * ((weight * centred) @ targets).square() / scale.clamp_min(1e-300)
