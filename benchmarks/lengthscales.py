"""Robot-arm rows: what shorter lengthscales than those of the evidence of few rows do to the mean of many.

f_rmse: error of the mean against the true distance at 10,000 other rows, after so many epochs of the dual (accelerated
from 32 blocks on); residual: of the last epoch. near_share: of the squared error, at the twentieth of rows whose tip
is nearest to the target, where the distance has a cone. The kernel is the squared exponential of highest evidence of
--learn rows, its lengthscales times a factor. Rows in the JSON file are not measured again.

    python benchmarks/lengthscales.py --json lengthscales.json
"""

import time
from functools import partial
from typing import Any

import torch

from qsgp.closed_form import fit_hyperparameters
from qsgp.defaults import lengthscale_prior
from qsgp.dual import Ahead, System, product, relaxation, shuffled
from qsgp.interfaces import SpectralKernel
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.lengthscale_trend import scaled
from qsgp.likelihoods import Gaussian
from robot_arm import arm, distance
from table import Collected, arguments


def learned(x: torch.Tensor, y: torch.Tensor) -> tuple[SquaredExponential, torch.Tensor]:
    d, double = x.shape[1], {"dtype": torch.float64, "device": x.device}
    first = SquaredExponential(*hyperparameters(d**0.5, 1.0, d=d, **double))
    noise, one = Gaussian(torch.tensor(0.1, **double)), torch.ones(len(x), **double)
    kernel, sites, _ = fit_hyperparameters(
        first, noise, x.double(), y.double()[:, None], one, iterations=60, tolerance=1e-5, prior=lengthscale_prior
    )
    return kernel.with_parameters({name: v.float() for name, v in kernel.parameters().items()}), sites.noise_variance


def measured(
    key: dict[str, Any], kernel: SpectralKernel, noise: torch.Tensor, x: torch.Tensor, y: torch.Tensor, block: int
) -> dict[str, Any]:
    n, Y, began = len(x), y[:, None], time.perf_counter()
    A = torch.zeros_like(Y)
    system = System(kernel, x, noise.to(x).expand(n)[:, None].contiguous(), A, None, Ahead.wanted(A, n / block))
    for epoch in range(key["epochs"]):
        blocks, total = shuffled(n, block, epoch, x.device), torch.zeros_like(Y)
        squares = torch.zeros((), device=x.device)
        for rows in blocks:
            squares += system.visit(rows, Y[rows], relaxation(system, n / block)).square().sum()
            total += system.A
    mean = total / len(blocks) if system.ahead is None else system.ahead.mean.float()
    x_new, _ = arm(10_000, 2, key["device"])
    f = distance(x_new)
    errors = (product(kernel, x_new, x, mean)[:, 0].double() - f).square()
    nearest = f.argsort()[: len(f) // 20]
    found = {"f_rmse": float(errors.mean().sqrt()), "near_share": float(errors[nearest].sum() / errors.sum())}
    found |= {"residual": float(squares.sqrt() / Y.norm()), "seconds": time.perf_counter() - began}
    return key | found


def main() -> None:
    parser = arguments(__doc__ or "")
    cuda = torch.cuda.is_available()
    sizes = [100_000, 250_000, 1_000_000] if cuda else [8_000, 16_000, 64_000]
    parser.add_argument("--rows", nargs="+", type=int, default=sizes)
    parser.add_argument("--factors", nargs="+", type=float, default=[1.0, 0.8])
    parser.add_argument("--learn", type=int, default=8_000 if cuda else 1_000, help="rows for the evidence")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--block", type=int, default=8_000 if cuda else 2_000)
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    chosen = parser.parse_args()
    x, y = arm(max(*chosen.rows, chosen.learn), 0, chosen.device)
    kernel, noise = learned(x[: chosen.learn], y[: chosen.learn])
    collected = Collected(chosen.json, "robot arm: factors of lengthscales")
    for n in chosen.rows:
        for factor in chosen.factors:
            key = {"n": n, "factor": factor, "learn": chosen.learn, "epochs": chosen.epochs, "device": chosen.device}
            own = (scaled(kernel, factor), noise, x[:n], y[:n], chosen.block)
            collected.add(key, partial(measured, key, *own))
    collected.show()


if __name__ == "__main__":
    main()
