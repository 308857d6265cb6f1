"""Simulation-based calibration (Talts et al., 2018): is a truth drawn from the model where its posterior says?

Hyperparameters fixed; every replication has its own inputs, truth, noise and draws, and one test point of it counts, so
that ranks are independent. Models: ``features``, a Fourier model, its posterior draws solved as columns beside the mean
(`qsgp.posteriors.solved_features`); ``dense``, the same truths with the exact posterior: what is odd about both is odd
about the truths; ``dual``, what `QSGPRegressor` does by default beyond 3,000 rows (`qsgp.training.road_rows`), here
with blocks and support points of an eighth of the rows and a truth from the exact kernel. p_rank: chi^2 test of the
rank of the truth among 31 draws, 8 bins; p_pit: of where it lies in the predicted normal law; p_half: p_rank with the
deviation of the draws halved, which must be found out; z2: mean of (truth - mean)^2 / variance over all four test
points, 1 if right. Rows in the JSON file are not measured again.

    python benchmarks/calibration.py --json calibration.json
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import chisquare
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.data.rows import Rows
from qsgp.interrupt import Halt
from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.posteriors import solved_features as feature_posterior
from qsgp.solvers.feature_dual import Descent
from qsgp.training.options import Options
from qsgp.training.plan import make_plan
from qsgp.training.road_rows import train
from qsgp.training.task import Task
from table import Collected, arguments

NOISE, DRAWS, BINS, POINTS = 0.01, 31, 8, 4  # draws + 1 is a multiple of the bins
SIZE = 6.0  # of the cube of inputs, in lengthscales


class Found(NamedTuple):
    """At the test points: the truth, the mean and variance of f, and draws about the mean."""

    truth: Tensor
    mean: Tensor
    variance: Tensor
    spread: Tensor


def drawn(basis: Fourier, x: Tensor, new: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Targets with noise at x, and the truth at new."""
    w = torch.randn(basis.m, 1, generator=generator).to(x)
    return basis.phi_v(x, w) + NOISE**0.5 * torch.randn(len(x), 1, generator=generator).to(x), basis.phi_v(new, w)[:, 0]


