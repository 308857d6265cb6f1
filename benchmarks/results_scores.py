"""Models beside each other on the same data: means and spreads over splits, and who is ahead, in words."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from results_words import Row, distinct, listed, number, table


class Score(NamedTuple):
    field: str
    title: str
    digits: int
    best: float | None = None  # the value that is best; -inf where less is better, None where nothing is to be won

    def distance(self, value: float) -> float:
        """From the best value: what has less of it is better."""
        return value if self.best == float("-inf") else abs(value - (self.best or 0.0))


_LESS = float("-inf")
SCORES = [
    Score("rmse", "RMSE", 4, _LESS),
    Score("mnlp", "MNLP", 3, _LESS),
    Score("log_loss", "log loss", 3, _LESS),
    Score("error", "error", 4, _LESS),
    Score("crps", "CRPS", 4, _LESS),
    Score("coverage95", "95 % coverage", 3, 0.95),
    Score("interval95", "interval score", 3, _LESS),
    Score("fit_s", "fit s", 1),
    Score("predict_s", "predict s", 2),
    Score("load", "load", 1),
]
JUDGED = SCORES[:4]  # what sentences and pictures are about
OURS = ("qsgp", "calibrated", "qsrvm")  # models of this library: the first is its default, the others have options
_KEY = ("data", "seconds", "device", "model")
_LATE = 1.1  # times the seconds it had


class Entry:
    """The rows of one model on one data set with one budget: a row for each split."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.data, self.seconds, self.device, self.model = (rows[0].get(name) for name in _KEY)
        self.splits = [row.get("split") for row in rows]

    def values(self, score: Score) -> list[float]:
        """What is missing or not a number is left out."""
        found = [row.get(score.field) for row in self.rows]
        return [float(value) for value in found if isinstance(value, int | float) and math.isfinite(value)]

    def mean(self, score: Score) -> float | None:
        values = self.values(score)
        return statistics.fmean(values) if values else None

    def shown(self, score: Score) -> str:
        """Mean, and standard deviation over the splits where there are several."""
        values = self.values(score)
        spread = f" ± {number(statistics.stdev(values), score.digits)}" if len(values) > 1 else ""
        return f"{number(self.mean(score), score.digits)}{spread}" if values else "—"

    def remark(self) -> str:
        notes = distinct(row["note"] for row in self.rows if row.get("note"))
        gone = sum(all(row.get(score.field) is None for score in JUDGED) for row in self.rows)
        return "; ".join([*([f"no result on {gone} of {len(self.rows)} splits"] if gone else []), *map(number, notes)])


def comparable(rows: Sequence[Row]) -> bool:
    """Whether rows are scores of models on data sets, and no two of them the same split."""
    if not rows or not all("data" in row and "model" in row for row in rows):
        return False
    keys = [key_of(row) for row in rows]
    return any(row.get(score.field) is not None for row in rows for score in JUDGED) and len(set(keys)) == len(keys)


def key_of(row: Row) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in (*_KEY, "split"))


def entries_of(rows: Sequence[Row]) -> list[list[Entry]]:
    """Those of one data set and one budget together, in the order of the files."""
    races: dict[tuple[str, ...], dict[str, list[Row]]] = {}
    for row in rows:
        *race, model = (str(row.get(name)) for name in _KEY)
        races.setdefault(tuple(race), {}).setdefault(model, []).append(row)
    return [[Entry(own) for own in models.values()] for models in races.values()]


def best_of(race: Sequence[Entry], score: Score) -> str | None:
    """The shown mean of the best: all that show the same are as good. Nobody is best alone."""
    means = [mean for entry in race if (mean := entry.mean(score)) is not None]
    if score.best is None or len(means) < 2:
        return None
    return number(min(means, key=score.distance), score.digits)


def score_table(races: Sequence[Sequence[Entry]]) -> list[str]:
    everyone = [entry for race in races for entry in race]
    shown = [score for score in SCORES if any(entry.values(score) for entry in everyone)]
    budgets = any(entry.seconds is not None for entry in everyone)
    remarks = any(entry.remark() for entry in everyone)
    lines = []
    for race in races:
        best = {score.field: best_of(race, score) for score in shown}
        for entry in race:
            line = [number(entry.data), f"`{entry.model}`"]
            line += [number(entry.seconds, 0)] if budgets else []
            for score in shown:
                bold = best[score.field] is not None and number(entry.mean(score), score.digits) == best[score.field]
                line.append(f"**{entry.shown(score)}**" if bold else entry.shown(score))
            line += [number(len(entry.rows)), *([entry.remark()] if remarks else [])]
            lines.append(line)
    names = ["data", "model", *(["budget s"] if budgets else []), *(score.title for score in shown), "splits"]
    return table([*names, *(["remark"] if remarks else [])], lines, left=2)


