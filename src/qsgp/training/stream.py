"""All rows of a fit that holds only some of them: batches from the disk, standardised, in an order close to random."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from qsgp.data.mixing import forever, mixed
from qsgp.data.prefetch import Ahead
from qsgp.data.rows import Rows
from qsgp.data.sources import Piece, RowSource, Without


@dataclass
class Stream:
    """``n`` rows that count ``total`` times. The rows of the task are a uniform sample of them."""

    source: RowSource
    n: int
    total: float
    standardised: Callable[[Piece], Rows]
    numbers: np.ndarray  # of the rows of the task, in the whole
    waited: float = 0.0  # seconds in which training waited for rows

    @contextmanager
    def once(self, seed: int, without: np.ndarray) -> Iterator[Iterator[Rows]]:
        """Every row, but for those whose numbers are ``without``."""
        ahead = Ahead(self.standardised(piece) for piece in mixed(Without(self.source, without), seed))
        with ahead:
            try:
                yield ahead
            finally:
                self.waited += ahead.waited

    def forever(self, seed: int) -> Ahead[Rows]:
        """Epoch after epoch."""
        return Ahead(self.standardised(piece) for piece in forever(self.source, seed))