def features(kernel: Any, x: Tensor, new: Tensor, generator: torch.Generator, seed: int, m: int) -> Found:
    basis, n = Fourier(kernel, m, seed=seed), len(x)
    Y, truth = drawn(basis, x, new, generator)
    unseen = torch.rand(200, x.shape[1], generator=generator).to(x) * SIZE
    noise = torch.full_like(x[:, 0], NOISE)
    found = feature_posterior.solve(
        basis, feature_posterior.Seen(x, Y, noise), x[: n // 4], unseen, DRAWS, seed, Descent(tolerance=1e-3)
    )
    (mean, draws), variance = found.pieces(new), found.latent(new)[1]
    return Found(truth, mean[:, 0], variance[:, 0], draws[:, 0])


def dense(kernel: Any, x: Tensor, new: Tensor, generator: torch.Generator, seed: int, m: int) -> Found:
    basis = Fourier(kernel, m, seed=seed)
    Y, truth = drawn(basis, x, new, generator)
    columns = basis.columns(torch.arange(m, device=x.device))
    Phi, Phi_new = (basis.features(rows, columns).double() for rows in (x, new))
    H = Phi @ Phi.mT
    H.diagonal().add_(NOISE)
    solved = torch.linalg.solve(H, torch.cat([Y.double(), Phi @ Phi_new.mT], 1))
    known = Phi_new @ Phi.mT @ solved
    variance = Phi_new.square().sum(1) - known[:, 1:].diagonal()
    spread = variance.sqrt()[:, None] * torch.randn(len(new), DRAWS, generator=generator).to(variance)
    return Found(truth, known[:, 0], variance, spread)


def dual(kernel: Any, x: Tensor, new: Tensor, generator: torch.Generator, seed: int, m: int) -> Found:
    n, both = len(x), torch.cat([x, new]).double()
    K = kernel.with_parameters({name: value.double() for name, value in kernel.parameters().items()})(both, both)
    K.diagonal().add_(1e-8)
    f = torch.linalg.cholesky(K) @ torch.randn(len(both), 1, generator=generator).to(both)
    Y = (f[:n] + NOISE**0.5 * torch.randn(n, 1, generator=generator).to(both)).to(x)
    options = Options(device=str(x.device), seed=seed)
    sizes = replace(make_plan(n, x.shape[1], 1, options).sizes, block=n // 8, variance_points=n // 8, held_out=n // 20)
    sites, halt = Gaussian(torch.tensor(NOISE)), Halt(threading.Event(), math.inf)
    rows = Rows(x, Y, torch.ones_like(x[:, 0]))
    posterior = train(Task(rows, options, sizes, halt), kernel, sites).posterior
    mean, variance = posterior.latent(new)
    spread = posterior.sample(new, DRAWS, seed + 1_000_000)[..., 0].mT - mean
    return Found(f[n:, 0], mean[:, 0], variance[:, 0], spread)


MODELS: dict[str, Callable[..., Found]] = {"features": features, "dense": dense, "dual": dual}


def replication(model: str, name: str, n: int, m: int, device: str, seed: int) -> tuple[np.ndarray, ...]:
    """At each test point the rank of the truth, that with halved draws, and its standardised distance to the mean."""
    generator = torch.Generator().manual_seed(seed)
    x, new = (torch.rand(rows, 3, generator=generator).to(device) * SIZE for rows in (n, POINTS))
    kernel = BY_NAME[name](*hyperparameters(1.0, 1.0, d=3, device=device))
    found = MODELS[model](kernel, x, new, generator, seed, m)
    truth, mean, variance, spread = (part.double().cpu() for part in found)
    ranks = [(mean[:, None] + share * spread < truth[:, None]).sum(1).numpy() for share in (1.0, 0.5)]
    return *ranks, ((truth - mean) / variance.sqrt()).numpy()


def p_value(unit: np.ndarray) -> float:
    """Of numbers that should be uniform on [0, 1)."""
    return float(chisquare(np.histogram(unit, BINS, (0, 1))[0]).pvalue)


def row(model: str, kernel: str, n: int, m: int, first: int, replications: int, device: str) -> dict[str, Any]:
    began = time.perf_counter()
    found = [replication(model, kernel, n, m, device, seed) for seed in range(first, first + replications)]
    rank, half, z = (np.array(part) for part in zip(*found, strict=True))
    middle = (np.arange(DRAWS + 1) + 0.5) / (DRAWS + 1)
    return {
        "model": model,
        "kernel": kernel,
        "n": n,
        "m": n if model == "dual" else m,
        "first": first,
        "replications": replications,
        "p_rank": p_value(middle[rank[:, 0]]),
        "p_pit": p_value(torch.special.ndtr(torch.tensor(z[:, 0])).numpy()),
        "p_half": p_value(middle[half[:, 0]]),
        "z2": float(np.mean(z**2)),
        "seconds": time.perf_counter() - began,
        "device": device,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--quick", action="store_true", help="200 rows and 400 features instead of 2,000 and 4,000")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--kernels", nargs="+", default=["matern32", "rbf"], choices=list(BY_NAME))
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first replication")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    n, m = (200, 400) if chosen.quick else (2_000, 4_000)
    seeds = f"{chosen.first} and those after it, one a replication"
    collected = Collected(chosen.json, "truth drawn from the model: is it where the posterior says?", seed=seeds)
    for model in chosen.models:
        for kernel in chosen.kernels:
            case = (model, kernel, n, m, chosen.first, chosen.replications, chosen.device)
            names = ("model", "kernel", "n", "", "first", "replications", "device")
            key = {name: value for name, value in zip(names, case, strict=True) if name}
            collected.add(key, lambda case=case: row(*case))
    collected.show()


if __name__ == "__main__":
    main()
