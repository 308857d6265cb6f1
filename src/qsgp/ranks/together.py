"""Several processes by torch.distributed. What each collective moves is counted, and a lost rank gets one message."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from qsgp.factor import NotPositiveDefinite

T = TypeVar("T")

_AT_WORK, _DONE = 0.0, 1.0
_PULSE = 2.0  # seconds between two signs of life of rank 0


class LostRanks(ConnectionError):
    """Another rank has ended, hangs, or cannot be reached."""


class Together:
    """All ranks of a process group. ``moved`` counts the bytes of the tensors given to collectives on this rank."""

    def __init__(self, group: Any, seconds: float) -> None:
        self.rank, self.size, self.moved = dist.get_rank(group), dist.get_world_size(group), 0
        self._group, self._seconds = group, seconds

    def __deepcopy__(self, memo: object) -> "Together":
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "Expected a model that one process holds, got one that several ranks share, which cannot be pickled. "
            "Write it with save(path), called on every rank, and read it with qsgp.load."
        )

    def share(self, rows: int, start: int = 0) -> slice:
        return slice((self.rank - start) % self.size, max(rows - start, 0), self.size)

    def mine(self, rows: int) -> int:
        return len(range(self.rank, rows, self.size))

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.nonzero(rows % self.size == self.rank)[:, 0]
        return at, rows[at] // self.size

    def total(self, part: Tensor) -> Tensor:
        found = part.clone(memory_format=torch.contiguous_format)
        with self._collective(found):
            dist.all_reduce(found, group=self._group)
        return found

    def collected(self, own: Tensor, rows: Tensor) -> Tensor:
        at, here = self.split(rows)
        found = own.new_zeros(len(rows), *own.shape[1:])
        found[at] = own[here]
        return self.total(found)  # all but one rank add zeros, which changes no number

    def divided(self, works: Sequence[Callable[[], Tensor]], like: Sequence[Tensor], first: int = 0) -> list[Tensor]:
        owners = [(first + number) % self.size for number in range(len(works))]
        found = [torch.full_like(each, torch.nan, memory_format=torch.contiguous_format) for each in like]
        for number, work in enumerate(works):
            if owners[number] == self.rank:
                try:
                    found[number] = work().contiguous()
                except NotPositiveDefinite:
                    pass  # NaN goes to all, who raise it together
        for owner, each in zip(owners, found, strict=True):
            with self._collective(each):
                dist.broadcast(each, owner, group=self._group)
        if not all(bool(each.isfinite().all()) for each in found):
            raise NotPositiveDefinite("A matrix on one of the ranks has no Cholesky factor.")
        return found

    def agreed(self, value: T) -> T:
        box = [value]
        with self._collective():
            dist.broadcast_object_list(box, 0, group=self._group, device=torch.device("cpu"))
        return box[0]

    def on_first(self, work: Callable[[], T], give_up: Callable[[], None] = lambda: None) -> T:
        found: tuple[bool, Any] = (True, None)
        if self.rank == 0:
            with self._pulse(give_up):
                try:
                    found = True, work()
                except Exception as error:
                    found = False, error
        else:
            while self._beat(_AT_WORK) == _AT_WORK:
                pass
        whole, result = found
        told, words = self.agreed((whole, result if whole else f"{type(result).__name__}: {result}"))
        if self.rank == 0 and not whole:
            raise result
        if not told:
            raise LostRanks(f"Rank 0 has failed, and the others end with it. It says: {words}")
        return result if self.rank == 0 else words  # type: ignore[return-value]

    def barrier(self) -> None:
        self.agreed(None)
        self.total(torch.zeros(1))

    @contextmanager
    def _pulse(self, give_up: Callable[[], None]) -> Iterator[None]:
        """Signs of life while rank 0 works, so that a short timeout tells a long search from a rank that hangs."""
        ended, lost = threading.Event(), list[LostRanks]()

        def beat() -> None:
            try:
                while not ended.wait(_PULSE):
                    self._beat(_AT_WORK)
                self._beat(_DONE)
            except LostRanks as error:
                lost.append(error)
                give_up()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            if lost:
                raise lost[0]

    def _beat(self, state: float) -> float:
        sign = torch.tensor([state], dtype=torch.float64)
        with self._collective(sign):
            dist.broadcast(sign, 0, group=self._group)
        return float(sign)

    @contextmanager
    def _collective(self, moved: Tensor | None = None) -> Iterator[None]:
        self.moved += 0 if moved is None else moved.nbytes
        try:
            yield
        except RuntimeError as error:
            raise LostRanks(
                f"Rank {self.rank} of {self.size} cannot go on: another rank has ended, hangs for more than "
                f"{self._seconds:g} s, is not called in the same way, or cannot be reached "
                f"({str(error).splitlines()[0][:200]}). Call fit, predict and save on every rank. Start the run again: "
                "with checkpoint=folder it goes on where it was. QSGP_RANKS_TIMEOUT=300 waits longer."
            ) from None
