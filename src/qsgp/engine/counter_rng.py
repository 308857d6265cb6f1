"""Random numbers addressed by (seed, index): regenerated wherever they are needed, never stored.

Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a counter and a key
into four random words without any state, so row 10^12 of a table costs the same as row 0.
"""

import math

import torch
from jaxtyping import Float64, Int
from torch import Tensor

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # what the two key words grow by in each round
ROUNDS = 10


def philox(counter: Int[Tensor, "... 4"], key: tuple[int, int]) -> Int[Tensor, "... 4"]:
    """Philox-4x32-10: four random 32-bit words per counter, held in int64 like the counter's words."""
    c0, c1, c2, c3 = counter.unbind(-1)
    even, odd = _rounds(torch.stack((c0, c2)), torch.stack((c1, c3)), key)
    return torch.stack((even[0], odd[0], even[1], odd[1]), -1)


def normals(seed: int, index: Int[Tensor, " p"], count: int, stream: int = 0) -> Float64[Tensor, "p count"]:
    """Rows ``index`` of the endless standard normal table ``seed``, ``stream``: the first ``count`` columns.

    Each number depends on (seed, stream, row, column) alone, whatever the order, the batch or ``count``.
    The words behind them are equal on every device; log, cos and sin may differ in the last float64 bit.
    Seed and index are 64 bits wide. Cost: count / 4 Philox blocks per row, about 100 small tensor operations.
    """
    if not (0 <= seed < 2**64 and 0 <= stream < 2**32):
        raise ValueError(
            f"Expected 0 <= seed < 2^64 and 0 <= stream < 2^32, got seed = {seed}, stream = {stream}. "
            "Reduce them modulo 2^64 and 2^32."
        )
    index, blocks = index.long(), -(-count // 4)
    even = index.new_empty((2, len(index), blocks))
    odd = torch.empty_like(even)
    even[0] = (index & MASK)[:, None]
    odd[0] = ((index >> 32) & MASK)[:, None]
    even[1] = torch.arange(blocks, device=index.device)
    odd[1] = stream
    even, odd = _rounds(even, odd, (seed & MASK, seed >> 32))

    # Box-Muller. The half keeps the logarithm finite; two words make one radius and one angle.
    radius = even.double().add_(0.5).mul_(2.0**-32).log_().mul_(-2).sqrt_()
    angle = odd.double().add_(0.5).mul_(2 * math.pi * 2.0**-32)
    pairs = torch.stack((radius * angle.cos(), radius * angle.sin()))  # cos/sin, word pair, row, block
    return pairs.permute(2, 3, 1, 0).reshape(len(index), 4 * blocks)[:, :count]


def _rounds(
    even: Int[Tensor, "2 *shape"], odd: Int[Tensor, "2 *shape"], key: tuple[int, int]
) -> tuple[Int[Tensor, "2 *shape"], Int[Tensor, "2 *shape"]]:
    """The ten rounds on words (c0, c2) and (c1, c3), both halves of a word pair in one operation.

    A round is c0' = high(M1 c2) ^ c1 ^ k0, c1' = low(M1 c2), c2' = high(M0 c0) ^ c3 ^ k1, c3' = low(M0 c0).
    Products wrap in int64 with the right bits; bits above 32 are masked off once, after the exclusive or,
    so the odd words may carry the whole product along.
    """
    # Filled and computed in place: a tensor made from a list would make the host wait for a CUDA device.
    trailing = (1,) * (even.dim() - 1)
    multipliers = even.new_empty(2, *trailing)
    multipliers[0], multipliers[1] = MULTIPLIERS
    step = torch.arange(ROUNDS, device=even.device)
    schedule = torch.stack((key[1] + step * WEYL[1], key[0] + step * WEYL[0]), 1) & MASK
    keys = schedule.view(ROUNDS, 2, *trailing)
    crossed = odd.flip(0)  # (c3, c1): what the products of (c0, c2) meet
    for round_key in keys.unbind(0):
        product = even * multipliers
        even = (product >> 32).bitwise_xor_(crossed).bitwise_xor_(round_key).bitwise_and_(MASK).flip(0)
        crossed = product
    return even, crossed.flip(0) & MASK
