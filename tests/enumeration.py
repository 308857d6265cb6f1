"""Averages over every possible draw: unbiasedness without seeds or luck."""

from collections.abc import Callable
from itertools import combinations, product

import torch
from torch import Tensor

WITHOUT, WITH = False, True


def all_draws(population: int, size: int, replacement: bool) -> Tensor:
    """Every equally likely draw, one a row. Order does not matter to the estimators, so sets stand for orderings."""
    rows = product(range(population), repeat=size) if replacement else combinations(range(population), size)
    return torch.tensor(list(rows))


def together(*draws: Tensor) -> list[Tensor]:
    """All combinations of independent draws: row t of the k-th result belongs to combination t."""
    positions = torch.cartesian_prod(*(torch.arange(len(draw)) for draw in draws)).reshape(-1, len(draws))
    return [draw[positions[:, k]] for k, draw in enumerate(draws)]


def average(estimate: Callable[..., Tensor], *draws: Tensor) -> Tensor:
    """Mean of ``estimate(index sets)`` over all rows of ``draws`` (already combined by `together`)."""
    return torch.vmap(estimate)(*draws).mean(0)


def shares(*sets: Tensor) -> Tensor:
    """1 / (times each index was drawn), for the sets laid one after the other: what `Batch.share` gives."""
    drawn = torch.cat(sets, 1)
    return 1 / (drawn[:, :, None] == drawn[:, None, :]).sum(2).double()


def assert_same(value: Tensor, truth: Tensor, parameters: list[Tensor], tolerance: float = 1e-10) -> None:
    """Value and gradient with respect to every parameter agree."""
    torch.testing.assert_close(value, truth, rtol=tolerance, atol=tolerance)
    for got, wanted in zip(gradients(value, parameters), gradients(truth, parameters), strict=True):
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def gradients(value: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(value.sum(), parameters, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, parameters, strict=True)]
