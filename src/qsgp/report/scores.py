"""Scores beside those of baselines and of a constant."""

from typing import Any

import numpy as np

from qsgp.evaluation import Classification, Evaluation
from qsgp.report.baselines import Baselines, taken
from qsgp.report.page import number, paragraph, percent, table
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
_DOUBT = 2.6  # standard errors: chance goes beyond in one of a hundred cases
_ABOUT = 1.5  # times as many rows are about as many


def score_parts(subject: Subject, baselines: Baselines | None) -> list[str]:
    """The table, and what the baselines are."""
    several, names = len(subject.found) > 1, list(baselines.found) if baselines else []
    rows: list[list[Any]] = []
    for k, (target, found) in enumerate(zip(subject.targets, subject.found, strict=True)):
        own, constant = found.scores(), found.constant_scores()
        others = [baselines.found[name][k].scores() for name in names] if baselines else []
        for score, value in own.items():
            title = f"{score} of {target}" if several else score
            rows.append([(title, _MEANING[score]), value, *(other[score] for other in others), constant[score]])
    beside = "a linear model, boosted trees and " if names else ""
    caption = f"Scores of {len(subject.X):,} rows, beside {beside}the best constant in hindsight"
    shown = table(caption, ["score", "model", *names, "constant"], rows, fold=False)
    return [shown, paragraph(about(subject, baselines), "how")]


def about(subject: Subject, baselines: Baselines | None) -> str:
    """Who learned from what: without it nobody could compare."""
    if baselines is None:
        return "There are too few rows, too many inputs or no differences in the target for baselines to learn from."
    n, k, given = len(baselines.rows), baselines.learned_from, subject.fit_rows
    said = [
        "The linear model (ridge or logistic regression) and the boosted trees are scikit-learn's, untuned.",
        "A model does not hold the table of its fit, so they learned from the rows of this report: "
        f"each fifth is predicted by what the other four teach, {k:,} rows.",
    ]
    if n < len(subject.X):
        said.append(f"For the sake of time {n:,} of the rows take part, drawn at random.")
    if given is None:
        said.append("How many rows the model was fitted on is not known.")
    elif given > _ABOUT * k:
        said.append(f"The model was given more, {given:,} rows: it should be ahead, and being behind says much.")
    elif k > _ABOUT * given:
        said.append(f"The model was given less, {given:,} rows: being behind proves little, and being ahead says much.")
    else:
        said.append(f"The model was given about as many, {given:,} rows.")
    said.append(
        "Where rows come in groups or in the course of time baselines have an advantage: they know rows of the same "
        "groups and days as those they predict. Their deviations do not depend on the row."
    )
    return " ".join(said)


def comparison(subject: Subject, baselines: Baselines | None) -> str:
    """Whether the model is better than the best of constant, linear model and boosted trees, beyond chance."""
    found, key = subject.shown, "log loss" if isinstance(subject.shown, Classification) else "RMSE"
    own, constant = found.scores()[key], found.constant_scores()[key]
    if own >= constant > 0:
        return (
            f"The model is no better than {_CONSTANT[key]}: its {_ERROR[key]} is {number(own)}, and {number(constant)} "
            f"without a model. Do not use its {_USE[key]}."
        )
    if baselines is None:
        return f"The {_ERROR[key]} is {number(own)}; {_CONSTANT[key]} would leave {number(constant)}."
    same = taken(found, baselines.rows)
    others = {name: each[subject.output] for name, each in baselines.found.items()}
    best = min(others, key=lambda name: others[name].scores()[key])
    gap = _loss(same) - _loss(others[best])
    doubt = _DOUBT * float(gap.std()) / np.sqrt(len(gap))
    values = ", ".join(f"{name} {number(each.scores()[key])}" for name, each in others.items())
    told = f"{_ERROR[key]} {number(same.scores()[key])}; {values}; {_CONSTANT[key]} {number(constant)}"
    if gap.mean() < -doubt:
        said = f"The model is better than a linear model and boosted trees: {told}."
    elif gap.mean() > doubt:
        said = f"The model is worse than {_ARTICLE[best]}: {told}."
    else:
        said = f"The model is about as good as {_ARTICLE[best]}, within chance: {told}."
    return said + _fairness(subject.fit_rows, baselines.learned_from)


def accuracy(found: Classification) -> str:
    own, constant = found.scores()["accuracy"], found.constant_scores()["accuracy"]
    return (
        f"{percent(own)} of the rows are classified correctly; always saying the most frequent class would be right in "
        f"{percent(constant)}."
    )


_ERROR = {"RMSE": "typical error (RMSE)", "log loss": "log loss"}
_USE = {"RMSE": "predictions", "log loss": "probabilities"}
_CONSTANT = {"RMSE": "a constant", "log loss": "giving every row the shares of the classes"}
_ARTICLE = {"linear model": "a linear model", "boosted trees": "boosted trees"}


def _fairness(given: int | None, learned_from: int) -> str:
    if given is None:
        return f" They learned from {learned_from:,} of these rows."
    if learned_from <= given:
        return f" They learned from {learned_from:,} of these rows, the model from {given:,}."
    return f" They had more to learn from: {learned_from:,} of these rows, the model {given:,}."


def _loss(found: Evaluation) -> np.ndarray:
    return -found.log_density if isinstance(found, Classification) else np.square(found.residual)
