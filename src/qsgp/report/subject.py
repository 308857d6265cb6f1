"""What a report is about."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from qsgp.evaluation import Evaluation, Groups, input_names, relevance


@dataclass(frozen=True)
class Subject:
    """A model and the rows it is judged by."""

    model: Any
    X: np.ndarray
    found: list[Evaluation]  # one for every output
    targets: list[str]
    output: int
    groups: Groups | None = None  # to judge by, one by one

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
        """Inputs, the missing values of which count for nothing."""
        return [bool(np.fmin.reduce(column) < np.fmax.reduce(column)) for column in self.X.T]

    @cached_property
    def order(self) -> list[int]:
        """Inputs that vary, the most relevant first: the lengthscale of a constant one was taught by nothing. A
        category is there once, by the most relevant of its inputs."""
        found: dict[str, int] = {}
        for j in np.argsort(-relevance(self.model), kind="stable"):
            if self.varies[j]:
                found.setdefault(self.titles[int(j)], int(j))
        return list(found.values())

    @cached_property
    def categories(self) -> dict[int, str]:
        """The column of each input that stands for one of its values."""
        columns = getattr(self.model, "columns_", None)
        if columns is None:
            return {}
        inputs, place = columns.encoded_by_column, {name: j for j, name in enumerate(self.names)}
        return {place[name]: c.name for c in columns.inputs if c.kind == "category" for name in inputs[c.name]}

    @cached_property
    def titles(self) -> list[str]:
        """What a picture of each input is called: the column, for a category."""
        return [self.categories.get(j, name) for j, name in enumerate(self.names)]

    def along(self, j: int) -> np.ndarray:
        """An input row by row; of a category which value it is, and one less than none where it is not known."""
        if j not in self.categories:
            return self.X[:, j].astype(float)
        own = [k for k, column in self.categories.items() if column == self.categories[j]]
        known = self.X[:, own] == 1
        return np.where(known.any(1), known.argmax(1), -1).astype(float)
