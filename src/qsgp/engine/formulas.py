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
KERNELS = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}


@dataclass(frozen=True)
class Formula:
    """A kernel of unit variance and lengthscale: rho as a function of the distance r."""

    profile: Callable[[Tensor], Tensor]
    own_slope: Callable[[Tensor], Tensor] | None = None  # d rho / d (r^2); None: from autograd
    steep: bool = False  # rho'(r) / r is infinite at r = 0

    def slope(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """d rho / d (r^2) = rho'(r) / (2 r)."""
        if self.own_slope is not None:
            return self.own_slope(r)
        with torch.enable_grad():
            at = r.detach().clamp_min(torch.finfo(r.dtype).tiny ** 0.5).requires_grad_()
            (derivative,) = torch.autograd.grad(self.profile(at).sum(), at)
        return derivative / (2 * at.detach())


FORMULAS: dict[str, Formula] = {}
