"""The Laplacian kernel, exponential in the sum of absolute differences, with one lengthscale per input (ARD)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from qsgp.engine import l1
from qsgp.engine.counter_rng import normals
from qsgp.kernels import stationary


@dataclass(frozen=True)
class Laplacian:
    """k(x, z) = variance * exp(-r), r = sum_j |x_j - z_j| / lengthscale_j: a product of exponentials, one an input."""

    lengthscale: Float[Tensor, " d"]
    variance: Float[Tensor, ""]

    name: ClassVar[str] = "laplacian"
    words: ClassVar[str] = "Laplacian: rough functions, a product over the inputs"
    degrees: ClassVar[None] = None
    norm: ClassVar[int] = 1
    heavy: ClassVar[bool] = True

    diag = stationary.diag
    parameters = stationary.parameters
    with_parameters = stationary.with_parameters
    product = stationary.product
    unit = stationary.unit

    def __post_init__(self) -> None:
        stationary.check(self)

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        stationary.check_inputs(self, x, z)
        K: Tensor = _Value.apply(x, z, self.lengthscale, self.variance)
        return K

    @staticmethod
    def profile(r: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.exp(-r)

    def frequencies(self, seed: int, index: Int[Tensor, " p"]) -> Float64[Tensor, "p d"]:
        """Every input has a Cauchy frequency of its own: a quotient of two normals."""
        above, below = normals(seed, index, 2 * len(self.lengthscale)).chunk(2, 1)
        return above / below.abs()

    def factor(self, dimension: int) -> "Laplacian":
        """k / variance is a product over the inputs: its factor for one of them, a kernel of one input."""
        return Laplacian(self.lengthscale[dimension : dimension + 1], torch.ones_like(self.variance))


class _Value(torch.autograd.Function):
    """variance * exp(-r), with O(a b) memory in both directions.

    With W = gradient * k, the slope in lengthscale j is the sum of W |x_j - z_j| / lengthscale_j^2: duplicates have
    none, and nothing is divided by a small distance.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Float[Tensor, "a d"],
        z: Float[Tensor, "b d"],
        lengthscale: Float[Tensor, " d"],
        variance: Float[Tensor, ""],
    ) -> Float[Tensor, "a b"]:
        # Differences are taken in float64, about a common centre: inputs far from 0 keep what they differ by.
        centre, ell = (z.double().mean(0) if len(z) else 0.0), lengthscale.double()
        X, Z = (x.double() - centre) / ell, (z.double() - centre) / ell
        value = l1.distances(X, Z).neg_().exp_().to(torch.result_type(x, lengthscale))
        ctx.save_for_backward(X, Z, lengthscale, variance, value)
        return variance * value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "a b"]) -> tuple[Tensor | None, ...]:
        X, Z, lengthscale, variance, value = ctx.saved_tensors
        need_x, need_z, need_lengthscale, _ = ctx.needs_input_grad
        W, ell = gradient * value, lengthscale.double()
        to_variance, to_x, to_z, to_lengthscale = W.sum(), None, None, None
        if need_lengthscale:
            to_lengthscale = (variance * l1.weighted(W.double(), X, Z) / ell).to(lengthscale)
        if need_x or need_z:
            in_x, in_z = _in_inputs(W.double(), X, Z)
            to_x, to_z = ((variance * part / ell).to(gradient) for part in (in_x, in_z))
        return to_x, to_z, to_lengthscale, to_variance


def _in_inputs(
    W: Float64[Tensor, "a b"], X: Float64[Tensor, "a d"], Z: Float64[Tensor, "b d"]
) -> tuple[Float64[Tensor, "a d"], Float64[Tensor, "b d"]]:
    """Sums of -W sign(x_j - z_j) over the others; the edge at x_j = z_j counts as flat."""
    in_x, in_z = torch.zeros_like(X), torch.zeros_like(Z)
    for j in range(X.shape[1]):
        signed = (Z[:, j] - X[:, j, None]).sign_().mul_(W)
        in_x[:, j], in_z[:, j] = signed.sum(1), -signed.sum(0)
    return in_x, in_z
