"""What the parts of a file must be before a model is made of them: of the right shapes and kinds, finite, and no larger
in memory than they may be. A file is a few numbers that anybody can write: a few kilobytes could claim a matrix of
many gigabytes."""

from typing import Any

import torch
from torch import Tensor

from qsgp.data.columns import Columns
from qsgp.files import FileError
from qsgp.memory import Need, readable
from qsgp.posteriors.parts import kernel_shapes, likelihood_shapes
from qsgp.posteriors.posteriors import ClosedForm, kind_of
from qsgp.training.options import SMALL

_MOST_POINTS = 401  # of quadrature: more would be no likelihood of ours
_MOST_DRAWS = 4096  # of a posterior, likewise
_LITTLE = 10**9  # bytes that any file may ask for
_TIMES = 300  # its own size that a file may ask for; a closed form of usual size may be larger
_BLOCK = 8192  # functions whose frequencies are made at a time, two of them from one
_PRIOR = 1024  # numbers of a prior draw

_FITTED = {
    "n_features_in_": int,
    "n_iter_": int,
    "memory_": int,
    "plan_": dict,
    "feature_names_in_": list,
    "classes_": list,
    "relevance_": list,
    "columns_": dict,
    "_one_output": bool,
}
# What `_fitted_header` may hold. Nothing else is taken from a file: an attribute could hide a method.
FITTED = frozenset(_FITTED)
_ENTRIES: dict[str, set[type]] = {
    "feature_names_in_": {str},
    "relevance_": {int},
    "classes_": {str, int, float, bool},
}
_POSITIVE = {"trust", "effects.share", "scaling.x_scale", "scaling.y_scale"}
_POSITIVE_OF_KERNELS = ("lengthscale", "variance", "effects")
_NOT_NEGATIVE = {"blend", "noise", "weight", "effects.left"}
_ALIKE = {"x", "A", "U", "Z", "table"}  # of one floating type, with those of the kernel


