"""A fitted model as one module of plain tensor operations, for ONNX Runtime or torch alone: no qsgp, no scikit-learn.

`Serving` is exported by torch to ONNX (opset 18) or to a torch.export program. Inputs and results are float64; the
results are mean and deviation of y, for classifiers the class probabilities.
"""

import contextlib
import io
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from qsgp.atomic import place_for, written
from qsgp.bases import Fourier, Grid, Inducing, KernelFunctions, Whitened
from qsgp.data.scaling import FAR, FAR_LINEAR, Scaling
from qsgp.interfaces import Likelihood
from qsgp.paper.state import Rows
from qsgp.posteriors.posteriors import ClosedForm, Features, FourierWeights, KernelFunctionsAtRows, Posterior
from qsgp.posteriors.spread import Spread
from qsgp.solvers.pathwise import prior_tables

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
        self.latent = _latent(posterior)
        self.likelihood, self.classes = likelihood, classes
        for name, array in scaling.arrays().items():
            self.register_buffer(name, torch.tensor(array))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        z = (x - self.x_mean) / self.x_scale
        mean, variance = self.likelihood.moments(*self.latent(_within(z, FAR)))
        if self.classes is not None:
            p = torch.cat([1 - mean, mean], 1) if self.classes == 2 else mean
            return (p / p.sum(1, keepdim=True),)
        return (mean + _within(z, FAR_LINEAR) @ self.slope) * self.y_scale + self.y_mean, variance.sqrt() * self.y_scale


def _within(z: Tensor, most: float) -> Tensor:
    """A clamp, in other words: the ONNX exporter of torch 2.13 loses a node of two clamps of one tensor."""
    return torch.where(z.abs() > most, most * z.sign(), z)


class _Closed(nn.Module):
    """The exact GP with the solves done beforehand: k alpha and k(x, x) - k M k^T, M = root B^-1 root, in float64."""

    alpha: Tensor
    halves: Tensor

    def __init__(self, posterior: ClosedForm) -> None:
        super().__init__()
        self.kernel = _Kernel(posterior.kernel, posterior.x)
        self.least = 1e-12 * float(self.kernel.variance)
        self.register_buffer("alpha", torch.stack([s.alpha for s in posterior.solved], 1).double().cpu())
        # root B^-1 root = H^T H with H = factor^-1 root: the sum of squares cannot exceed the prior by rounding
        halves = [
            torch.linalg.solve_triangular(s.factor.double(), torch.diag(s.sites.root.double()), upper=False).mT.cpu()
            for s in posterior.solved
        ]
        self.register_buffer("halves", torch.stack(halves))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        k = self.kernel(z)
        prior = self.kernel.variance
        variance = [prior - (k @ half).square().sum(1) for half in self.halves]
        return k @ self.alpha, torch.stack(variance, 1).clamp_min(self.least)


class _Weights(nn.Module):
    """phi mu and phi Sigma phi^T for features that another module makes."""

    mu: Tensor
    C: Tensor
    own: Tensor

    def __init__(self, features: nn.Module, posterior: Features) -> None:
        super().__init__()
        self.features, k = features, posterior.covariance.k
        rows = Rows.of(posterior.table.cpu(), posterior.outputs, k)
        every = torch.arange(len(rows.mu))
        self.register_buffer("mu", rows.mu.clone())
        self.register_buffer("C", posterior.covariance.dense_columns(every, rows.L, rows.log_c))
        own = posterior.covariance.diagonal_rows(every, rows.mu.dtype) * torch.exp(2 * rows.log_c)
        self.register_buffer("own", own[:, None])

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        Phi = self.features(z.to(self.mu.dtype))
        mean = (Phi @ self.mu).double()
        variance = (Phi @ self.C).square().sum(1, keepdim=True) + Phi.square() @ self.own
        return mean, variance.double().expand_as(mean)


