"""Philox against its published answers and a big-integer twin; the normal table against the same twin."""

import math
import random

import pytest
import torch
from scipy import stats

from qsgp.engine.counter_rng import normals, philox

MASK = 0xFFFFFFFF

# kat_vectors of the Random123 distribution: counter, key, answer of philox4x32-10
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK, MASK, MASK, MASK), (MASK, MASK), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

# float32 bits of rows 0, 1, 10^6 and 2^40 + 1 of table 42, as `twin_normals` gives them
GOLDEN = [
    ["bf785e5c", "3e46ace8", "bf9e28d2", "3ff6433b", "40082c17"],
    ["bd95e030", "3e0e7a0f", "bf8da733", "3ea742fd", "40015d4b"],
    ["40018bf8", "3f7f061d", "3f521b94", "bed33792", "3f8dca85"],
    ["3fd95721", "bc9fed57", "3ecbaf9a", "3f0efeb9", "3f8ddb03"],
]


def twin_words(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox-4x32-10 word by word, as the paper prints it, in unbounded integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & MASK, (first >> 32) ^ c3 ^ k1, first & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def twin_normals(seed: int, index: int, count: int, stream: int) -> list[float]:
    numbers: list[float] = []
    for block in range(-(-count // 4)):
        w = twin_words((index & MASK, index >> 32, block, stream), (seed & MASK, seed >> 32))
        for a, b in ((w[0], w[1]), (w[2], w[3])):
            radius, angle = math.sqrt(-2 * math.log((a + 0.5) / 2**32)), 2 * math.pi * (b + 0.5) / 2**32
            numbers += [radius * math.cos(angle), radius * math.sin(angle)]
    return numbers[:count]


@pytest.mark.parametrize(("counter", "key", "answer"), PUBLISHED)
def test_philox_gives_the_published_words(
    counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...], device: torch.device
) -> None:
    assert tuple(philox(torch.tensor(counter, device=device), key).tolist()) == answer


def test_philox_equals_its_big_integer_twin(device: torch.device) -> None:
    source = random.Random(0)
    key = (source.getrandbits(32), source.getrandbits(32))
    counters = [[source.getrandbits(32) for _ in range(4)] for _ in range(300)]
    words = philox(torch.tensor(counters, device=device).view(3, 100, 4), key)
    assert words.view(300, 4).tolist() == [list(twin_words(tuple(counter), key)) for counter in counters]


@pytest.mark.parametrize("count", [1, 2, 4, 7, 12])
def test_normals_equal_their_twin(count: int, device: torch.device) -> None:
    seed, stream, rows = 0x0123_4567_89AB_CDEF, 5, [0, 1, 2**32 - 1, 2**32, 2**62 + 3, 7]
    table = normals(seed, torch.tensor(rows, device=device), count, stream)
    expected = torch.tensor([twin_normals(seed, row, count, stream) for row in rows], dtype=torch.float64)
    assert torch.allclose(table.cpu(), expected, rtol=0, atol=1e-14)


def test_normals_keep_their_golden_values(device: torch.device) -> None:
    """Models on disk hold seeds, not frequencies: these bits may never change."""
    table = normals(42, torch.tensor([0, 1, 10**6, 2**40 + 1], device=device), 5).float().cpu()
    assert [[f"{word & MASK:08x}" for word in row] for row in table.view(torch.int32).tolist()] == GOLDEN


def test_normals_depend_on_the_address_alone() -> None:
    index = torch.arange(3, 2000, 7)
    table = normals(9, index, 12)
    order = torch.randperm(len(index), generator=torch.Generator().manual_seed(0))
    assert torch.equal(normals(9, index[order], 12), table[order])
    assert torch.equal(torch.cat([normals(9, part, 12) for part in index.split(17)]), table)
    assert all(torch.equal(normals(9, index[at : at + 1], 12)[0], table[at]) for at in (0, 1, 100))
    assert all(torch.equal(normals(9, index, count), table[:, :count]) for count in (1, 3, 4, 9))
    assert torch.equal(normals(9, index.repeat_interleave(2), 12)[::2], table)


def test_every_part_of_the_address_matters() -> None:
    """Both halves of seed and index, the block, the stream: no two give equal numbers."""
    one, far = torch.tensor([1]), torch.tensor([1 + 2**32])
    rows = [normals(1, one, 4), normals(1 + 2**32, one, 4), normals(2, one, 4), normals(1, far, 4)]
    rows += [normals(1, one, 4, stream=1), normals(1, one + 1, 4), normals(1, one, 8)[:, 4:]]
    assert len(torch.cat(rows).unique()) == 4 * len(rows)


@pytest.mark.parametrize("seed", [0, 1, 2**63 + 11])
def test_normals_are_normal_and_uncorrelated(seed: int) -> None:
    """Bounds of five deviations, so that no seed fails by bad luck."""
    rows, columns = 40_000, 6
    table = normals(seed, torch.arange(rows), columns)
    total = table.numel()
    assert abs(table.mean()) < 5 / total**0.5
    assert abs(table.square().mean() - 1) < 5 * (2 / total) ** 0.5
    assert abs(table.pow(3).mean()) < 5 * (15 / total) ** 0.5
    assert abs(table.pow(4).mean() - 3) < 5 * (96 / total) ** 0.5
    assert stats.kstest(table.flatten().numpy(), "norm").pvalue > 1e-6
    off_diagonal = (table.mT @ table / rows - torch.eye(columns, dtype=torch.float64)).triu(1)
    assert off_diagonal.abs().max() < 5 / rows**0.5
    assert abs((table[1:] * table[:-1]).mean()) < 5 / total**0.5
    # Box-Muller pairs share a radius: their squares must be uncorrelated all the same.
    squares = table.square() - 1
    assert (squares.mT @ squares / rows).triu(1).abs().max() < 5 * 2 / rows**0.5


def test_an_index_may_be_narrow() -> None:
    assert torch.equal(normals(3, torch.arange(9, dtype=torch.int32), 4), normals(3, torch.arange(9), 4))


@pytest.mark.parametrize(("seed", "stream"), [(-1, 0), (2**64, 0), (0, -1), (0, 2**32)])
def test_an_address_out_of_range_is_refused(seed: int, stream: int) -> None:
    with pytest.raises(ValueError, match="Reduce them modulo"):
        normals(seed, torch.arange(2), 2, stream)
