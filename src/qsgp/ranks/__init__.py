"""Processes that train one model together: `present` says which, and `Ranks` is what they can do with each other.

Row i of the training order belongs to rank i mod R, so that the first rows, whatever their number, are shared evenly.
Everything that is decided (by a clock, a seed, a score) is decided on rank 0 and told to the others.
"""

from qsgp.ranks.alone import ALONE
from qsgp.ranks.protocol import Ranks
from qsgp.ranks.spawning import end_with_parent, spawned
from qsgp.ranks.starting import asked_for, leads, neighbours, present
from qsgp.ranks.together import LostRanks, Together

__all__ = [
    "ALONE",
    "LostRanks",
    "Ranks",
    "Together",
    "asked_for",
    "end_with_parent",
    "leads",
    "neighbours",
    "present",
    "spawned",
]
