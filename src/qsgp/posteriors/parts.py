"""Kernel and likelihood as parts of a file, by the names they are registered under."""

import dataclasses
from typing import Any

from torch import Tensor

from qsgp.files import FileError
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.likelihoods import BY_NAME as LIKELIHOODS

Shapes = dict[str, tuple[int | None, ...]]  # of tensors by their names; None is any length


def describe(kernel: Any, likelihood: Any) -> dict[str, Any]:
    """Kernel and likelihood by their public names, and the plain numbers that the likelihood was made with."""
    plain = {name: value for name, value in vars(likelihood).items() if isinstance(value, int | float | str)}
    return {"kernel": kernel.name, "likelihood": likelihood.name, **plain}


def tensors_of(kernel: Kernel, likelihood: Likelihood) -> dict[str, Tensor]:
    named = {f"kernel.{name}": value for name, value in vars(kernel).items()}
    return named | {f"likelihood.{name}": v for name, v in vars(likelihood).items() if isinstance(v, Tensor)}


def kernel_and_likelihood(header: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[Kernel, Likelihood]:
    """The inverse of `describe` and `tensors_of`."""
    kernel = _named("kernel", KERNELS, header)
    likelihood = _named("likelihood", LIKELIHOODS, header)
    plain = {field.name: header[field.name] for field in dataclasses.fields(likelihood) if field.name in header}
    return kernel(**_below("kernel.", tensors)), likelihood(**_below("likelihood.", tensors), **plain)


def _named(what: str, known: dict[str, Any], header: dict[str, Any]) -> Any:
    name = header[what]
    if not isinstance(name, str) or name not in known:
        raise FileError(
            f"Expected a {what} among {', '.join(known)}, got {name!r:.80} in the file. If it is your own, import the "
            "module that registers it and load again."
        )
    return known[name]


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
