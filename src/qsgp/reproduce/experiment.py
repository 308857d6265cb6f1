"""What an experiment of the paper is: rows that are measured one by one, beside what the paper says of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]  # of the printed table: names and numbers


@dataclass(frozen=True)
class Choice:
    """What was asked for. ``fast``: a minute or two on two cores, at sizes that the rows name."""

    fast: bool = False
    device: str = "cpu"
    splits: tuple[int, ...] = (0,)
    seed: int = 0
    say: Callable[[str], object] = field(default=lambda words: None, compare=False)  # how far a long row is


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
