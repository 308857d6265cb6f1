"""Predictive variance from the support points alone: that of a GP which saw them, each in place of n / n_bar rows.

k(x, x) - k(x, p) (K_pp + Gamma^-1)^-1 k(p, x), Gamma = (n / n_bar) times the curvature of the sites at p. It does not
degrade as m grows, and serves any site: for Gaussian noise Gamma^-1 is (n_bar / n) sigma2.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_rows
from qsgp.interfaces import Kernel

LEAST = 1e-6  # curvature of a decided row: it tells nothing, and 1 / 0 has no factor


@dataclass(frozen=True)
class SupportVariance:
    """The factors of K_pp + Gamma^-1, one for each column, in float64."""

    kernel: Kernel
    U: Float[Tensor, "p d"]
    factor: Float[Tensor, "c p p"]

    @classmethod
    def build(
        cls, kernel: Kernel, U: Float[Tensor, "p d"], curvature: Float[Tensor, "p c"], n: int
    ) -> "SupportVariance":
        """``curvature`` of the sites at the predictions of the support points; n rows in all."""
        p = check_rows(U=U, curvature=curvature)
        K = kernel(U, U).double()
        gamma = n / p * curvature.double().clamp_min(LEAST)
        # K_pp alone may be singular in float32; its share of rounding is added where the noise is smaller than that.
        return cls(kernel, U, torch.linalg.cholesky(K + torch.diag_embed(1 / gamma.mT + 1e-6 * K.diagonal().mean())))

    def __call__(self, x: Float[Tensor, "t d"], block_rows: int = 4096) -> Float[Tensor, "t c"]:
        return torch.cat([self._block(rows) for rows in x.split(block_rows)])

    def _block(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t c"]:
        known = torch.linalg.solve_triangular(self.factor, self.kernel(self.U, x).double(), upper=False).square().sum(1)
        prior = self.kernel.diag(x).double()
        # never 0: a deviation of rounding size is all that can be claimed
        return (prior - known).clamp_min(1e-6 * prior).mT.to(x)
