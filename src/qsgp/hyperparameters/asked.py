"""What a search for hyperparameters is asked for."""

import math
from dataclasses import dataclass

from qsgp.kernels import AUTO
from qsgp.likelihoods import BY_NAME as LIKELIHOODS

LEARN_POINTS = 1000  # hyperparameters are learned on this many rows; of p factors 1 / sqrt(p) as many


@dataclass(frozen=True)
class Asked:
    """Kernels to choose from, the likelihood, and how many rows the search may take."""

    likelihood: str = "gaussian"
    kernels: tuple[str, ...] = AUTO
    most: int = LEARN_POINTS  # rows of the last search
    spare: int = 0  # rows that it may take instead while there is time for them
    closed_form: bool = False  # a small table, all of whose rows the exact GP will know
    metric: str = "ard"  # "auto": a linear map where it helps, "full": in any case
    sums: bool = False  # of two kernels, where they help
    sum_of: tuple[str, ...] = ()  # of these, in any case
    fixed: bool = False  # nothing is learned
    seed: int = 0
    device: str = "cpu"

    @property
    def makes_others(self) -> bool:
        """Kernels may be made of the plain ones."""
        return self.metric != "ard" or self.sums or bool(self.sum_of)

    @property
    def search_device(self) -> str:
        """A matrix of a thousand rows is not worth the way to a GPU and back."""
        return self.device if self.most > LEARN_POINTS else "cpu"

    def few(self, count: int, outputs: int) -> int:
        """``count`` rows, or as many as take the same time where each output has a factor of its own."""
        factors = 1 if LIKELIHOODS[self.likelihood].fixed_sites else outputs
        return max(4, int(count / math.sqrt(factors)))
