"""Products with Fourier features and kernel matrices that are never stored.

``phi_v`` is Phi V, ``phit_r`` is Phi^T R, ``k_v`` is K(X, Z) V: exact, for any sizes, with gradients with respect to
the columns, the lengthscales and the variance. Which file computes them is decided here, by device and precision of
the inputs; a new device is one file with the three functions of ``gradients.Backend`` and a line in ``BACKENDS``.
"""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_choice, check_rows, check_shape, check_tensor
from qsgp.engine import cpu, reference
from qsgp.engine.formulas import FORMULAS, KERNELS, RADIAL
from qsgp.engine.frequencies import Drawn, Frequencies, drawn, kept_dtype
from qsgp.engine.gradients import Backend, Features, KernelProduct

try:
    from qsgp.engine import cuda
except ImportError:  # no Triton: torch computes on the GPU as well
    cuda = None  # type: ignore[assignment]

PRECISIONS = ("default", "fast", "wide")
BACKENDS = {"cpu": cpu, "cuda": cuda or reference}  # for float32; everything else takes the reference

__all__ = ["FORMULAS", "KERNELS", "RADIAL", "Drawn", "Frequencies", "drawn", "k_v", "kept_dtype", "phi_v", "phit_r"]


def phi_v(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    variance: Float[Tensor, ""],
    *,
    total: int | None = None,
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    """Phi V: rows 2 p and 2 p + 1 of V weigh cosine and sine of pair p, Phi = sqrt(2 variance / total) [cos, sin].

    ``frequencies``: unit-lengthscale frequencies, a block in memory or ``Drawn``. ``total``: m of the basis when the
    block is part of it. ``precision``: "default" is float32, "fast" rounds every factor to 11 bits as tf32 does,
    "wide" projects in float64 for frequencies with heavy tails (Drawn with one degree of freedom always does, and so
    does a block in float64 for float32 inputs).
    Cost: one sine and one cosine per row and pair; memory beyond the output does not grow.
    """
    _check_columns("V", V, x)
    check_shape("V", V, (2 * len(frequencies), V.shape[1]), "Give one row for each cosine and each sine.")
    return _amplitude(frequencies, variance, total) * _features(x, frequencies, V, lengthscale, precision, False)


def phit_r(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    R: Float[Tensor, "n c"],
    lengthscale: Float[Tensor, " d"],
    variance: Float[Tensor, ""],
    *,
    total: int | None = None,
    precision: str = "default",
) -> Float[Tensor, "m c"]:
    """Phi^T R; arguments as for ``phi_v``."""
    _check_columns("R", R, x)
    check_rows(x=x, R=R)
    return _amplitude(frequencies, variance, total) * _features(x, frequencies, R, lengthscale, precision, True)


def k_v(
    x: Float[Tensor, "n d"],
    z: Float[Tensor, "b d"],
    V: Float[Tensor, "b c"],
    lengthscale: Float[Tensor, " d"],
    variance: Float[Tensor, ""],
    *,
    kernel: str = "rbf",
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    """K(X, Z) V with K_ab = variance * rho(|(x_a - z_b) / lengthscale|), accurate for near duplicates too; the norm is
    that of the kernel's formula.

    ``precision``: as for ``phi_v``; "wide" is "default" here.
    """
    check_choice("kernel", kernel, tuple(FORMULAS))
    check_choice("precision", precision, PRECISIONS)
    _check_inputs(x, lengthscale, z=z)
    _check_columns("z", z, x)
    _check_columns("V", V, x)
    check_rows(z=z, V=V)
    backend = cast(Backend, _backend(x, z, V))
    return variance * KernelProduct.apply(backend, x, z, V, lengthscale, kernel, precision)


def _features(
    x: Tensor,
    frequencies: Frequencies,
    V: Tensor,
    lengthscale: Tensor,
    precision: str,
    transpose: bool,
) -> Tensor:
    """Products with cosines and sines; ``transpose``: of the features with rows."""
    check_choice("precision", precision, PRECISIONS)
    _check_inputs(x, lengthscale)
    omega, drawn = (None, frequencies) if isinstance(frequencies, Drawn) else (frequencies, None)
    if omega is not None:
        check_shape("frequencies", omega, (len(omega), x.shape[1]), f"The inputs have {x.shape[1]} columns.")
        _check_fixed("frequencies", omega)
        _check_columns("frequencies", omega, x, dtype=omega.dtype)
    if (drawn is not None and drawn.degrees == 1) or (omega is not None and omega.dtype != x.dtype):
        precision = "wide"  # Cauchy: float32 would lose the angle of one feature in a thousand
    backend = cast(Backend, _backend(x, V) if len(frequencies) else reference)
    return Features.apply(backend, x, omega, drawn, V, lengthscale, precision, transpose)


def _amplitude(frequencies: Frequencies, variance: Tensor, total: int | None) -> Tensor:
    return (2 * variance / (total or max(2 * len(frequencies), 1))).sqrt()


def _check_inputs(x: Tensor, lengthscale: Tensor, **others: Tensor) -> None:
    check_shape("lengthscale", lengthscale, (lengthscale.numel(),), "Give one lengthscale for each column of x.")
    d = len(lengthscale)
    for name, tensor in {"x": x, **others}.items():
        check_shape(name, tensor, (len(tensor), d), f"There are {d} lengthscales: give inputs of {d} columns.")
        _check_fixed(name, tensor)


def _check_fixed(name: str, tensor: Tensor) -> None:
    if tensor.requires_grad:
        raise ValueError(
            f"Expected {name} without gradient, got one that asks for it. The products are differentiable in their "
            "columns, the lengthscales and the variance; detach the inputs."
        )


def _check_columns(name: str, tensor: Tensor, x: Tensor, dtype: torch.dtype | None = None) -> None:
    """A matrix of the precision and on the device of x: compiled code reads its memory as such."""
    check_tensor("x", x, "Give float32 or float64.")
    if tensor.ndim != 2:
        raise ValueError(f"Expected {name} as a matrix, got shape {tuple(tensor.shape)}. Give a vector as one column.")
    if tensor.dtype != (dtype or x.dtype) or tensor.device != x.device:
        raise ValueError(
            f"Expected {name} in {x.dtype} on {x.device} as x is, got {tensor.dtype} on {tensor.device}. "
            f"Convert one of them: {name}.to(x)."
        )


def _backend(x: Tensor, *others: Tensor) -> object:
    """Plain torch for everything but float32, and for what is empty."""
    if x.dtype != torch.float32 or not all(tensor.numel() for tensor in (x, *others)):
        return reference
    return BACKENDS.get(x.device.type, reference)
