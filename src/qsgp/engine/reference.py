"""The products in plain torch, block by block: any device, any precision. In float64 the truth of all tests."""

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.engine.frequencies import Frequencies, numbers

BLOCK = 1 << 21  # projections held at a time


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
    for rows, pairs, both in _blocks(len(x), len(frequencies)):
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
    for rows, pairs, both in _blocks(len(x), len(frequencies)):
        out[both] += features(x[rows], numbers(frequencies[pairs], x), lengthscale).flatten(1).mT @ R[rows]
    return out


