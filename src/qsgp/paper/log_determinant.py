"""log |S| of a dense S = K(Z, Z) from a few of its rows: what the paper leaves to future work (Section 2.3).

By the chain rule log |S| = sum_r log v_r, where v_r is the variance of the process at z_r given its values at all
earlier centres. Rows r are sampled. Of the centres before r the nearest say nearly all, so few of them are taken at
first; Russian roulette decides how many more, and what is rarely looked at counts the more when it is. The estimate is
unbiased when the lists of nearest centres hold all earlier ones. Shorter lists give the log-determinant of Vecchia's
approximation, which is above log |S| by the little that the centres left out would have said.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.checks import check_positive
from qsgp.interfaces import DensePriorBasis

FIRST = 8  # neighbours of every row; each level has twice as many as the one before
CHANCE = 2**-1.5  # of going on by a level: half as much variance again costs about thrice the time
# Of the diagonal, added to S: functions that rounding cannot tell apart have a determinant too.
_JITTER = {torch.float64: 1e-10, torch.float32: 1e-5}


class Looked(NamedTuple):
    """Rows of S that were drawn, and up to which level each of them is looked at."""

    rows: Int[Tensor, " r"]
    levels: Int[Tensor, " r"]


@torch.no_grad()
def nearest_earlier(basis: DensePriorBasis, most: int = 64) -> Int[Tensor, "m b"]:
    """For every function the ``most`` earlier ones that S couples most strongly with it, strongest first.

    -1 where there are fewer. Cost O(m^2 d) once; a step reads the lists of the rows it draws.
    """
    check_positive("most", most, "A row is compared with some of the earlier centres; 64 are usually plenty.")
    b = min(most, max(1, basis.m - 1))
    at = torch.arange(basis.m, device=next(iter(basis.kernel.parameters().values())).device)
    found = torch.full((basis.m, b), -1, dtype=torch.long, device=at.device)
    for rows in at.split(1024):
        before = at[: int(rows[-1]) + 1]
        coupling = basis.precision(basis.columns(rows), basis.columns(before)).abs()
        coupling = coupling.masked_fill(before >= rows[:, None], -torch.inf)
        values, nearest = coupling.topk(min(b, len(before)), 1)
        found[rows, : nearest.shape[1]] = torch.where(values == -torch.inf, -1, nearest)
    return found


def level_sizes(b: int, first: int = FIRST) -> list[int]:
    """How many neighbours each level has: ``first``, twice as many, ..., all ``b`` of the lists."""
    sizes = [min(first, b)]
    while sizes[-1] < b:
        sizes.append(min(2 * sizes[-1], b))
    return sizes


def look(m: int, count: int, levels: int, generator: torch.Generator, chance: float = CHANCE) -> Looked:
    """``count`` rows with replacement; each goes on to the next of ``levels`` with probability ``chance``."""
    device = generator.device
    rows = torch.randint(m, (count,), generator=generator, device=device)
    goes_on = torch.rand(count, max(1, levels - 1), generator=generator, device=device) < chance
    return Looked(rows, goes_on.cumprod(1).sum(1).clamp_max(levels - 1))


def log_determinant(
    basis: DensePriorBasis,
    earlier: Int[Tensor, "m b"],
    looked: Looked,
    *,
    first: int = FIRST,
    chance: float = CHANCE,
) -> Float[Tensor, ""]:
    """Unbiased estimate of log |S| from the rows that were looked at; differentiable in the kernel.

    Cost O(b_N^3 + b_N^2 d) for a row that is looked at up to level N with b_N neighbours, whatever m is.
    """
    sizes = level_sizes(earlier.shape[1], first)
    parts = []
    for level, size in enumerate(sizes):
        rows = looked.rows[looked.levels == level]
        if len(rows):
            log_v = _log_variances(basis, rows, earlier[rows, :size])
            seen = torch.stack([log_v[:, known] for known in sizes[: level + 1]], 1)
            steps = torch.diff(seen, dim=1)
            weights = chance ** -torch.arange(1, level + 1, dtype=steps.dtype, device=steps.device)
            parts.append((seen[:, 0] + steps @ weights).sum())
    return basis.m / len(looked.rows) * torch.stack(parts).sum()


def _log_variances(
    basis: DensePriorBasis, rows: Int[Tensor, " r"], earlier: Int[Tensor, "r b"]
) -> Float[Tensor, "r known"]:
    """log v_r given none, the first, the first two, ... of the neighbours: one factor tells them all."""
    at = torch.cat([earlier, rows[:, None]], 1)
    missing = at < 0
    blocks = [basis.precision(columns, columns) for columns in map(basis.columns, at.clamp_min(0).unbind())]
    S = torch.stack(blocks).double()
    S = S.masked_fill(missing[:, :, None] | missing[:, None, :], 0)  # an unknown that says nothing
    size = S.diagonal(dim1=1, dim2=2).detach().amax(1, keepdim=True)
    raised = torch.where(missing, 1.0, _JITTER[blocks[0].dtype] * size)
    factor = torch.linalg.cholesky_ex(S + torch.diag_embed(raised))[0]
    # Its last row: what each neighbour has said of r, and what is left of its variance. Summed from the end, that is
    # the variance given ever fewer of them, without a difference of nearly equal numbers.
    said = factor[:, -1].square()
    return said.flip(1).cumsum(1).flip(1).log().to(blocks[0].dtype)
