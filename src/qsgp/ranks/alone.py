"""One process: all rows are its own, sums have one term, and nobody has to be told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from qsgp.ranks.protocol import Ranks

T = TypeVar("T")


@dataclass(frozen=True)
class Alone:
    rank: int = 0
    size: int = 1

    def share(self, rows: int, start: int = 0) -> slice:
        return slice(None)

    def mine(self, rows: int) -> int:
        return rows

    def split(self, rows: Tensor) -> tuple[Tensor | slice, Tensor]:
        return slice(None), rows

    def total(self, part: Tensor) -> Tensor:
        return part

    def collected(self, own: Tensor, rows: Tensor) -> Tensor:
        return own[rows]

    def divided(self, works: Sequence[Callable[[], Tensor]], like: Sequence[Tensor], first: int = 0) -> list[Tensor]:
        return [work() for work in works]

    def agreed(self, value: T) -> T:
        return value

    def on_first(self, work: Callable[[], T], give_up: Callable[[], None] = lambda: None) -> T:
        return work()

    def barrier(self) -> None:
        return


ALONE: Ranks = Alone()
