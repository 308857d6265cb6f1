"""The formulas of the kernels, by name. Each kernel's file holds its own; `qsgp.kernels.register` puts it here.

The reference and the gradients call them. The C and Triton files have a few of them built in, which is faster; for any
other kernel the reference takes over.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

# Kernels that the C and Triton files know, with the number that the C files know them by: 2 nu of a Matern kernel.
# Those of the Euclidean distance can also be trained in the fused step of `cuda_step`.
RADIAL = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}
LAPLACIAN = 2
KERNELS = RADIAL | {"laplacian": LAPLACIAN}


@dataclass(frozen=True)
class Formula:
    """A kernel of unit variance and lengthscale: rho as a function of the distance r."""

    profile: Callable[[Tensor], Tensor]
    own_slope: Callable[[Tensor], Tensor] | None = None  # d rho / d (r^2); None: from autograd
    steep: bool = False  # rho'(r) / r is infinite at r = 0
    norm: int = 2  # r = (sum_j |x_j - z_j|^norm)^(1 / norm), 1 or 2

    def derivative(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """rho'(r)."""
        with torch.enable_grad():
            at = r.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.profile(at).sum(), at)
        return found

    def slope(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """d rho / d (r^2) = rho'(r) / (2 r)."""
        if self.own_slope is not None:
            return self.own_slope(r)
        at = r.detach().clamp_min(torch.finfo(r.dtype).tiny ** 0.5)
        return self.derivative(at) / (2 * at)


FORMULAS: dict[str, Formula] = {}
