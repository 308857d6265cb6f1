"""What a report is about."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from qsgp.evaluation import Evaluation, Groups, Regression
from qsgp.plots.views import View, column_relevance, views
from qsgp.report import words


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

    @property
    def fit_rows(self) -> int | None:
        """That the model was given to learn from; None for a model of before plans were kept."""
        return int(self.model.plan_.given) if hasattr(self.model, "plan_") else None

    @cached_property
    def all_views(self) -> list[View]:
        """The columns of the table, a date by its parts."""
        return views(self.model)

    @cached_property
    def varying(self) -> set[str]:
        """Titles of views along which these rows differ, missing values counting for nothing."""
        moving = [bool(np.fmin.reduce(column) < np.fmax.reduce(column)) for column in self.X.T]
        return {view.title for view in self.all_views if any(moving[j] for j in view.inputs)}

    @cached_property
    def relevance(self) -> dict[str, float]:
        """Of columns that vary, the largest first: the lengthscale of a constant one was taught by nothing."""
        found = {view.column for view in self.all_views if view.title in self.varying}
        return dict(sorted(((n, v) for n, v in column_relevance(self.model).items() if n in found), key=_largest_first))

    @cached_property
    def order(self) -> list[View]:
        """Views that vary, those of the most relevant columns first."""
        place = {name: k for k, name in enumerate(self.relevance)}
        return sorted((view for view in self.all_views if view.title in self.varying), key=lambda v: place[v.column])

    @cached_property
    def left(self) -> dict[str, float]:
        """What groups along each of the most relevant views explain of the residuals of a regressor."""
        if not isinstance(self.shown, Regression):
            return {}
        residual = self.shown.residual
        return {
            view.title: words.trend_left(parts_with_gaps(view, self.X), residual)
            for view in self.order[: words.MOST_TRENDS]
        }


def parts_with_gaps(view: View, X: np.ndarray) -> list[np.ndarray]:
    """Rows in groups along a view; those without a value are a group too."""
    x = view.along(X)
    missing = np.flatnonzero(np.isnan(x))
    return [*view.parts(x), *([missing] if len(missing) else [])]


def _largest_first(item: tuple[str, float]) -> float:
    return -item[1]
