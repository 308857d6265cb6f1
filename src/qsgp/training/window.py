"""Rows for steps, of which only a window is in memory: it begins as a uniform sample of all rows and moves on."""

from jaxtyping import Float, Int
from torch import Tensor

from qsgp.data.arrays import Arrays
from qsgp.data.rows import Rows
from qsgp.training.stream import Stream


class Window:
    """A `Source` of ``stream.n`` rows. A row number stands for a place in the window, all places alike.

    After a step as many of the oldest rows as it has drawn make room for the next rows of the stream. In place: what a
    GPU replays reads the same tensors again.
    """

    moving = True  # no tensor holds all rows

    def __init__(self, stream: Stream, sample: Arrays, drawn: int, seed: int) -> None:
        self._x, self._y = sample.x.clone(), sample.y.clone()
        self._weight = None if sample.weight is None else sample.weight.clone()
        self._stream, self._drawn, self._oldest = stream, min(drawn, sample.n), 0
        self._rows, self._next = stream.forever(seed), Rows(sample.x[:0], sample.y[:0], sample.x[:0, 0])
        self._at = 0  # of the rows that come next
        self._moved = len(self._x) >= stream.n  # all rows are in it

    @property
    def n(self) -> int:
        return self._stream.n

    @property
    def d(self) -> int:
        return self._x.shape[1]

    @property
    def outputs(self) -> int:
        return self._y.shape[1]

    @property
    def total(self) -> float:
        return self._stream.total

    def take(self, index: Int[Tensor, " l"]) -> tuple[Float[Tensor, "l d"], Float[Tensor, "l o"]]:
        at = self._place(index)
        return self._x[at], self._y[at]

    def weights(self, index: Int[Tensor, " l"]) -> Float[Tensor, " l"] | None:
        return None if self._weight is None else self._weight[self._place(index)]

    def move(self) -> None:
        """After a step."""
        if self._moved:
            return
        missing = self._drawn
        while missing:
            if self._at == self._next.n:
                self._next, self._at = next(self._rows).to(self._x.device, self._x.dtype), 0
            count = min(missing, self._next.n - self._at, len(self._x) - self._oldest)
            here, there = slice(self._oldest, self._oldest + count), slice(self._at, self._at + count)
            self._x[here], self._y[here] = self._next.x[there], self._next.Y[there]
            if self._weight is not None:
                self._weight[here] = self._next.weight[there]
            self._oldest, self._at, missing = (self._oldest + count) % len(self._x), self._at + count, missing - count

    def close(self) -> None:
        self._rows.close()
        self._stream.waited += self._rows.waited

    def _place(self, index: Int[Tensor, " l"]) -> Int[Tensor, " l"]:
        return index * len(self._x) // self.n
