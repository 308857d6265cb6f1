"""Gauss-Hermite quadrature for expectations under N(0, 1)."""

import functools
import math

import torch
from jaxtyping import Float
from torch import Tensor


@functools.lru_cache(maxsize=64)
def gauss_hermite(
    points: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
    """Nodes z and log weights with sum_k exp(log_w_k) f(z_k) = E f(z), z ~ N(0, 1); exact up to degree 2 points - 1.

    The nodes are the eigenvalues of the Jacobi matrix of the Hermite polynomials p_k (orthonormal under N(0, 1)), the
    weights 1 / sum_k p_k(z)^2. Logarithms, because the outer weights of 101 points (1e-80) are zero in float32 and
    a tail probability still needs them. Worked out on the CPU in float64; callers share the result, never write to it.
    """
    # A tensor born in inference mode could never again take part in a gradient.
    with torch.inference_mode(False), torch.no_grad():
        off_diagonal = torch.arange(1, points, dtype=torch.float64, device="cpu").sqrt()
        z = torch.linalg.eigvalsh(torch.diag(off_diagonal, 1) + torch.diag(off_diagonal, -1))
        z = (z - z.flip(0)) / 2  # exact symmetry keeps expectations even in the deviation
        previous, current, total = torch.zeros_like(z), torch.ones_like(z), torch.ones_like(z)
        for k in range(1, points):
            previous, current = current, (z * current - math.sqrt(k - 1) * previous) / math.sqrt(k)
            total = total + current.square()
        log_w = -total.log()
        return z.to(device, dtype), (log_w - log_w.logsumexp(0)).to(device, dtype)


def gaussian_nodes(
    mean: Float[Tensor, "*#s"], deviation: Float[Tensor, "*#s"], points: int
) -> tuple[Float[Tensor, "*#s points"], Float[Tensor, " points"]]:
    """f_k = mean + deviation z_k along a new last axis, and the log weights of that axis."""
    mean, deviation = torch.broadcast_tensors(mean, deviation)
    z, log_w = gauss_hermite(points, mean.dtype, mean.device)
    return mean[..., None] + deviation[..., None] * z, log_w
