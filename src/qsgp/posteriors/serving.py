"""Parts that posteriors put together for serving: plain tensor operations without qsgp (see `export`)."""

from typing import Any

import torch
from torch import Tensor, nn

from qsgp.bases import Fourier, Inducing, Whitened
from qsgp.kernels import Mapped, SpectralSum, WithLevels
from qsgp.posteriors.spread import Spread


class ServedKernel(nn.Module):
    """k(x, Z) by formulas whose distances are float64: the root of a cancelled difference stays small."""

    variance: Tensor
    lengthscale: Tensor
    Z: Tensor

    def __init__(self, kernel: Any, Z: Tensor) -> None:
        super().__init__()
        self.profile, self.norm = kernel.profile, getattr(kernel, "norm", 2)
        self.register_buffer("lengthscale", kernel.lengthscale.double().cpu())
        self.register_buffer("variance", kernel.variance.double().cpu())
        self.register_buffer("Z", Z.double().cpu() / self.lengthscale)

    def forward(self, z: Tensor) -> Tensor:
        a = z.double() / self.lengthscale
        r = self._absolute(a) if self.norm == 1 else self._euclidean(a)
        return (self.variance * self.profile(r)).to(z.dtype)

    def _euclidean(self, a: Tensor) -> Tensor:
        square = a.square().sum(1, keepdim=True) + self.Z.square().sum(1) - 2 * (a @ self.Z.mT)
        return square.clamp_min(0).sqrt()

    def _absolute(self, a: Tensor) -> Tensor:
        """One input at a time: all differences at once would be as many times larger than the result."""
        r = torch.zeros_like(a[:, :1] * self.Z[:, 0])
        for j in range(self.Z.shape[1]):
            r = r + (a[:, j : j + 1] - self.Z[:, j]).abs()
        return r


class ServedMapped(nn.Module):
    """A kernel of linear combinations of the inputs."""

    map: Tensor

    def __init__(self, kernel: Mapped, Z: Tensor) -> None:
        super().__init__()
        self.kernel = served_kernel(kernel.kernel, kernel.mapped(Z.double()))
        self.register_buffer("map", kernel.map.double().cpu())

    @property
    def variance(self) -> Tensor:
        return self.kernel.variance

    def forward(self, z: Tensor) -> Tensor:
        k: Tensor = self.kernel(z.double() @ self.map)
        return k.to(z.dtype)


class ServedSum(nn.Module):
    """A sum of kernels."""

    def __init__(self, kernel: SpectralSum, Z: Tensor) -> None:
        super().__init__()
        self.terms = nn.ModuleList(served_kernel(term, Z) for term in kernel.kernels)

    @property
    def variance(self) -> Tensor:
        variances: list[Any] = [term.variance for term in self.terms]
        return torch.stack(variances).sum()

    def forward(self, z: Tensor) -> Tensor:
        return torch.stack([term(z) for term in self.terms]).sum(0)


class ServedTables(nn.Module):
    """The sum over identifiers, the last inputs, of the entries of their levels; the last entry is of unknown ones."""

    tables: Tensor

    def __init__(self, tables: Tensor) -> None:
        super().__init__()
        self.register_buffer("tables", tables.double().cpu())

    def numbers(self, z: Tensor) -> Tensor:
        """The other inputs."""
        return z[:, : z.shape[1] - len(self.tables)]

    def codes(self, z: Tensor) -> Tensor:
        last = self.tables.shape[1] - 1
        codes = z[:, z.shape[1] - len(self.tables) :].long()
        return torch.where((codes < 0) | (codes > last), last, codes)

    def forward(self, z: Tensor) -> Tensor:
        codes = self.codes(z)
        return torch.stack([table[codes[:, j]] for j, table in enumerate(self.tables)]).sum(0)


