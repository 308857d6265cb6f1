"""Where frequencies come from: a block kept in memory, or (seed, first pair), from which Philox draws the same ones."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp.engine.counter_rng import normals
from qsgp.interfaces import SpectralKernel


@dataclass(frozen=True)
class Drawn:
    """Unit-lengthscale frequencies number first .. first + pairs - 1 of the table ``seed``.

    ``degrees`` = 0: standard normal, the squared exponential kernel. Otherwise Student t with that many degrees of
    freedom: 2 nu of a Matern kernel. The numbers are those of ``kernel.frequencies(seed, index)``.
    """

    seed: int
    first: int
    pairs: int
    degrees: int = 0

    def __len__(self) -> int:
        return self.pairs

    def __getitem__(self, part: slice) -> "Drawn":
        begin, end, _ = part.indices(self.pairs)
        return replace(self, first=self.first + begin, pairs=max(end - begin, 0))

    def numbers(self, d: int, device: torch.device) -> Float64[Tensor, "pairs d"]:
        index = torch.arange(self.first, self.first + self.pairs, device=device)
        z = normals(self.seed, index, d + self.degrees)
        return z[:, :d] * (self.degrees / z[:, d:].square().sum(1, keepdim=True)).sqrt() if self.degrees else z


Frequencies = Float[Tensor, "pairs d"] | Drawn


def numbers(frequencies: Frequencies, x: Float[Tensor, "n d"]) -> Float[Tensor, "pairs d"]:
    """The block itself, in its own precision when kept and in float64 when drawn."""
    if isinstance(frequencies, Drawn):
        return frequencies.numbers(x.shape[1], x.device)
    return frequencies


def drawn(kernel: SpectralKernel, seed: int, first: int, pairs: int) -> Frequencies:
    """The frequencies of these pairs: drawn inside the product where it knows their law, else made beforehand."""
    if kernel.degrees is not None:
        return Drawn(seed, first, pairs, kernel.degrees)
    index = torch.arange(first, first + pairs, device=kernel.lengthscale.device)
    return kernel.frequencies(seed, index).to(kept_dtype(kernel, kernel.lengthscale.dtype))


def kept_dtype(kernel: SpectralKernel, dtype: torch.dtype) -> torch.dtype:
    """What frequencies are kept in beside inputs of ``dtype``. Heavy tails stay in float64: rounded to float32, the
    largest would lose their angle."""
    return torch.float64 if getattr(kernel, "heavy", False) else dtype
