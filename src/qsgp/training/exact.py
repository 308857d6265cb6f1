"""The exact GP on some of the rows: where training on all of them begins, and what it must not end worse than.

The rows are those the hyperparameters were learned on, and more while there is time. Its variance is exact: all of its
rows are support points. It costs one factor of b x b numbers, for sites that are not Gaussian one a round and output.
"""

import math
import time
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.factor import cholesky
from qsgp.interfaces import Likelihood, SpectralKernel
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.posteriors.spread import Spread
from qsgp.solvers.row_sites import RowSites, groups_of

ROUNDS = 20  # of tightening sites at most; they settle in about ten
SETTLED = 1e-3  # change of the mean in a round, in units of its largest value
PROBE = 500  # rows of the matrix whose factor tells how fast this machine is now
WORK = 5  # factors of b rows that kernel values, factor and held-out predictions take together
WORK_OF_ROUNDS = 16  # for each output whose sites are tightened


def affordable(seconds: float, likelihood: Likelihood, outputs: int) -> int:
    """Rows whose exact GP can be had in so many seconds on this CPU as busy as it is now."""
    units = WORK if likelihood.fixed_sites else WORK_OF_ROUNDS * groups_of(likelihood, outputs)
    return int(PROBE * (max(seconds, 0.0) / (units * _seconds_of_a_factor())) ** (1 / 3))


def _seconds_of_a_factor() -> float:
    K = torch.eye(PROBE, dtype=torch.float64)
    took = []
    for _ in range(3):
        began = time.perf_counter()
        cholesky(K)
        took.append(time.perf_counter() - began)
    return min(took)


def solvable(seconds: float, posterior: KernelFunctionsAtRows, columns: int, factor_seconds: float) -> int:
    """Rows n whose epoch takes so many seconds: n^2 kernel values times ``columns``, and ``factor_seconds`` a row."""
    x = posterior.x
    some, A = x[:PROBE], x.new_ones(len(x), columns)
    posterior.kernel.product(some, x, A)  # the first one may compile
    began = time.perf_counter()
    posterior.kernel.product(some, x, A)
    value = (time.perf_counter() - began) / (len(some) * len(x))
    return int((math.sqrt(factor_seconds**2 + 4 * value * max(seconds, 0.0)) - factor_seconds) / (2 * value))


@torch.no_grad()
def exact_gp(
    kernel: SpectralKernel, sites: RowSites, x: Float[Tensor, "b d"], seed: int, halt: Callable[[], bool]
) -> KernelFunctionsAtRows:
    """The GP that knows ``x``, with ``sites`` of these rows, which are tightened unless they are Gaussian."""
    outputs = sites.Y.shape[1]
    every = torch.arange(len(x), device=x.device)
    target, before = sites.Y, None
    if not sites.likelihood.fixed_sites:
        target = sites.right(every, torch.zeros_like(sites.Y), kernel.diag(x)[:, None])
    while True:
        spread = Spread.build(kernel, x, sites.noise)
        A = _solved(spread, target)
        posterior = KernelFunctionsAtRows(kernel, sites.likelihood, x, A, outputs, seed, spread)
        if sites.likelihood.fixed_sites:
            return posterior
        mean = posterior.pieces(x)[0]
        change = float((mean - (0 if before is None else before[0])).abs().max())
        rounds = 0 if before is None else before[1] + 1
        if change < SETTLED * (1 + float(mean.abs().max())) or rounds >= ROUNDS or halt():
            return posterior
        before = (mean, rounds)
        target = sites.right(every, mean, spread.support(x).to(mean))


def _solved(spread: Spread, target: Float[Tensor, "b o"]) -> Float[Tensor, "b o"]:
    """(K + D)^-1 targets, each output with its own D."""
    if len(spread.factor) == 1:
        return torch.cholesky_solve(target.double(), spread.factor[0]).to(target)
    columns = zip(spread.factor, target.double().mT, strict=True)
    return torch.stack([torch.cholesky_solve(y[:, None], own)[:, 0] for own, y in columns], 1).to(target)
