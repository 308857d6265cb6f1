"""Errors that end the search: what was expected, what came, what to do."""

import torch
from torch import Tensor


def check_rows(**named: Tensor) -> int:
    """All tensors share their first dimension; returns it."""
    sizes = {name: tensor.shape[0] for name, tensor in named.items()}
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(
            f"Expected the same number of rows in {', '.join(sizes)}; {listing}. Draw them with the same indices."
        )
    return next(iter(sizes.values()))


def check_shape(name: str, tensor: Tensor, expected: tuple[int, ...], remedy: str) -> None:
    if tuple(tensor.shape) != expected:
        raise ValueError(f"Expected {name} of shape {expected}, got {tuple(tensor.shape)}. {remedy}")


def check_vectors(**named: Tensor) -> int:
    """All tensors are vectors of one length; returns it. (l,) against (l, 1) would broadcast to l^2 and pass unseen."""
    size = check_rows(**named)
    for name, tensor in named.items():
        check_shape(name, tensor, (size,), "Give a vector (flatten a column).")
    return size


def check_tensor(name: str, value: object, remedy: str) -> None:
    """A floating-point tensor, not a number, a list, an array or integers."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"Expected {name} as a floating-point tensor, got {kind}. {remedy}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"Expected {name} among {choices}, got {value!r}. Use one of them.")


def check_sample_size(name: str, size: int, population_name: str, population: int) -> None:
    """A draw without replacement cannot exceed what it draws from."""
    if not 1 <= size <= population:
        raise ValueError(
            f"Expected 1 <= {name} <= {population_name} = {population}, got {name} = {size}. "
            f"Use {name} = {population_name} for the full batch, or draw with replacement."
        )


def check_positive(name: str, value: float | int | Tensor, remedy: str) -> None:
    """``value`` > 0 everywhere. CUDA tensors pass unread: looking at them would stop the device."""
    if isinstance(value, Tensor):
        if value.is_cuda:
            return
        bad = value.detach()[~(value.detach() > 0)].flatten()
        shown = bad[0].item() if bad.numel() else None
    else:
        shown = None if value > 0 else value
    if shown is not None:
        raise ValueError(f"Expected {name} > 0, got {shown}. {remedy}")


def check_finite(name: str, tensor: Tensor, remedy: str) -> None:
    finite = torch.isfinite(tensor)
    if not finite.all():
        where = torch.nonzero(~finite)[0].tolist()
        raise ValueError(
            f"Expected finite numbers in {name}, got {tensor[tuple(where)].item()} at {where} "
            f"({int((~finite).sum())} such entries in all). {remedy}"
        )
