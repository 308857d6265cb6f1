"""The products on a CPU by a small C file, compiled when first needed; plain torch where there is no compiler."""

import ctypes
import functools
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.engine import reference
from qsgp.engine.frequencies import Drawn, Frequencies, numbers

SOURCE = Path(__file__).with_name("features.c")
# No -ffast-math: it would remove the addition that rounds. What remains lets products and sums fuse.
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC")
PAIRS, BLOCK, TILE, ROWS, LANES = 4096, 256, 32, 4, 16  # pairs of one call; the other numbers are those of the C file
INPUTS = 256
TURNS = 2.0**20  # beyond this many revolutions float32 says nothing about the angle


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled C file, or None. Compiled anew in each process (0.4 s): it fits the processor it runs on."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "features.so"
        command = [compiler, *FLAGS, str(SOURCE), "-o", str(target)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        return ctypes.CDLL(str(target))


def phi_v(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    V: Float[Tensor, "m c"],
    lengthscale: Float[Tensor, " d"],
    precision: str = "default",
) -> Float[Tensor, "n c"]:
    compiled = library()
    if compiled is None or not suits(x, frequencies, lengthscale, precision):
        return reference.phi_v(x, frequencies, V, lengthscale, precision)
    x, columns = x.contiguous(), V.shape[1]
    out = x.new_zeros((len(x), _padded(columns)))

    for first in range(0, len(frequencies), PAIRS):
        w = _turns(frequencies[first : first + PAIRS], x, lengthscale)
        v = _planes(V[2 * first : 2 * (first + PAIRS)], len(w))

        def run(begin: int, end: int, w: Tensor = w, v: Tensor = v) -> None:
            sizes = (end - begin, x.shape[1], len(w))
            if columns == 1:
                _call(compiled.phi_v_one, (x[begin:], w, v, out[begin:]), sizes)
            else:
                _call(compiled.phi_v_many, (x[begin:], w, v, out[begin:]), (*sizes, out.shape[1]))

        _share(run, len(x), ROWS)
    return out[:, :columns]


def phit_r(
    x: Float[Tensor, "n d"],
    frequencies: Frequencies,
    R: Float[Tensor, "n c"],
    lengthscale: Float[Tensor, " d"],
    precision: str = "default",
) -> Float[Tensor, "m c"]:
    compiled = library()
    if compiled is None or not suits(x, frequencies, lengthscale, precision):
        return reference.phit_r(x, frequencies, R, lengthscale, precision)
    x, columns = x.contiguous(), R.shape[1]
    R = torch.nn.functional.pad(R, (0, _padded(columns) - columns)).contiguous()
    out = x.new_empty((2 * len(frequencies), columns))

    for first in range(0, len(frequencies), PAIRS):
        part = frequencies[first : first + PAIRS]
        w = _turns(part, x, lengthscale)
        sums = x.new_zeros((2, len(w), R.shape[1]))

        def run(begin: int, end: int, w: Tensor = w, sums: Tensor = sums) -> None:
            sizes = (len(x), x.shape[1], begin, end, len(w))
            if columns == 1:
                _call(compiled.phit_r_one, (x, w, R, sums), sizes)
            else:
                _call(compiled.phit_r_many, (x, w, R, sums), (*sizes, R.shape[1]))

        _share(run, len(w), BLOCK)
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
    compiled = library()
    if compiled is None or x.dtype != torch.float32 or not len(x) or not len(z) or x.shape[1] > INPUTS:
        return reference.k_v(x, z, V, lengthscale, kernel, precision)
    # Inputs are scaled so that exp(-r^2 / 2) is 2^-q and exp(-sqrt(2 nu) r) is 2^-sqrt(q).
    kind, columns = reference.KERNELS[kernel], V.shape[1]
    sharpness = math.sqrt(kind) / math.log(2) if kind else math.sqrt(0.5 / math.log(2))
    centre, scale = z.double().mean(0), sharpness / lengthscale.double()
    X = ((x - centre) * scale).float().contiguous()
    out = x.new_zeros((len(x), _padded(columns)))

    for first in range(0, len(z), PAIRS):
        points = ((z[first : first + PAIRS] - centre) * scale).float()
        size = -(-len(points) // BLOCK) * BLOCK
        tiles = torch.nn.functional.pad(points, (0, 0, 0, size - len(points)))
        tiles = tiles.view(-1, TILE, x.shape[1]).mT.contiguous()
        v = x.new_zeros((size, out.shape[1]))
        v[: len(points), :columns] = V[first : first + PAIRS]

        def run(begin: int, end: int, tiles: Tensor = tiles, v: Tensor = v, size: int = size) -> None:
            sizes = (end - begin, x.shape[1], size, kind)
            if columns == 1:
                _call(compiled.k_v_one, (X[begin:], tiles, v, out[begin:]), sizes)
            else:
                _call(compiled.k_v_many, (X[begin:], tiles, v, out[begin:]), (*sizes, out.shape[1]))

        _share(run, len(x), ROWS)
    return out[:, :columns]


def suits(x: Tensor, frequencies: Frequencies, lengthscale: Tensor, precision: str) -> bool:
    """Float32, angles that float32 can hold (the C file does not look at what it rounds), and not so many inputs that
    the projection is all the work: matrix products of a library are better at that."""
    if x.dtype != torch.float32 or precision == "wide" or not len(x) or not len(frequencies) or x.shape[1] > INPUTS:
        return False
    if isinstance(frequencies, Drawn):
        largest = 1e3 if frequencies.degrees else 10.0
        return bool((x.abs().amax(0) / lengthscale).sum() * largest < 2 * math.pi * TURNS)
    reach = (x.abs().amax(0) / lengthscale * frequencies.abs().amax(0)).sum()
    return bool(reach < 2 * math.pi * TURNS)


def _turns(frequencies: Frequencies, x: Tensor, lengthscale: Tensor) -> Float[Tensor, "padded d"]:
    """Frequencies in revolutions, divided in float64, with zeros up to a whole block, laid out in tiles of pairs.

    The shape tells the sizes; in memory each TILE pairs stand as d x TILE.
    """
    d = x.shape[1]
    size = -(-len(frequencies) // BLOCK) * BLOCK
    tiles = x.new_zeros((size, d))
    tiles[: len(frequencies)] = numbers(frequencies, x).double() / (2 * math.pi * lengthscale.double())
    return tiles.view(-1, TILE, d).mT.contiguous().view(size, d)


def _planes(V: Tensor, pairs: int) -> Float[Tensor, "2 pairs c"]:
    """Cosine rows, then sine rows, with zeros up to a whole block."""
    planes = V.new_zeros((2, pairs, _padded(V.shape[1])))
    planes[:, : len(V) // 2, : V.shape[1]] = V.unflatten(0, (-1, 2)).transpose(0, 1)
    return planes


def _padded(columns: int) -> int:
    return columns if columns == 1 else -(-columns // LANES) * LANES


def _call(function: Callable[..., None], tensors: tuple[Tensor, ...], sizes: tuple[int, ...]) -> None:
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors)
    function(*pointers, *(ctypes.c_size_t(size) for size in sizes))


def _share(run: Callable[[int, int], None], size: int, unit: int) -> None:
    """run(begin, end) on as many threads as torch uses; each owns its part of the output, whatever their number."""
    parts = min(torch.get_num_threads(), -(-size // unit))
    step = -(-size // (parts * unit)) * unit
    bounds = [(begin, min(begin + step, size)) for begin in range(0, size, step)]
    helpers = [Thread(target=run, args=bound) for bound in bounds[1:]]
    for helper in helpers:
        helper.start()
    run(*bounds[0])
    for helper in helpers:
        helper.join()
