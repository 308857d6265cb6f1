"""Kernel and likelihood as parts of a file, by the names they are registered under."""

import dataclasses
from typing import Any

from torch import Tensor

from qsgp.files import FileError
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.kernels import Mapped, SpectralSum, WithLevels
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import Mixture

Shapes = dict[str, tuple[int | None, ...]]  # of tensors by their names; None is any length


def describe(kernel: Any, likelihood: Any) -> dict[str, Any]:
    """Kernel and likelihood by their public names, and the plain numbers that the likelihood was made with."""
    plain = {name: value for name, value in vars(likelihood).items() if isinstance(value, int | float | str)}
    return {"kernel": kernel.name, "likelihood": likelihood.name, **plain}


def tensors_of(kernel: Kernel, likelihood: Likelihood) -> dict[str, Tensor]:
    """A kernel made of others has theirs: "kernel.1.map" is the map of the second term."""
    named = {f"kernel.{name}": value for name, value in _of_kernel(kernel).items()}
    return named | {f"likelihood.{name}": v for name, v in vars(likelihood).items() if isinstance(v, Tensor)}


def kernel_and_likelihood(header: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[Kernel, Likelihood]:
    """The inverse of `describe` and `tensors_of`."""
    likelihood = _named("likelihood", LIKELIHOODS, header)
    plain = {field.name: header[field.name] for field in dataclasses.fields(likelihood) if field.name in header}
    return _kernel(header, _below("kernel.", tensors)), likelihood(**_below("likelihood.", tensors), **plain)


def kernel_shapes(name: str, tensors: dict[str, Tensor], d: int) -> Shapes:
    """Of the tensors of a kernel of that name, without their prefix "kernel."."""
    if "effects" in tensors:  # of identifiers, the last inputs
        smooth, q = {key: value for key, value in tensors.items() if key != "effects"}, len(tensors["effects"])
        return kernel_shapes(name, smooth, d - q) | {"effects": (q,)}
    terms = name.split("+")
    if len(terms) > 1:
        found: Shapes = {}
        for at, term in enumerate(terms):
            own = kernel_shapes(term, _below(f"{at}.", tensors), d)
            found |= {f"{at}.{key}": shape for key, shape in own.items()}
        return found
    k = tensors["map"].shape[1] if "map" in tensors else d
    return {"lengthscale": (k,), "variance": (), **({"map": (d, k)} if "map" in tensors else {})}


def likelihood_shapes(name: str, tensors: dict[str, Tensor], outputs: int) -> Shapes:
    """Of the tensors of a likelihood of that name, without their prefix "likelihood."; all but a few are numbers."""
    if name != Mixture.name:
        return dict.fromkeys(tensors, ())
    k, p, q = (tensors[key].shape[-1] for key in ("scales", "mean_knots", "variance_knots"))
    found: Shapes = {"noise_variance": (), "scales": (k,), "weights": (outputs, k), "shifts": (k,)}
    found |= {"mean_knots": (outputs, p), "by_mean": (outputs, p)}
    return found | {"variance_knots": (outputs, q), "by_variance": (outputs, q)}


def _of_kernel(kernel: Any) -> dict[str, Tensor]:
    if isinstance(kernel, WithLevels):
        return _of_kernel(kernel.smooth) | {"effects": kernel.effects}
    if isinstance(kernel, SpectralSum):
        terms = enumerate(map(_of_kernel, kernel.kernels))
        return {f"{at}.{name}": value for at, term in terms for name, value in term.items()}
    return _of_kernel(kernel.kernel) | {"map": kernel.map} if isinstance(kernel, Mapped) else dict(vars(kernel))


def _kernel(header: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """A name such as "matern12+laplacian" is a sum; the variances of effects make identifiers of the last inputs."""
    if "effects" in tensors:
        smooth = {key: value for key, value in tensors.items() if key != "effects"}
        return WithLevels(_kernel(header, smooth), tensors["effects"])
    terms = header["kernel"].split("+") if isinstance(header["kernel"], str) else [header["kernel"]]
    if len(terms) > 1:
        each = [_kernel({"kernel": term}, _below(f"{at}.", tensors)) for at, term in enumerate(terms)]
        return SpectralSum(tuple(each))
    kind, plain = _named("kernel", KERNELS, header), dict(tensors)
    map_ = plain.pop("map", None)
    return kind(**plain) if map_ is None else Mapped(kind(**plain), map_)


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