def verdicts(races: Sequence[Sequence[Entry]]) -> list[str]:
    """Who is ahead on which data set, wins and losses in the same words."""
    lines, ahead, behind = [], {}, {}
    several = len(distinct(race[0].seconds for race in races)) > 1
    for race in races:
        own = next((entry for entry in race if entry.model == OURS[0]), None)
        peers = [entry for entry in race if entry.model not in OURS]
        if own is None or not peers:
            continue
        place = f"{number(own.data)}{f' ({own.seconds:g} s)' if several and own.seconds else ''}"
        found = [said for score in JUDGED if (said := verdict(own, peers, score)) is not None]
        for title, won, _ in found:
            (ahead if won else behind).setdefault(title, []).append(place)
        said = [*(words for *_, words in found), *late(race)]
        if not any(own.values(score) for score in JUDGED):
            said.insert(0, f"**`{own.model}` has no result**")
        lines.append(f"- {place}: {'; '.join(said) or 'no two models have the same splits'}.")
    return [*totals(ahead, behind), *lines, ""] if lines else []


def totals(ahead: dict[str, list[str]], behind: dict[str, list[str]]) -> list[str]:
    """One paragraph for each score."""
    lines = []
    for title in dict.fromkeys([*ahead, *behind]):
        won, lost = ahead.get(title, []), behind.get(title, [])
        words = f"{title}: `{OURS[0]}` is ahead or level in {len(won)} of {len(won) + len(lost)} comparisons"
        lines += [f"{words}, and behind on {listed(lost)}." if lost else f"{words}.", ""]
    return lines


def verdict(own: Entry, peers: Sequence[Entry], score: Score) -> tuple[str, bool, str] | None:
    """The score, whether the default of this library is ahead or level, and the sentence. Only equal splits count."""
    known = [peer for peer in peers if len(peer.values(score)) == len(peer.rows) and peer.splits == own.splits]
    ranked = sorted(known, key=lambda peer: peer.mean(score) or 0.0)
    mean = own.mean(score)
    if mean is None or not ranked or len(own.values(score)) < len(own.rows):
        return None
    mine, best = number(mean, score.digits), number(ranked[0].mean(score), score.digits)
    if mine == best:
        return score.title, True, f"`{own.model}` and `{ranked[0].model}` are level in {score.title} ({mine})"
    better = [peer for peer in ranked if (peer.mean(score) or 0.0) < mean]
    on = splits_won(own, (better or ranked)[0], score)
    if not better:
        words = f"**`{own.model}` is ahead in {score.title}** ({mine}; next is `{ranked[0].model}` with {best}{on})"
        return score.title, True, words
    who = listed(f"`{peer.model}` ({number(peer.mean(score), score.digits)})" for peer in better)
    verb = "is" if len(better) == 1 else "are"
    return score.title, False, f"**{who} {verb} ahead in {score.title}** (`{own.model}` has {mine}{on})"


def splits_won(own: Entry, peer: Entry, score: Score) -> str:
    """Of several splits, how many have less error than the best peer's."""
    pairs = list(zip(own.values(score), peer.values(score), strict=True))
    won = sum(a < b for a, b in pairs)
    words = f"; `{own.model}` has less than `{peer.model}` on {won} of {len(pairs)} splits"
    return words if len(pairs) > 1 else ""


def late(race: Sequence[Entry]) -> list[str]:
    """Who took more seconds to fit than it had."""
    fit = next(score for score in SCORES if score.field == "fit_s")
    taken = [(entry, entry.mean(fit)) for entry in race if entry.seconds]
    over = [f"`{one.model}` {number(spent, 1)} s" for one, spent in taken if spent and spent > _LATE * one.seconds]
    return [f"over the budget by more than a tenth: {listed(over)}"] if over else []


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Pairs of time and error such that nobody has less error in no more time, by time."""
    found: list[tuple[float, float]] = []
    for time, error in sorted(points):
        if not found or error < found[-1][1]:
            found.append((time, error))
    return found
