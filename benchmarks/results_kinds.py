"""What stands on the results page: a section for each kind of run, with a part for each file or for several."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from results_pictures import drawable
from results_scores import Entry, comparable, entries_of, key_of, score_table, verdicts
from results_words import Row, distinct, number, plain, table


class Run(NamedTuple):
    """One file."""

    name: str
    rows: list[Row]
    about: dict[str, Any]  # what it says beside its rows


class Kind(NamedTuple):
    title: str
    begins: tuple[str, ...]  # of the names of its files
    words: str = ""
    compared: bool = False  # whether rows are scores of models on data sets


PAPER = Kind("Tables and figures of the paper", (), "`qsgp reproduce`.")  # its files name an experiment
KINDS = [
    Kind(
        "Regression beside other libraries",
        ("peers",),
        "`python benchmarks/peers.py`: every model as it comes, with the same seconds of wall clock. `qsgp` and\n"
        "`qsrvm` are of this library. Models without a deviation of their own (trees, xRFM) get that of the errors on\n"
        "rows held out. `sklearn-gp` and `fastrvm` learn from 2,000 rows at most.",
        compared=True,
    ),
    Kind(
        "Tables of some ten thousand rows",
        ("uci",),
        "`python benchmarks/uci.py`. `qsgp` and `calibrated` are of this library. `exact` is a dense Cholesky factor\n"
        "at the hyperparameters of `qsgp`, which needs a GPU with 60 GB.",
        compared=True,
    ),
    Kind(
        "Small tables",
        ("small",),
        "`python benchmarks/small.py`, five splits. `one` and `separate` are scikit-learn's exact Gaussian processes\n"
        "with one lengthscale and with one for each input. [Measurements](measurements.md) weigh splits by their\n"
        "test rows, so that means differ a little.",
        compared=True,
    ),
    Kind(
        "Kernels that learn their geometry",
        ("geometry",),
        "`python benchmarks/geometry.py`, on training rows held out. `ard` is Matern-3/2 with a lengthscale for each\n"
        "input, `metric` the same with a learned metric where it helps, `sums` five kernels and sums of two, `auto`\n"
        "the default.",
    ),
    PAPER,
    Kind("Robot arm", ("robot_arm", "lengthscales"), "`_expected`: a power of n through the exact GPs of the run."),
    Kind("MNIST", ("mnist",), "`nlp` is the mean negative log probability of the right label."),
    Kind(
        "The battery",
        ("battery",),
        "Problems that should be easy, beside a reference; [what counts as failed](battery.md#the-rule).",
    ),
    Kind("The engine and the cost of a step", ("engine", "step_cost", "block_step")),
    Kind("Other runs", ("",)),
]
# What every part says in the same place.
_FIXED = ("title", "note", "machine", "versions", "command", "commit", "seed")


class Part(NamedTuple):
    """Files that are shown together; ``races`` where models are compared."""

    runs: list[Run]
    races: list[list[Entry]]

    @property
    def title(self) -> str:
        first = self.runs[0]
        named = first.about.get("title") or first.about.get("experiment")
        return str(named) if named else " and ".join(run.name for run in self.runs)

    @property
    def picture(self) -> str | None:
        return f"{self.runs[0].name}.svg" if drawable(self.races) else None

    def lines(self) -> list[str]:
        said = [line for run in self.runs for line in origin(run)]
        rows = [row for run in self.runs for row in run.rows]
        if self.races:
            shown = [*verdicts(self.races), *self._picture_lines(), *score_tables(self.races)]
        elif rows and all("verdict" in row for row in rows):
            shown = counted(rows)
        else:
            shown = [*beside(rows), *plain(rows)]
        notes = distinct(told(run.about["note"]) for run in self.runs if run.about.get("note"))
        return [*said, "", *(f"**Mind: {note}.**\n" for note in notes), *shown]

    def _picture_lines(self) -> list[str]:
        if self.picture is None:
            return []
        words = (
            "Error against the seconds of fitting. The grey line is the front: the least error that so much time buys."
        )
        return [f"![{words}](images/results/{self.picture})", "", f"*{words}*", ""]


class Section(NamedTuple):
    title: str
    words: str
    parts: list[Part]


def sections(runs: Sequence[Run]) -> list[Section]:
    """In the order of ``KINDS``; kinds without files are left out."""
    found: dict[str, list[Part]] = {}
    for run in runs:
        add(found.setdefault(kind_of(run).title, []), run)
    return [Section(kind.title, kind.words, found[kind.title]) for kind in KINDS if kind.title in found]


def kind_of(run: Run) -> Kind:
    if "experiment" in run.about:
        return PAPER
    return next(kind for kind in KINDS if kind.begins and run.name.startswith(kind.begins))


def add(parts: list[Part], run: Run) -> None:
    """Models that one machine and one version measured in several files are compared with each other."""
    if not kind_of(run).compared or not comparable(run.rows):
        parts.append(Part([run], []))
        return
    for place, part in enumerate(parts):
        together = [row for other in (*part.runs, run) for row in other.rows]
        if part.races and same_origin(part.runs[0], run) and comparable(together):
            parts[place] = Part([*part.runs, run], entries_of(together))
            return
    parts.append(Part([run], entries_of(run.rows)))


def same_origin(a: Run, b: Run) -> bool:
    known = {key_of(row)[:1] for row in a.rows} & {key_of(row)[:1] for row in b.rows}
    return bool(known) and all(a.about.get(name) == b.about.get(name) for name in ("machine", "versions", "commit"))


def score_tables(races: list[list[Entry]]) -> list[str]:
    """Numbers and labels have different scores."""
    labels = [race for race in races if any(row.get("log_loss") is not None for entry in race for row in entry.rows)]
    numbers = [race for race in races if race not in labels]
    return [line for some in (numbers, labels) if some for line in score_table(some)]


def origin(run: Run) -> list[str]:
    """File, command, machine, versions, commit, seed, and whatever else the file says."""
    about = run.about
    more = [(name, value) for name, value in about.items() if name not in _FIXED and value not in (None, "")]
    recorded = [
        ("command", f"`{about['command']}`" if about.get("command") else None),
        ("machine", machine_of(about.get("machine"))),
        ("versions", told(about.get("versions"))),
        ("commit", about.get("commit")),
        ("seed", about.get("seed")),
        *((name, told(value)) for name, value in more),
    ]
    lines = [f"- file: [{run.name}.json](results/{run.name}.json)"]
    lines += [f"  - {name}: {'not recorded' if value in (None, '') else value}" for name, value in recorded]
    return lines


def machine_of(machine: Any) -> str:
    if not isinstance(machine, dict):
        return told(machine)
    cores = machine.get("cores")
    words = [machine.get("processor"), cores and f"{cores} cores", machine.get("gpu"), machine.get("system")]
    return ", ".join(str(word) for word in words if word)


def told(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name} {told(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(told, value))
    return str(value)


def counted(rows: list[Row]) -> list[str]:
    """Of the battery: how many problems failed at what, and which."""
    failed = [row for row in rows if row["verdict"] != "ok"]
    words = Counter(word for row in failed for word in str(row["verdict"]).split(", "))
    reasons = ", ".join(f"{count} {word}" for word, count in words.most_common())
    said = f"{len(rows)} problems: {len(rows) - len(failed)} ok, {len(failed)} failed"
    lines = []
    for n in sorted({row["n"] for row in rows if isinstance(row.get("n"), int)}):
        own = [row for row in rows if row.get("n") == n]
        wrong = sum(row["verdict"] != "ok" for row in own)
        lines.append([number(n), number(len(own)), number(len(own) - wrong), number(wrong)])
    by_size = table(["rows n", "problems", "ok", "failed"], lines, left=0) if lines else []
    names = ["problem", "verdict", "rmse", "rmse_ref", "coverage", "coverage_ref", "seconds", "seconds_ref"]
    list_of = table(names, ([number(row.get(name)) for name in names] for row in failed), left=2) if failed else []
    return [f"{said} ({reasons})." if failed else f"{said}.", "", *by_size, *list_of]


# What a row measures, and what stands beside it in the same row: whether less is better.
_PAIRS = [
    ("rmse", "rmse_expected", True),
    ("mnlp", "mnlp_expected", True),
    ("rmse", "exact_rmse", True),
    ("gfeatures_per_s", "eager_gfeatures_per_s", False),
    ("step_ms", "plain_ms", True),
]


def beside(rows: Sequence[Row]) -> list[str]:
    """In how many rows the library is better than what it is compared with, and in how many worse."""
    said = []
    for own, other, less in _PAIRS:
        pairs = [(row[own], row[other]) for row in rows if row.get(own) is not None and row.get(other) is not None]
        if not pairs:
            continue
        worse = [(a, b) for a, b in pairs if (a > b if less else a < b)]
        words = f"`{own}` is worse than `{other}` in {len(worse)} of {len(pairs)} rows"
        if worse:
            a, b = max(worse, key=lambda pair: abs(pair[0] - pair[1]))
            words += f", at most {number(a)} for {number(b)}"
        said.append(f"{words}.")
    return [" ".join(said), ""] if said else []
