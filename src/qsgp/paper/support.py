"""The support set: a few training points whose predictions are known exactly at every step.

It serves the control variates (Eq. (3), Nystrom, kriging) and tells the sites a mean and a variance that do not
depend on the current draw. Everything here uses the kernel at initialisation (Appendix F.3).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Kernel


@dataclass(frozen=True)
class Support:
    """Inputs U of the support points and the Cholesky factor of K(U, U) + jitter."""

    kernel: Kernel
    U: Float[Tensor, "p d"]
    factor: Float[Tensor, "p p"]

    @classmethod
    def build(cls, kernel: Kernel, U: Float[Tensor, "p d"], jitter: float = 1e-3) -> "Support":
        """Factor K(U, U) + jitter mean(k_uu) I in float64; ``jitter`` grows until the factor exists."""
        if not len(U):
            raise ValueError("Expected one support point or more, got none. Take some rows of the training inputs.")
        K = kernel(U, U).detach().double()
        eye = torch.eye(len(U), dtype=K.dtype, device=K.device)
        for power in range(8):
            factor, failed = torch.linalg.cholesky_ex(K + jitter * 10**power * K.diagonal().mean() * eye)
            if not failed:
                return cls(kernel, U, factor.to(U.dtype))
        raise ValueError(
            f"K(U, U) of the {len(U)} support points has no Cholesky factor even with jitter. "
            "Look for non-finite inputs or a kernel variance of zero."
        )

    def weights(self, x: Float[Tensor, "l d"]) -> Float[Tensor, "l p"]:
        """W = k(x, U) (K_UU + eps I)^-1: what kriging multiplies the values at the support points with."""
        return torch.cholesky_solve(self.kernel(self.U, x), self.factor).mT
