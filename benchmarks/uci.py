"""Regression tables of 13,000 to 57,000 rows: `QSGPRegressor(max_time=...)`, and GPyTorch's SVGP in the same time.

Split 0, inputs and target standardised on the training rows; the test rows are looked at once, for the row of the
table. Models: ``qsgp``; ``calibrated``, the same fitted on 95 % of the training rows and recalibrated on the others;
``exact``, the exact GP by a dense Cholesky factor at qsgp's hyperparameters (a GPU with 60 GB, for comparison only);
``svgp``, 512 inducing points, Matern-3/2 with a lengthscale for each input, batches of 1,024, Adam 0.01. A JSON file
that exists is gone on with: rows that are there are not measured again.

    QSGP_DATA=... python benchmarks/uci.py --seconds 60 --models qsgp svgp --json uci.json
"""

import time
from typing import Any, NamedTuple

import numpy as np
import torch

from peer_models import Task, svgp_of
from qsgp import QSGPRegressor, datasets
from small import halves
from table import Collected, arguments

SETS = ["kin40k", "protein", "keggdirected", "keggundirected", "pol", "elevators"]


class Found(NamedTuple):
    mean: np.ndarray
    deviation: np.ndarray
    fit_s: float
    predict_s: float
    kernel: str = "matern32"
    model: QSGPRegressor | None = None  # whose predictions are not normal


def judged(found: Found, x_new: np.ndarray, y_new: np.ndarray) -> dict[str, float]:
    """MNLP and coverage: of a model of ours by its own densities and intervals, of others by normal ones."""
    if found.model is not None:
        told = found.model.assess(x_new, y_new)
        inside = np.abs(2 * told["cdf"] - 1) < 0.95
        return {"mnlp": float(-told["log_density"].mean()), "coverage95": float(inside.mean())}
    surprise = (y_new - found.mean) / found.deviation
    mnlp = np.mean(0.5 * surprise**2 + np.log(found.deviation) + 0.5 * np.log(2 * np.pi))
    return {"mnlp": float(mnlp), "coverage95": float(np.mean(np.abs(surprise) < 1.959964))}


def row(data: str, split: int, model: str, seconds: float, device: str) -> dict[str, Any]:
    (x, y), (x_new, y_new) = halves(datasets.load(data, split))
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    found = MODELS[model](x, y, x_new, seconds, device)
    return {
        "data": data,
        "split": split,
        "model": model,
        "seconds": seconds,
        "n": len(x),
        "kernel": found.kernel,
        "rmse": float(np.sqrt(np.mean((y_new - found.mean) ** 2))),
        **judged(found, x_new, y_new),
        "fit_s": found.fit_s,
        "predict_s": found.predict_s,
        "peak_mb": torch.cuda.max_memory_allocated() / 1e6 if device.startswith("cuda") else None,
        "device": device,
    }


_fits: dict[str, tuple[QSGPRegressor, float]] = {}  # the last one: `exact` has its hyperparameters


def fit(x: np.ndarray, y: np.ndarray, seconds: float, device: str) -> tuple[QSGPRegressor, float]:
    """And how long it took."""
    key = f"{hash(x.tobytes())} {seconds} {device}"
    if key not in _fits:
        began = time.perf_counter()
        model = QSGPRegressor(max_time=seconds, device=device, random_state=0).fit(x, y)
        _fits.clear()
        _fits[key] = model, time.perf_counter() - began
    return _fits[key]


def qsgp(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, seconds: float, device: str) -> Found:
    model, spent = fit(x, y, seconds, device)
    fitted = time.perf_counter()
    mean, deviation = model.predict(x_new, return_std=True)
    return Found(mean, deviation, spent, time.perf_counter() - fitted, model.kernel_, model)


def calibrated(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, seconds: float, device: str) -> Found:
    """The deviation is that of a normal distribution with the recalibrated 95 % interval."""
    order = np.random.default_rng(0).permutation(len(x))
    kept, aside = order[len(x) // 20 :], order[: len(x) // 20]
    model, spent = fit(x[kept], y[kept], seconds, device)
    began = time.perf_counter()
    model.calibrate(x[aside], y[aside])
    fitted = time.perf_counter()
    lower, upper = model.predict_interval(x_new, 0.95)
    predicted = time.perf_counter() - fitted
    deviation = (upper - lower) / 2 / 1.959964
    return Found((lower + upper) / 2, deviation, spent + fitted - began, predicted, model.kernel_)


def exact(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, seconds: float, device: str) -> Found:
    model, spent = fit(x, y, seconds, device)
    began = time.perf_counter()
    posterior, scaling = model._posterior, model._scaling
    parameters = posterior.kernel.parameters().items()
    kernel = posterior.kernel.with_parameters({name: value.to(device).double() for name, value in parameters})
    noise = posterior.likelihood.noise_variance.to(device).double()
    rows, new = (torch.tensor(scaling.inputs(table), device=device) for table in (x, x_new))
    target = torch.tensor((y - scaling.y_mean[0]) / scaling.y_scale[0], device=device)[:, None]
    K = kernel(rows, rows)
    K.diagonal().add_(noise)
    factor = torch.linalg.cholesky(K)
    cross = kernel(rows, new)
    mean = (cross.mT @ torch.cholesky_solve(target, factor))[:, 0].cpu().numpy()
    known = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(0)
    deviation = (kernel.diag(new) - known + noise).sqrt().cpu().numpy()
    unit = scaling.y_scale[0]
    spent += time.perf_counter() - began
    return Found(mean * unit + scaling.y_mean[0], deviation * unit, spent, 0.0, model.kernel_)


def svgp(x: np.ndarray, y: np.ndarray, x_new: np.ndarray, seconds: float, device: str) -> Found:
    began = time.perf_counter()
    found = svgp_of(512)(Task(x, y, x_new, seconds, device))
    return Found(found.mean, found.deviation, found.fit_s, time.perf_counter() - began - found.fit_s)


MODELS = {"qsgp": qsgp, "calibrated": calibrated, "exact": exact, "svgp": svgp}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=SETS, help="names of data sets")
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    parser.add_argument("--models", nargs="+", default=["qsgp"], choices=list(MODELS))
    parser.add_argument("--seconds", nargs="+", type=float, default=[60.0], help="max_time, and the peer's budget")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    collected = Collected(chosen.json, "tables of some ten thousand rows", seed=0)
    for name in chosen.data:
        for split in chosen.splits:
            for seconds in chosen.seconds:
                for model in chosen.models:
                    key = {"data": name, "split": split, "model": model, "seconds": seconds, "device": chosen.device}
                    collected.add(key, lambda key=key: row(**key))
    collected.show()


if __name__ == "__main__":
    main()
