"""Monotone maps of targets, with which skewed ones look more like what Gaussian noise about a function makes.

t = (S(u) - centre) / scale with S(u) = sinh(power asinh(v)) / power, v = (u - origin) / width, of a standardised u:
the sinh-arcsinh transformation of Jones and Pewsey (2009). Near ``origin`` S is linear; further away it grows like a
power, with ``power`` near 0 like a logarithm, to either side. It is defined for all numbers and so is its inverse: no
target, however far off, is impossible.
"""

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float
from torch import Tensor

LEAST_POWER, MOST_POWER = 0.01, 3.0
_FAR = 150.0  # of an argument of sinh, whose squares are still numbers


@dataclass(frozen=True)
class TargetMap:
    """A map for each of ``o`` outputs; the identity where all five numbers are those of `identity`."""

    origin: Float[Tensor, " o"]
    width: Float[Tensor, " o"]
    power: Float[Tensor, " o"]
    centre: Float[Tensor, " o"]
    scale: Float[Tensor, " o"]

    @classmethod
    def identity(cls, outputs: int) -> "TargetMap":
        zero, one = torch.zeros(outputs, dtype=torch.float64), torch.ones(outputs, dtype=torch.float64)
        return cls(zero, one, one, zero, one)

    @classmethod
    def from_rows(cls, rows: Float[Tensor, "five o"]) -> "TargetMap":
        """The inverse of `rows`; from a file, which anybody may have written."""
        found = cls(*rows)
        if not (found.width > 0).all() or not (found.scale > 0).all() or not (found.power >= LEAST_POWER).all():
            raise ValueError("Expected a map of targets that rises, got another. Save the model anew.")
        return found

    @property
    def rows(self) -> Float[Tensor, "five o"]:
        """As a file holds it."""
        return torch.stack([getattr(self, field.name) for field in fields(self)])

    @property
    def plain(self) -> Tensor:
        """Which outputs stay as they are."""
        return (self.rows == TargetMap.identity(len(self.power)).rows).all(0)

    def standardised(self, u: Float[Tensor, "n o"], weight: Float[Tensor, " n"]) -> "TargetMap":
        """With mapped targets of mean 0 and deviation 1; outputs that stay as they are stay so."""
        zero, share = torch.zeros_like(self.centre), weight / weight.sum()
        t = replace(self, centre=zero, scale=zero + 1)(u)
        centre = share @ t
        scale = (share @ (t - centre).square()).sqrt()
        return replace(self, centre=torch.where(self.plain, zero, centre), scale=torch.where(self.plain, 1.0, scale))

    def __call__(self, u: Float[Tensor, "*s o"]) -> Float[Tensor, "*s o"]:
        bent = (self.power * torch.asinh((u - self.origin) / self.width)).sinh() / self.power
        return torch.where(self.plain, u, (bent - self.centre) / self.scale)

    def inverse(self, t: Tensor) -> Tensor:
        bent = self.power * (t * self.scale + self.centre)
        # asinh and sinh by logarithms and exponentials, which ONNX Runtime has in float64
        argument = (bent.abs() + (1 + bent.square()).sqrt()).log() * bent.sign() / self.power
        argument = argument.clamp(-_FAR, _FAR)
        return torch.where(self.plain, t, self.origin + self.width * 0.5 * (argument.exp() - (-argument).exp()))

    def log_slope(self, u: Float[Tensor, "*s o"]) -> Float[Tensor, "*s o"]:
        """log dt/du: what a density of t must be raised by to be one of u."""
        v = (u - self.origin) / self.width
        bent = self.power * torch.asinh(v)
        # log cosh without overflow: the argument may be hundreds
        log_cosh = bent.abs() + torch.log1p(torch.exp(-2 * bent.abs())) - torch.log(torch.full_like(bent, 2.0))
        found = log_cosh - _log_root(v) - (self.width * self.scale).log()
        return torch.where(self.plain, torch.zeros_like(found), found)


def _log_root(v: Tensor) -> Tensor:
    """log sqrt(1 + v^2), whose square may be infinite."""
    size = v.abs().clamp_min(1.0)
    return size.log() + 0.5 * torch.log(size**-2 + (v / size).square())
