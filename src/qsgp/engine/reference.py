"""The products in plain torch, block by block: any device, any precision. In float64 the truth of all tests."""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.engine.frequencies import Frequencies, numbers

# Kernels by name, with the degrees of freedom of their spectral density (0: normal): 2 nu of a Matern kernel.
KERNELS = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}
BLOCK = 1 << 19  # projections held at a time


def features(
    x: Float[Tensor, "n d"], omega: Float[Tensor, "p d"], lengthscale: Float[Tensor, " d"]
) -> Float[Tensor, "n p two"]:
    """cos and sin of (x / lengthscale)^T omega, side by side: columns 2 p and 2 p + 1 once flattened."""
    t = (x / lengthscale) @ omega.to(x.dtype).mT
    return torch.stack((t.cos(), t.sin()), -1)


def phi_v(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    out = V.new_zeros((len(x), V.shape[1]))
    for rows, pairs, both in blocks(len(x), len(frequencies)):
        out[rows] += features(x[rows], numbers(frequencies[pairs], x), lengthscale).flatten(1) @ V[both]
    return out


def phit_r(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    R: Float[Tensor, "n c"],
    lengthscale: Float[Tensor, " d"],
    precision: str = "default",
) -> Float[Tensor, "m c"]:
    out = R.new_zeros((2 * len(frequencies), R.shape[1]))
    for rows, pairs, both in blocks(len(x), len(frequencies)):
        out[both] += features(x[rows], numbers(frequencies[pairs], x), lengthscale).flatten(1).mT @ R[rows]
    return out


def k_v(
    x: Float[Tensor, "n d"],
    z: Float[Tensor, "b d"],
    V: Float[Tensor, "b c"],
    lengthscale: Float[Tensor, " d"],
    kernel: str,
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    rows = max(1, BLOCK // len(z))
    return torch.cat([profile(distances(part, z, lengthscale), kernel) @ V for part in x.split(rows)])


def profile(r: Float[Tensor, "*shape"], kernel: str) -> Float[Tensor, "*shape"]:
    """rho(r): the kernel with unit variance and lengthscale."""
    if kernel == "rbf":
        return torch.exp(-0.5 * r.square())
    s = STEEPNESS[kernel] * r
    if kernel == "matern12":
        return torch.exp(-s)
    return (1 + s if kernel == "matern32" else 1 + s + s.square() / 3) * torch.exp(-s)


STEEPNESS = {"matern12": 1.0, "matern32": math.sqrt(3), "matern52": math.sqrt(5)}


def distances(
    x: Float[Tensor, "n d"], z: Float[Tensor, "b d"], lengthscale: Float[Tensor, " d"]
) -> Float[Tensor, "n b"]:
    """|(x - z) / lengthscale|, accurate for near duplicates.

    Float64 takes differences; float32 a float64 product of centred inputs, which is faster and loses less than they do.
    """
    if x.dtype == torch.float64:
        return torch.cdist(x / lengthscale, z / lengthscale, compute_mode="donot_use_mm_for_euclid_dist")
    centre, ell = z.double().mean(0), lengthscale.double()
    X, Z = (x.double() - centre) / ell, (z.double() - centre) / ell
    norms = X.square().sum(1)[:, None] + Z.square().sum(1)
    return torch.addmm(norms, X, Z.mT, alpha=-2).clamp_(min=0).sqrt_().to(x.dtype)


def blocks(rows: int, pairs: int) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of rows, of pairs and of the features of these pairs, BLOCK projections at a time."""
    wide = min(pairs, 4096)
    tall = max(1, BLOCK // max(wide, 1))
    for p in range(0, pairs, wide or 1):
        for r in range(0, rows, tall):
            yield slice(r, r + tall), slice(p, p + wide), slice(2 * p, 2 * (p + wide))
