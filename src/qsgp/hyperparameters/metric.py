"""A metric learned from the model itself: directions in which the posterior mean changes, by their outer products.

The average outer product of gradients of f, M = mean g g^T, says along which combinations of the inputs f varies, and
how much. Recursive feature machines (Radhakrishnan et al., "Mechanism for feature learning in neural networks and
backpropagation-free machine learning models", 2024) put M into the distance of kernel ridge regression, round after
round. Here it becomes a map in front of a radial kernel, whose lengthscales the evidence then learns as ever.
"""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.factor import cholesky
from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.kernels import Mapped

KNOWN, KNOWN_ON_GPU = 4000, 8000  # rows of the model whose gradients are taken
AT_MOST = 2000  # of them, where they are taken
PLACES = 500  # of those at a time: what autograd keeps of them has the size of the kernel values
MOST = 128  # directions of very many inputs
LEAST_SHARE = 1e-4  # of the loudest direction: quieter ones are as good as left out
LONGEST = 100.0  # first lengthscale of a direction that hardly matters, in its deviations


class Directions(NamedTuple):
    """Combinations of the inputs, each of deviation 1 over the rows, and lengthscales to begin with."""

    map: Float[Tensor, "d k"]
    lengthscale: Float[Tensor, " k"]

    def mapped(self, kernel: SpectralKernel) -> Mapped:
        """A radial ``kernel``, at these lengthscales."""
        plain: Any = kernel.kernel if isinstance(kernel, Mapped) else kernel
        return Mapped(type(plain)(self.lengthscale, plain.variance), self.map)


@torch.no_grad()
def directions(kernel: Kernel, likelihood: Likelihood, rows: Rows) -> Directions:
    """Those along which the exact GP that knows ``rows`` changes, the loudest first. Gaussian noise; O(n^3)."""
    K, noise = kernel(rows.x, rows.x), likelihood.noise_variance
    assert noise is not None
    K.diagonal().add_(noise / rows.weight)
    A = torch.cholesky_solve(rows.Y, cholesky(K)[0])
    M = outer_products(slopes_of_mean(kernel, rows.x, A, rows.x[:AT_MOST]))
    size, U = torch.linalg.eigh(M)
    size, U = size.flip(0).clamp_min(0), U.flip(1)
    loud = size > LEAST_SHARE**2 * size[0]
    loud[0], loud[MOST:] = True, False
    map_ = U[:, loud] * (size[loud] / size[0].clamp_min(1e-300)).sqrt()
    spread = (rows.x @ map_).std(0, correction=0).clamp_min(1e-12)
    lengthscale = math.sqrt(rows.x.shape[1]) * spread.max() / spread
    return Directions(map_ / spread, lengthscale.clamp(max=LONGEST))


def slopes_of_mean(
    kernel: Kernel, x: Float[Tensor, "n d"], A: Float[Tensor, "n o"], at: Float[Tensor, "a d"]
) -> Float[Tensor, "a o d"]:
    """Gradients of k(., x) A at rows ``at``, some at a time."""
    found = []
    for part in at.split(PLACES):
        with torch.enable_grad():
            places = part.detach().clone().requires_grad_()
            f = kernel(places, x) @ A
            each = [torch.autograd.grad(column.sum(), places, retain_graph=True)[0] for column in f.mT]
        found.append(torch.stack(each, 1))
    return torch.cat(found)


def outer_products(slopes: Float[Tensor, "a o d"]) -> Float[Tensor, "d d"]:
    """Their mean; gradients longer than the median are shortened to it, so that a few rows do not rule."""
    length = slopes.square().sum((1, 2)).sqrt()
    share = (length.median() / length.clamp_min(1e-300)).clamp(max=1)
    shortened = (share[:, None, None] * slopes).flatten(0, 1)
    return shortened.mT @ shortened / len(slopes)
