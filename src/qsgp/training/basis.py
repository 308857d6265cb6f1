"""A table of basis functions: its rows in random order, and its basis."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.bases import Fourier, Grid, Inducing, KernelFunctions, Whitened
from qsgp.data.arrays import Arrays
from qsgp.data.rows import distinct
from qsgp.interfaces import Basis, Kernel, Likelihood, SpectralKernel
from qsgp.training.options import MOST_FEATURES, Options, Sizes
from qsgp.training.safeguard import Shuffled
from qsgp.training.task import Task

_GRID_POINTS = 128  # for each input, at most


@dataclass(frozen=True)
class Table:
    """Where a table of functions begins: all on the device of the training and in its precision."""

    kernel: Kernel
    likelihood: Likelihood
    rows: Shuffled
    order: Tensor  # of the rows, on the CPU
    basis: Basis
    centres: Tensor | None  # which rows the functions of a relevance vector machine stand at


def make_table(task: Task, kernel: Kernel, likelihood: Likelihood) -> Table:
    options = task.options
    place: Any = {"device": options.device, "dtype": options.table_dtype}
    kernel = kernel.with_parameters({name: value.to(**place) for name, value in kernel.parameters().items()})
    sites = likelihood.with_parameters({name: value.to(**place) for name, value in likelihood.parameters().items()})
    x, Y, weight = (part.to(**place) for part in task.rows)
    alike = bool((task.rows.weight == 1).all()) and (task.stream is None or task.stream.total == task.stream.n)
    source = Arrays(x, Y, None if alike else weight)
    order = torch.randperm(task.rows.n, generator=torch.Generator().manual_seed(options.seed))
    basis, centres = make_basis(kernel, source, order, options, task.sizes)
    return Table(kernel, sites, Shuffled(source, order.to(options.device)), order, basis, centres)


def make_basis(
    kernel: Kernel, source: Arrays, order: Tensor, options: Options, sizes: Sizes
) -> tuple[Basis, Tensor | None]:
    """The basis, and for a relevance vector machine which rows are its centres."""
    if options.relevance:
        # Equal rows would be equal functions, whose weights nothing tells apart.
        centres = distinct(source.x, order, sizes.m).sort().values
        return KernelFunctions(kernel, source.x[centres.to(source.x.device)]), centres
    if options.basis == "inducing":
        Z = source.x[distinct(source.x, order, sizes.m).to(source.x.device)]
        if isinstance(kernel, SpectralKernel) and len(Z) <= MOST_FEATURES:
            return Whitened.build(kernel, Z), None
        return Inducing(kernel, Z), None
    assert isinstance(kernel, SpectralKernel)
    if options.basis == "grid":
        columns = zip(source.x.mT, kernel.lengthscale, strict=True)
        grids = [grid_points(column, float(lengthscale)) for column, lengthscale in columns]
        return Grid.build(kernel, grids, sizes.m, fewer=True), None
    return Fourier(kernel, sizes.m, seed=options.seed), None


def grid_points(values: Float[Tensor, " n"], lengthscale: float) -> Float[Tensor, " u"]:
    """Points half a lengthscale apart wherever there are values, so that one far away adds a point and no more.

    Where that takes more than `_GRID_POINTS` of them, half are those with the widest gaps that reach all values, and
    half follow the density of the values. A constant input has one point: it adds nothing.
    """
    some = torch.unique(values.double())
    low, high = 0.5 * lengthscale, float(some[-1] - some[0])
    points = _net(some, min(low, high / 16))
    if len(points) <= _GRID_POINTS:
        return points.to(values)
    for _ in range(30):
        gap = 0.5 * (low + high)
        low, high = (low, gap) if len(_net(some, gap)) <= _GRID_POINTS // 2 else (gap, high)
    dense = torch.quantile(some[:: len(some) // 100_000 + 1], torch.linspace(0, 1, _GRID_POINTS // 2).to(some))
    return torch.unique(torch.cat([_net(some, high), dense])).to(values)


def _net(ordered: Float[Tensor, " n"], gap: float) -> Float[Tensor, " u"]:
    """The first value, and again and again the next that is ``gap`` or more beyond the last one taken."""
    found, at = [ordered[0]], 0
    while len(found) <= _GRID_POINTS:
        at = int(torch.searchsorted(ordered, found[-1] + gap))
        if at >= len(ordered):
            break
        found.append(ordered[at])
    return torch.stack([*found, ordered[-1]] if found[-1] < ordered[-1] else found)
