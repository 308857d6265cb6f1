"""Robot-arm data of any size: `QSGPRegressor(max_time=...)`, and what exact GPs on fewer rows extrapolate to.

Noise of deviation 0.05; the error of f and the excess of MNLP over what who knows f has on the same test rows
(floor_rmse, floor_mnlp) are taken to fall like a power of n, fitted to the exact GPs, whose kernel and hyperparameters
come from the evidence of a part of the smallest of them.
reach_s: seconds of training after the hyperparameters until the held-out RMSE of ``history_`` was --reach or less.
Data are made on the device and handed to the estimator as arrays of the host (data_s). peak_mb: of the GPU. Rows in
the JSON file are not measured again.

    python benchmarks/robot_arm.py --json robot_arm.json
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from covariance import Problem, exact, learned
from qsgp import QSGPRegressor, metrics
from qsgp.datasets import DISTANCE_DEVIATION, DISTANCE_MEAN, JOINTS, tip_distance
from table import Collected, arguments

NOISE = 0.05


def scores(y: Any, mean: Any, variance: Any) -> dict[str, float]:
    density = metrics.gaussian_log_density(y, mean, variance)
    found = {"rmse": metrics.rmse(y, mean), "mnlp": metrics.mnlp(density)}
    return found | {"coverage95": metrics.coverage(y, mean, variance)}


def data(n: int, tests: int, device: str) -> tuple[torch.Tensor, ...]:
    return *arm(n, 0, device), *arm(tests, 1, device)


def arm(n: int, seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What `make_robot_arm` makes, on ``device`` and of other random numbers."""
    generator, found = torch.Generator(device).manual_seed(seed), []
    for rows in torch.arange(n).split(1_000_000):
        angles = math.pi * (torch.rand(len(rows), JOINTS, device=device, generator=generator) - 0.5)
        noise = torch.randn(len(rows), device=device, generator=generator, dtype=torch.float64)
        found.append((angles, (distance(angles) + NOISE * noise).float()))
    x, y = (torch.cat(part) for part in zip(*found, strict=True))
    return x, y


def distance(angles: torch.Tensor) -> torch.Tensor:
    return (tip_distance(angles.double(), torch) - DISTANCE_MEAN) / DISTANCE_DEVIATION


def exact_gp(n: int, learn: int, tests: int, device: str) -> dict[str, Any]:
    """In the unit of the data: targets are standardised by construction, inputs have lengthscales of their own."""
    x, y, x_new, y_new = data(n, tests, device)
    began = time.perf_counter()
    kernel, sigma2 = learned(x[:learn], y[:learn, None])
    mean, variance = exact(Problem(x, y[:, None], x[:0], x_new, y_new, kernel, sigma2), 0)
    found = scores(y_new, mean, variance + sigma2.double())
    known = scores(y_new, distance(x_new), torch.full_like(mean, NOISE**2))
    found |= {"floor_rmse": known["rmse"], "floor_mnlp": known["mnlp"]}
    return found | {"fit_s": time.perf_counter() - began, "kernel": type(kernel).__name__}


def qsgp(n: int, seconds: float, reach: float, tests: int, device: str) -> dict[str, Any]:
    began = time.perf_counter()
    x, y, x_new, y_new = (part.cpu().numpy() for part in data(n, tests, device))
    made = time.perf_counter()
    model = QSGPRegressor(max_time=seconds, device=device, random_state=0).fit(x, y)
    fitted = time.perf_counter()
    path = [(r["phase"], round(r["seconds"], 1), round(r["rmse"], 5)) for r in model.history_]
    print(f"{n} rows, phase, seconds and held-out RMSE:", path)
    mean, deviation = model.predict(x_new, return_std=True)
    epochs = [record for record in model.history_ if "mnlp" in record]
    reached = [record["seconds"] for record in epochs if record["rmse"] <= reach]
    found = scores(y_new, mean, np.square(deviation)) | {"fit_s": fitted - made, "epochs": model.n_iter_}
    found["kernel"] = model.kernel_
    found["residual"] = next((r["residual"] for r in reversed(epochs) if "residual" in r), None)
    return found | {"reach_s": reached[0] if reached else None, "data_s": made - began}


def row(key: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    cuda = key["device"].startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    empty = dict.fromkeys(
        ("rmse", "mnlp", "rmse_expected", "mnlp_expected", "coverage95", "kernel", "epochs", "residual")
    )
    empty |= dict.fromkeys(("fit_s", "reach_s", "data_s", "floor_rmse", "floor_mnlp"))
    return key | empty | measure() | {"peak_mb": torch.cuda.max_memory_allocated() / 1e6 if cuda else None}


def expected(known: list[dict[str, Any]], n: int) -> dict[str, float]:
    """Of an exact GP of ``n`` rows."""
    floor, mnlp = known[0]["floor_rmse"] ** 2, known[0]["floor_mnlp"]
    return {
        "rmse_expected": (extrapolated(known, [one["rmse"] ** 2 - floor for one in known], n) + floor) ** 0.5,
        "mnlp_expected": extrapolated(known, [one["mnlp"] - mnlp for one in known], n) + mnlp,
    }


def extrapolated(known: list[dict[str, Any]], left: list[float], n: int) -> float:
    """What is ``left`` above the noise, at ``n`` rows: by a line through the logarithms."""
    slope, level = np.polyfit([math.log(one["n"]) for one in known], np.log(left), 1)
    return math.exp(level + slope * math.log(n))


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--quick", action="store_true", help="thousands of rows and 20 s each, for a CPU")
    parser.add_argument("--rows", nargs="+", type=int, help="10^5, 10^6, 10^7; with --quick 5,000, 10,000, 20,000")
    parser.add_argument(
        "--seconds",
        nargs="+",
        type=float,
        help="max_time of each; 60, 60, 290: five minutes with what comes before and after",
    )
    parser.add_argument("--exact", nargs="*", type=int, help="rows of exact GPs; 10,000, 30,000, 60,000")
    parser.add_argument("--reach", type=float, help="held-out RMSE to be reached; 0.062, with --quick 0.11")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    quick, device = chosen.quick, chosen.device
    sizes = chosen.rows or ([5_000, 10_000, 20_000] if quick else [100_000, 1_000_000, 10_000_000])
    budgets = chosen.seconds or ([20.0] * len(sizes) if quick else [60.0, 60.0, 290.0])
    if len(budgets) != len(sizes):
        raise SystemExit(f"Expected a number of --seconds for each of {len(sizes)} sizes, got {len(budgets)}.")
    exacts = ([1_000, 2_000, 4_000] if quick else [10_000, 30_000, 60_000]) if chosen.exact is None else chosen.exact
    reach, tests = chosen.reach or (0.11 if quick else 0.062), 2_000 if quick else 10_000
    collected = Collected(chosen.json, f"robot arm, noise {NOISE}", seed=0)
    for n in exacts:
        key = {"model": "exact", "n": n, "seconds": None, "device": device}
        measure = partial(exact_gp, n, min(8_000, min(exacts)), tests, device)
        collected.add(key, partial(row, key, measure))
    for n, seconds in zip(sizes, budgets, strict=True):
        key = {"model": "qsgp", "n": n, "seconds": seconds, "device": device}
        measure = partial(qsgp, n, seconds, reach, tests, device)
        known = [one for one in collected.rows if one["model"] == "exact" and one["device"] == device]
        beside = expected(known, n) if len(known) > 1 else {}
        collected.add(key, lambda key=key, measure=measure, beside=beside: row(key, measure) | beside)
    collected.rows.sort(key=lambda one: (one["model"], one["n"]))
    collected.show()


if __name__ == "__main__":
    main()
