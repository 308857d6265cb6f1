"""k(X, X) for searches of hyperparameters: its slope in the lengthscales costs one product of matrices."""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from qsgp.interfaces import Kernel
from qsgp.kernels.levels import WithLevels
from qsgp.kernels.mapped import Mapped
from qsgp.kernels.spectral_sum import SpectralSum
from qsgp.kernels.tied import Tied

Profile = Callable[[Tensor], tuple[Tensor, Tensor]]  # rho(r) and -rho'(r) / r from r^2


def gram(kernel: Kernel, x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """kernel(x, x), differentiable in the kernel's parameters; quick in float64 for smooth kernels, and for the
    Laplacian kernel, which always is.

    Distances come from products, so near duplicates lose digits of r, not of r^2: smooth kernels do not notice.
    """
    if isinstance(kernel, SpectralSum):
        return reduce(add, (gram(term, x) for term in kernel.kernels))
    if isinstance(kernel, WithLevels):
        return gram(kernel.smooth, kernel.numbers(x)) + kernel.same(x, x)
    if isinstance(kernel, Mapped):
        return gram(kernel.kernel, kernel.mapped(x))
    inner: Any = kernel.kernel if isinstance(kernel, Tied) else kernel
    profile = getattr(inner, "value_and_slope", None)
    if profile is None or getattr(inner, "steep", False) or x.dtype != torch.float64:
        return kernel(x, x)
    K: Tensor = _Gram.apply(x, inner.lengthscale, inner.variance, profile)
    return K


class _Gram(torch.autograd.Function):
    """With w = -variance rho'(r) / r, the slope of K in lengthscale j is w (z_j - z'_j)^2 / lengthscale j."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Float[Tensor, "n d"], lengthscale: Tensor, variance: Tensor, profile: Profile
    ) -> Float[Tensor, "n n"]:
        z = (x - x.mean(0)) / lengthscale
        norms = z.square().sum(1)
        squared = torch.addmm(norms[:, None] + norms, z, z.mT, alpha=-2).clamp_(min=0)
        squared.diagonal().zero_()
        value, slope = profile(squared)
        ctx.save_for_backward(z, lengthscale, variance, value, slope)
        return variance * value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "n n"]) -> tuple[None, Tensor, Tensor, None]:
        z, lengthscale, variance, value, slope = ctx.saved_tensors
        W = gradient * slope
        squares = (W.sum(0) + W.sum(1)) @ z.square() - 2 * (z * (W @ z)).sum(0)
        return None, variance * squares / lengthscale, (gradient * value).sum(), None
