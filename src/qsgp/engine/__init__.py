"""Products with Fourier features and kernel matrices that are never stored.

``phi_v`` is Phi V, ``phit_r`` is Phi^T R, ``k_v`` is K(X, Z) V: exact, for any sizes, with gradients with respect to
the columns, the lengthscales and the variance. Which file computes them is decided here, by device and precision of
the inputs; a new device is one file with the three functions of ``gradients.Backend`` and a line in ``BACKENDS``.
"""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_choice, check_rows, check_shape
from qsgp.engine import cpu, reference
from qsgp.engine.frequencies import Drawn, Frequencies
from qsgp.engine.gradients import Backend, Features, KernelProduct
from qsgp.engine.reference import KERNELS

try:
    from qsgp.engine import cuda
except ImportError:  # no Triton: torch computes on the GPU as well
    cuda = None  # type: ignore[assignment]

PRECISIONS = ("default", "fast", "wide")
BACKENDS = {"cpu": cpu, "cuda": cuda or reference}  # for float32; everything else takes the reference

__all__ = ["Drawn", "Frequencies", "k_v", "kernel_name", "phi_v", "phit_r"]


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
    "wide" projects in float64 for frequencies with heavy tails (Drawn with one degree of freedom always does).
    Cost: one sine and one cosine per row and pair; memory beyond the output does not grow.
    """
    check_shape("V", V, (2 * len(frequencies), V.shape[-1]), "Give one row for each cosine and each sine.")
    return _features(x, frequencies, V, lengthscale, variance, total, precision, transpose=False)


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
    check_rows(x=x, R=R)
    return _features(x, frequencies, R, lengthscale, variance, total, precision, transpose=True)


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
    """K(X, Z) V with K_ab = variance * rho(|(x_a - z_b) / lengthscale|), accurate for near duplicates too.

    ``precision``: as for ``phi_v``; "wide" is "default" here.
    """
    check_choice("kernel", kernel, tuple(KERNELS))
    check_choice("precision", precision, PRECISIONS)
    check_rows(z=z, V=V)
    _check_inputs(x, lengthscale, z=z)
    backend = cast(Backend, _backend(x))
    return variance * KernelProduct.apply(backend, x, z, V, lengthscale, kernel, precision)


def kernel_name(degrees: int) -> str:
    """The name that ``k_v`` knows a kernel by, from the degrees of freedom of its spectral density."""
    return next(name for name, own in KERNELS.items() if own == degrees)


def _features(
    x: Tensor,
    frequencies: Frequencies,
    V: Tensor,
    lengthscale: Tensor,
    variance: Tensor,
    total: int | None,
    precision: str,
    transpose: bool,
) -> Tensor:
    check_choice("precision", precision, PRECISIONS)
    _check_inputs(x, lengthscale)
    omega, drawn = (None, frequencies) if isinstance(frequencies, Drawn) else (frequencies, None)
    if omega is not None:
        check_shape("frequencies", omega, (len(omega), x.shape[1]), f"The inputs have {x.shape[1]} columns.")
    if drawn is not None and drawn.degrees == 1:
        precision = "wide"  # Cauchy: float32 would lose the angle of one feature in a thousand
    backend = cast(Backend, _backend(x))
    product = Features.apply(backend, x, omega, drawn, V, lengthscale, precision, transpose)
    return (2 * variance / (total or 2 * len(frequencies))).sqrt() * product


def _check_inputs(x: Tensor, lengthscale: Tensor, **others: Tensor) -> None:
    d = len(lengthscale)
    for name, tensor in {"x": x, **others}.items():
        check_shape(name, tensor, (len(tensor), d), f"There are {d} lengthscales: give inputs of {d} columns.")
        if tensor.requires_grad:
            raise ValueError(
                f"Expected {name} without gradient, got one that asks for it. The products are differentiable in their "
                "columns, the lengthscales and the variance; detach the inputs."
            )


def _backend(x: Tensor) -> object:
    if x.dtype != torch.float32 or not x.numel():
        return reference
    return BACKENDS.get(x.device.type, reference)
