"""What the Triton kernels multiply: inputs, frequencies and columns as pairs of half-precision numbers.

A float32 number is the sum of two half-precision ones to 22 bits. Powers of two keep both inside the narrow range of
that format: inputs are divided by 2^h and frequencies multiplied by it, so projections need no correction.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, misc"

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float16
from torch import Tensor

from qsgp.engine.frequencies import Drawn
from qsgp.engine.triton_halves import halves

PADDING = 256  # rows of a prepared block come in multiples of this: no kernel checks whether it reads outside


@triton.jit
def _power(exponent):
    """2^exponent for an integer-valued float32, exactly."""
    return ((tl.minimum(tl.maximum(exponent, -60.0), 60.0) + 127.0).to(tl.int32) << 23).to(tl.float32, bitcast=True)


@triton.jit
def balance(peak):
    """2^h with h = log2(peak) / 2: the share of the range that inputs leave to what they are multiplied with."""
    return _power(tl.floor(0.5 * tl.log2(tl.maximum(tl.load(peak), 1e-37))))


@triton.jit
def _split(
    source, centre, factor, peak, out, norms, n, d,
    D: tl.constexpr, DEPTH: tl.constexpr, BLOCK: tl.constexpr, GROW: tl.constexpr, NORMS: tl.constexpr,
):  # fmt: skip
    """(source - centre) * factor, over or times 2^h, in halves; NORMS: the squared lengths of the rows as well.

    "rounded" takes the lengths of the high halves: with these alone, distances are exact ones of rounded points.
    """
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    power = balance(peak)
    if not GROW:
        power = 1.0 / power
    norm = tl.zeros((BLOCK,), tl.float64)
    for first in range(0, D, DEPTH):
        k = first + tl.arange(0, DEPTH)
        inside = (rows < n)[:, None] & (k < d)[None, :]
        value = tl.load(source + rows.to(tl.int64)[:, None] * d + k[None, :], mask=inside, other=0.0).to(tl.float64)
        if centre is not None:
            value = tl.where(inside, value - tl.load(centre + k, mask=k < d, other=0.0)[None, :].to(tl.float64), 0.0)
        if factor is not None:
            value = value * tl.load(factor + k, mask=k < d, other=0.0)[None, :]
        high = store_halves(out, rows, k, value * power.to(tl.float64), D)
        if NORMS == "rounded":
            value = high.to(tl.float32).to(tl.float64) / power.to(tl.float64)
        norm += tl.sum(value * value, 1)
    if NORMS != "none":
        tl.store(norms + rows, norm.to(tl.float32))


@triton.jit
def store_halves(out, rows, k, value, D: tl.constexpr):
    value = tl.minimum(tl.maximum(value, -60000.0), 60000.0)  # far beyond what float32 angles mean; inf would spread
    high = value.to(tl.float32).to(tl.float16)
    low = (value - high.to(tl.float32).to(tl.float64)).to(tl.float32).to(tl.float16)
    at = out + rows[:, None] * (2 * D) + k[None, :]
    tl.store(at, high)
    tl.store(at + D, low)
    return high


@triton.jit
def _normals(seed, pair, block):
    """Four float64 standard normals of each pair, as ``counter_rng.normals`` has them."""
    zero = block * 0
    low = (pair & 0xFFFFFFFF).to(tl.uint32)
    high = (pair >> 32).to(tl.uint32)
    a, b, c, e = tl.philox(seed, low + zero, high + zero, block + low * 0, zero + low * 0)
    radius = tl.sqrt(-2.0 * tl.log((a.to(tl.float64) + 0.5) * 2.3283064365386963e-10))
    angle = (b.to(tl.float64) + 0.5) * 1.4629180792671596e-09
    radius_2 = tl.sqrt(-2.0 * tl.log((c.to(tl.float64) + 0.5) * 2.3283064365386963e-10))
    angle_2 = (e.to(tl.float64) + 0.5) * 1.4629180792671596e-09
    return radius * tl.cos(angle), radius * tl.sin(angle), radius_2 * tl.cos(angle_2), radius_2 * tl.sin(angle_2)


@triton.jit(do_not_specialize=["seed", "first_pair"])
def _draw(
    seed, first_pair, peak, out, n, d,
    D: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr, DEGREES: tl.constexpr,
):  # fmt: skip
    """Frequencies first_pair, first_pair + 1, ... times 2^h in halves; Student t with DEGREES, 0 for normal."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pair = first_pair + rows.to(tl.int64)
    shrink = tl.zeros((BLOCK,), tl.float64) + 1.0
    if DEGREES > 0:
        square = tl.zeros((BLOCK,), tl.float64)
        for extra in range(d // 4, (d + DEGREES - 1) // 4 + 1):
            more = _normals(seed, pair, (tl.zeros((BLOCK,), tl.int32) + extra).to(tl.uint32))
            for q in tl.static_range(4):
                used = (extra * 4 + q >= d) & (extra * 4 + q < d + DEGREES)
                square += tl.where(used, more[q] * more[q], 0.0)
        shrink = tl.sqrt(DEGREES / square)
    power = balance(peak).to(tl.float64)
    for first in range(0, D // 4, GROUPS):
        group = first + tl.arange(0, GROUPS)
        z = _normals(seed, pair[:, None], group.to(tl.uint32)[None, :])
        for q in tl.static_range(4):
            k = 4 * group + q
            inside = (rows < n)[:, None] & (k < d)[None, :]
            store_halves(out, rows, k, tl.where(inside, z[q] * shrink[:, None], 0.0) * power, D)


@triton.jit
def _split_columns(
    source, peak, out, n, columns, plane,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Columns scaled by powers of two to at most 2^8, in halves: plane 0 the high, plane 1 the low ones."""
    rows = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    c = tl.arange(0, COLUMNS)
    inside = (rows < n)[:, None] & (c < columns)[None, :]
    value = tl.load(source + rows[:, None] * columns + c[None, :], mask=inside, other=0.0)
    value = value * column_scale(peak, c, columns)[None, :]
    high, low = halves(value)
    at = out + rows[:, None] * COLUMNS + c[None, :]
    tl.store(at, high)
    tl.store(at + plane, low)


@triton.jit
def column_scale(peak, c, columns):
    """2^e that takes the largest entry of each column to between 2^7 and 2^8."""
    entry = tl.load(peak + c, mask=c < columns, other=1.0)
    return _power(7.0 - tl.floor(tl.log2(tl.maximum(entry, 1e-15))))


def depth(d: int) -> tuple[int, int]:
    """Inputs padded for the tensor cores, and how many of them a kernel holds at a time."""
    if d <= 64:
        padded = max(16, triton.next_power_of_2(d))
        return padded, padded
    return -(-d // 64) * 64, 64


def largest(x: Float[Tensor, "n d"], dim: int | None = None) -> Float[Tensor, "..."]:
    """The largest |x|, in all or of each column, without a copy of x."""
    low, high = torch.aminmax(x, dim=dim)
    return torch.maximum(high, -low)


def padded(n: int) -> int:
    """A multiple of PADDING with room for the last tile to begin at the last point."""
    return (-(-n // PADDING) + 1) * PADDING


def split(
    source: Float[Tensor, "n d"],
    peak: Float[Tensor, ""],
    *,
    centre: Float[Tensor, " d"] | None = None,
    factor: Float[Tensor, " d"] | None = None,
    grow: bool = False,
    norms: Float[Tensor, " padded"] | None = None,
    rounded: bool = False,
) -> Float16[Tensor, "padded two D"]:
    n, d = source.shape
    D, DEPTH = depth(d)
    out = source.new_empty((padded(n), 2, D), dtype=torch.float16)
    _split[(padded(n) // 64,)](
        source.contiguous(), centre, factor, peak, out, norms, n, d,
        D=D, DEPTH=DEPTH, BLOCK=64, GROW=grow, NORMS="none" if norms is None else "rounded" if rounded else "exact",
    )  # fmt: skip
    return out


def draw(frequencies: Drawn, d: int, peak: Float[Tensor, ""]) -> Float16[Tensor, "padded two D"]:
    n = frequencies.pairs
    D, _ = depth(d)
    out = peak.new_empty((padded(n), 2, D), dtype=torch.float16)
    _draw[(padded(n) // 64,)](
        frequencies.seed, frequencies.first, peak, out, n, d,
        D=D, GROUPS=4 if D <= 64 else 8, BLOCK=64, DEGREES=frequencies.degrees,
    )  # fmt: skip
    return out


def split_columns(
    source: Float[Tensor, "n columns"], rows: int, size: int
) -> tuple[Float16[Tensor, "2 rows size"], Float[Tensor, " columns"]]:
    """Columns padded with zeros to rows x size, and the largest entry of each, from which kernels know the scale."""
    n, columns = source.shape
    peak = largest(source, 0)
    out = source.new_empty((2, rows, size), dtype=torch.float16)
    _split_columns[(rows // 32,)](source, peak, out, n, columns, rows * size, COLUMNS=size, BLOCK=32)
    return out, peak