class _Whitened(nn.Module):
    """k(x, Z) R for weights over whitened functions; R = 1 for those over k(x, z) themselves."""

    root: Tensor

    def __init__(self, basis: Inducing | Whitened) -> None:
        super().__init__()
        self.kernel, self.whitened = _Kernel(basis.kernel, basis.Z), isinstance(basis, Whitened)
        white = basis if isinstance(basis, Whitened) else basis.whitened
        self.register_buffer("root", (white.root / white.kernel.variance.double().sqrt()).cpu())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The functions, and the prior variance that they lack."""
        k = self.kernel(z.double())
        white = k @ self.root
        missing = (self.kernel.variance - white.square().sum(1, keepdim=True)).clamp_min(0)
        return (white if self.whitened else k).to(z.dtype), missing


class _Degenerate(nn.Module):
    """phi mu and phi Sigma phi^T, and the prior variance that the functions lack."""

    def __init__(self, basis: Inducing | Whitened, posterior: Features) -> None:
        super().__init__()
        self.basis, self.weights = _Whitened(basis), _Weights(nn.Identity(), posterior)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        Phi, missing = self.basis(z.to(self.weights.mu.dtype))
        mean, variance = self.weights(Phi)
        return mean, variance + missing


class _Cosines(nn.Module):
    omega: Tensor
    phase: Tensor

    def __init__(self, basis: Fourier) -> None:
        super().__init__()
        omega, phase = basis.columns(torch.arange(basis.m, device=basis.kernel.lengthscale.device))
        self.register_buffer("omega", (omega / basis.kernel.lengthscale).mT.contiguous().cpu())
        self.register_buffer("phase", phase.cpu())
        self.amplitude = float((2 / basis.m * basis.kernel.variance).sqrt())

    def forward(self, z: Tensor) -> Tensor:
        return self.amplitude * torch.cos(z @ self.omega - self.phase)


class _Kernel(nn.Module):
    """k(x, Z) by formulas whose squared distances are float64: the root of a cancelled difference stays small."""

    variance: Tensor
    lengthscale: Tensor
    Z: Tensor

    def __init__(self, kernel: Any, Z: Tensor) -> None:
        super().__init__()
        self.name = type(kernel).__name__
        self.register_buffer("lengthscale", kernel.lengthscale.double().cpu())
        self.register_buffer("variance", kernel.variance.double().cpu())
        self.register_buffer("Z", Z.double().cpu() / self.lengthscale)

    def forward(self, z: Tensor) -> Tensor:
        a = z.double() / self.lengthscale
        square = (a.square().sum(1, keepdim=True) + self.Z.square().sum(1) - 2 * (a @ self.Z.mT)).clamp_min(0)
        if self.name == "SquaredExponential":
            k = torch.exp(-0.5 * square)
        else:
            nu = {"Matern12": 1, "Matern32": 3, "Matern52": 5}[self.name]
            s = (nu * square).sqrt()
            k = (1 + (s if nu > 1 else 0) + (s.square() / 3 if nu > 3 else 0)) * torch.exp(-s)
        return (self.variance * k).to(z.dtype)


class _Spread(nn.Module):
    """Variance from draws about the mean and from support points, blended."""

    root: Tensor
    blend: Tensor

    def __init__(self, spread: Spread) -> None:
        super().__init__()
        self.kernel = _Kernel(spread.kernel, spread.U)
        self.least, self.trust = 1e-12 * float(self.kernel.variance), spread.trust
        self.register_buffer("blend", spread.blend.double().cpu())
        eye = torch.eye(len(spread.U), dtype=torch.float64, device=spread.factor.device)
        roots = [torch.linalg.solve_triangular(factor, eye, upper=False).mT.cpu() for factor in spread.factor]
        self.register_buffer("root", torch.stack(roots))

    def forward(self, z: Tensor, draws: Tensor) -> Tensor:
        """``draws``: all of the first variance, then all of the next."""
        known = self.kernel(z)
        left = [self.kernel.variance - (known @ root).square().sum(1) for root in self.root]
        variance, count = torch.stack(left, 1).clamp_min(self.least), draws.shape[1] // len(self.root)
        if not count:
            return self.trust * variance
        square = torch.stack([part.square().sum(1) for part in draws.split(count, 1)], 1)
        ratio, worth = self.blend.unbind(1)
        return self.trust * (square + worth * ratio * variance) / (count + worth)


class _AtRows(nn.Module):
    """k(x, X) A: the mean, and what rows know of the prior draws."""

    A: Tensor
    omega: Tensor
    weights: Tensor

    def __init__(self, posterior: KernelFunctionsAtRows) -> None:
        super().__init__()
        self.kernel, self.spread = _Kernel(posterior.kernel, posterior.x), _Spread(posterior.spread)
        self.outputs, self.draws = posterior.outputs, posterior.A.shape[1] - posterior.outputs
        self.register_buffer("A", posterior.A.double().cpu())
        omega, weights = prior_tables(posterior.kernel, self.draws, posterior.seed)
        self.register_buffer("omega", omega.cpu())
        self.register_buffer("weights", weights.cpu())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        known = self.kernel(z) @ self.A
        mean, draws = known[:, : self.outputs], known[:, self.outputs :]
        if self.draws:
            angle = torch.einsum("td,dsp->tsp", z, self.omega)
            cosine, sine = self.weights.unbind(2)
            draws = (angle.cos() * cosine + angle.sin() * sine).sum(2) - draws
        return mean, self.spread(z, draws).expand_as(mean)


class _Columns(nn.Module):
    """Phi times the weights of the mean and of the draws."""

    table: Tensor

    def __init__(self, posterior: FourierWeights) -> None:
        super().__init__()
        self.features, self.spread = _Cosines(posterior.basis), _Spread(posterior.spread)
        self.outputs = posterior.outputs
        self.register_buffer("table", posterior.table.cpu())

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        products = (self.features(z.to(self.table.dtype)) @ self.table).double()
        mean = products[:, : self.outputs]
        return mean, self.spread(z, products[:, self.outputs :]).expand_as(mean)


def _latent(posterior: Posterior) -> nn.Module:
    if isinstance(posterior, ClosedForm):
        return _Closed(posterior)
    if isinstance(posterior, KernelFunctionsAtRows):
        return _AtRows(posterior)
    if isinstance(posterior, FourierWeights):
        return _Columns(posterior)
    basis = posterior.basis
    if isinstance(basis, Grid):
        raise ValueError("Expected a Fourier, inducing or closed-form model to export, got basis='grid'. Fit another.")
    if isinstance(basis, Fourier):
        return _Weights(_Cosines(basis), posterior)
    if isinstance(basis, Inducing | Whitened):
        return _Degenerate(basis, posterior)
    assert isinstance(basis, KernelFunctions)
    kernel: Any = basis.kernel
    unit = replace(kernel, variance=torch.ones_like(kernel.variance))  # a relevance vector machine's have height 1
    return _Weights(_Kernel(unit, basis.Z), posterior)


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
