"""The variances of random effects, and of noise, by the likelihood of all rows (REML) through sums over them.

Rows taken at random share hardly any level where there are many, so their evidence says nothing of effects. The sums of
`solvers.mixed` know all rows. A round sets every variance to |u|^2 / gamma, gamma being how many of its effects the
rows determine (MacKay, "Bayesian interpolation", 1992): where rounds end, the derivative of the restricted likelihood
is 0. What rows leave open of the effects comes from draws, the same in all rounds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from qsgp.solvers.closed_form import threads_worth
from qsgp.solvers.mixed import Equations, Sums

DRAWS = 16
ROUNDS = 60
SETTLED = 2e-3  # relative change of all variances in a round
LEAST = 1e-6  # variance of an effect, of targets of variance 1


@dataclass(frozen=True)
class First:
    """Variances to begin with; those not known are taken to be alike."""

    functions: float = 4.0
    effects: tuple[float, ...] = ()
    noise: float = 0.0


@dataclass(frozen=True)
class Effects:
    """Variances and the most probable effects."""

    functions: float  # variance of the weights of the functions
    variances: tuple[float, ...]  # of each identifier
    noise: float
    weights: Float64[Tensor, "k o"]
    tables: Float64[Tensor, "q levels o"]  # 0 in the last place, of unknown levels
    determined: float  # effects that the rows determine, for each row: the share of its noise they have taken
    rounds: int


@torch.no_grad()
def estimated(sums: Sums, first: "First | None" = None, halt: Callable[[], bool] = lambda: False) -> Effects:
    """From the variances of ``first``; ``halt`` is asked after every round."""
    with threads_worth(0):  # matrices of few columns
        return _estimated(sums, first or First(), halt)


def _estimated(sums: Sums, first: First, halt: Callable[[], bool]) -> Effects:
    parts, outputs, k = sums.parts(), sums.right.shape[1], len(sums.BB)
    share = max(float(sums.squares.mean() / sums.total) / (len(parts) + 1), LEAST)
    variances = [first.functions, *(first.effects or [share] * len(sums.sizes))]
    noise, generator = first.noise or share, torch.Generator().manual_seed(0)
    normal = torch.randn(sums.noise.shape, generator=generator, dtype=torch.float64)
    X, rounds, settled = torch.cat([torch.zeros_like(sums.right), torch.zeros_like(normal)], 1), 0, False
    while not settled and rounds < ROUNDS and not (rounds and halt()):
        equations, before, rounds = Equations.of(sums, noise, variances), [noise, *variances], rounds + 1
        drawn = sums.noise / noise**0.5 - equations.precision.sqrt()[:, None] * normal
        X = equations.solve(torch.cat([sums.right / noise, drawn], 1), X)
        V, left = X[:, :outputs], equations.left(X[:, outputs:], drawn)
        pairs = list(zip(parts, variances, strict=True))
        gammas = [min(max(len(left[at]) - float(left[at].sum()) / one, LEAST), len(left[at])) for at, one in pairs]
        squares = [float(V[at].square().sum(0).mean()) for at in parts]
        variances = [max(square / gamma, LEAST) for square, gamma in zip(squares, gammas, strict=True)]
        wrong = sums.squares - 2 * (V * sums.right).sum(0) + (V * sums.times(V)).sum(0)
        noise = max(float(wrong.mean()) / max(sums.total - 1 - sum(gammas), 1.0), LEAST)
        moved = zip([noise, *variances], before, strict=True)
        settled = all(abs(new / old - 1) < SETTLED or new <= LEAST for new, old in moved)
    tables = V.new_zeros(len(sums.sizes), max(sums.sizes) + 1, outputs)
    for table, part in zip(tables, parts[1:], strict=True):
        table[: part.stop - part.start] = V[part]
    return Effects(variances[0], tuple(variances[1:]), noise, V[:k], tables, sum(gammas[1:]) / sums.total, rounds)