class ServedWithLevels(nn.Module):
    """A kernel of the numbers, and effects of levels."""

    effects: Tensor
    Z: Tensor

    def __init__(self, kernel: WithLevels, Z: Tensor) -> None:
        super().__init__()
        self.smooth, self.d = served_kernel(kernel.smooth, kernel.numbers(Z)), Z.shape[1] - len(kernel.effects)
        self.register_buffer("effects", kernel.effects.double().cpu())
        self.register_buffer("Z", kernel.codes(Z).double().cpu())

    @property
    def variance(self) -> Tensor:
        return self.smooth.variance + self.effects.sum()

    def forward(self, z: Tensor) -> Tensor:
        k: Tensor = self.smooth(z[:, : self.d])
        codes = z[:, self.d :].double()
        for j in range(self.Z.shape[1]):
            own = codes[:, j : j + 1]
            k = k + self.effects[j] * ((own == self.Z[:, j]) & (own >= 0)).to(k.dtype)
        return k


Served = ServedKernel | ServedMapped | ServedSum | ServedWithLevels


def served_kernel(kernel: Any, Z: Tensor) -> Served:
    """k(x, Z) for serving, whatever the kernel is made of."""
    if isinstance(kernel, WithLevels):
        return ServedWithLevels(kernel, Z)
    if isinstance(kernel, SpectralSum):
        return ServedSum(kernel, Z)
    return ServedMapped(kernel, Z) if isinstance(kernel, Mapped) else ServedKernel(kernel, Z)


class ServedCosines(nn.Module):
    omega: Tensor
    phase: Tensor

    def __init__(self, basis: Fourier) -> None:
        super().__init__()
        omega, phase = basis.columns(torch.arange(basis.m, device=basis.kernel.lengthscale.device))
        self.register_buffer("omega", (omega / basis.kernel.lengthscale).mT.contiguous().cpu())
        self.register_buffer("phase", phase.cpu())
        self.amplitude = float((2 / basis.m * basis.kernel.variance).sqrt())

    def forward(self, z: Tensor) -> Tensor:
        angle = z.to(self.omega.dtype) @ self.omega - self.phase
        return self.amplitude * torch.cos(angle).to(z.dtype)


class ServedWhitened(nn.Module):
    """k(x, Z) R for weights over whitened functions; R = 1 for those over k(x, z) themselves."""

    root: Tensor

    def __init__(self, basis: Inducing | Whitened) -> None:
        super().__init__()
        self.kernel, self.whitened = served_kernel(basis.kernel, basis.Z), isinstance(basis, Whitened)
        white = basis if isinstance(basis, Whitened) else basis.whitened
        self.register_buffer("root", (white.root / white.kernel.variance.double().sqrt()).cpu())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The functions, and the prior variance that they lack."""
        k = self.kernel(z.double())
        white = k @ self.root
        missing = (self.kernel.variance - white.square().sum(1, keepdim=True)).clamp_min(0)
        return (white if self.whitened else k).to(z.dtype), missing


class ServedSpread(nn.Module):
    """Variance from draws about the mean and from support points, blended."""

    root: Tensor
    blend: Tensor

    def __init__(self, spread: Spread) -> None:
        super().__init__()
        self.kernel = served_kernel(spread.kernel, spread.U)
        self.least, self.trust = 1e-12 * float(self.kernel.variance), spread.trust
        self.register_buffer("blend", spread.blend.double().cpu())
        eye = torch.eye(len(spread.U), dtype=torch.float64, device=spread.factor.device)
        roots = [torch.linalg.solve_triangular(factor, eye, upper=False).mT.cpu() for factor in spread.factor]
        self.register_buffer("root", torch.stack(roots))

    def forward(self, z: Tensor, draws: Tensor) -> Tensor:
        """``draws``: all of the first variance, then all of the next."""
        known = self.kernel(z)
        left = [self.kernel.variance - (known @ root).square().sum(1) for root in self.root]
        variance, count = torch.stack(left, 1).clamp_min(self.least), draws.shape[1] // len(self.root)
        if not count:
            return self.trust * variance
        square = torch.stack([part.square().sum(1) for part in draws.split(count, 1)], 1)
        ratio, worth = self.blend.unbind(1)
        return self.trust * (square + worth * ratio * variance) / (count + worth)
