"""The products on a CPU by C files, compiled when first needed; plain torch where there is no compiler."""

import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from qsgp.engine import reference
from qsgp.engine.compiled import call, library, share
from qsgp.engine.formulas import KERNELS, LAPLACIAN
from qsgp.engine.frequencies import Drawn, Frequencies, numbers

PAIRS, BLOCK, TILE, ROWS, LANES = 4096, 256, 32, 4, 16  # pairs of one call; the other numbers are those of the C files
WIDE_ROWS = 256  # projected in float64 at a time
CHUNK = 16_384  # rows of kernel products prepared at a time
WIDTH = 16.0  # in units of q: where rounding of scaled inputs moves a kernel value by 1e-6
INPUTS = 256  # of kernel products: beyond, Euclidean distances are matrix products
TURNS = 2.0**20  # beyond this many revolutions float32 says nothing about the angle


Given = tuple[Any, ...]  # tensors that a thread reads and writes; None where there is none


def phi_v(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    compiled = library()
    if compiled is None:
        return reference.phi_v(x, frequencies, V, lengthscale, precision)

    def narrow(rows: Tensor) -> Tensor:
        return fits(rows, frequencies, lengthscale) & (precision != "wide")

    def run(rows: Tensor, narrow: bool) -> Tensor:
        return _phi_v(compiled, rows, frequencies, V, lengthscale, not narrow)

    return _each_row_its_way(x, narrow, run)


def _phi_v(
    compiled: ctypes.CDLL,
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    wide: bool,
) -> Float[Tensor, "n c"]:
    x, columns = x.contiguous(), V.shape[1]
    out = x.new_zeros((len(x), _padded(columns)))
    for first in range(0, len(frequencies), PAIRS):
        part = frequencies[first : first + PAIRS]
        v = _planes(V[2 * first : 2 * (first + PAIRS)])
        for rows, source, w in _sources(x, part, lengthscale, wide):

            def run(begin: int, end: int, given: Given = (source, w, v, out[rows])) -> None:
                source, w, v, to = given
                sizes = (end - begin, source.shape[1], v.shape[1])
                if columns == 1:
                    call(compiled.phi_v_one, (source[begin:], w, v, to[begin:]), sizes)
                else:
                    call(compiled.phi_v_many, (source[begin:], w, v, to[begin:]), (*sizes, out.shape[1]))

            share(run, len(source), ROWS)
    return out[:, :columns]


def phit_r(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    R: Float[Tensor, "n c"],
    lengthscale: Float[Tensor, " d"],
    precision: str = "default",
) -> Float[Tensor, "m c"]:
    compiled = library()
    if compiled is None:
        return reference.phit_r(x, frequencies, R, lengthscale, precision)
    x, columns = x.contiguous(), R.shape[1]
    wide = precision == "wide" or not fits(reference.largest(x)[None], frequencies, lengthscale).all()
    R = torch.nn.functional.pad(R, (0, _padded(columns) - columns)).contiguous()
    out = x.new_empty((2 * len(frequencies), columns))
    for first in range(0, len(frequencies), PAIRS):
        part = frequencies[first : first + PAIRS]
        sums = x.new_zeros((2, _whole(len(part)), R.shape[1]))
        space = torch.zeros_like(sums) if columns > 1 else None
        for rows, source, w in _sources(x, part, lengthscale, wide):
            tensors = (source, w, R[rows], sums) if space is None else (source, w, R[rows], space, sums)
            sizes = (*source.shape, sums.shape[1], R.shape[1])

            def run(begin: int, end: int, tensors: Given = tensors, sizes: tuple[int, ...] = sizes) -> None:
                n, d, pairs, width = sizes
                if columns == 1:
                    call(compiled.phit_r_one, tensors, (n, d, begin, end, pairs))
                else:
                    call(compiled.phit_r_many, tensors, (n, d, begin, end, pairs, width))

            share(run, sums.shape[1], BLOCK)
        both = sums[:, : len(part), :columns].transpose(0, 1)
        out[2 * first : 2 * (first + PAIRS)] = both.reshape(2 * len(part), columns)
    return out


def k_v(
    x: Float[Tensor, "n d"],
    z: Float[Tensor, "b d"],
    V: Float[Tensor, "b c"],
    lengthscale: Float[Tensor, " d"],
    kernel: str,
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    compiled, kind = library(), KERNELS.get(kernel)
    if compiled is None or kind is None or (x.shape[1] > INPUTS and kind != LAPLACIAN):
        return reference.k_v(x, z, V, lengthscale, kernel, precision)
    if kind == LAPLACIAN:
        return _laplacian(compiled, x, z, V, lengthscale)
    # Scaled so that exp(-r^2 / 2) is 2^-q and exp(-sqrt(2 nu) r) is 2^-sqrt(q).
    sharpness = math.sqrt(kind) / math.log(2) if kind else math.sqrt(0.5 / math.log(2))
    scale, centre = sharpness / lengthscale.double(), z.double().mean(0)
    low, high = z.amin(0), z.amax(0)

    def narrow(rows: Tensor) -> Tensor:
        return ((torch.maximum(rows, high) - torch.minimum(rows, low)) * scale).norm(dim=1) < WIDTH

    def run(rows: Tensor, early: bool) -> Tensor:
        def prepare(points: Tensor) -> Tensor:
            return (((points - centre) * scale).float() if early else points).contiguous()

        late = None if early else scale.float()
        return torch.cat([_k_v(compiled, prepare(part), z, V, prepare, late, kind) for part in rows.split(CHUNK)])

    return _each_row_its_way(x, narrow, run)


def _laplacian(
    compiled: ctypes.CDLL, x: Float[Tensor, "n d"], z: Float[Tensor, "b d"], V: Tensor, lengthscale: Tensor
) -> Float[Tensor, "n c"]:
    """exp(-r) is 2^-q, q the sum of scale |x - z|. The product with the scale fuses with the sum, so it comes after the
    difference for all rows: nothing is rounded that near duplicates differ by."""
    scale = (1 / (math.log(2) * lengthscale.double())).float()
    parts = (part.contiguous() for part in x.split(CHUNK))
    return torch.cat([_k_v(compiled, part, z, V, Tensor.contiguous, scale, LAPLACIAN) for part in parts])


def _each_row_its_way(
    x: Float[Tensor, "n d"], usual: Callable[[Tensor], Tensor], run: Callable[[Tensor, bool], Tensor]
) -> Float[Tensor, "n c"]:
    """run(rows, True) for rows that are ``usual``, run(rows, False) for the others. A row goes its way whatever the
    others do: its result is the same in any company."""
    chosen = torch.cat([usual(part) for part in x.split(CHUNK)])
    if chosen.all() or not chosen.any():
        return run(x, bool(chosen[0]))
    first, second = run(x[chosen], True), run(x[~chosen], False)
    out = first.new_empty((len(x), first.shape[1]))
    out[chosen], out[~chosen] = first, second
    return out


def _k_v(
    compiled: ctypes.CDLL,
    X: Float[Tensor, "n d"],
    z: Float[Tensor, "b d"],
    V: Float[Tensor, "b c"],
    prepare: Callable[[Tensor], Tensor],
    scale: Float[Tensor, " d"] | None,
    kind: int,
) -> Float[Tensor, "n c"]:
    columns = V.shape[1]
    out = X.new_zeros((len(X), _padded(columns)))
    for first in range(0, len(z), PAIRS):
        points = _tiles(prepare(z[first : first + PAIRS]))
        v = X.new_zeros((len(points), out.shape[1]))
        v[: len(z) - first, :columns] = V[first : first + PAIRS]

        def run(begin: int, end: int, points: Tensor = points, v: Tensor = v) -> None:
            sizes = (end - begin, X.shape[1], len(points), kind)
            if columns == 1:
                call(compiled.k_v_one, (X[begin:], points, scale, v, out[begin:]), sizes)
            else:
                call(compiled.k_v_many, (X[begin:], points, scale, v, out[begin:]), (*sizes, out.shape[1]))

        share(run, len(X), ROWS)
    return out[:, :columns]


def fits(x: Float[Tensor, "n d"], frequencies: Frequencies, lengthscale: Float[Tensor, " d"]) -> Bool[Tensor, " n"]:
    """Rows with angles that float32 can hold: the C files do not look at what they round."""
    reach = x.abs() / lengthscale
    if isinstance(frequencies, Drawn):
        reach = reach * (1e3 if frequencies.degrees else 10.0)
    else:
        reach = reach * reference.largest(frequencies)
    return reach.sum(1) < 2 * math.pi * TURNS


def _sources(
    x: Float[Tensor, "n d"], frequencies: Frequencies, lengthscale: Float[Tensor, " d"], wide: bool
) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """Rows, what the C files read of them, and the frequencies in revolutions: all of x and tiles; if ``wide``,
    projections in float64 without their whole revolutions, and nothing."""
    turns = numbers(frequencies, x).double() / (2 * math.pi * lengthscale.double())
    if not wide:
        yield slice(None), x, _tiles(turns)
        return
    turns = torch.nn.functional.pad(turns, (0, 0, 0, _whole(len(turns)) - len(turns)))
    for first in range(0, len(x), WIDE_ROWS):
        t = x[first : first + WIDE_ROWS].double() @ turns.mT
        yield slice(first, first + WIDE_ROWS), t.sub_(t.round()).float(), None


def _tiles(points: Float[Tensor, "n d"]) -> Float[Tensor, "padded d"]:
    """Points with zeros up to a whole block. The shape tells the sizes; in memory TILE points stand as d x TILE."""
    d = points.shape[1]
    tiles = points.new_zeros((_whole(len(points)), d), dtype=torch.float32)
    tiles[: len(points)] = points
    return tiles.view(-1, TILE, d).mT.contiguous().view(-1, d)


def _planes(V: Float[Tensor, "m c"]) -> Float[Tensor, "2 pairs padded"]:
    """Cosine rows, then sine rows, with zeros up to a whole block."""
    planes = V.new_zeros((2, _whole(len(V) // 2), _padded(V.shape[1])))
    planes[:, : len(V) // 2, : V.shape[1]] = V.unflatten(0, (-1, 2)).transpose(0, 1)
    return planes


def _whole(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _padded(columns: int) -> int:
    return columns if columns == 1 else -(-columns // LANES) * LANES
