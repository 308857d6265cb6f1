"""A model file made up by somebody who knows the checksum: refused while it is read, or a whole model."""

import copy
import pathlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import qsgp
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMRegressor
from qsgp.files import FileError, read_model, write_model

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3))
y = np.sin(X[:, 0])
LABELS = np.array(["a", "b", "c"])[np.arange(30) % 3]
SETTINGS: dict[str, Any] = {"random_state": 0, "learn_hyperparameters": False}
TABLE = SETTINGS | {"n_features": 20, "max_iter": 3}

MODELS = {
    "closed form": lambda: QSGPRegressor(**SETTINGS).fit(X, y).calibrate(X, y),
    "groups": lambda: QSGPRegressor(**SETTINGS).fit(X, y).calibrate(X, y, groups=np.arange(30) % 2),
    "fourier": lambda: QSGPRegressor(**TABLE).fit(X, y),
    "grid": lambda: QSGPRegressor(**TABLE, basis="grid").fit(X, y),
    "inducing": lambda: QSGPRegressor(**SETTINGS, n_features=20, basis="inducing").fit(X, y),
    "weights and draws": lambda: QSGPRegressor(**SETTINGS, n_features=20, optimizer="preconditioned").fit(X, y),
    "relevance": lambda: QSRVMRegressor(**SETTINGS, max_iter=20).fit(X, y),
    "classes": lambda: QSGPClassifier(**SETTINGS).fit(X, LABELS).calibrate(X, LABELS),
    "rows": lambda: QSGPRegressor(**SETTINGS, max_memory="17MB", covariance="samples").fit(
        np.tile(X, (30, 1)), y[np.arange(900) % 30]
    ),
}
VALUES = [None, -1, 10**9, "x", 1.5, [1, 2]]


def paths(header: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every entry of the header but the history and the keywords, which are checked when they are used."""
    found = []
    for key in header if isinstance(header, dict) else ():
        if at + (key,) not in (("history",), ("parameters",)):
            found += [(*at, key), *paths(header[key], (*at, key))]
    return found


def headers(about: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry gone or replaced, or one that hides a method."""
    found = []
    for path in paths(about):
        for value in VALUES:
            altered = copy.deepcopy(about)
            inner = altered
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            found.append(altered)
        altered = copy.deepcopy(altered)
        inner = altered
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        found.append(altered)
    return [*found, about | {"fitted": about["fitted"] | {"predict": 5, "_latent": "x"}}]


def altered(tensor: Tensor) -> list[Tensor]:
    """Of other types, shapes and numbers."""
    flat, real = tensor.flatten(), tensor.double()
    shapes = [flat[:0], flat[0], tensor[None, None], torch.cat([flat, flat]), tensor.mT if tensor.ndim == 2 else tensor]
    rows = [tensor[:-1], torch.cat([tensor, tensor])] if tensor.ndim else []
    return [*shapes, *rows, real * torch.nan, real * torch.inf, -real.abs() - 1, 0 * tensor, 1e300 * real] + [
        tensor.to(dtype) for dtype in (torch.int64, torch.float32, torch.float16, torch.bool)
    ]


def use(model: Any) -> None:
    if hasattr(model, "predict_proba"):
        found = [model.predict_proba(X[:3])]
        assert model.predict(X[:3]).shape == (3,)
    else:
        found = [*model.predict(X[:3], return_std=True), *model.predict_interval(X[:3], 0.5), model.sample_y(X[:3])]
        if groups := getattr(model.calibration_, "groups", {}):
            found += model.predict_interval(X[:3], 0.5, groups=[*groups, None, None][:3])
    assert all(np.isfinite(part).all() for part in found)


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_forged_parts_are_refused_or_make_a_whole_model(name, tmp_path):
    MODELS[name]().save(tmp_path / "m.qsgp")
    about, tensors = read_model(tmp_path / "m.qsgp")
    forged = [(header, tensors) for header in headers(about)]
    for key, tensor in tensors.items():
        forged.append((about, {other: value for other, value in tensors.items() if other != key}))
        forged += [(about, tensors | {key: other}) for other in altered(tensor)]
    refused = 0
    for header, parts in forged:
        write_model(tmp_path / "f.qsgp", header, parts)
        try:
            model = qsgp.load(tmp_path / "f.qsgp")
        except FileError as error:
            refused += 1
            assert str(error).startswith("Expected ")
        else:
            use(model)
    assert refused > 100 and refused > len(forged) / 3


def test_keywords_of_any_type_come_back(tmp_path, without_shape_checks):
    given = {"checkpoint": pathlib.Path("run"), "learn_hyperparameters": np.bool_(False), "device": torch.device("cpu")}
    given |= {"max_memory": np.int64(10**9), "tol": np.float32(0.5), "random_state": np.random.RandomState(0)}
    model = QSGPRegressor(**given).fit(X, y)
    model.save(tmp_path / "m.qsgp")
    again = qsgp.load(tmp_path / "m.qsgp")
    wanted = {"checkpoint": "run", "learn_hyperparameters": False, "device": "cpu", "max_memory": 10**9, "tol": 0.5}
    assert {name: again.get_params()[name] for name in wanted} == wanted
    assert again.random_state is None and again.memory_ == model.memory_
    again.set_params(checkpoint=None).fit(X, y)
