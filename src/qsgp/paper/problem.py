"""What training does not change, and the model at given hyperparameters."""

from dataclasses import dataclass, replace

from jaxtyping import Int
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.interfaces import Basis, Likelihood, Source
from qsgp.paper.chevron import Chevron
from qsgp.paper.sharing import Shares
from qsgp.paper.support import Support
from qsgp.ranks import Ranks


@dataclass(frozen=True)
class Problem:
    """The data, and the model at its initial hyperparameters; the control variates keep those (Appendix F.3)."""

    source: Source
    basis: Basis
    likelihood: Likelihood
    covariance: Chevron
    support: Support
    earlier: Int[Tensor, "m b"] | None = None  # `log_determinant.nearest_earlier`: a dense S that learns needs it
    shares: Shares | None = None  # of the ranks that train it together

    def shared(self, ranks: Ranks) -> "Problem":
        """The part of this rank: every rank has all rows, and the functions that `Shares` gives it."""
        if not isinstance(self.basis, Fourier):
            raise ValueError(
                f"Expected Fourier features to share among ranks, got {type(self.basis).__name__}. "
                "Train it in one process."
            )
        return replace(self, shares=Shares(self.basis.m // 2, ranks))

    @property
    def own_covariance(self) -> Chevron:
        """Of the rows of the table, by their places there."""
        return self.covariance if self.shares is None else replace(self.covariance, functions=self.shares.functions)

    @property
    def held(self) -> int:
        """Functions of this process: rows of its table."""
        return self.basis.m if self.shares is None else self.shares.own

    def functions(self, row: Int[Tensor, " u"]) -> Int[Tensor, " u"]:
        """Which functions these rows of the table belong to."""
        return row if self.shares is None else self.shares.functions(row)

    def agreed(self, decision: bool) -> bool:
        """What all processes of the training do: what the first one decides."""
        return decision if self.shares is None else self.shares.ranks.agreed(decision)

    @property
    def needs_support(self) -> bool:
        """Sites take eta and xi from the support set even when no control variate is wanted."""
        return not self.likelihood.fixed_sites


def at_hyperparameters(problem: Problem, theta: dict[str, Tensor]) -> tuple[Basis, Likelihood]:
    """Basis and likelihood at ``theta``; names start with ``kernel.`` or ``likelihood.``."""
    kernel = {name.removeprefix("kernel."): value for name, value in theta.items() if name.startswith("kernel.")}
    own = {name.removeprefix("likelihood."): value for name, value in theta.items() if name.startswith("likelihood.")}
    basis = replace(problem.basis, kernel=problem.basis.kernel.with_parameters(kernel))  # type: ignore[type-var]
    return basis, problem.likelihood.with_parameters(own)


def initial_hyperparameters(basis: Basis, likelihood: Likelihood) -> dict[str, Tensor]:
    kernel = {f"kernel.{name}": value.detach().clone() for name, value in basis.kernel.parameters().items()}
    own = {f"likelihood.{name}": value.detach().clone() for name, value in likelihood.parameters().items()}
    return kernel | own
