"""The rule of `battery.py`, and its tables."""

import statistics
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from battery_problems import Problem
from table import machine

WORSE = 1.2  # times the reference's error
ALLOWED = 1e-3  # of the deviation, on top, for targets without noise
COVERAGE = (0.90, 0.99)
LOG_LOSS = 0.02
ERROR = 0.01
LATE, LATE_SECONDS = 1.3, 0.5


def verdict(problem: Problem, row: dict[str, Any]) -> str:
    """ok, or all that is wrong, separated by commas."""
    if row["exception"]:
        clear = row["exception"].startswith("ValueError: Expected")
        return "ok" if problem.refusable and clear else kind_of(row["exception"])
    if problem.refusable:
        return "not refused"
    if not row["finite"]:
        return "non-finite"
    wrong = wrong_classes(row) if problem.classes else wrong_numbers(problem, row)
    if problem.max_time is not None and row["seconds"] > LATE * problem.max_time + LATE_SECONDS:
        wrong.append("time")
    return ", ".join(wrong) or "ok"


def kind_of(exception: str) -> str:
    name = exception.split(":")[0]
    return name.lower() if name in ("Died", "Hung") else "exception"


def wrong_numbers(problem: Problem, row: dict[str, Any]) -> list[str]:
    if row["rmse_ref"] is None:
        return ["no reference"]
    low, high = COVERAGE[0], 1.0 if problem.noise_free or problem.rough else COVERAGE[1]
    wrong = [] if row["rmse"] <= most_error(problem, row) else ["rmse"]
    return wrong if low <= row["coverage"] <= high else [*wrong, "coverage"]


def most_error(problem: Problem, row: dict[str, Any]) -> float:
    return WORSE * row["rmse_ref"] + (ALLOWED if problem.noise_free else 0)


def wrong_classes(row: dict[str, Any]) -> list[str]:
    if row["log_loss_ref"] is None:
        return ["no reference"]
    wrong = [] if row["log_loss"] <= row["log_loss_ref"] + LOG_LOSS else ["log loss"]
    return wrong if row["error"] <= WORSE * row["error_ref"] + ERROR else [*wrong, "error"]


# --- tables -----------------------------------------------------------------------------------------------------

FACTORS = ["kind", "n", "noise", "d", "max_time", "threads", "dtype"]
SHOWN = ["kind", "n", "noise", "max_time"]


def problem_of(row: dict[str, Any]) -> Problem:
    return Problem(**{name: row[name] for name in FACTORS})


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By the rule as it is now."""
    return [row | {"verdict": verdict(problem_of(row), row)} for row in rows]


def failures(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(word for row in rows if row["verdict"] != "ok" for word in row["verdict"].split(", "))


def ratio(row: dict[str, Any]) -> float | None:
    """RMSE over the reference's, the allowance for targets without noise included: 1.2 is just right."""
    if row.get("rmse") is None or row.get("rmse_ref") is None:
        return None
    return WORSE * row["rmse"] / most_error(problem_of(row), row)


def groups(rows: list[dict[str, Any]], factor: str) -> list[list[Any]]:
    """One line a level: problems, failures by kind, median and largest ratio, coverage."""
    lines = []
    for level in dict.fromkeys(row[factor] for row in rows):
        some = [row for row in rows if row[factor] == level]
        ratios = [value for row in some if (value := ratio(row)) is not None]
        covered = [row["coverage"] for row in some if row.get("coverage") is not None]
        lines.append(
            [
                level,
                len(some),
                sum(row["verdict"] == "ok" for row in some),
                f"{statistics.median(ratios):.2f} / {max(ratios):.3g}" if ratios else "",
                f"{min(covered):.3f} to {max(covered):.3f}" if covered else "",
                told(failures(some)),
            ]
        )
    return lines if factor == "kind" else sorted(lines, key=lambda line: (line[0] is None, line[0]))


def told(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counted.most_common())


HEAD = ["", "problems", "ok", "RMSE / reference: median / largest", "95 % coverage", "failures"]
FAILED = [
    "problem",
    "verdict",
    "RMSE",
    "reference",
    "coverage",
    "its coverage",
    "seconds",
    "its seconds",
    "load",
    "said",
]


def failed_lines(rows: list[dict[str, Any]]) -> list[list[str]]:
    def number(value: Any) -> str:
        return "" if value is None else f"{value:.3g}"

    return [
        [
            row["problem"],
            row["verdict"],
            number(row.get("rmse", row.get("log_loss"))),
            number(row.get("rmse_ref") if row.get("rmse_ref") is not None else row.get("log_loss_ref")),
            number(row.get("coverage", row.get("error"))),
            number(row.get("coverage_ref") if row.get("coverage_ref") is not None else row.get("error_ref")),
            number(row["seconds"]),
            number(row["seconds_ref"]),
            number(row["load"]),
            (row["exception"] or "; ".join(row["warnings"]))[:80],
        ]
        for row in rows
        if row["verdict"] != "ok"
    ]


def summary(rows: list[dict[str, Any]]) -> None:
    """Printed for people: what failed, then counts by level."""
    rows, console = judged(rows), Console(width=200)
    for title, head, lines in [
        ("failed", FAILED, failed_lines(rows)),
        *((factor, [factor, *HEAD[1:]], groups(rows, factor)) for factor in SHOWN),
    ]:
        found = Table(title=title, caption=str(machine()))
        for name in head:
            found.add_column(name)
        for line in lines:
            found.add_row(*map(str, line))
        console.print(found)
    console.print(f"{len(rows)} problems, {sum(row['verdict'] == 'ok' for row in rows)} ok; {told(failures(rows))}")


def markdown(contents: list[dict[str, Any]]) -> str:
    """JSON files, parts of one run, for a page of the documents."""
    rows = judged([row for content in contents for row in content["rows"]])
    named = contents[0]["machine"]
    place = f"{named['cores']} cores of {named['processor']}" + (f" and {named['gpu']}" if "gpu" in named else "")
    passed = sum(row["verdict"] == "ok" for row in rows)
    parts = [f"{place}: {len(rows)} problems, {passed} ok; {told(failures(rows)) or 'no failures'}.\n"]
    parts += [grid([factor, *HEAD[1:]], groups(rows, factor)) for factor in SHOWN]
    return "\n".join([*parts, grid(FAILED, failed_lines(rows))] if passed < len(rows) else parts)


def grid(head: list[str], lines: list[list[Any]]) -> str:
    body = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in body) + "\n"
