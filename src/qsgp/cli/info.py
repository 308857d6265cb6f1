"""`qsgp info`: what a model file holds."""

import json
import os
from typing import Any

import numpy as np

from qsgp.cli.talk import AsJson, ModelFile, aligned, number, printable, show
from qsgp.memory import readable
from qsgp.models import load

_SHOWN = 20  # inputs


def info(
    model_file: ModelFile,
    as_json: AsJson = False,
) -> None:
    """Say what a model is.

    Estimator, kernel, lengthscale of each input, noise, sizes, versions. A lengthscale is how far an input must change,
    in its own unit, to make a difference; relevance is its inverse in units of the input's spread, the largest 1.
    """
    found = describe(load(model_file), model_file)
    show(found, as_json, _words(found))


def describe(model: Any, path: str) -> dict[str, Any]:
    """All there is to say, as JSON can hold it."""
    header = model.posterior_
    columns = getattr(model, "columns_", None)
    names = model.input_names_
    lengthscale = np.broadcast_to(model.lengthscale_, (len(names),))
    relevance = model.input_scale_ / lengthscale
    found: dict[str, Any] = {
        "file": path,
        "bytes": os.path.getsize(path),
        "estimator": type(model).__name__,
        "target": columns.target if columns else None,
        "rows": columns.rows if columns else None,
        "columns": {column.name: column.words for column in columns} if columns else None,
        "inputs": [
            {"name": name, "lengthscale": float(scale), "relevance": float(share)}
            for name, scale, share in zip(names, lengthscale, relevance / relevance.max(), strict=True)
        ],
        "kernel": model.kernel_,
        "likelihood": header["likelihood"],
        "form": header["kind"],
        "basis_functions": header.get("m", known_rows(model)),
        "signal_deviation": _root(model.signal_variance_),
    }
    if hasattr(model, "target_map_"):
        found["target_map"] = np.ravel(model.target_map_).tolist()
    if hasattr(model, "noise_variance_"):
        found["noise_deviation"] = _root(model.noise_variance_)
    if hasattr(model, "classes_"):
        found["classes"] = model.classes_.tolist()
    if hasattr(model, "relevance_"):
        found["relevance_vectors"] = len(model.relevance_)
    found |= {"calibrated": model.calibration_ is not None, "iterations": int(model.n_iter_)}
    found["training_seconds"] = model.history_[-1].get("seconds") if model.history_ else None
    changed = {name: value for name, value in model.get_params().items() if value != type(model)().get_params()[name]}
    plan = {"plan": list(model.plan_.sentences)} if hasattr(model, "plan_") else {}  # files of before lack it
    return found | {"keywords": changed, "versions": _versions(path)} | plan


def known_rows(model: Any) -> int | None:
    """Training rows that a mean solved by blocks of rows knows, as many as time allowed; None for other models."""
    found = model.posterior_
    return int(found["rows"]) if found["kind"] == "kernel functions at rows" else None


def _root(variance: Any) -> Any:
    return np.sqrt(variance).tolist()


def _versions(path: str) -> dict[str, str]:
    """Of the programs that wrote the file; `load` has checked it before."""
    with open(path, "rb") as file:
        entries = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    versions: dict[str, str] = json.loads(entries["__metadata__"]["qsgp"])["versions"]
    return versions


def _words(found: dict[str, Any]) -> str:
    def cell(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float):
            return number(value)
        if isinstance(value, list):
            return ", ".join(map(cell, value[:_SHOWN])) + (" ..." if len(value) > _SHOWN else "")
        if isinstance(value, dict):
            return ", ".join(f"{_one_line(name)} {cell(entry)}" for name, entry in value.items())
        return f"{value:,}" if isinstance(value, int) else _one_line(str(value))

    apart = ("inputs", "plan", "columns")
    shown = {name: value for name, value in found.items() if name not in apart and value not in (None, {})}
    shown["bytes"] = readable(found["bytes"])
    width = max(map(len, shown)) + 2
    lines = [f"{name.replace('_', ' '):<{width}}{cell(value)}" for name, value in shown.items()]
    inputs = sorted(found["inputs"], key=lambda entry: -entry["relevance"])
    table = [("input", "lengthscale", "relevance")]
    table += [
        (_one_line(entry["name"]), number(entry["lengthscale"]), f"{entry['relevance']:.3f}")
        for entry in inputs[:_SHOWN]
    ]
    more = f"\n... and {len(inputs) - _SHOWN} more" if len(inputs) > _SHOWN else ""
    plan = "\n".join(["\n\nThe plan of the fit:", *map(_one_line, found["plan"])]) if "plan" in found else ""
    made = [f"  {_one_line(name)}: {_one_line(words)}" for name, words in (found["columns"] or {}).items()]
    if len(made) > _SHOWN:
        made = [*made[:_SHOWN], f"  ... and {len(made) - _SHOWN} more"]
    columns = "\n".join(["\n\nWhat was made of the columns:", *made]) if made else ""
    return "\n".join(lines) + "\n\n" + aligned(table) + more + columns + plan


def _one_line(name: str) -> str:
    """A name cannot look like a line of ours."""
    return printable(name).replace("\n", "\\n")
