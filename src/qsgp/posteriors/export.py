"""A fitted model as one module of plain tensor operations, for ONNX Runtime or torch alone: no qsgp, no scikit-learn.

`Serving` is exported by torch to ONNX (opset 18) or to a torch.export program. Inputs and results are float64; the
results are mean and deviation of y, for classifiers the class probabilities.
"""

import contextlib
import io
import logging
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qsgp.atomic import place_for, written
from qsgp.data.scaling import FAR, FAR_LINEAR, Scaling
from qsgp.interfaces import Likelihood
from qsgp.posteriors.posteriors import Posterior

try:
    import onnxscript
except ImportError:  # the extra is not installed
    onnxscript = None  # type: ignore[assignment]

OPSET = 18
LARGEST = 2**31 - 2**20  # bytes that one ONNX file can hold


class Serving(nn.Module):
    """x -> (mean, deviation) of y, or -> (probabilities,) for a classifier."""

    x_mean: Tensor
    x_scale: Tensor
    y_mean: Tensor
    y_scale: Tensor
    slope: Tensor

    def __init__(self, scaling: Scaling, posterior: Posterior, likelihood: Likelihood, classes: int | None) -> None:
        super().__init__()
        self.latent = posterior.serving()
        self.likelihood, self.classes = likelihood, classes
        for name, array in scaling.arrays().items():
            self.register_buffer(name, torch.tensor(array))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        z = (x - self.x_mean) / self.x_scale
        f, spread = self.latent(_within(z, FAR))
        mean, variance = self.likelihood.moments(f + self.y_mean if self.classes is not None else f, spread)
        if self.classes is not None:
            p = torch.cat([1 - mean, mean], 1) if self.classes == 2 else mean
            return (p / p.sum(1, keepdim=True),)
        return (mean + _within(z, FAR_LINEAR) @ self.slope) * self.y_scale + self.y_mean, variance.sqrt() * self.y_scale


def _within(z: Tensor, most: float) -> Tensor:
    """A clamp, in other words: the ONNX exporter of torch 2.13 loses a node of two clamps of one tensor."""
    return torch.where(z.abs() > most, most * z.sign(), z)


def export(module: Serving, path: str | os.PathLike[str], d: int) -> None:
    """``.onnx`` or ``.pt2`` by the ending of ``path``; any number of rows. Written whole or not at all."""
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise ValueError(
            f"Expected a path ending in .onnx (ONNX, opset {OPSET}) or .pt2 (torch.export), got {path.name}. "
            "To store the model for qsgp itself use save."
        )
    place_for(path)
    size = sum(tensor.nbytes for tensor in module.buffers())
    if path.suffix == ".onnx" and size > LARGEST:
        raise ValueError(
            f"Expected at most {LARGEST} bytes of weights and frequencies in one ONNX file, got {size}. "
            "Export to .pt2, or fit with fewer features."
        )
    module = module.eval()
    example = torch.zeros(3, d, dtype=torch.float64)
    shapes = {"x": {0: torch.export.Dim("rows", min=1)}}
    with torch.no_grad():
        module(example)  # quadrature nodes are kept: made while tracing they would be no numbers
        program = torch.export.export(module, (example,), dynamic_shapes=shapes)
        with written(path) as file:
            if path.suffix == ".pt2":
                torch.export.save(program, file)
            else:
                file.write(_onnx(program, module.classes is not None))


def _onnx(program: Any, classifier: bool) -> bytes:
    if onnxscript is None:
        raise ImportError("Export to ONNX needs onnx and onnxscript. Run pip install 'qsgp[export]'.")
    names = ["probabilities"] if classifier else ["mean_of_y", "std_of_y"]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it reports packages that are not needed here
    with contextlib.redirect_stdout(io.StringIO()):
        found = torch.onnx.export(program, input_names=["x"], output_names=names, opset_version=OPSET)
    assert found is not None
    content: bytes = found.model_proto.SerializeToString()
    return content
