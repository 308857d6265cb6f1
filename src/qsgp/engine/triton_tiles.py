"""How the work of a Triton kernel is cut: blocks that fit in little memory, tiles of a program, programs for a GPU."""

# mypy: disable-error-code="import-not-found, import-untyped"

from typing import NamedTuple

import triton

BLOCK_BYTES = 20 << 20  # of each prepared operand: two of them and partial sums stay below 64 MiB
LEAST_ROWS = 16_384
MOST_BYTES = 2**31 - 1
COLUMNS = 128  # columns of one launch: their sums live in registers
PROGRAMS = 132 * 24  # several rounds on every multiprocessor, so that the last round, half empty, weighs little
PROGRAMS_OF_MANY = 132 * 6  # with many columns fewer: each adds partial sums


class Tile(NamedTuple):
    """Fixed and streamed points of a program's tile, how many more take the polynomial sine, warps, pipeline stages."""

    M: int
    N: int
    polynomial: int
    warps: int
    stages: int


class Shares(NamedTuple):
    programs: int  # over the fixed points
    share: int  # streamed points for each program, a multiple of its tile
    splits: int  # programs that share the same fixed points: as many partial sums


def shares(fixed: int, stream: int, tile: Tile, columns: int, least: int) -> Shares:
    """``least``: tiles that a program should have to be worth its start."""
    step = tile.N + tile.polynomial
    programs = triton.cdiv(fixed, tile.M)
    splits = max(1, min((PROGRAMS if columns == 1 else PROGRAMS_OF_MANY) // programs, stream // (least * step)))
    share = triton.cdiv(triton.cdiv(stream, splits), step) * step
    return Shares(programs, share, triton.cdiv(stream, share))


def block_rows(row_bytes: int, columns: int) -> int:
    """Points of a prepared block: as many as BLOCK_BYTES hold of them, and of two sums for each column.

    At least LEAST_ROWS, which for hundreds of inputs takes more memory: a launch must be worth its start. Never more
    bytes than 31 bits count: kernels compute addresses inside a block in 32 bits.
    """
    wanted = max(LEAST_ROWS, BLOCK_BYTES // max(row_bytes, 8 * min(columns, COLUMNS)))
    return max(1, min(wanted, MOST_BYTES // row_bytes))


def blocks(size: int, largest: int) -> list[slice]:
    """Equal parts of at most ``largest``."""
    parts = max(1, triton.cdiv(size, largest))
    step = max(1, triton.cdiv(size, parts))
    return [slice(first, min(first + step, size)) for first in range(0, size, step)]
