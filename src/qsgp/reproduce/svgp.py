"""SVGP as the paper compares with it (Hensman et al., 2013): inducing points whose places are learned with the rest.

Written here, so that its row is there without another library. q(u) is whitened: u = L v, v ~ N(mean, R R^T).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Kernel
from qsgp.likelihoods import Gaussian

JITTER = 1e-5  # of the kernel's variance
BATCH, RATE = 1024, 0.01


@dataclass(frozen=True)
class Svgp:
    """All that is learned, as leaves: inducing inputs, q(v), log hyperparameters."""

    first: Kernel
    Z: Float[Tensor, "p d"]
    mean: Float[Tensor, " p"]
    raw: Float[Tensor, "p p"]  # R, with the logarithm of its diagonal
    logs: dict[str, Tensor]
    log_sigma2: Float[Tensor, ""]

    @classmethod
    def start(cls, kernel: Kernel, sigma2: Float[Tensor, ""], Z: Float[Tensor, "p d"]) -> "Svgp":
        """At the prior, with the hyperparameters given."""
        logs = {name: value.detach().clone() for name, value in kernel.parameters().items()}
        made = cls(kernel, Z.clone(), Z.new_zeros(len(Z)), Z.new_zeros(len(Z), len(Z)), logs, sigma2.log().clone())
        for leaf in made.leaves():
            leaf.requires_grad_()
        return made

    def leaves(self) -> list[Tensor]:
        return [self.Z, self.mean, self.raw, *self.logs.values(), self.log_sigma2]

    def root(self) -> Float[Tensor, "p p"]:
        return self.raw.tril(-1) + torch.diag(self.raw.diagonal().exp())

    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
        """Mean and variance of f. O(p^3 + t p^2)."""
        kernel = self.first.with_parameters(self.logs)
        K, prior = kernel(self.Z, self.Z), kernel.diag(x)
        K = K + JITTER * kernel.diag(self.Z).mean() * torch.eye(len(K), dtype=K.dtype, device=K.device)
        white = torch.linalg.solve_triangular(torch.linalg.cholesky(K), kernel(self.Z, x), upper=False)
        variance = prior - white.square().sum(0) + (self.root().mT @ white).square().sum(0)
        return white.mT @ self.mean, variance.clamp_min(1e-8 * prior.detach())

    def elbo(self, x: Float[Tensor, "b d"], y: Float[Tensor, " b"], n: int) -> Float[Tensor, ""]:
        """Of n rows, estimated from some."""
        mean, variance = self.latent(x)
        fit = Gaussian(self.log_sigma2.exp()).expected_log_site(y, mean, variance.sqrt())
        R = self.root()
        divergence = R.square().sum() + self.mean.square().sum() - len(R) - 2 * self.raw.diagonal().sum()
        return n * fit.mean() - 0.5 * divergence

    @torch.no_grad()
    def predict(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
        """Mean and variance of y."""
        parts = [self.latent(rows) for rows in x.split(8192)]
        mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
        return mean, variance + self.log_sigma2.exp()


def fit(
    first: Svgp,
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    iterations: int,
    say: Callable[[int], object],
    seed: int = 0,
) -> Svgp:
    """Adam on batches of `BATCH` rows; ``say`` is told every step. ``first`` is what moves."""
    generator = torch.Generator(x.device).manual_seed(seed)
    optimiser = torch.optim.Adam(first.leaves(), lr=RATE)
    for iteration in range(iterations):
        l = torch.randint(len(x), (min(BATCH, len(x)),), generator=generator, device=x.device)
        optimiser.zero_grad()
        (-first.elbo(x[l], y[l], len(x)) / len(x)).backward()
        optimiser.step()
        say(iteration + 1)
    return first
