"""Scores beside those of a constant, and the one-sentence verdict."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from qsgp.evaluation import Classification, Evaluation, Regression
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


def constant_scores(found: Evaluation) -> dict[str, float]:
    """Those of the best constant in hindsight: mean and deviation, or the class shares, of these very rows."""
    if isinstance(found, Regression):
        deviation = float(found.y.std())
        if deviation == 0:
            return {"RMSE": 0.0, "MNLP": math.nan, "CRPS": 0.0, "coverage": 1.0}
        constant = Regression.of(found.y, np.full_like(found.y, found.y.mean()), np.full_like(found.y, deviation))
        return constant.scores()
    share = np.bincount(found.label, minlength=len(found.classes)) / len(found.label)
    entropy = -float(sum(p * math.log(p) for p in share if p > 0))
    return {"accuracy": float(share.max()), "log loss": entropy, "ROC AUC": 0.5, "calibration error": 0.0}


def score_table(subject: Subject) -> str:
    several = len(subject.found) > 1
    rows: list[list[Any]] = []
    for name, found in zip(subject.targets, subject.found, strict=True):
        own, constant = found.scores(), constant_scores(found)
        for score, value in own.items():
            title = f"{score} of {name}" if several else score
            rows.append([(title, _MEANING[score]), value, constant[score]])
    caption = f"Scores of {len(subject.X):,} rows, beside the best constant prediction in hindsight"
    return table(caption, ["score", "model", "constant"], rows, fold=False)


def verdict(subject: Subject) -> str:
    """How much better than a constant, and whether the uncertainty can be trusted."""
    found = subject.shown
    own, constant = found.scores(), constant_scores(found)
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
    scaling, several = subject.model._scaling, len(subject.found) > 1
    for name, found, mean, deviation in zip(
        subject.targets, subject.found, scaling.y_mean, scaling.y_scale, strict=True
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
