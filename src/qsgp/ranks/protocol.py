"""What the ranks of a run do together. A single process does the same with nobody else."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from torch import Tensor

T = TypeVar("T")


@runtime_checkable
class Ranks(Protocol):
    """Every rank must call each of these methods, in the same order, but for those on top."""

    @property
    def rank(self) -> int:
        """Of this process, from 0."""

    @property
    def size(self) -> int:
        """How many there are."""

    # --- which rows are one's own: no communication

    def share(self, rows: int, start: int = 0) -> slice:
        """The own ones of rows ``start`` .. ``rows``, as a part of these."""

    def mine(self, rows: int) -> int:
        """How many of the first ``rows`` are one's own."""

    def split(self, rows: Tensor) -> tuple[Tensor | slice, Tensor]:
        """Which of these rows are one's own, and where they stand among the own rows."""

    # --- collectives

    def total(self, part: Tensor) -> Tensor:
        """The sum over the ranks."""

    def collected(self, own: Tensor, rows: Tensor) -> Tensor:
        """These rows of what is shared out: each comes from its owner."""

    def divided(self, works: Sequence[Callable[[], Tensor]], like: Sequence[Tensor], first: int = 0) -> list[Tensor]:
        """The results of pieces of work, done by one rank after another from rank ``first`` on. Of work without a
        Cholesky factor every rank hears by `NotPositiveDefinite`."""

    def agreed(self, value: T) -> T:
        """The value of rank 0."""

    def on_first(self, work: Callable[[], T], give_up: Callable[[], None] = lambda: None) -> T:
        """What rank 0 has found, however long it takes; its failure fails all. ``give_up`` is called when a rank is
        lost meanwhile: it should end the work."""

    def barrier(self) -> None:
        """Nobody goes on before all are here."""
