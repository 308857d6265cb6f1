"""What training hands over."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from qsgp.posteriors.posteriors import Posterior

Record = dict[str, Any]  # numbers by name, and the name of the phase

# Told after every record: the record, and what makes the posterior of that moment. True ends the training.
Report = Callable[[Record, Callable[[], Posterior]], bool]


class Unseen(NamedTuple):
    """Predictions of standardised targets by a model that does not know them; ``variance`` is that of f."""

    Y: Float[Tensor, "h o"]
    mean: Float[Tensor, "h o"]
    variance: Float[Tensor, "h o"]
    weight: Float[Tensor, " h"]

    def double(self) -> "Unseen":
        return Unseen(*(part.detach().double().cpu() for part in self))


@dataclass
class Trained:
    """A posterior and what the run has to tell."""

    posterior: Posterior
    history: list[Record] = field(default_factory=list)
    iterations: int = 0
    relevant: Tensor | None = None  # positions of the relevance vectors among the training rows
    unseen: Unseen | None = None  # rows that say what noise predictions have


def told(record: Record) -> str:
    """A record as one line."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in record.items()
    )
