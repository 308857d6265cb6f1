"""What remains after training: mean and variance of f at new inputs, coherent draws of f, and how to store it.

Each kind is one file with the same verbs; `KINDS` has them by the word that stands in model files. All work on
standardised inputs and targets; the estimators translate.
"""

from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from qsgp.files import FileError
from qsgp.interfaces import Kernel, Likelihood
from qsgp.posteriors.closed_form import ClosedForm
from qsgp.posteriors.effects import WithEffects
from qsgp.posteriors.features import Features
from qsgp.posteriors.fourier_weights import FourierWeights
from qsgp.posteriors.parts import Shapes, describe, kernel_and_likelihood, tensors_of
from qsgp.posteriors.rows import KernelFunctionsAtRows

__all__ = [
    "KINDS",
    "ClosedForm",
    "Features",
    "FourierWeights",
    "KernelFunctionsAtRows",
    "Posterior",
    "WithEffects",
    "describe",
    "kernel_and_likelihood",
    "kind_of",
    "posterior_from",
    "tensors_of",
]


@runtime_checkable
class AnyPosterior(Protocol):
    """What estimators, files and exports ask of a kind of posterior."""

    kind: ClassVar[str]  # in model files

    @property
    def kernel(self) -> Kernel: ...

    @property
    def likelihood(self) -> Likelihood: ...

    @property
    def one_variance(self) -> bool:
        """All outputs have their variance in common."""
        ...

    @property
    def rows_at_a_time(self) -> int: ...

    def bytes_per_row(self, draws: int = 0) -> int:
        """Memory that one more row at a time costs `latent`, or `sample` with so many draws."""
        ...

    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        """Of f for every output: faster than `latent`."""
        ...

    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        """Mean and variance of f for every output."""
        ...

    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """Draws of f, coherent over x."""
        ...

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """A header and the tensors of a file."""
        ...

    @classmethod
    def restore(
        cls, kernel: Kernel, likelihood: Likelihood, header: dict[str, Any], tensors: dict[str, Tensor]
    ) -> "AnyPosterior":
        """The inverse of `parts`."""
        ...

    @staticmethod
    def shapes(header: dict[str, Any], tensors: dict[str, Tensor], d: int, outputs: int) -> Shapes:
        """Shapes that its own tensors must have in a file; None is any length."""
        ...

    def serving(self) -> nn.Module:
        """x -> (mean, variance) of f as a module of plain tensor operations."""
        ...


Posterior = ClosedForm | Features | KernelFunctionsAtRows | FourierWeights | WithEffects
KINDS: dict[str, type[Posterior]] = {
    each.kind: each for each in (ClosedForm, Features, KernelFunctionsAtRows, FourierWeights, WithEffects)
}


def kind_of(header: dict[str, Any]) -> type[Posterior]:
    """The class of a stored posterior."""
    kind = header["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise FileError(f"Expected a model among {', '.join(KINDS)}, got {kind!r:.80}. Update qsgp, or save it anew.")
    return KINDS[kind]


def whole(posterior: Posterior) -> Posterior:
    """In one process: what ranks share of it is brought together, on every rank."""
    return posterior.whole() if isinstance(posterior, KernelFunctionsAtRows | Features) else posterior


def posterior_from(header: dict[str, Any], tensors: dict[str, Tensor]) -> Posterior:
    """The inverse of ``parts``."""
    return kind_of(header).restore(*kernel_and_likelihood(header, tensors), header, tensors)
