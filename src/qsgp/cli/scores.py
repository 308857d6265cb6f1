"""How good a model is on rows with known targets, portion by portion: scores of `qsgp.evaluation` by short names."""

import math
from collections.abc import Iterable
from typing import Any

from qsgp.cli.talk import aligned, number
from qsgp.evaluation import Evaluation, Groups, by_group, evaluate_all, joined

Scores = dict[str, int | float]

# a short name -> the one of the evaluation
NAMES = {
    "rmse": "RMSE",
    "mnlp": "MNLP",
    "crps": "CRPS",
    "coverage95": "coverage",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "roc_auc": "ROC AUC",
    "calibration_error": "calibration error",
}
_COMPARED = {"rmse", "mnlp", "crps", "accuracy", "log_loss"}  # to what a constant would reach
_WORDS = NAMES | {"rows": "rows", "coverage95": "95 % interval holds"}


def judge(model: Any, portions: Iterable[tuple[Any, ...]]) -> Scores:
    """Scores over all portions of (inputs, targets) and perhaps groups, beside those of the best constant."""
    return scores_of(predicted(model, portions))


def predicted(model: Any, portions: Iterable[tuple[Any, ...]]) -> Evaluation:
    parts = [evaluate_all(model, model.prepare_inputs(X), y, *groups) for X, y, *groups in portions]
    if not parts:
        raise ValueError("Expected rows to judge the model by, got none. Check the file.")
    if len(parts[0]) > 1:
        raise ValueError("Expected a model of one output, got several. Judge it in Python, output by output.")
    return joined(part[0] for part in parts)


def scores_of(whole: Evaluation) -> Scores:
    own, constant = whole.scores(), whole.constant_scores()
    found: Scores = {"rows": len(whole.log_density)}
    for short, name in NAMES.items():
        if name in own:
            found[short] = own[name]
            found |= {f"constant_{short}": constant[name]} if short in _COMPARED else {}
    return {name: value for name, value in found.items() if not math.isnan(value)}  # JSON has no such number


def in_groups(whole: Evaluation, groups: Groups) -> dict[str, Scores]:
    """Scores in each group, by short names."""
    short = {name: short for short, name in NAMES.items()} | {"rows": "rows"}
    return {
        record["group"]: {short[name]: value for name, value in record.items() if name in short}
        for record in by_group(whole, groups)
    }


def groups_in_words(groups: dict[str, Scores], column: str) -> str:
    names = list(next(iter(groups.values())))
    rows = [(group, *(_cell(name, own[name]) for name in names)) for group, own in groups.items()]
    return aligned([(column, *map(_title, names)), *rows])


def in_words(scores: Scores) -> str:
    return aligned([(_title(name), _cell(name, value)) for name, value in scores.items()])


def _title(name: str) -> str:
    return _WORDS[name] if name in _WORDS else f"{_WORDS[name.removeprefix('constant_')]} of a constant"


def _cell(name: str, value: int | float) -> str:
    if name == "rows":
        return f"{value:,}"
    return f"{value:.1%}" if name in ("coverage95", "accuracy", "constant_accuracy") else number(value)
