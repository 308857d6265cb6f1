"""Gradients of the products. Nothing of the size of Phi or K is kept: what a gradient needs is computed again.

Columns: the gradient of Phi V is Phi^T times the incoming one, that of K(X, Z) V is K(Z, X) times it, so they run on
the same engine. Lengthscales: plain torch, block by block.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from qsgp.engine import l1
from qsgp.engine.formulas import FORMULAS
from qsgp.engine.frequencies import Drawn, Frequencies, numbers
from qsgp.engine.reference import close, distances, projections

PAIRS, COLUMNS = 1 << 14, 64  # up to so many columns, times inputs, another product is faster than all angles at once
ROWS = 1 << 20  # kernel values held at a time by the gradient of the lengthscales


@runtime_checkable
class Backend(Protocol):
    """What a device offers: the three products without amplitude, for float32 tensors on it."""

    def phi_v(
        self, x: Tensor, frequencies: Frequencies, V: Tensor, lengthscale: Tensor, precision: str, /
    ) -> Tensor: ...

    def phit_r(
        self, x: Tensor, frequencies: Frequencies, R: Tensor, lengthscale: Tensor, precision: str, /
    ) -> Tensor: ...

    def k_v(self, x: Tensor, z: Tensor, V: Tensor, lengthscale: Tensor, kernel: str, precision: str, /) -> Tensor: ...


class Features(torch.autograd.Function):
    """Phi V, or Phi^T V with ``transpose``, differentiable in V and the lengthscale."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        backend: Backend,
        x: Float[Tensor, "n d"],
        omega: Float[Tensor, "p d"] | None,
        drawn: Drawn | None,
        V: Float[Tensor, "a c"],
        lengthscale: Float[Tensor, " d"],
        precision: str,
        transpose: bool,
    ) -> Float[Tensor, "b c"]:
        ctx.save_for_backward(x, omega, V, lengthscale)  # type: ignore[arg-type]
        ctx.rest = backend, drawn, precision, transpose  # type: ignore[attr-defined]
        frequencies = omega if drawn is None else drawn
        assert frequencies is not None
        product = backend.phit_r if transpose else backend.phi_v
        return product(x, frequencies, V, lengthscale, precision)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "b c"]) -> tuple[Tensor | None, ...]:
        x, omega, V, lengthscale = ctx.saved_tensors
        backend, drawn, precision, transpose = ctx.rest
        frequencies = omega if drawn is None else drawn
        _, _, _, _, need_V, need_lengthscale, _, _ = ctx.needs_input_grad
        to_V = to_lengthscale = None
        if need_V:
            product = backend.phi_v if transpose else backend.phit_r
            to_V = product(x, frequencies, gradient.contiguous(), lengthscale, precision)
        if need_lengthscale:
            rows, columns = (V, gradient) if transpose else (gradient, V)
            wide, few = precision == "wide", V.shape[1] * x.shape[1] <= COLUMNS
            if few and not wide:
                to_lengthscale = _by_product(backend, x, frequencies, rows, columns, lengthscale, precision)
            else:
                to_lengthscale = _of_features(x, frequencies, rows, columns, lengthscale, wide)
        return None, None, None, None, to_V, to_lengthscale, None, None


def _by_product(
    backend: Backend,
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    R: Float[Tensor, "n c"],
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    precision: str,
) -> Float[Tensor, " d"]:
    """What `_of_features` gives, by features times d columns for each of V: omega_pj (v_sin, -v_cos) of each pair."""
    total = torch.zeros_like(lengthscale)
    for first in range(0, len(frequencies), PAIRS):
        part = frequencies[first : first + PAIRS]
        omega, both = numbers(part, x).to(x.dtype), V[2 * first : 2 * (first + PAIRS)].unflatten(0, (-1, 2))
        turned = torch.stack((both[:, 1], -both[:, 0]), 1)
        W = omega[:, None, :, None] * turned[:, :, None, :]
        W = W.flatten(0, 1).flatten(1).contiguous()
        for rows, weights in zip(x.split(ROWS >> 4), R.split(ROWS >> 4), strict=True):
            product = backend.phi_v(rows, part, W, lengthscale, precision).unflatten(1, (x.shape[1], R.shape[1]))
            total -= (product * rows[:, :, None] * weights[:, None, :]).sum((0, 2))
    return total / lengthscale.square()


