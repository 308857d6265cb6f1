"""Kernel functions at many rows: the GP's mean, and posterior draws about it."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from qsgp.interfaces import Kernel, Likelihood, SpectralKernel
from qsgp.paper.prediction import columns_of
from qsgp.posteriors.parts import Shapes, describe, tensors_of
from qsgp.posteriors.serving import ServedSpread, served_kernel
from qsgp.posteriors.spread import Spread
from qsgp.ranks import ALONE, Ranks
from qsgp.solvers.dual import spectral
from qsgp.solvers.pathwise import prior_draws, prior_tables


@dataclass(frozen=True)
class KernelFunctionsAtRows:
    """The GP's mean k(x, X) A for many rows; further columns of A are posterior draws (`pathwise`).

    With several ranks x and A are those of a rank's own rows, and all ranks predict together: the sum over the rows is
    one over the ranks. `whole` is the same model in one process.
    """

    kernel: SpectralKernel
    likelihood: Likelihood
    x: Float[Tensor, "n d"]
    A: Float[Tensor, "n c"]  # of the outputs, then of the draws of each variance
    outputs: int
    seed: int  # of the prior draws
    spread: Spread
    tails: bool = True  # of the prior draws: files of before have those of the kernel
    ranks: Ranks = ALONE
    n: int | None = None  # rows of all ranks

    kind: ClassVar[str] = "kernel functions at rows"
    rows_at_a_time: ClassVar[int] = 2048

    @property
    def draws(self) -> int:
        """For each variance."""
        return (self.A.shape[1] - self.outputs) // len(self.spread.factor)

    def bytes_per_row(self, draws: int = 0) -> int:
        return self.spread.bytes_per_row(draws, self.outputs) + 32 * self.A.shape[1]

    @property
    def one_variance(self) -> bool:
        return len(self.spread.factor) == 1

    @torch.no_grad()
    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        known = self.kernel.product(x.to(self.x), self.x, columns_of(self.A, self.outputs))
        return self.ranks.total(known[:, : self.outputs])

    @torch.no_grad()
    def pieces(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t g s"]]:
        """Mean, and draws about it."""
        groups, known = len(self.spread.factor), self.ranks.total(self.kernel.product(x, self.x, self.A))
        prior = prior_draws(self.kernel, x, groups * self.draws, self.seed, tails=self.tails)
        draws = prior - known[:, self.outputs :]
        return known[:, : self.outputs], draws.unflatten(1, (groups, self.draws))

    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        x = x.to(self.x)
        mean, draws = self.pieces(x)
        return mean, self.spread.variance(x, draws).to(mean).expand_as(mean)

    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        x = x.to(self.x)
        mean, draws = self.pieces(x)
        return self.spread.sample(mean, x, draws, count, seed)

    def whole(self) -> "KernelFunctionsAtRows":
        if self.ranks.size == 1:
            return self
        assert self.n is not None
        every = torch.arange(self.n, device=self.x.device)
        x, A = (self.ranks.collected(part, every) for part in (self.x, self.A))
        return replace(self, x=x, A=A, ranks=ALONE)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header = {"kind": self.kind, **describe(self.kernel, self.likelihood)}
        header |= {"outputs": self.outputs, "seed": self.seed, "tails": self.tails}
        tensors = {"x": self.x, "A": self.A, **self.spread.tensors()}
        return header, tensors | tensors_of(self.kernel, self.likelihood)

    @classmethod
    def restore(
        cls, kernel: Kernel, likelihood: Likelihood, header: dict[str, Any], tensors: dict[str, Tensor]
    ) -> "KernelFunctionsAtRows":
        x, A, own = tensors["x"], tensors["A"], spectral(kernel)
        outputs, seed = header.get("outputs", A.shape[1]), header.get("seed", 0)  # files of before the draws lack both
        return cls(own, likelihood, x, A, outputs, seed, Spread.restore(own, tensors), bool(header.get("tails", False)))

    @staticmethod
    def shapes(header: dict[str, Any], tensors: dict[str, Tensor], d: int, outputs: int) -> Shapes:
        return {"x": (None, d), "A": (len(tensors["x"]), None)}

    def serving(self) -> nn.Module:
        return _AtRows(self)


class _AtRows(nn.Module):
    """k(x, X) A: the mean, and what rows know of the prior draws."""

    A: Tensor
    omega: Tensor
    weights: Tensor

    def __init__(self, posterior: KernelFunctionsAtRows) -> None:
        super().__init__()
        self.kernel, self.spread = served_kernel(posterior.kernel, posterior.x), ServedSpread(posterior.spread)
        self.outputs, self.draws = posterior.outputs, posterior.A.shape[1] - posterior.outputs
        self.register_buffer("A", posterior.A.double().cpu())
        omega, weights = prior_tables(posterior.kernel, self.draws, posterior.seed, posterior.tails)
        self.register_buffer("omega", omega.cpu())
        self.register_buffer("weights", weights.cpu())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        known = self.kernel(z) @ self.A
        mean, draws = known[:, : self.outputs], known[:, self.outputs :]
        if self.draws:
            angle = torch.einsum("td,dsp->tsp", z, self.omega)
            cosine, sine = self.weights.unbind(2)
            draws = (angle.cos() * cosine + angle.sin() * sine).sum(2) - draws
        return mean, self.spread(z, draws).expand_as(mean)