def check_parts(about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """All that can be said before anything is made of them; whatever fails here or is missing is no model of ours."""
    _check_header(about)
    _check_numbers(tensors)
    outputs = len(tensors["scaling.y_mean"])
    _check_said_twice(about, tensors, len(tensors["scaling.x_mean"]), outputs)
    for key, shape in _shapes(about["posterior"], tensors).items():
        found = tuple(tensors[key].shape)
        if len(found) != len(shape) or any(want not in (None, got) for want, got in zip(shape, found, strict=True)):
            raise ValueError(f"{key} of shape {found}")
    groups = _groups(tensors)
    draws = _columns(tensors) - outputs if "U" in tensors else 0
    if not 0 <= draws <= _MOST_DRAWS or groups not in (1, outputs) or draws % groups:
        raise ValueError(f"{draws} draws for {groups} variances")
    if "U" in tensors and len(tensors.get("blend", torch.empty(groups, 2)).reshape(-1, 2)) != groups:
        raise ValueError(f"a blend of shape {tuple(tensors['blend'].shape)}")


def check_memory(about: dict[str, Any], tensors: dict[str, Tensor], limit: int, trusted: bool) -> None:
    """The model takes ``limit`` at most; if its user has not named one, also no more than such a file may claim."""
    posterior, need = about["posterior"], memory_of(about["posterior"], tensors)
    size = sum(tensor.nbytes for tensor in tensors.values())
    usual = _of(posterior) == ClosedForm.kind and len(tensors["x"]) <= SMALL
    if not (trusted or usual):
        limit = min(limit, max(_LITTLE, _TIMES * size))
    if need.total > limit:
        raise FileError(
            f"Expected a model that takes at most {readable(limit)} of memory, got a file of {readable(size)} that "
            f"asks for {need}. If you trust it, load it with max_memory='{-(-need.total // 10**9)}GB'."
        )


def memory_of(posterior: dict[str, Any], tensors: dict[str, Tensor]) -> Need:
    """Bytes that are made of the parts: matrices of rows and of support points, draws, frequencies, quadrature."""
    d, outputs = len(tensors["scaling.x_mean"]), len(tensors["scaling.y_mean"])
    parts = {"the file": sum(tensor.nbytes for tensor in tensors.values())}
    if _of(posterior) == ClosedForm.kind:
        parts["matrices of rows"] = 8 * len(tensors["x"]) ** 2 * (5 + outputs)
    if "U" in tensors:
        parts["matrices of support points"] = 8 * len(tensors["U"]) ** 2 * (3 + 2 * _groups(tensors))
        parts["draws"] = 24 * _PRIOR * (_columns(tensors) - outputs + d)
    if "orthogonal" in posterior:
        parts["frequencies"] = 12 * min(len(tensors["table"]), _BLOCK) * d
    parts["quadrature"] = 100 * outputs * posterior.get("points", 1)
    return Need(parts)


def _of(posterior: dict[str, Any]) -> Any:
    """The kind of a posterior, or of the function that effects stand beside."""
    return posterior.get("of", posterior["kind"])


def _groups(tensors: dict[str, Tensor]) -> int:
    """Variances of a model with support points."""
    return tensors["noise"].shape[1] if "noise" in tensors and tensors["noise"].ndim == 2 else 1


def _columns(tensors: dict[str, Tensor]) -> int:
    return tensors["A" if "A" in tensors else "table"].shape[1]


def _check_header(about: dict[str, Any]) -> None:
    fitted, posterior = about["fitted"], about["posterior"]
    for key, value in fitted.items():
        if key in _FITTED and type(value) is not _FITTED[key]:
            raise TypeError(f"{key} is {value!r:.80}")
    for key, kinds in _ENTRIES.items():
        found = {type(entry) for entry in fitted.get(key, [])}
        if len(found) > 1 or not found <= kinds:
            raise TypeError(f"{key} of {sorted(kind.__name__ for kind in found)}")
    classes = fitted.get("classes_", [])
    if any(not a < b for a, b in zip(classes, classes[1:], strict=False)):
        raise ValueError("classes that are not sorted")
    if type(about["history"]) is not list or any(type(record) is not dict for record in about["history"]):
        raise TypeError("a history that is no list of records")
    if any(type(entry) in (list, dict) for record in about["history"] for entry in record.values()):
        raise TypeError("a history of more than numbers and words")
    if not 1 <= posterior.get("points", 1) <= _MOST_POINTS:
        raise ValueError(f"{posterior['points']} points of quadrature")
    for key in ("m", "k", "outputs", "seed"):
        number = posterior.get(key, 0)
        if type(number) is not int or not 0 <= number < 2**63:
            raise ValueError(f"{key} is {number!r:.80}")


def _check_numbers(tensors: dict[str, Tensor]) -> None:
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{key} is not finite")
        of_kernel = key.startswith("kernel.") and key.endswith(_POSITIVE_OF_KERNELS)
        if (of_kernel or key in _POSITIVE) and not bool((tensor > 0).all()):
            raise ValueError(f"{key} is not positive")
        if key in _NOT_NEGATIVE and bool((tensor < 0).any()):
            raise ValueError(f"{key} is negative")
        if key.startswith(("scaling.", "gaps.")) and tensor.dtype != torch.float64:
            raise TypeError(f"{key} of type {tensor.dtype}")
    if "scaling.precision" in tensors:
        torch.linalg.cholesky(tensors["scaling.precision"])  # an error where it is none
    kinds = {tensor.dtype for key, tensor in tensors.items() if key in _ALIKE or key.startswith("kernel.")}
    if not kinds < {torch.float32, torch.float64} or not kinds:
        raise TypeError(f"types {sorted(map(str, kinds))} in one model")


def _check_said_twice(about: dict[str, Any], tensors: dict[str, Tensor], width: int, outputs: int) -> None:
    """Sizes agree wherever they stand; a list of names or classes is as long as what it names."""
    posterior, fitted = about["posterior"], about["fitted"]
    given = fitted["n_features_in_"]
    told = {
        "columns": {given, len(fitted.get("feature_names_in_", range(given)))},
        "inputs": {_inputs(fitted), width},
        "outputs": {posterior.get("outputs", outputs), outputs},
    }
    if "classes_" in fitted:
        count = len(fitted["classes_"])
        told["outputs"].add(1 if count == 2 else count)
    if "table" in tensors:
        told["functions"] = {posterior["m"], len(tensors["table"])}
    for what, numbers in told.items():
        if len(numbers) > 1 or any(type(number) is not int or number < 1 for number in numbers):
            raise ValueError(f"different numbers of {what}: {sorted(map(str, numbers))}")


def _inputs(fitted: dict[str, Any]) -> Any:
    """That the columns of the fit become; those of a version that had one for each name were named."""
    about = fitted.get("columns_", {})
    return len(Columns.from_header(about).encoded) if "given" in about else fitted["n_features_in_"]


def _shapes(posterior: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, tuple[int | None, ...]]:
    """Of every tensor of the posterior and the scales; None is any length."""
    d, outputs = len(tensors["scaling.x_mean"]), len(tensors["scaling.y_mean"])
    found: dict[str, tuple[int | None, ...]] = {
        "scaling.x_mean": (d,),
        "scaling.x_scale": (d,),
        "scaling.y_mean": (outputs,),
        "scaling.y_scale": (outputs,),
        "scaling.slope": (d, outputs),
    }
    if any(key.startswith("gaps.") for key in tensors):
        found |= {"gaps.rows": (None, d), "gaps.share": (d,)}
    if "gaps.missing" in tensors:
        found["gaps.missing"] = (len(tensors["gaps.rows"]), d)
    if "scaling.precision" in tensors:
        found["scaling.precision"] = (d, d)
    own = {key.removeprefix("kernel."): tensor for key, tensor in tensors.items() if key.startswith("kernel.")}
    found |= {f"kernel.{key}": shape for key, shape in kernel_shapes(str(posterior["kernel"]), own, d).items()}
    if "scaling.target_map" in tensors:
        found["scaling.target_map"] = (5, outputs)
    own = {key.removeprefix("likelihood."): tensor for key, tensor in tensors.items() if key.startswith("likelihood.")}
    shapes = likelihood_shapes(str(posterior["likelihood"]), own, outputs)
    found |= {f"likelihood.{key}": shape for key, shape in shapes.items()}
    if "U" in tensors:
        points = len(tensors["U"])
        found |= {"U": (points, d), "noise": (points, None) if tensors["noise"].ndim else ()}
        found |= {"trust": ()} if "trust" in tensors else {}
    return found | kind_of(posterior).shapes(posterior, tensors, d, outputs)
