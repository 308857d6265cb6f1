"""Hundreds of inputs, such as pixels: lengthscales in given proportions, for classes from a regression on the labels.

The bound of the logistic evidence from few rows wants functions that are nearly linear there; the evidence of the
labels taken for numbers does not, and has one factor for all classes. How large the functions are, rows held out say.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.kernels import BY_NAME, Tied
from qsgp.solvers.closed_form import Sites, Solved, solve, threads_worth, variance_at_data
from qsgp.solvers.row_sites import quadratic_sites

MANY = 128  # inputs beyond which a lengthscale for each cannot be learned from some thousand rows
VARIANCES = (16.0, 4.0, 64.0, 1.0, 256.0, 1024.0)  # the likeliest first: there may be no time for all
ROUNDS = 20


def tied_kernels(
    names: list[str], x: Float[Tensor, "n d"], lengthscale: Float[Tensor, " d"], units: Float[Tensor, " d"] | None
) -> list[Tied]:
    """Kernels with equal lengthscales of the standardised inputs, and with equal ones of the inputs as they came.

    ``units``: what 1 of each standardised input was before. Pixels share a unit; standardised, those that are nearly
    always blank would be the loudest. The evidence chooses.
    """
    starts, one = [lengthscale], torch.ones((), dtype=lengthscale.dtype)
    if units is not None:
        spread = (units.to(lengthscale) * x.to(lengthscale).std(0, correction=0)).norm().clamp_min(1e-300)
        starts.append((spread / units.to(lengthscale)).clamp(1e-6, 1e6))
    kernels = [BY_NAME[name](start, one) for name in names for start in starts]
    return [Tied.of(kernel) for kernel in kernels if isinstance(kernel, SpectralKernel)]


@torch.no_grad()
def with_best_variance(
    kernel: Kernel, likelihood: Likelihood, known: Rows, others: Rows, halt: Callable[[], bool] = lambda: False
) -> tuple[Kernel, Float[Tensor, " h"]]:
    """The signal variance under which ``known`` predicts ``others`` best; some 60 factors for each output.

    With it comes the log density of each of the others, times its weight. ``halt`` is asked before every output: what
    was tried in full by then is compared.
    """
    best: tuple[Kernel, Tensor] | None = None
    for variance in VARIANCES:
        log_variance = others.x.new_tensor(variance).log()
        own = kernel.with_parameters(kernel.parameters() | {"log_variance": log_variance})
        if best is None:
            best = (own, torch.full_like(others.weight, -math.inf))
        total = _density(own, likelihood, known, others, halt)
        if total is None:
            break
        best = max(best, (own, total), key=lambda each: float(each[1].sum()))
    assert best is not None
    return best


def _density(
    kernel: Kernel, likelihood: Likelihood, known: Rows, others: Rows, halt: Callable[[], bool]
) -> Float[Tensor, " h"] | None:
    """Log density of each of ``others``, weighted, for the posterior of ``known``; None when there was no time."""
    (x, Y, weight), (x_new, Y_new, weight_new) = known, others
    with threads_worth(len(x)):
        Gram, cross, total = kernel(x, x), kernel(x, x_new), torch.zeros_like(weight_new)
        for y, y_new in zip(Y.mT, Y_new.mT, strict=True):
            if halt():
                return None
            solved = _solved(Gram, likelihood, y, weight)
            half = torch.linalg.solve_triangular(solved.factor, solved.sites.root[:, None] * cross, upper=False)
            left = (kernel.diag(x_new) - half.square().sum(0)).clamp_min(0)
            total += weight_new * likelihood.log_density(y_new, cross.mT @ solved.alpha, left)
    return total


def _solved(Gram: Float[Tensor, "n n"], likelihood: Likelihood, y: Tensor, weight: Tensor) -> Solved:
    """The posterior whose sites are those about itself."""
    mean, variance = torch.zeros_like(y), Gram.diagonal()
    for _ in range(ROUNDS):
        linear, precision = quadratic_sites(likelihood, y, mean, variance)
        solved = solve(Gram, Sites(y.new_zeros(()), weight * linear, weight * precision))
        before, mean = mean, Gram @ solved.alpha
        variance = variance_at_data(solved, Gram.diagonal())
        if float((mean - before).abs().max()) < 0.01 * (1 + float(mean.abs().max())):
            break
    return solved
