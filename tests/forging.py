"""Model files of a few kilobytes to megabytes that ask for gigabytes; written by someone who knows the checksum."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qsgp import QSGPClassifier, QSGPRegressor
from qsgp.files import read_model, write_model

Parts = tuple[dict[str, Any], dict[str, Tensor]]


def greedy(folder: Path) -> dict[str, Path]:
    """Name -> file. All parts fit each other: only what they would take in memory gives them away."""
    made = {
        "rows of a closed form": _closed_form(_parts(folder, QSGPRegressor), 22_000),
        "outputs of a closed form": _outputs(_parts(folder, QSGPRegressor), 4000, 100),
        "support points": _support(_at_rows(folder), 22_000),
        "variances of support points": _variances(_at_rows(folder), 1500, 300),
        "draws": _draws(_at_rows(folder), 1_000_000),
        "points of quadrature": _points(_parts(folder, QSGPClassifier), 10_000),
        "frequencies of many inputs": _wide(_weights(folder), 60_000),
    }
    paths = {}
    for name, parts in made.items():
        paths[name] = folder / f"{name}.qsgp"
        write_model(paths[name], *parts)
    return paths


def _data(d: int = 1) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-1, 1, 12 * d).reshape(12, d)
    return x, np.arange(12) % 2


def _parts(folder: Path, estimator: Any, **settings: Any) -> Parts:
    model = estimator(random_state=0, learn_hyperparameters=False, **settings).fit(*_data())
    model.save(folder / "sound.qsgp")
    return read_model(folder / "sound.qsgp")


def _weights(folder: Path) -> Parts:
    return _parts(folder, QSGPRegressor, n_features=4, optimizer="preconditioned")


def _at_rows(folder: Path) -> Parts:
    """Kernel functions at rows, out of the parts of a table with support points."""
    about, tensors = _weights(folder)
    about["posterior"] = {key: value for key, value in about["posterior"].items() if key not in ("m", "orthogonal")}
    about["posterior"]["kind"] = "kernel functions at rows"
    columns = tensors.pop("table").shape[1]
    return about, tensors | {"x": torch.zeros(1, 1), "A": torch.zeros(1, columns)}


def _closed_form(parts: Parts, n: int) -> Parts:
    about, tensors = parts
    x = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
    return about, tensors | {"x": x, "Y": 0 * x, "xi": 0 * x, "weight": torch.ones(n, dtype=torch.float64)}


def _outputs(parts: Parts, n: int, outputs: int) -> Parts:
    about, tensors = _closed_form(parts, n)
    wide = torch.ones(n, outputs, dtype=torch.float64)
    return about, tensors | _several(about, outputs) | {"Y": wide, "xi": wide}


def _several(about: dict[str, Any], outputs: int) -> dict[str, Tensor]:
    about["fitted"]["_one_output"] = False
    if "outputs" in about["posterior"]:
        about["posterior"]["outputs"] = outputs
    ones = torch.ones(outputs, dtype=torch.float64)
    return {"scaling.slope": ones[None], "scaling.y_mean": ones, "scaling.y_scale": ones}


def _support(parts: Parts, p: int) -> Parts:
    about, tensors = parts
    return about, tensors | {"U": torch.linspace(-1, 1, p)[:, None], "noise": torch.ones(p, 1)}


def _variances(parts: Parts, p: int, groups: int) -> Parts:
    about, tensors = _support(parts, p)
    own = {"noise": torch.ones(p, groups), "blend": torch.ones(groups, 2, dtype=torch.float64)}
    return about, tensors | _several(about, groups) | own | {"A": torch.zeros(1, 2 * groups)}


def _draws(parts: Parts, draws: int) -> Parts:
    about, tensors = parts
    return about, tensors | {"A": torch.zeros(1, 1 + draws)}


def _points(parts: Parts, points: int) -> Parts:
    about, tensors = parts
    about["posterior"]["points"] = points
    return about, tensors


def _wide(parts: Parts, d: int) -> Parts:
    about, tensors = parts
    about["fitted"]["n_features_in_"] = d
    about["posterior"]["m"] = 20_000
    columns = tensors["table"].shape[1]
    tensors |= {"table": torch.zeros(20_000, columns), "U": torch.zeros(1, d), "noise": torch.ones(1, 1)}
    tensors |= {"kernel.lengthscale": torch.ones(d), "scaling.slope": torch.zeros(d, 1, dtype=torch.float64)}
    tensors |= {
        f"gaps.{part}": torch.zeros(shape, dtype=torch.float64) for part, shape in (("rows", (1, d)), ("share", d))
    }
    return about, tensors | {f"scaling.x_{part}": torch.ones(d, dtype=torch.float64) for part in ("mean", "scale")}
