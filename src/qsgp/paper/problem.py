"""What training does not change, and the model at given hyperparameters."""

from dataclasses import dataclass, replace

from jaxtyping import Int
from torch import Tensor

from qsgp.interfaces import Basis, Likelihood, Source
from qsgp.paper.chevron import Chevron
from qsgp.paper.support import Support


@dataclass(frozen=True)
class Problem:
    """The data, and the model at its initial hyperparameters; the control variates keep those (Appendix F.3)."""

    source: Source
    basis: Basis
    likelihood: Likelihood
    covariance: Chevron
    support: Support
    earlier: Int[Tensor, "m b"] | None = None  # `log_determinant.nearest_earlier`: a dense S that learns needs it

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
