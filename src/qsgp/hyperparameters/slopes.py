"""The slope of the log evidence of all rows, from solved systems instead of a factor of the n x n matrix.

With H = K + D, alpha = H^-1 y and draws Z_s = H^-1 xi_s, xi_s ~ N(0, H), so that E Z_s Z_s^T = H^-1 (the pathwise
estimator of Lin et al., "Improving linear system solvers for hyperparameter optimisation in iterative Gaussian
processes", 2024):

d log E / d theta = (alpha^T dH alpha - tr H^-1 dH) / 2 = E [alpha^T dH alpha - Z_s^T dH Z_s] / 2.

Sums over the rows of one random block, times n / b, stand for sums over all.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp import engine
from qsgp.interfaces import Parameters, SpectralKernel


def slopes(
    kernel: SpectralKernel,
    x: Float[Tensor, "n d"],
    A: Float[Tensor, "n c"],
    sign: Float[Tensor, " c"],
    noise: Float[Tensor, " n"],
    rows: Int[Tensor, " b"],
) -> Parameters:
    """Half of sum_c sign_c A_c^T (dH / d theta) A_c for the logarithms of lengthscales, variance and noise, from the
    block ``rows``. Unbiased over uniform blocks; cost b n kernel values times (2 d + 1) c columns, nothing stored."""
    share = 0.5 * len(x) / len(rows) * sign
    A_b, x_b = A[rows], x[rows]

    def form(left: Tensor, right: Tensor) -> Tensor:
        return (share * (left * right).sum(0)).sum()

    def product(V: Tensor) -> Tensor:
        return kernel.product(x_b, x, V)

    found = {"log_noise_variance": form(A_b, noise[rows, None] * A_b)}
    # d k / d log lengthscale_d = factor * shape(r / shrink) ((x_d - z_d) / lengthscale_d)^2; shape is a kernel again
    shape: Any = getattr(kernel, "shape_of_slope", None)
    if shape is None:  # as of Matern-1/2, whose slope is infinite at distance 0, and of kernels made of others
        own = {name: value.detach().requires_grad_() for name, value in kernel.parameters().items()}
        with torch.enable_grad():
            moved: Any = kernel.with_parameters(own)
            value = form(A_b, moved.product(x_b, x, A))
        return found | dict(zip(own, torch.autograd.grad(value, list(own.values())), strict=True))
    found["log_variance"] = form(A_b, product(A))
    name, factor, shrink = shape
    z = (x - x.mean(0)) / kernel.lengthscale  # about the centre: squares of small numbers cancel less

    def shaped(V: Tensor) -> Tensor:
        return engine.k_v(x_b, x, V, shrink * kernel.lengthscale, factor * kernel.variance, kernel=name)

    plain, each = shaped(A), []
    for z_d in z.mT:
        z_b = z_d[rows, None]
        mixed, square = shaped(torch.cat((z_d[:, None] * A, z_d[:, None].square() * A), 1)).chunk(2, 1)
        each.append(form(A_b, z_b.square() * plain - 2 * z_b * mixed + square))
    return found | {"log_lengthscale": torch.stack(each)}
