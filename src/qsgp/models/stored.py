"""A fitted estimator as the header and the tensors of a file, and back; nothing in it could run."""

import numbers
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qsgp.data.columns import Columns
from qsgp.data.scaling import Scaling
from qsgp.files import FileError
from qsgp.models.gaps import Gaps
from qsgp.models.stored_parts import FITTED, check_memory, check_parts
from qsgp.posteriors.posteriors import ClosedForm, posterior_from, whole
from qsgp.training.plan import Plan


def contents(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `files.write_model` takes."""
    header, tensors = whole(model._posterior).parts()
    tensors |= {f"scaling.{name}": torch.tensor(value) for name, value in model._scaling.arrays().items()}
    tensors |= {f"gaps.{name}": torch.tensor(value) for name, value in vars(model._gaps).items() if value is not None}
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
    about |= {} if model._calibration is None else model._calibration.header()
    return about, tensors


def restore(model: Any, about: dict[str, Any], tensors: dict[str, Tensor], limit: int, trusted: bool) -> None:
    """Make an estimator the fitted one of the file. Parts that are missing or do not fit each other are refused here,
    whoever wrote them, not when the model is used; ``limit`` and ``trusted`` are those of `check_memory`."""
    name = type(model).__name__
    try:
        check_parts(about, tensors)
        check_memory(about, tensors, limit, trusted)
        scaling = Scaling(**{name: value.cpu().numpy() for name, value in _below("scaling.", tensors)})
        posterior = posterior_from(about["posterior"], tensors)
        for key, value in model._as_fitted(scaling, posterior, about["fitted"]["n_iter_"]).items():
            setattr(model, key, value)
        gaps = {name: value.cpu().numpy() for name, value in _below("gaps.", tensors)}
        model._gaps = Gaps(**gaps) if gaps else Gaps.unknown(scaling.x_mean, scaling.x_scale)
        kept = dict(_below("calibration.", tensors))
        model._calibration = model._calibration_from(kept, about.get("calibration")) if kept else None
        model.history_ = about["history"]
        for key in FITTED & about["fitted"].keys():
            setattr(model, key, _as_attribute(key, about["fitted"][key]))
        if "given" not in about["fitted"].get("columns_", {"given": None}):  # of a version that named its inputs there
            model.n_features_in_ = len(model.columns_.given)
            model.feature_names_in_ = _as_array(model.columns_.names)
        _try(model)
    except FileError:
        raise
    except KeyError as error:
        raise FileError(f"Expected the parts of a {name}, got a file without {error}. Save the model anew.") from error
    except Exception as error:  # whatever a part that somebody made up leads to
        raise FileError(
            f"Expected the parts of a {name}, got some that do not fit each other ({error}). Save the model anew."
        ) from error
    model._learned_on = len(posterior.x) if isinstance(posterior, ClosedForm) else 0


def _try(model: Any) -> None:
    """Rows like those of the fit must have finite predictions, hyperparameters be finite in the units of the data, and
    nothing be missing to save it again."""
    model._fitted_header()
    scaling = model._scaling
    with np.errstate(over="ignore"):
        X = scaling.x_mean + np.array([[0.0], [1.0], [-1.0]]) * scaling.x_scale
    mean, variance = (part.numpy() for part in model._sites().moments(*model._latent(X)))
    found = np.stack([mean, variance, scaling.restore(mean, X), np.sqrt(variance) * scaling.y_scale])
    if found.shape[1:] != (len(X), len(scaling.y_scale)) or not np.isfinite(found).all():
        raise ValueError("they predict no finite number")
    deviation = (
        float(model._posterior.kernel.variance) ** 0.5 * scaling.y_scale
    )  # its square may be too large, honestly
    if not (np.isfinite(model.lengthscale_).all() and np.isfinite(deviation).all()):
        raise ValueError("their hyperparameters are not finite in the units of the data")


def _below(prefix: str, tensors: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    return [(name.removeprefix(prefix), value) for name, value in tensors.items() if name.startswith(prefix)]


def _as_attribute(key: str, value: Any) -> Any:
    if key == "plan_":
        return Plan.from_header(value)
    if key == "columns_":
        return Columns.from_header(value)
    return _as_array(value) if isinstance(value, list) else value


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
