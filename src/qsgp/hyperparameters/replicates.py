"""What rows with equal inputs say of the noise: how far their targets differ has nothing to do with the function.

A search sees some thousand rows, among which few are equal even where a table has many. A rough kernel takes the noise
for a part of the function then, and is sure of a target wherever a new row equals a known one. So the searched rows are
given what they lack of their share of the equal rows. It can raise the noise and never lowers it: most equal rows with
equal targets are copies, which measure nothing.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.interfaces import Likelihood


class Replicates(NamedTuple):
    """Squares of targets about the mean of their group of equal rows, and how many of them are free."""

    freedom: float = 0.0
    squares: float = 0.0

    @classmethod
    @torch.no_grad()
    def of(cls, rows: Rows) -> "Replicates":
        """Rows of weight w have the noise / w; outputs share it."""
        group, (_, Y, weight) = equal(rows.x), rows
        groups = int(group.max()) + 1
        if groups == len(Y):
            return cls()
        own = weight.double()[:, None]
        total = own.new_zeros(groups, 1).index_add_(0, group, own)
        mean = own.new_zeros(groups, Y.shape[1]).index_add_(0, group, own * Y.double()) / total.clamp_min(1e-300)
        squares = (own * (Y.double() - mean[group]).square()).sum()
        return cls(float(len(Y) - groups) * Y.shape[1], float(squares))

    def lacking(self, some: "Replicates", share: float) -> "Replicates":
        """What a ``share`` of the rows should have more than ``some`` of them have."""
        freedom = max(0.0, share * self.freedom - some.freedom)
        return Replicates(freedom, self.squares * freedom / max(self.freedom, 1.0))

    def log_density(self, likelihood: Likelihood) -> Tensor | float:
        """Of these differences, constant from the noise on that they ask for."""
        if likelihood.noise_variance is None or not self.squares:
            return 0.0
        asked = self.squares / self.freedom
        noise = likelihood.noise_variance.clamp(max=asked)
        return -0.5 * self.freedom * (noise.log() + asked / noise)


def equal(x: Float[Tensor, "n d"]) -> Int[Tensor, " n"]:
    """The number of the group of equal rows that each row belongs to, by a hash of their bits."""
    bits = (x.double() + 0.0).contiguous().view(torch.int64)  # -0 is 0
    odd = torch.randint(-(2**62), 2**62, bits.shape[1:], generator=torch.Generator().manual_seed(0)) * 2 + 1
    mixed = bits ^ (bits >> 29)  # the low bits of round numbers are all 0
    hashed = (mixed * odd.to(bits)).sum(1)
    return torch.unique(hashed ^ (hashed >> 31), return_inverse=True)[1]
