"""What a report is about."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from qsgp.evaluation import Evaluation, input_names, relevance


@dataclass(frozen=True)
class Subject:
    """A model and the rows it is judged by."""

    model: Any
    X: np.ndarray
    found: list[Evaluation]  # one for every output
    targets: list[str]
    output: int

    @property
    def shown(self) -> Evaluation:
        return self.found[self.output]

    @property
    def target(self) -> str:
        return self.targets[self.output]

    @property
    def calibration_rows(self) -> int:
        """That the intervals of a regressor were recalibrated by; 0 if they were not."""
        return len(getattr(self.model.calibration_, "scores", ()))

    @cached_property
    def names(self) -> list[str]:
        return input_names(self.model)

    @cached_property
    def varies(self) -> list[bool]:
        return [bool(column.min() < column.max()) for column in self.X.T]

    @cached_property
    def order(self) -> list[int]:
        """Inputs that vary, the most relevant first: the lengthscale of a constant one was taught by nothing."""
        return [int(j) for j in np.argsort(-relevance(self.model), kind="stable") if self.varies[j]]
