"""A fitted estimator as the header and the tensors of a file, and back; nothing in it could run."""

import numbers
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qsgp.files import FileError
from qsgp.posteriors import ClosedForm, posterior_from
from qsgp.scaling import Scaling

_MOST_POINTS = 10_001  # of quadrature: more would be no likelihood of ours


def contents(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `files.write_model` takes."""
    header, tensors = model._posterior.parts()
    tensors |= {f"scaling.{name}": torch.tensor(value) for name, value in model._scaling.arrays().items()}
    if model._calibration is not None:
        tensors |= {f"calibration.{name}": value for name, value in model._calibration.to_tensors().items()}
    plain = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    about = {
        "estimator": type(model).__name__,
        # what JSON cannot hold, such as a random state that is an object, comes back as the default
        "parameters": {name: value for name, value in plain.items() if value is not _UNKNOWN},
        "posterior": header,
        "history": model.history_,
        "fitted": model._fitted_header(),
    }
    return about, tensors


def restore(model: Any, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Make an estimator the fitted one of the file. Parts that are missing or do not fit each other are refused here,
    whoever wrote them, not when the model is used."""
    name = type(model).__name__
    try:
        _check_parts(about, tensors)
        scaling = Scaling(**{name: value.cpu().numpy() for name, value in _below("scaling.", tensors)})
        posterior = posterior_from(about["posterior"], tensors)
        for key, value in model._as_fitted(scaling, posterior, about["fitted"]["n_iter_"]).items():
            setattr(model, key, value)
        kept = dict(_below("calibration.", tensors))
        model._calibration = model._calibration_from(kept) if kept else None
        model.history_ = about["history"]
        for key in _FITTED.keys() & about["fitted"].keys():
            value = about["fitted"][key]
            setattr(model, key, _as_array(value) if isinstance(value, list) else value)
        _try(model)
    except KeyError as error:
        raise FileError(f"Expected the parts of a {name}, got a file without {error}. Save the model anew.") from error
    except Exception as error:  # whatever a part that somebody made up leads to
        raise FileError(
            f"Expected the parts of a {name}, got some that do not fit each other ({error}). Save the model anew."
        ) from error
    model._learned_on = len(posterior.x) if isinstance(posterior, ClosedForm) else 0


# What `_fitted_header` may hold. Nothing else is taken from a file: an attribute could hide a method.
_FITTED = {
    "n_features_in_": int,
    "n_iter_": int,
    "memory_": int,
    "feature_names_in_": list,
    "classes_": list,
    "relevance_": list,
    "columns_": dict,
    "_one_output": bool,
}

_NOT_NEGATIVE = {"blend", "trust", "noise", "weight", "scaling.x_scale", "scaling.y_scale"}
_ALIKE = {"x", "A", "U", "Z", "table"}  # of one floating type, with those of the kernel


def _check_parts(about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Types, finite numbers, and sizes that are said twice; before anything is made of them."""
    for key, value in about["fitted"].items():
        if key in _FITTED and type(value) is not _FITTED[key]:
            raise TypeError(f"{key} is {value!r:.80}")
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{key} is not finite")
        if key in _NOT_NEGATIVE and bool((tensor < 0).any()):
            raise ValueError(f"{key} is negative")
    kinds = {tensor.dtype for key, tensor in tensors.items() if key in _ALIKE or key.startswith("kernel.")}
    if len(kinds) > 1 or not all(kind.is_floating_point for kind in kinds):
        raise TypeError(f"types {sorted(map(str, kinds))} in one model")
    width, outputs = len(tensors["scaling.x_mean"]), len(tensors["scaling.y_mean"])
    posterior, fitted = about["posterior"], about["fitted"]
    # a list of names or classes is as long as what it names
    told = {
        "columns": {fitted["n_features_in_"], len(fitted.get("feature_names_in_", range(width))), width},
        "outputs": {posterior.get("outputs", outputs), outputs},
    }
    if "classes_" in fitted:
        count = len(fitted["classes_"])
        told["outputs"].add(1 if count == 2 else count)
    if "table" in tensors:
        table = tensors["table"]
        told["functions"] = {posterior["m"], len(table)}
        if posterior["kind"] == "features":
            told["columns of the table"] = {outputs + posterior["k"] + 1, table.shape[1]}
        elif table.shape[1] < outputs:
            raise ValueError("fewer columns than outputs")
    for what, numbers_ in told.items():
        if len(numbers_) > 1 or any(type(number) is not int for number in numbers_):
            raise ValueError(f"different numbers of {what}: {sorted(map(str, numbers_))}")
    if not 1 <= posterior.get("points", 1) <= _MOST_POINTS:
        raise ValueError(f"{posterior['points']} points of quadrature")


def _try(model: Any) -> None:
    """One row, the mean of those of the fit, must have a finite prediction, and nothing be missing to save it again."""
    model._fitted_header()
    latent = model._latent(model._scaling.x_mean[None])
    moments = [part.numpy() for part in model._sites().moments(*latent)]
    found = np.concatenate([*moments, model._scaling.restore(moments[0], model._scaling.x_mean[None])])
    if found.shape != (3, len(model._scaling.y_scale)) or not np.isfinite(found).all():
        raise ValueError("they predict no finite number")


def _below(prefix: str, tensors: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    return [(name.removeprefix(prefix), value) for name, value in tensors.items() if name.startswith(prefix)]


def _as_array(values: list[Any]) -> np.ndarray:
    return np.array(values, dtype=object if values and isinstance(values[0], str) else None)


_UNKNOWN = object()


def _plain(value: Any) -> Any:
    """A constructor argument as JSON can hold it."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, os.PathLike | torch.device):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else _UNKNOWN
