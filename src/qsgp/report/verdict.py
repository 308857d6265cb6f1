"""The first sentences of the page: is the model better than simple ones, do its intervals hold, what is worrying."""

from collections.abc import Iterator

import numpy as np

from qsgp import plots
from qsgp.evaluation import Classification, Regression
from qsgp.report import words
from qsgp.report.baselines import Baselines
from qsgp.report.page import number, percent
from qsgp.report.scores import accuracy, comparison
from qsgp.report.subject import Subject

_FEW = 200  # rows
_MOST_WORRIES = 3


def verdict(subject: Subject, baselines: Baselines | None) -> list[str]:
    """A paragraph for each of the three questions."""
    found = subject.shown
    if isinstance(found, Classification):
        better = f"{comparison(subject, baselines)} {accuracy(found)}"
        honest = words.reliability(found)
    else:
        better, honest = comparison(subject, baselines), words.coverage(found, subject.calibration_rows)
    worrying = list(worries(subject))[:_MOST_WORRIES]
    return [better, honest, " ".join(worrying) or _nothing(subject)]


def worries(subject: Subject) -> Iterator[str]:
    """A sentence for each thing that is wrong beyond chance, the worst first."""
    found = subject.shown
    yield from _worse_densities(subject)
    if isinstance(found, Regression):
        if words.overconfident(found, subject.calibration_rows):
            yield (
                "Some rows are predicted too surely: see the coverage by predicted deviation. Do not trust their "
                "intervals."
            )
        if missed := words.missed(subject.left):
            name, share = next(iter(missed.items()))
            others = f" and {len(missed) - 1} more" if len(missed) > 1 else ""
            yield (
                f"Something is missed along {name}{others}: it alone explains {percent(share)} of what is left of the "
                "target."
            )
    if any(words.still_moving(values) for values in _curves(subject)):
        yield "Training was cut short: give it more time (max_time or max_iter)."
    if len(subject.X) < _FEW:
        yield f"With {len(subject.X):,} rows only large faults would show: judge the model by more."


def _nothing(subject: Subject) -> str:
    if isinstance(subject.shown, Classification):
        return "Nothing else on this page speaks against the model."
    return "Nothing else on this page speaks against the model: no input leaves a trend, no group of rows is too sure."


def _curves(subject: Subject) -> Iterator[list[float]]:
    history = subject.model.history_
    for entry in plots.training_entries(history):
        phase = next(record.get("phase") for record in reversed(history) if entry in record)
        known = [record[entry] for record in history if entry in record and record.get("phase") == phase]
        yield [float(value) for value in known if np.isfinite(value)]


def _worse_densities(subject: Subject) -> Iterator[str]:
    """A sentence for each output whose predicted laws say less than one normal law of all training targets."""
    model, several = subject.model, len(subject.found) > 1
    if isinstance(subject.shown, Classification):
        return
    for name, found, mean, deviation in zip(
        subject.targets, subject.found, model.target_mean_, model.target_scale_, strict=True
    ):
        assert isinstance(found, Regression)
        own = found.scores()["MNLP"]
        constant = Regression.of(found.y, np.full_like(found.y, mean), np.full_like(found.y, deviation))
        if own > (other := constant.scores()["MNLP"]):
            yield (
                f"The densities{f' of {name}' if several else ''} are worse than without a model: MNLP is "
                f"{number(own)}, and {number(other)} for one normal law with the mean and deviation of the training "
                "targets. Do not rely on the predicted deviations."
            )
