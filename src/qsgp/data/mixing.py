"""All rows of a source in an order that is close to random, though only a few of them are in memory.

Parts (row groups of Parquet, files of other kinds, ranges of an array) come in random order. `OPEN` of them are open at
a time, their pieces are read in turns, and the rows of a round are shuffled. Rows that stand next to each other in a
file so come at most a few at a time; a window of rows (`training.window`) mixes rounds that follow each other.
"""

from collections.abc import Iterator

import numpy as np

from qsgp.data.sources import Piece, RowSource

OPEN = 8  # parts at a time: a round has as many pieces


def mixed(source: RowSource, seed: int) -> Iterator[Piece]:
    """Every row once, a round at a time."""
    rng = np.random.default_rng(seed)
    parts = [source.parts[k] for k in rng.permutation(len(source.parts))]
    waiting = [source.pieces(part) for part in reversed(parts)]
    open_ = list[Iterator[Piece]]()
    while waiting or open_:
        while waiting and len(open_) < OPEN:
            open_.append(waiting.pop())
        together = list[Piece]()
        for pieces in list(open_):
            piece = next(pieces, None)
            if piece is None:
                open_.remove(pieces)
            else:
                together.append(piece)
        if together:
            yield _shuffled(together, rng)


def forever(source: RowSource, seed: int) -> Iterator[Piece]:
    """Epoch after epoch, each in an order of its own."""
    epoch = 0
    while True:
        yield from mixed(source, seed + 1_000_003 * epoch)
        epoch += 1


def _shuffled(together: list[Piece], rng: np.random.Generator) -> Piece:
    """Every row to a place of its own: a third of the time of joining first and shuffling then."""
    order = rng.permutation(sum(len(piece.number) for piece in together))
    ends = np.cumsum([len(piece.number) for piece in together])

    def scattered(parts: list[np.ndarray]) -> np.ndarray:
        kind = np.result_type(*parts) if len({part.dtype for part in parts}) > 1 else parts[0].dtype
        found = np.empty((len(order), *parts[0].shape[1:]), kind)
        for part, end in zip(parts, ends, strict=True):
            found[order[end - len(part) : end]] = part
        return found

    return Piece(*(scattered(list(parts)) for parts in zip(*together, strict=True)))