def _of_features(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    R: Float[Tensor, "n c"],
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    wide: bool,
) -> Float[Tensor, " d"]:
    """Gradient of sum(R * Phi V): -x_j (S omega)_j / lengthscale_j^2 summed over rows, S the one of the projections."""
    dtype = torch.float64 if wide else x.dtype
    x, R, V, ell = x.to(dtype), R.to(dtype), V.to(dtype), lengthscale.to(dtype)
    total = torch.zeros_like(ell)
    for rows, both, omega, t in projections(x, frequencies, ell):
        S = t.cos().mul_(R[rows] @ V[both][1::2].mT).sub_(t.sin_().mul_(R[rows] @ V[both][::2].mT))
        total -= (x[rows] * (S @ omega)).sum(0)
    return (total / ell.square()).to(lengthscale.dtype)


class KernelProduct(torch.autograd.Function):
    """K(X, Z) V, differentiable in V and the lengthscale."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        backend: Backend,
        x: Float[Tensor, "n d"],
        z: Float[Tensor, "b d"],
        V: Float[Tensor, "b c"],
        lengthscale: Float[Tensor, " d"],
        kernel: str,
        precision: str,
    ) -> Float[Tensor, "n c"]:
        ctx.save_for_backward(x, z, V, lengthscale)
        ctx.rest = backend, kernel, precision  # type: ignore[attr-defined]
        return backend.k_v(x, z, V, lengthscale, kernel, precision)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "n c"]) -> tuple[Tensor | None, ...]:
        x, z, V, lengthscale = ctx.saved_tensors
        backend, kernel, precision = ctx.rest
        _, _, _, need_V, need_lengthscale, _, _ = ctx.needs_input_grad
        to_V = to_lengthscale = None
        if need_V:
            to_V = backend.k_v(z, x, gradient.contiguous(), lengthscale, kernel, precision)
        if need_lengthscale:
            to_lengthscale = _of_kernel(x, z, gradient, V, lengthscale, kernel)
        return None, None, None, to_V, to_lengthscale, None, None


def _of_kernel(
    x: Float[Tensor, "n d"],
    z: Float[Tensor, "b d"],
    R: Float[Tensor, "n c"],
    V: Float[Tensor, "b c"],
    lengthscale: Float[Tensor, " d"],
    kernel: str,
) -> Float[Tensor, " d"]:
    """Gradient of sum(R * K V): -2 / lengthscale_j^3 times the sum of W (x_j - z_j)^2, W = R V^T dk/d(r^2).

    The square is multiplied out, in float64 so that near duplicates do not cancel. That is not enough for a steep
    kernel such as Matern-1/2, whose slope is 1 / r: its close pairs are taken by differences. So are all pairs of a
    kernel of absolute differences: -1 / lengthscale_j^2 times the sum of R V^T dk/dr |x_j - z_j|.
    """
    if not len(x) or not len(z):
        return torch.zeros_like(lengthscale)
    centre = z.double().mean(0)
    X, Z, R, V, ell = x.double() - centre, z.double() - centre, R.double(), V.double(), lengthscale.double()
    total, formula = torch.zeros_like(ell), FORMULAS[kernel]
    step = max(1, ROWS // len(z))
    for first in range(0, len(x), step):
        part = slice(first, first + step)
        r = distances(X[part], Z, ell, formula.norm)
        W = R[part] @ V.mT
        if formula.norm == 1:
            total += l1.weighted(W.mul_(formula.derivative(r)), X[part], Z)
            continue
        W.mul_(formula.slope(r))
        if formula.steep:
            total += _of_close(W, r, X[part], Z, ell)
        total += (W.sum(1) @ X[part].square()) + (W.sum(0) @ Z.square()) - 2 * (X[part] * (W @ Z)).sum(0)
    return (-total / ell**2 if formula.norm == 1 else -2 * total / ell**3).to(lengthscale.dtype)


def _of_close(W: Tensor, r: Tensor, X: Tensor, Z: Tensor, ell: Tensor) -> Float[Tensor, " d"]:
    """Sum of W (x_j - z_j)^2 over pairs that are close compared with the inputs' length; their W is set to zero."""
    a, b = close(r, X / ell, Z / ell)
    weights = W[a, b]
    W[a, b] = 0
    total = torch.zeros_like(ell)
    for k in range(len(ell) if len(a) else 0):  # one input at a time: all pairs may be close
        total[k] = weights @ (X[a, k] - Z[b, k]).square()
    return total
