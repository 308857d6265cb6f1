"""Scores beside those of a constant, and the one-sentence verdict."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from qsgp.evaluation import Classification, Regression
from qsgp.report import words
from qsgp.report.page import number, percent, table
from qsgp.report.subject import Subject

_MEANING = {
    "RMSE": "root mean squared error, in the unit of the target; less is better",
    "MNLP": "mean negative log density; less is better",
    "CRPS": "continuous ranked probability score, in the unit of the target; less is better",
    "coverage": "share inside the 95 % intervals; 0.95 is right",
    "accuracy": "share classified correctly",
    "log loss": "mean negative log probability of the labels; less is better",
    "ROC AUC": "0.5 is chance, 1 is perfect; mean over the classes against the rest",
    "calibration error": "mean gap between the probability of the predicted class and how often it was right",
}


def score_table(subject: Subject) -> str:
    several = len(subject.found) > 1
    rows: list[list[Any]] = []
    for name, found in zip(subject.targets, subject.found, strict=True):
        own, constant = found.scores(), found.constant_scores()
        for score, value in own.items():
            title = f"{score} of {name}" if several else score
            rows.append([(title, _MEANING[score]), value, constant[score]])
    caption = f"Scores of {len(subject.X):,} rows, beside the best constant prediction in hindsight"
    return table(caption, ["score", "model", "constant"], rows, fold=False)


def verdict(subject: Subject) -> str:
    """How much better than a constant, and whether the uncertainty can be trusted."""
    found = subject.shown
    own, constant = found.scores(), found.constant_scores()
    if isinstance(found, Classification):
        gain = (
            f"{percent(own['accuracy'])} of the rows are classified correctly; always saying the most frequent class "
        )
        said = f"{gain}would be right in {percent(constant['accuracy'])}. {words.reliability(found)}"
        if own["log loss"] > constant["log loss"]:
            said += (
                f" Worse than no model: the log loss is {number(own['log loss'])}, and {number(constant['log loss'])} "
                "if every row is given the shares of the classes."
            )
        return said
    error = f"The typical error (RMSE) is {number(own['RMSE'])}; a constant would leave {number(constant['RMSE'])}."
    return " ".join([error, words.coverage(found, subject.calibration_rows), *_worse_densities(subject)])


def _worse_densities(subject: Subject) -> Iterator[str]:
    """A sentence for each output whose predicted laws say less than one normal law of all training targets."""
    model, several = subject.model, len(subject.found) > 1
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
