"""How good a model is in each group of rows: where its intervals or probabilities keep their word, and where not."""

from typing import Any

from qsgp.evaluation import Groups, Regression, by_group
from qsgp.report import words
from qsgp.report.page import paragraph, percent, table
from qsgp.report.subject import Subject

_MOST, _NAMED = 100, 5
_HEADS = {
    True: ["rows", "RMSE", "mean error", "95 % intervals hold", "these are"],
    False: ["rows", "log loss", "right", "expected to be", "probabilities are"],
}


def by_group_parts(subject: Subject, groups: Groups) -> list[str]:
    """A sentence and a table."""
    records, regression = by_group(subject.shown, groups, _MOST), isinstance(subject.shown, Regression)
    verdicts = [_verdict(subject, groups, record, len(records)) for record in records]
    rows = [
        [record["group"], record["rows"], *_numbers(record), verdict]
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    said = [_said(records, verdicts, regression), *_whose(subject, groups, any(verdicts))]
    if (more := len(set(groups.names)) - len(records)) > 0:
        said.append(f"The {_MOST} groups of the most rows are shown, {more:,} others are not.")
    caption = f"The model in each {groups.column or 'group'}"
    return [paragraph(" ".join(said), "says"), table(caption, ["group", *_HEADS[regression]], rows)]


def _verdict(subject: Subject, groups: Groups, record: dict[str, Any], count: int) -> str:
    if "right" in record:
        return words.group_accuracy(record["rows"], record["right"], record["confidence"], count)
    calibration = subject.model.calibration_
    if calibration is None:
        known = 0
    else:
        known = (calibration.of(record["group"], 0.95) if calibration.knows(groups) else calibration).n
    return words.group_coverage(record["rows"], record["inside"], count, known)


def _numbers(record: dict[str, Any]) -> list[float | str]:
    if "right" in record:
        return [record["log loss"], percent(record["accuracy"]), percent(record["confidence"])]
    return [record["RMSE"], record["mean error"], percent(record["coverage"])]


def _said(records: list[dict[str, Any]], verdicts: list[str], regression: bool) -> str:
    """Which groups chance does not excuse, the worst first."""
    what, share = ("intervals", "coverage") if regression else ("probabilities", "accuracy")
    wrong = [(record, verdict) for record, verdict in zip(records, verdicts, strict=True) if verdict]
    if not wrong:
        return f"No group shows by more than chance that its {what} do not keep their word."
    wrong.sort(key=lambda found: found[0][share])
    named = [f"{record['group']} ({verdict}: {percent(record[share])})" for record, verdict in wrong[:_NAMED]]
    more = f" and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
    return f"The {what} do not keep their word in {len(wrong):,} of {len(records):,} groups: {', '.join(named)}{more}."


def _whose(subject: Subject, groups: Groups, wrong: bool) -> list[str]:
    """From which rows the intervals of a group come."""
    calibration = subject.model.calibration_
    if not isinstance(subject.shown, Regression):
        return []
    if calibration is None or not calibration.groups:
        return (
            ["Calibrate by groups on rows that were not used in fit: model.calibrate(X, y, groups)."] if wrong else []
        )
    if not calibration.knows(groups):
        return [f"The model was calibrated by {calibration.column}: intervals are here those of all rows."]
    return ["Each group has the interval that calibrate has found for it, or that of all rows if it had too few."]
