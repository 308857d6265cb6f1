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


def some_rows(n: int, most: int, seed: int) -> Tensor:
    """All rows in their order, or ``most`` of them at random."""
    return torch.arange(n) if n <= most else torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most]


def distinct(x: Float[Tensor, "n d"], order: Int[Tensor, " n"], most: int) -> Int[Tensor, " i"]:
    """The first ``most`` of ``order`` whose rows differ from all before them; looks at 4 ``most`` at most."""
    looked = order[: 4 * most]
    _, group = torch.unique(x[looked.to(x.device)].cpu(), dim=0, return_inverse=True)
    first = torch.full((int(group.max()) + 1,), len(looked)).scatter_reduce(0, group, torch.arange(len(looked)), "amin")
    return looked[first.sort().values[:most]]
