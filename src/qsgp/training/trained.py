"""What training hands over."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from qsgp.posteriors.posteriors import Posterior

Record = dict[str, Any]  # numbers by name, and the name of the phase

# Told after every record: the record, and what makes the posterior of that moment. True ends the training.
Report = Callable[[Record, Callable[[], Posterior]], bool]


@dataclass
class Trained:
    """A posterior and what the run has to tell."""

    posterior: Posterior
    history: list[Record] = field(default_factory=list)
    iterations: int = 0
    relevant: Tensor | None = None  # positions of the relevance vectors among the training rows


def told(record: Record) -> str:
    """A record as one line."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in record.items()
    )
