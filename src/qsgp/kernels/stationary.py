"""What all kernels variance * rho(|(x - z) / lengthscale|) share: distances, parameters, spectral draws.

Plain functions of a kernel: each kernel class takes them as its methods and adds its own formula.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from qsgp.checks import check_positive, check_shape, check_tensor
from qsgp.engine import k_v
from qsgp.engine.counter_rng import normals
from qsgp.interfaces import Parameters


@runtime_checkable
class Stationary(Protocol):
    """What the functions below read of a kernel."""

    @property
    def lengthscale(self) -> Float[Tensor, " d"]: ...

    @property
    def variance(self) -> Float[Tensor, ""]: ...


@runtime_checkable
class Profiled(Stationary, Protocol):
    """A kernel whose value is ``variance`` times its ``profile``."""

    def profile(self, r: Tensor, /) -> Tensor: ...


@runtime_checkable
class Student(Stationary, Protocol):
    @property
    def degrees(self) -> int: ...


K = TypeVar("K", bound=Stationary)


def hyperparameters(
    lengthscale: float | Sequence[float] | Tensor,
    variance: float | Tensor = 1.0,
    *,
    d: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> tuple[Float[Tensor, " d"], Float[Tensor, ""]]:
    """Numbers or lists as the tensors a kernel stores; one lengthscale is repeated ``d`` times."""
    ell = torch.as_tensor(lengthscale, dtype=dtype, device=device)
    ell = ell if ell.is_floating_point() else ell.to(torch.get_default_dtype())
    if d is not None and ell.numel() == 1:
        ell = ell.flatten().repeat(d)
    if ell.dim() == 0:
        raise ValueError(f"Expected one lengthscale per input, got the number {ell.item()}. Give a list, or d as well.")
    if d is not None:
        check_shape("lengthscale", ell, (d,), "Give one lengthscale per input, or a single one for all.")
    return ell, torch.as_tensor(variance, dtype=ell.dtype, device=ell.device)


def check(kernel: Stationary) -> None:
    """One lengthscale per input, one variance, all positive (values are read on the CPU only)."""
    remedy = "Build the tensors with qsgp.kernels.hyperparameters(lengthscale, variance, d=...)."
    check_tensor("lengthscale", kernel.lengthscale, remedy)
    check_tensor("variance", kernel.variance, remedy)
    check_shape("lengthscale", kernel.lengthscale, (kernel.lengthscale.numel(),), remedy)
    check_shape("variance", kernel.variance, (), remedy)
    check_positive("lengthscale", kernel.lengthscale, "Give the lengthscale itself, not its logarithm.")
    check_positive("variance", kernel.variance, "Give the variance sigma_f^2, not its logarithm.")


def value(kernel: Profiled, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    """k(x, z) = variance * rho(r)."""
    return kernel.variance * kernel.profile(scaled_distance(kernel, x, z))


def diag(kernel: Stationary, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
    """k(x, x) = variance."""
    return kernel.variance.expand(len(x))


def product(
    kernel: Any, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"], V: Float[Tensor, "b c"]
) -> Float[Tensor, "a c"]:
    """k(x, z) V by the engine, nothing stored."""
    return k_v(x, z, V, kernel.lengthscale, kernel.variance, kernel=kernel.name)


def unit(kernel: K) -> K:
    """The kernel at a variance of 1, whose gradient exists and is exactly zero."""
    return replace(kernel, variance=1 + 0 * kernel.variance)  # type: ignore[type-var]


def parameters(kernel: Stationary) -> Parameters:
    return {"log_lengthscale": kernel.lengthscale.log(), "log_variance": kernel.variance.log()}


def with_parameters(kernel: K, parameters: Parameters) -> K:
    """A copy at other parameters; those not named keep their values."""
    known = {"log_lengthscale": kernel.lengthscale, "log_variance": kernel.variance}
    for name, value in parameters.items():
        if name not in known:
            raise ValueError(f"Expected parameters among {sorted(known)}, got {name!r}. Use the names of parameters().")
        check_shape(name, value, tuple(known[name].shape), "Keep the shapes of parameters().")
    changed: dict[str, Any] = {name.removeprefix("log_"): value.exp() for name, value in parameters.items()}
    return replace(kernel, **changed)  # type: ignore[type-var]


def scaled_distance(kernel: Stationary, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    """r = |(x - z) / lengthscale|, differentiable in the lengthscale (and x, z), duplicates included."""
    check_inputs(kernel, x, z)
    # Only differences matter: about a common centre, dividing does not round away what inputs far from 0 differ by.
    centre = z.detach().mean(0) if len(z) else 0.0
    return _Distance.apply((x - centre) / kernel.lengthscale, (z - centre) / kernel.lengthscale)


def check_inputs(kernel: Stationary, x: Tensor, z: Tensor) -> None:
    d = len(kernel.lengthscale)
    remedy = f"The kernel has {d} lengthscales: give it inputs of {d} columns."
    check_shape("x", x, (len(x), d), remedy)
    check_shape("z", z, (len(z), d), remedy)


class _Distance(torch.autograd.Function):
    """Euclidean distances, accurate for near duplicates, with O(a b) memory in both directions.

    torch.cdist alone offers one or the other: its fast mode takes the root of a cancelled difference (in float32
    a Matern-1/2 diagonal of 0.99), its exact mode is slow on CUDA and takes an a x b x d buffer for the gradient.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        if x.dtype == torch.float64 and not x.is_cuda:
            r = torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")
        else:
            # |x|^2 + |z|^2 - 2 x^T z in float64 loses no more than 1e-8 |x|, less than float32 inputs are off. On CUDA
            # the exact mode starts a block of threads for every pair: evidence would wait for distances.
            X, Z = x.double(), z.double()
            norms = X.square().sum(1)[:, None] + Z.square().sum(1)
            r = torch.addmm(norms, X, Z.mT, alpha=-2).clamp_(min=0).sqrt_().to(x.dtype)
        ctx.save_for_backward(x, z, r)
        return r

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "a b"]) -> tuple[Float[Tensor, "a d"], Float[Tensor, "b d"]]:
        x, z, r = ctx.saved_tensors
        # dr/dx = (x - z) / r has no limit at r = 0; its share of a lengthscale's gradient is O(r), so pairs
        # closer than rounding allows to resolve are left out.
        W = torch.where(r > torch.finfo(r.dtype).eps ** 0.5, gradient / r, 0)
        return W.sum(1)[:, None] * x - W @ z, W.sum(0)[:, None] * z - W.mT @ x


def student_frequencies(kernel: Student, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
    """Multivariate Student t, the spectral density of the Matern kernel with 2 nu = its ``degrees``.

    d normals over the root of chi^2 / degrees, with chi^2 from ``degrees`` further normals of the same row.
    """
    d, degrees = len(kernel.lengthscale), kernel.degrees
    z = normals(seed, index, d + degrees)
    return z[:, :d] * (degrees / z[:, d:].square().sum(1, keepdim=True)).sqrt()
