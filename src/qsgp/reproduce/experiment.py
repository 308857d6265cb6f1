"""What an experiment of the paper is: rows that are measured one by one, beside what the paper says of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qsgp.paper.settings import Bound as Bound
from qsgp.paper.settings import Control as Control
from qsgp.paper.settings import Draws as Draws
from qsgp.paper.settings import Settings

Row = dict[str, Any]  # of the printed table: names and numbers


@dataclass(frozen=True)
class Asked:
    """What takes the place of settings as printed; None leaves them."""

    control: Control | None = None
    bound: Bound | None = None
    rate: float | None = None
    draws: Draws | None = None

    def told(self) -> Row:
        """The part of a row's key that tells it from rows as printed."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def put(self, settings: Settings) -> Settings:
        return replace(settings, **self.told())


@dataclass(frozen=True)
class Choice:
    """What was asked for. ``fast``: a minute or two on two cores, at sizes that the rows name. ``only``: words that
    data or models must have (`picked`). ``unfinished``: a folder for runs that are cut."""

    fast: bool = False
    device: str = "cpu"
    splits: tuple[int, ...] = (0,)
    seed: int = 0
    say: Callable[[str], object] = field(default=lambda words: None, compare=False)  # how far a long row is
    only: tuple[str, ...] = ()
    asked: Asked = Asked()
    unfinished: Path | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Case:
    """One row. ``key`` tells it from all others and begins the row; ``measure`` does the work and gives the rest.

    Lists of numbers for the picture go under the name ``curves``: kept in the JSON file, shown in no table.
    """

    key: Row
    measure: Callable[[], Row]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    ``cases`` are made quickly: data are read when a case is measured. Cases that measure the same thing at different
    sizes (``fast`` or not) have different keys, so that a file never mixes them. ``summary`` says in a few sentences
    what the rows show; ``picture`` draws them into a figure of matplotlib.
    """

    name: str  # as on the command line: "table-2"
    title: str
    paper: str  # what the paper reports
    cases: Callable[[Choice], Iterable[Case]]
    summary: Callable[[Sequence[Row]], str] | None = None
    picture: Callable[[Sequence[Row], Any], None] | None = None  # rows, and the figure to draw into
    takes: tuple[str, ...] = ()  # which of `Asked` its rows heed


def picked(cases: Iterable[Case], only: Sequence[str]) -> list[Case]:
    """Cases with one of the words that name data and one of those that name models, and so on: a word belongs to the
    first name in a key that has it in some case. Letters may be large or small. Raises where no case has a word."""
    found = list(cases)
    words: dict[str, list[str]] = {}
    for word in only:
        having = [name for case in found for name in case.key if _has(case, name, word)]
        if not having:
            names = dict.fromkeys(value for case in found for value in case.key.values() if isinstance(value, str))
            raise ValueError(f"Expected a part of one of {'; '.join(names)}; got {word!r}.")
        words.setdefault(having[0], []).append(word)
    return [case for case in found if all(any(_has(case, name, word) for word in words[name]) for name in words)]


def _has(case: Case, name: str, word: str) -> bool:
    value = case.key.get(name)
    return isinstance(value, str) and word.lower() in value.lower()
