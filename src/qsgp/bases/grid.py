"""Grid-structured eigenfunctions (GP-GRIEF, Evans & Nair 2018): Nystrom on a grid too large to write down."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.bases.fourier import Fourier
from qsgp.checks import check_shape
from qsgp.interfaces import Kernel, SpectralKernel

# Eigenvalues this far below the largest of their dimension are rounding, not kernel.
CUTOFF = 1e-12
_JITTER = 1e-14  # of the sum of all eigenvalues: what rounding leaves of the smallest ones when a lengthscale has moved


@dataclass(frozen=True)
class Grid:
    """The m leading eigenfunctions of Nystrom's approximation on the grid U_1 x ... x U_d; S = I.

    For a kernel that factorises over its inputs, K_i = k_i(U_i, U_i) = Q_i diag(lambda_i) Q_i^T gives
        phi_j(x) = sqrt(k(x, x)) prod_i [k_i(x_i, U_i) Q_i diag(lambda_i)^-1/2]_{., p_ji}
    at positions p_j of the m largest products of eigenvalues. The eigenvalues sit in the features: |phi_j| stays
    below sqrt(k(x, x)), where products of d raw eigenvalues would leave the range of float32.

    Build it with `Grid.build`. Variance and lengthscales may move with ``kernel``. The functions then keep their span
    on the grid, B_i = Q_i diag(lambda_i)^-1/2 for the lengthscales of the start, and are made orthonormal again:
        phi_j(x) = sqrt(k(x, x)) prod_i [k_i(x_i, U_i) B_i L_i^-T]_{., p_ji},   B_i^T K_i B_i = L_i L_i^T.
    So the prior is the projection of the process on B^T f(U) for any lengthscales, never above k(x, x), and has an
    exact gradient: that of small Cholesky factors, where eigenvectors of like eigenvalues have none. L_i^-T mixes a
    function with those before it alone, all of whose products are among the m leading ones.
    """

    kernel: SpectralKernel
    grids: tuple[Float64[Tensor, "_ 1"], ...]
    projections: tuple[Float64[Tensor, "_ _"], ...]  # B_i
    positions: Int[Tensor, "m d"]

    diagonal: ClassVar[bool] = True
    learned_precision: ClassVar[bool] = False
    exchangeable: ClassVar[bool] = False

    @classmethod
    def build(
        cls, kernel: SpectralKernel, grids: Sequence[Float[Tensor, " _"]], m: int, *, fewer: bool = False
    ) -> "Grid":
        """Eigenvectors and the m leading positions. Cost sum_i |U_i|^3 + d m log m; the grid is never formed.

        ``fewer`` takes all functions there are where the grid has less than m; otherwise that is an error.
        """
        check_shape("lengthscale", kernel.lengthscale, (len(grids),), "Give one grid per input.")
        points = tuple(grid.detach().double()[:, None] for grid in grids)
        with torch.no_grad():
            pairs = [_eigenpairs(factor(U, U)) for factor, U in zip(_factors(kernel), points, strict=True)]
        most = math.prod(len(values) for values, _ in pairs)
        positions = leading_products([values for values, _ in pairs], min(m, most) if fewer else m)
        ranks = (1 + positions.amax(0)).tolist()
        projections = tuple((Q / values.sqrt())[:, :rank] for (values, Q), rank in zip(pairs, ranks, strict=True))
        return cls(kernel, points, projections, positions)

    @classmethod
    def restore(cls, kernel: SpectralKernel, header: dict[str, Any], tensors: dict[str, Tensor]) -> "Grid":
        """The basis whose `tensors` were kept. Eigenvectors are not made again: another machine has other signs."""
        d = len(kernel.lengthscale)
        grids, projections = (tuple(tensors[f"{part}.{i}"] for i in range(d)) for part in ("grid", "projection"))
        return cls(kernel, grids, projections, tensors["positions"])

    def tensors(self) -> dict[str, Tensor]:
        named = {f"grid.{i}": U for i, U in enumerate(self.grids)}
        return named | {f"projection.{i}": Q for i, Q in enumerate(self.projections)} | {"positions": self.positions}

    def settings(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def shapes(m: int, d: int) -> dict[str, tuple[int | None, ...]]:
        return {"positions": (m, d)}

    @property
    def m(self) -> int:
        return len(self.positions)

    def columns(self, index: Int[Tensor, " i"]) -> Int[Tensor, "i d"]:
        return self.positions[index].long()

    @cached_property
    def orthonormal(self) -> tuple[Float64[Tensor, "_ _"], ...]:
        """B_i L_i^-T at the lengthscales of ``kernel``. Cost O(sum_i |U_i|^3), for at most some hundred points each."""
        found = []
        for factor, U, B in zip(_factors(self.kernel), self.grids, self.projections, strict=True):
            K = factor(U, U) + _JITTER * len(U) * torch.eye(len(U), dtype=U.dtype, device=U.device)
            L = torch.linalg.cholesky(B.mT @ K @ B)
            found.append(torch.linalg.solve_triangular(L, B.mT, upper=False).mT)
        return tuple(found)

    def features(self, x: Float[Tensor, "l d"], columns: Int[Tensor, "i d"]) -> Float[Tensor, "l i"]:
        check_shape("x", x, (len(x), len(self.grids)), "Give one column per grid.")
        Phi = self.kernel.diag(x).sqrt()[:, None]
        parts = zip(x.mT, self.grids, _factors(self.kernel), self.orthonormal, columns.mT, strict=True)
        for x_i, U_i, factor, projection, position in parts:
            # Small eigenvalues magnify rounding by lambda^-1/2: the small one-dimensional tables are float64.
            table = factor(x_i.double()[:, None], U_i) @ projection
            Phi = Phi * table.to(x.dtype)[:, position]
        return Phi

    def precision_diag(self, index: Int[Tensor, " i"]) -> Float[Tensor, " i"]:
        return self.kernel.lengthscale.detach().new_ones(len(index))

    def missing(self, x: Float[Tensor, "t d"]) -> Float[Tensor, " t"]:
        prior, taken = self.kernel.diag(x), x.new_zeros(len(x))
        for columns in self.positions.long().split(2048):
            taken += self.features(x, columns).square().sum(1)
        return (prior - taken).clamp_min(0)

    def projected(self, prior: Fourier, weights: Float[Tensor, "p c"]) -> Float[Tensor, "m c"]:
        """(B L^-T)^T g(U) / sqrt(variance) for g = prior features times ``weights``, the grid never formed: a
        wave exp(i w^T u) is a product over the inputs as the eigenfunctions are."""
        even = torch.arange(0, prior.m, 2, device=weights.device)
        omega = (prior.columns(even).omega / prior.kernel.lengthscale).double()
        cosine, sine = weights.double().unflatten(0, (-1, 2)).unbind(1)
        waves = [
            projection.mT.to(torch.complex128) @ torch.exp(1j * (U * omega[:, i]))
            for i, (U, projection) in enumerate(zip(self.grids, self.orthonormal, strict=True))
        ]
        found = []
        for positions in self.positions.long().split(512):
            product = torch.stack([wave[position] for wave, position in zip(waves, positions.mT, strict=True)]).prod(0)
            found.append(product.real @ cosine + product.imag @ sine)
        return (math.sqrt(2 / prior.m) * torch.cat(found)).to(weights.dtype)


def leading_products(factors: Sequence[Float64[Tensor, " _"]], m: int) -> Int[Tensor, "m d"]:
    """Positions of the m largest products f_1[p_1] ... f_d[p_d] of descending positive lists, largest first.

    One list after the other: what is not among the m largest products of some lists is not among them with one
    more list either. Entry a of the products so far and b of the new list have (a + 1)(b + 1) - 1 pairs at least
    as large before them, so entry b meets the first m / (b + 1) only: about m log |f_i| candidates.
    """
    most = math.prod(len(values) for values in factors)
    if not 1 <= m <= most:
        raise ValueError(
            f"Expected 1 <= m <= {most}, the number of eigenfunctions of this grid, got m = {m}. "
            "Use fewer functions or more grid points."
        )
    logs = factors[0].new_zeros(1)
    positions = torch.empty(1, 0, dtype=torch.int16, device=logs.device)
    for values in factors:
        counts = [min(m // (b + 1), len(logs)) for b in range(min(m, len(values)))]
        entry = torch.cat([torch.full((count,), b, device=logs.device) for b, count in enumerate(counts)])
        parent = torch.cat([torch.arange(count, device=logs.device) for count in counts])
        logs, order = (logs[parent] + values.log()[entry]).sort(descending=True, stable=True)
        logs, order = logs[:m], order[:m]
        positions = torch.cat([positions[parent[order]], entry[order, None].to(torch.int16)], 1)
    return positions


def _factors(kernel: Any) -> tuple[Kernel, ...]:
    """The factors of k / variance, one kernel of one input each, in float64."""
    if not hasattr(kernel, "factor"):
        raise ValueError(
            f"Expected a kernel that is a product over its inputs, got {type(kernel).__name__}. "
            "Use SquaredExponential, Separable (a product of one-dimensional Matern kernels), or another basis."
        )
    double = replace(kernel, lengthscale=kernel.lengthscale.double(), variance=kernel.variance.double())
    return tuple(double.factor(dimension) for dimension in range(len(kernel.lengthscale)))


def _eigenpairs(K: Float64[Tensor, "u u"]) -> tuple[Float64[Tensor, " r"], Float64[Tensor, "u r"]]:
    """Eigenvalues in descending order and their vectors, without those lost in rounding."""
    values, Q = torch.linalg.eigh(K)
    kept = values > CUTOFF * values[-1]
    return values[kept].flip(0), Q[:, kept].flip(1)
