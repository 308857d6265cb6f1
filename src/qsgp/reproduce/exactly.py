"""What training should end at: Gaussian models solved by factors, in float64, as far as memory allows."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.factor import cholesky
from qsgp.interfaces import Basis, Kernel, SpectralKernel
from qsgp.memory import free
from qsgp.paper import theorems
from qsgp.solvers import feature_dual
from qsgp.solvers.feature_dual import Descent

ON_A_CPU = 8192  # rows of a matrix that is factored there: a minute on two cores
FUNCTIONS = 4096  # in a block


class Seen(NamedTuple):
    """Training rows, their noise variance, and the rows to predict."""

    x: Float[Tensor, "n d"]
    y: Float[Tensor, " n"]
    sigma2: Float[Tensor, ""]
    x_new: Float[Tensor, "t d"]

    def double(self) -> "Seen":
        return Seen(*(part.double() for part in self))


class Found(NamedTuple):
    """Mean and variance of f at the new rows; no variance where it was not computed."""

    mean: Float64[Tensor, " t"]
    variance: Float64[Tensor, " t"] | None


def most(device: torch.device) -> int:
    """Rows of the largest matrix that is factored: three of its size fit into the memory of a GPU."""
    return ON_A_CPU if device.type == "cpu" else int((free(str(device)) / 8 / 3) ** 0.5)


def doubled(kernel: Kernel) -> Kernel:
    return kernel.with_parameters({name: value.detach().double() for name, value in kernel.parameters().items()})


def gaussian_process(kernel: Kernel, seen: Seen) -> Found:
    """The exact GP. O(n^3); memory of two n x n matrices."""
    kernel, seen = doubled(kernel), seen.double()
    return _conditioned(kernel(seen.x, seen.x), kernel(seen.x, seen.x_new), kernel.diag(seen.x_new), seen)


def fourier(basis: Fourier, seen: Seen, largest: int) -> Found:
    """The posterior of all m weights, by whichever of n and m is smaller; by conjugate gradients and without a variance
    where both exceed ``largest``."""
    if min(len(seen.x), basis.m) > largest:
        return _by_conjugate_gradients(basis, seen)
    kernel = doubled(basis.kernel)
    assert isinstance(kernel, SpectralKernel)
    basis, seen = replace(basis, kernel=kernel), seen.double()
    return _by_weights(basis, seen) if basis.m <= len(seen.x) else _by_rows(basis, seen)


def _by_weights(basis: Fourier, seen: Seen) -> Found:
    columns = basis.columns(torch.arange(basis.m, device=seen.x.device))
    A = torch.eye(basis.m, dtype=torch.float64, device=seen.x.device)
    b = A.new_zeros(basis.m)
    for x, y in zip(seen.x.split(FUNCTIONS), seen.y.split(FUNCTIONS), strict=True):
        Phi = basis.features(x, columns)
        A += Phi.mT @ Phi / seen.sigma2
        b += Phi.mT @ y / seen.sigma2
    factor = cholesky(A)[0]
    weights = torch.cholesky_solve(b[:, None], factor)
    Phi = basis.features(seen.x_new, columns)
    variance = torch.linalg.solve_triangular(factor, Phi.mT, upper=False).square().sum(0)
    return Found((Phi @ weights)[:, 0], variance)


def _by_rows(basis: Fourier, seen: Seen) -> Found:
    n = len(seen.x)
    K, cross = seen.x.new_zeros(n, n), seen.x.new_zeros(n, len(seen.x_new))
    prior = seen.x.new_zeros(len(seen.x_new))
    for index in _blocks(basis, seen.x):
        columns = basis.columns(index)
        Phi, Phi_new = basis.features(seen.x, columns), basis.features(seen.x_new, columns)
        K.addmm_(Phi, Phi.mT)
        cross.addmm_(Phi, Phi_new.mT)
        prior += Phi_new.square().sum(1)
    return _conditioned(K, cross, prior, seen)


def _by_conjugate_gradients(basis: Fourier, seen: Seen) -> Found:
    """Residual of a thousandth. The support points of the preconditioner are spread over the rows."""
    U = seen.x[:: max(1, len(seen.x) // 1000)]
    noise = seen.sigma2.expand(len(seen.x))
    descent = Descent(min(basis.m, 2 * FUNCTIONS), passes=200, tolerance=1e-3)
    V = feature_dual.solve(basis, seen.x, seen.y[:, None], noise, U, descent).V
    return Found(basis.phi_v(seen.x_new, V)[:, 0].double(), None)


def _conditioned(
    K: Float64[Tensor, "n n"], cross: Float64[Tensor, "n t"], prior: Float64[Tensor, " t"], seen: Seen
) -> Found:
    """A normal law given the rows; ``K`` is overwritten."""
    K.diagonal().add_(seen.sigma2)
    factor = cholesky(K)[0]
    mean = cross.mT @ torch.cholesky_solve(seen.y[:, None], factor)
    known = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(0)
    return Found(mean[:, 0], (prior - known).clamp_min(0))


def mean_field_variance(basis: Basis, seen: Seen) -> Float64[Tensor, " t"]:
    """Variance of f with the best diagonal C: every c_rr by `theorems.optimal_diagonal`. O(n m), a block at a time."""
    variance = torch.zeros(len(seen.x_new), dtype=torch.float64, device=seen.x.device)
    for index in _blocks(basis, seen.x):
        columns = basis.columns(index)
        norm2 = sum(basis.features(x, columns).double().square().sum(0) for x in seen.x.split(FUNCTIONS))
        assert isinstance(norm2, Tensor)
        c = theorems.optimal_diagonal(norm2, basis.precision_diag(index).double(), seen.sigma2.double())
        variance += basis.features(seen.x_new, columns).double().square() @ c.square()
    return variance


def _blocks(basis: Basis, x: Tensor) -> Iterator[Int[Tensor, " i"]]:
    yield from torch.arange(basis.m, device=x.device).split(FUNCTIONS)
