"""A fitted model as one module of plain tensor operations, for ONNX Runtime or torch alone: no qsgp, no scikit-learn.

`Serving` is exported by torch to ONNX (opset 18) or to a torch.export program. Inputs and results are float64; the
results are mean and deviation of y, for classifiers the class probabilities.
"""

import contextlib
import io
import logging
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from qsgp.atomic import place_for, written
from qsgp.data.filling import FAR as FAR_TOLD
from qsgp.data.scaling import FAR, FAR_LINEAR, Scaling, normal_nodes
from qsgp.data.target_maps import TargetMap
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels.levels import WithLevels
from qsgp.posteriors.posteriors import Posterior, whole

try:
    import onnxscript
except ImportError:  # the extra is not installed
    onnxscript = None  # type: ignore[assignment]

OPSET = 18
LARGEST = 2**31 - 2**20  # bytes that one ONNX file can hold


class MissingInputs(NamedTuple):
    """What rows with NaN add to the variance: a row for each input, less the share of rows that lacked it in the fit;
    the variance of f may fall to ``least``."""

    lost: Float64[np.ndarray, "d o"]
    share: Float64[np.ndarray, " d"]
    least: float


class Serving(nn.Module):
    """x -> (mean, deviation) of y, or -> (probabilities,) for a classifier. NaN is an input that is not known."""

    x_mean: Tensor
    x_scale: Tensor
    y_mean: Tensor
    y_scale: Tensor
    slope: Tensor

    lost: Tensor
    share: Tensor
    instead: Tensor
    covariance: Tensor | None  # of standardised inputs, if they tell something of each other

    def __init__(
        self, scaling: Scaling, posterior: Posterior, likelihood: Likelihood, classes: int | None, gaps: MissingInputs
    ) -> None:
        super().__init__()
        self.register_buffer("share", torch.tensor(gaps.share))
        self.register_buffer("lost", torch.tensor(gaps.lost))
        self.least = gaps.least
        self.latent = whole(posterior).serving()
        self.register_buffer("instead", _instead_of_missing(posterior.kernel, len(scaling.x_mean)))
        self.likelihood, self.classes = likelihood, classes
        self.map, map_of = scaling.map, "target_map"  # its numbers become constants of the file
        covariance = None if scaling.precision is None else torch.tensor(np.linalg.inv(scaling.precision))
        self.register_buffer("covariance", covariance)
        for name, array in scaling.arrays().items():
            if name not in (map_of, "precision"):
                self.register_buffer(name, torch.tensor(array))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        missing = torch.isnan(x)
        z = torch.where(missing, self.instead, (x - self.x_mean) / self.x_scale)
        left = missing.to(x.dtype)
        if self.covariance is not None:
            fill, left = _told_by_others(self.covariance, _within(z, FAR_TOLD), left)
            z = torch.where(missing, fill + self.instead, z)
        f, spread = self.latent(_within(z, FAR))
        added = (left - self.share) @ self.lost
        spread = torch.maximum(spread + added, spread.clamp_max(self.least))
        mean, variance = self.likelihood.moments(f + self.y_mean if self.classes is not None else f, spread)
        if self.classes is not None:
            p = torch.cat([1 - mean, mean], 1) if self.classes == 2 else mean
            return (p / p.sum(1, keepdim=True),)
        t, deviation = mean + _within(z, FAR_LINEAR) @ self.slope, variance.sqrt()
        if self.map is None:
            return t * self.y_scale + self.y_mean, deviation * self.y_scale
        return self._mapped(self.map, t, deviation)

    def _mapped(self, target_map: TargetMap, t: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
        """As `Scaling.moments` has it."""
        z, share = normal_nodes()
        nodes, weights = torch.tensor(z)[:, None, None], torch.tensor(share)[:, None, None]
        values = target_map.inverse(t + nodes * deviation)
        mean = (weights * values).sum(0)
        spread = (weights * (values - mean).square()).sum(0).sqrt()
        mean, spread = (torch.where(target_map.plain, a, b) for a, b in ((t, mean), (deviation, spread)))
        return mean * self.y_scale + self.y_mean, spread * self.y_scale


def _instead_of_missing(kernel: Kernel, d: int) -> Tensor:
    """The mean of a number; no level of an identifier, which are the last inputs."""
    found = torch.zeros(d, dtype=torch.float64)
    if isinstance(kernel, WithLevels):
        found[d - len(kernel.effects) :] = -1
    return found


def _told_by_others(covariance: Tensor, z: Tensor, missing: Tensor) -> tuple[Tensor, Tensor]:
    """As `Filling` has it, in the operations of ONNX: the law of the inputs is told one known input after another."""
    d = covariance.shape[0]
    mean, left = torch.zeros_like(z), covariance * torch.ones_like(z[:, :1, None])
    for j in range(d):
        gain = left[:, :, j] * ((1 - missing[:, j : j + 1]) / left[:, j : j + 1, j])
        mean = mean + gain * (z[:, j : j + 1] - mean[:, j : j + 1])
        left = left - gain[:, :, None] * left[:, j : j + 1, :]
    return mean, missing * (left * torch.eye(d, dtype=z.dtype)).sum(2)


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
