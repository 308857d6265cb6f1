"""A function of the numbers of a row, and beside it the effects of the levels of its identifiers."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn

from qsgp.interfaces import Kernel, Likelihood, Numeric
from qsgp.kernels.levels import WithLevels, looked_up
from qsgp.posteriors.closed_form import ClosedForm
from qsgp.posteriors.features import Features
from qsgp.posteriors.fourier_weights import FourierWeights
from qsgp.posteriors.parts import Shapes
from qsgp.posteriors.rows import KernelFunctionsAtRows
from qsgp.posteriors.serving import ServedTables
from qsgp.solvers.pathwise import effect_draws

Function = ClosedForm | Features | KernelFunctionsAtRows | FourierWeights
_OF: dict[str, type[Function]] = {
    each.kind: each for each in (ClosedForm, Features, KernelFunctionsAtRows, FourierWeights)
}


@dataclass(frozen=True)
class WithEffects:
    """f(numbers) + sum_j u_j[level]: the posterior of f, and mean and variance of each effect in tables.

    The last place of a table is that of levels the rows do not have: mean 0 and the prior's variance. Variances are
    added: what f and effects know of each other is mostly negative and left out.
    """

    function: Function
    effects: Float[Tensor, " q"]  # the prior's variances
    tables: Float64[Tensor, "q levels o"]
    left: Float64[Tensor, "q levels"]
    share: float  # of the noise that effects have left in the targets of the function

    kind: ClassVar[str] = "function and effects"

    @property
    def kernel(self) -> WithLevels:
        smooth: Any = self.function.kernel
        return WithLevels(smooth, self.effects)

    @property
    def likelihood(self) -> Likelihood:
        """Of what is predicted, which has all of the noise."""
        sites = self.function.likelihood
        assert isinstance(sites, Numeric) and sites.noise_variance is not None
        return sites.of_noise(sites.noise_variance / self.share)

    @property
    def one_variance(self) -> bool:
        return self.function.one_variance

    @property
    def rows_at_a_time(self) -> int:
        return self.function.rows_at_a_time

    def bytes_per_row(self, draws: int = 0) -> int:
        return self.function.bytes_per_row(draws) + 32 * len(self.effects) * max(draws, 1) * self.tables.shape[2]

    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        numbers, codes = self._apart(x)
        return self._beside(self.function.mean(numbers), codes)

    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        numbers, codes = self._apart(x)
        mean, variance = self.function.latent(numbers)
        return self._beside(mean, codes), variance + looked_up(self.left, codes)[:, None].to(variance)

    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        numbers, codes = self._apart(x)
        draws, outputs = self.function.sample(numbers, count, seed), self.tables.shape[2]
        own = effect_draws(codes, self.left, count * outputs, seed).unflatten(1, (count, outputs)).transpose(0, 1)
        return draws + (own + looked_up(self.tables, codes)).to(draws)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header, tensors = self.function.parts()
        share = torch.tensor(self.share, dtype=torch.float64)
        own = {"effects.tables": self.tables, "effects.left": self.left, "effects.share": share}
        own |= {"kernel.effects": self.effects}
        return header | {"kind": self.kind, "of": header["kind"]}, tensors | own

    @classmethod
    def restore(
        cls, kernel: Kernel, likelihood: Likelihood, header: dict[str, Any], tensors: dict[str, Tensor]
    ) -> "WithEffects":
        assert isinstance(kernel, WithLevels)
        function = _OF[header["of"]].restore(kernel.smooth, likelihood, header, tensors)
        tables, left, share = (tensors[f"effects.{name}"] for name in ("tables", "left", "share"))
        return cls(function, kernel.effects, tables, left, float(share))

    @staticmethod
    def shapes(header: dict[str, Any], tensors: dict[str, Tensor], d: int, outputs: int) -> Shapes:
        q, levels = len(tensors["kernel.effects"]), tensors["effects.left"].shape[1]
        own: Shapes = {"effects.tables": (q, levels, outputs), "effects.left": (q, levels), "effects.share": ()}
        found = _OF[header["of"]].shapes(header, tensors, d - q, outputs)
        return found | own | ({"U": (len(tensors["U"]), d - q)} if "U" in tensors else {})

    def serving(self) -> nn.Module:
        return _Beside(self)

    def _apart(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t k"], Int[Tensor, "t q"]]:
        return self.kernel.numbers(x), self.kernel.codes(x).to(self.left.device)

    def _beside(self, mean: Float[Tensor, "t o"], codes: Int[Tensor, "t q"]) -> Float[Tensor, "t o"]:
        return mean + looked_up(self.tables, codes).to(mean)


class _Beside(nn.Module):
    """Mean and variance of the function, and those of effects added to them."""

    def __init__(self, posterior: WithEffects) -> None:
        super().__init__()
        self.function = posterior.function.serving()
        self.tables, self.left = ServedTables(posterior.tables), ServedTables(posterior.left)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = self.function(self.left.numbers(z))
        return mean + self.tables(z), variance + self.left(z)[:, None]
