"""Inputs, targets and weights of some rows: they travel together."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Rows(NamedTuple):
    x: Float[Tensor, "n d"]
    Y: Float[Tensor, "n o"]
    weight: Float[Tensor, " n"]

    @property
    def n(self) -> int:
        return len(self.x)

    def take(self, index: Int[Tensor, " i"] | slice) -> "Rows":
        return Rows(*(part[index] for part in self))

    def to(self, device: str | torch.device, dtype: torch.dtype) -> "Rows":
        return Rows(*(part.to(device, dtype) for part in self))

    def followed_by(self, others: "Rows") -> "Rows":
        return Rows(*(torch.cat(pair) for pair in zip(self, others, strict=True)))
