"""Weights over basis functions, with a chevron covariance."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from qsgp.bases import BY_NAME as BASES
from qsgp.bases import Fourier, Inducing, KernelFunctions, Whitened
from qsgp.engine.counter_rng import normals
from qsgp.files import FileError
from qsgp.interfaces import Basis, Degenerate, Kernel, Likelihood, Streamed
from qsgp.paper.chevron import Chevron
from qsgp.paper.prediction import (
    DRAWN_TOGETHER,
    drawn_weights,
    missing_draws,
    normal_draws,
    stream,
    stream_draws,
    stream_mean,
)
from qsgp.paper.sharing import Shares, pairs_of
from qsgp.paper.state import Rows
from qsgp.posteriors.parts import Shapes, describe, tensors_of
from qsgp.posteriors.serving import ServedCosines, ServedWhitened, served_kernel
from qsgp.posteriors.spread import PRIOR_FEATURES
from qsgp.ranks import ALONE, Ranks
from qsgp.solvers.dual import spectral

_SHARED_FEATURES = 65_536  # whose frequencies ranks draw at a time
_BLOCK_FEATURES = 2048  # made at a time; larger blocks leave the cache and fragment the heap


@dataclass(frozen=True)
class Features:
    """Weights over basis functions: mean phi mu, variance phi Sigma phi^T with a chevron Sigma.

    Where the functions vanish, as inducing and grid functions do far from the data, so does that variance; what their
    prior lacks of the kernel's is added. It takes the place of Proposition 4, whose sum over all training rows counts
    twice near the data when Sigma is full.
    """

    basis: Basis
    likelihood: Likelihood
    covariance: Chevron
    table: Float[Tensor, "m w"]  # [mu (outputs) | L (k) | log_c]
    outputs: int
    shares: Shares | None = None  # of ranks: the table has the rows of this one, and all ranks predict together

    kind: ClassVar[str] = "features"
    one_variance: ClassVar[bool] = True

    @property
    def kernel(self) -> Kernel:
        return self.basis.kernel

    def bytes_per_row(self, draws: int = 0) -> int:
        width = self.outputs * (1 + draws) + self.covariance.k
        features = 0 if isinstance(self.basis, Streamed) else min(self.basis.m, _BLOCK_FEATURES)
        own = 8 * (3 * self.basis.m + (PRIOR_FEATURES if draws else 0)) if isinstance(self.basis, Degenerate) else 0
        return self.table.element_size() * (4 * features + 4 * width) + 16 * features + own

    @property
    def rows_at_a_time(self) -> int:
        """More are no faster: frequencies are drawn once for a block of rows."""
        return 65_536 if isinstance(self.basis, Streamed) else 2048

    @property
    def ranks(self) -> Ranks:
        """Those that predict together."""
        return ALONE if self.shares is None else self.shares.ranks

    @torch.no_grad()
    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        if self.shares is not None:
            return self._summed(self.shares, x.to(self.table))[0]
        return stream_mean(self.basis, self.covariance, self.table, self.outputs, x.to(self.table), _BLOCK_FEATURES)

    @torch.no_grad()
    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        """Mean and variance of f; memory O(t) times a block of features: give it blocks of rows."""
        x = x.to(self.table)
        if self.shares is not None:
            mean, variance = self._summed(self.shares, x)
        else:
            mean, variance = stream(self.basis, self.covariance, self.table, self.outputs, x, _BLOCK_FEATURES)
        if isinstance(self.basis, Degenerate):
            variance = variance + self.basis.missing(x)
        return mean, variance[:, None].expand_as(mean)

    @torch.no_grad()
    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """Draws of f from draws of the weights: linear in the number of points, coherent over them."""
        x = x.to(self.table)
        if self.shares is not None:
            return self._drawn(self.shares, x, count, seed)
        draws = stream_draws(self.basis, self.covariance, self.table, self.outputs, x, count, seed)
        if not isinstance(self.basis, Degenerate):
            return draws
        prior = Fourier(spectral(self.kernel), PRIOR_FEATURES, seed=seed)
        every = torch.arange(PRIOR_FEATURES, device=x.device)
        weights = normals(seed, every, count * self.outputs, stream=3).to(x)
        return draws + missing_draws(self.basis, prior, x, weights).unflatten(1, (count, -1)).transpose(0, 1)

    def _summed(self, shares: Shares, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, " t"]]:
        """`stream` on every rank: each adds up what its own functions say, and the sums are added once."""
        assert isinstance(self.basis, Fourier)
        basis, kernel, chevron, o = self.basis, self.basis.kernel, self.covariance, self.outputs
        f = torch.zeros(len(x), self.table.shape[1], dtype=torch.float64, device=x.device)  # phi [mu, C], then arms
        least = f.new_zeros(1)  # of the arms, as in `Fourier.phi2_v`
        for index in torch.arange(shares.own, device=x.device).split(_SHARED_FEATURES):
            pairs, every = pairs_of(basis, shares.functions(index[::2]) // 2, x)
            rows = Rows.of(self.table[index], o, chevron.k)
            arms = chevron.diagonal_rows(index, x.dtype) * torch.exp(2 * rows.log_c)
            V = torch.cat([rows.mu, chevron.dense_columns(index, rows.L, rows.log_c)], 1)
            f[:, :-1] += pairs.phi_v(kernel, x, every, V)
            f[:, -1] += pairs.squares_v(kernel, x, every, arms)
            least += arms.unflatten(0, (-1, 2)).amin(1).sum()
        f, least = shares.ranks.total(f), 2 / basis.m * kernel.variance * shares.ranks.total(least)
        variance = f[:, o:-1].square().sum(1) + torch.maximum(f[:, -1], least)
        return f[:, :o].to(x), variance.to(x)

    def _drawn(self, shares: Shares, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """`stream_draws` on every rank: each draws the numbers of all functions and keeps those of its own."""
        assert isinstance(self.basis, Fourier)
        f, k, columns = x.new_zeros(len(x), count * self.outputs), self.covariance.k, count * self.outputs
        for number, block in enumerate(torch.arange(self.basis.m, device=x.device).split(DRAWN_TOGETHER)):
            mine, at = shares.split(block[::2] // 2)
            index = torch.stack((2 * at, 2 * at + 1), 1).flatten()
            shared, eps = (part.to(x) for part in normal_draws(k, len(block), columns, seed, number))
            own = eps.unflatten(0, (-1, 2))[mine].flatten(0, 1)
            weights = drawn_weights(self.covariance, self.table[index], index, shared, own)
            pairs, every = pairs_of(self.basis, block[::2][mine] // 2, x)
            f += pairs.phi_v(self.basis.kernel, x, every, weights.flatten(1))
        return shares.ranks.total(f).unflatten(1, (count, self.outputs)).transpose(0, 1)

    def whole(self) -> "Features":
        """In one process: the table of all functions, on every rank."""
        if self.shares is None:
            return self
        covariance = replace(self.covariance, functions=None)
        return replace(self, covariance=covariance, table=self.shares.whole(self.table), shares=None)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        basis: Any = self.basis
        header: dict[str, Any] = {"kind": self.kind, **describe(basis.kernel, self.likelihood)}
        header |= {"basis": type(basis).__name__, "k": self.covariance.k, "outputs": self.outputs, "m": basis.m}
        tensors = {"table": self.table, **tensors_of(basis.kernel, self.likelihood)}
        return header | basis.settings(), tensors | basis.tensors()

    @classmethod
    def restore(
        cls, kernel: Kernel, likelihood: Likelihood, header: dict[str, Any], tensors: dict[str, Tensor]
    ) -> "Features":
        basis: Basis = _basis_of(header).restore(spectral(kernel), header, tensors)
        return cls(basis, likelihood, Chevron(header["m"], header["k"]), tensors["table"], header["outputs"])

    @staticmethod
    def shapes(header: dict[str, Any], tensors: dict[str, Tensor], d: int, outputs: int) -> Shapes:
        own: Shapes = _basis_of(header).shapes(header["m"], d)
        return {"table": (header["m"], outputs + header["k"] + 1)} | own

    def serving(self) -> nn.Module:
        """ONNX and torch.export know Fourier, inducing and kernel functions."""
        basis = self.basis
        if isinstance(basis, Fourier):
            return _Weights(ServedCosines(basis), self)
        if isinstance(basis, Inducing | Whitened):
            return _Degenerate(basis, self)
        if isinstance(basis, KernelFunctions):
            kernel: Any = basis.kernel
            return _Weights(served_kernel(kernel.unit(), basis.Z), self)  # these functions have height 1
        raise ValueError(
            f"Expected a Fourier, inducing or closed-form model to export, got basis={type(basis).__name__.lower()!r}. "
            "Fit another."
        )


def _basis_of(header: dict[str, Any]) -> Any:
    """The class of a stored basis."""
    name = header["basis"]
    if not isinstance(name, str) or name not in BASES:
        raise FileError(f"Expected a basis among {', '.join(BASES)}, got {name!r:.80} in the file. Update qsgp.")
    return BASES[name]


class _Weights(nn.Module):
    """phi mu and phi Sigma phi^T for features that another module makes."""

    mu: Tensor
    C: Tensor
    own: Tensor

    def __init__(self, features: nn.Module, posterior: Features) -> None:
        super().__init__()
        self.features, k = features, posterior.covariance.k
        rows = Rows.of(posterior.table.cpu(), posterior.outputs, k)
        every = torch.arange(len(rows.mu))
        # copies: parts of a table that others share do not export
        self.register_buffer("mu", rows.mu.clone())
        self.register_buffer("C", posterior.covariance.dense_columns(every, rows.L, rows.log_c).clone())
        own = posterior.covariance.diagonal_rows(every, rows.mu.dtype) * torch.exp(2 * rows.log_c)
        self.register_buffer("own", own[:, None])

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        Phi = self.features(z.to(self.mu.dtype))
        mean = (Phi @ self.mu).double()
        variance = (Phi @ self.C).square().sum(1, keepdim=True) + Phi.square() @ self.own
        return mean, variance.double().expand_as(mean)


class _Degenerate(nn.Module):
    """phi mu and phi Sigma phi^T, and the prior variance that the functions lack."""

    def __init__(self, basis: Inducing | Whitened, posterior: Features) -> None:
        super().__init__()
        self.basis, self.weights = ServedWhitened(basis), _Weights(nn.Identity(), posterior)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        Phi, missing = self.basis(z.to(self.weights.mu.dtype))
        mean, variance = self.weights(Phi)
        return mean, variance + missing
