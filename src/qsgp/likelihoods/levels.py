"""Levels q of quantiles: read in float64, since 1 - q keeps only 7 digits in float32 and a far tail needs more."""

import torch
from jaxtyping import Float
from torch import Tensor


def read_level(q: float | Float[Tensor, "*s"], like: Tensor) -> Float[Tensor, "..."]:
    """``q`` as float64 on the device of ``like``; 0 < q < 1."""
    level = torch.as_tensor(q, dtype=torch.float64, device=like.device)
    outside = level[~((level > 0) & (level < 1))]
    if outside.numel():
        raise ValueError(
            f"Expected 0 < q < 1, got {outside.flatten()[0].item()}. q is a probability, such as 0.95 for the 95 % "
            "quantile; the quantiles at 0 and 1 are infinite."
        )
    return level


def normal_quantile(q: float | Float[Tensor, "*s"], like: Tensor) -> Float[Tensor, "..."]:
    """z with Pr(N(0, 1) < z) = q, in the dtype of ``like``."""
    return torch.special.ndtri(read_level(q, like)).to(like.dtype)
