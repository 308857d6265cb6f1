"""One pass over rows that are too many for the memory: scales, labels, and a uniform sample of the rows."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qsgp.data.moments import Moments
from qsgp.data.prefetch import Ahead
from qsgp.data.sources import Piece, RowSource


class Sample:
    """``most`` of all rows, each set of so many being as likely as any other, whatever number of rows comes.

    Every row gets a random key, and those with the smallest keys stay, in the order of their keys: the first k of them
    are a uniform sample of k rows.
    """

    def __init__(self, most: int, seed: int) -> None:
        self._most, self._rng = most, np.random.default_rng(seed)
        self._limit = 1.0
        self._keys: list[np.ndarray] = []
        self._kept: list[Piece] = []
        self._waiting = 0

    def add(self, piece: Piece) -> None:
        keys = self._rng.random(len(piece.number))
        among = np.flatnonzero(keys < self._limit)
        if not len(among):
            return
        self._keys.append(keys[among])
        self._kept.append(piece.take(among))
        self._waiting += len(among)
        if self._waiting > 2 * self._most + 1024:
            self._settle()

    def rows(self) -> Piece:
        self._settle()
        return self._kept[0]

    def _settle(self) -> None:
        keys = np.concatenate(self._keys)
        first = np.argsort(keys, kind="stable")[: self._most]
        whole = Piece(*(np.concatenate(part) for part in zip(*self._kept, strict=True)))
        self._keys, self._kept, self._waiting = [keys[first]], [whole.take(first)], len(first)
        if len(first) == self._most:
            self._limit = float(keys[first[-1]])


@dataclass
class Survey:
    """What a pass has found."""

    n: int  # rows that count
    sample: Piece
    inputs: Moments
    targets: Moments | None  # of numbers
    labels: dict[Any, float] = field(default_factory=dict)  # label -> weight of its rows
    weighted: bool = False  # some weight is not 1

    @property
    def total(self) -> float:
        return self.inputs.total


def survey(source: RowSource, most: int, seed: int, *, labels: bool) -> Survey:
    """Read every row once, in order; a thread reads ahead."""
    sample, inputs, targets = Sample(most, seed), None, None
    found, n, weighted = dict[Any, float](), 0, False
    with Ahead(piece for part in source.parts for piece in source.pieces(part)) as ahead:
        for piece in ahead:
            if not len(piece.number):
                continue
            inputs = inputs or Moments(piece.X.shape[1])
            inputs.add(piece.X, piece.weight)
            n, weighted = n + len(piece.number), weighted or bool((piece.weight != 1).any())
            sample.add(piece)
            if labels:
                _count(found, piece)
            else:
                Y = np.asarray(piece.y, dtype=np.float64).reshape(len(piece.number), -1)
                targets = targets or Moments(Y.shape[1])
                targets.add(Y, piece.weight)
    if inputs is None:
        raise ValueError("Expected rows that count in the files, got none. Check that they are the right files.")
    return Survey(n, sample.rows(), inputs, targets, found, weighted)


def _count(found: dict[Any, float], piece: Piece) -> None:
    values, group = np.unique(piece.y, return_inverse=True)
    for value, weight in zip(values.tolist(), np.bincount(group.ravel(), piece.weight), strict=True):
        found[value] = found.get(value, 0.0) + float(weight)
