"""Robot-arm rows: what shorter lengthscales than those of the evidence of few rows do to the mean of many.

f_rmse: error of the mean against the true distance at 10,000 other rows, after so many epochs of the dual (accelerated
from 32 blocks on); residual: of the last epoch. near_share: of the squared error, at the twentieth of rows whose tip
is nearest to the target, where the distance has a cone. The kernel is the one of highest evidence of
--learn rows (squared exponential), its lengthscales times a factor. Rows in the JSON file are not measured again.

    python benchmarks/lengthscales.py --json lengthscales.json
"""

import time
from functools import partial
from typing import Any

import torch

from covariance import learned
from qsgp.hyperparameters.trend import scaled
from qsgp.interfaces import SpectralKernel
from qsgp.solvers.dual import Ahead, System, averaged, product
from robot_arm import arm, distance
from table import Collected, arguments


def measured(
    key: dict[str, Any], kernel: SpectralKernel, noise: torch.Tensor, x: torch.Tensor, y: torch.Tensor, block: int
) -> dict[str, Any]:
    n, Y, began = len(x), y[:, None], time.perf_counter()
    A = torch.zeros_like(Y)
    system = System(kernel, x, noise.expand(n)[:, None].contiguous(), A, None, Ahead.wanted(A, n / block))
    solution = averaged(system, Y, block=block, epochs=key["epochs"], seed=0)
    assert solution is not None
    mean, residual = solution
    x_new, _ = arm(10_000, 2, key["device"])
    f = distance(x_new)
    errors = (product(kernel, x_new, x, mean)[:, 0].double() - f).square()
    nearest = f.argsort()[: len(f) // 20]
    found = {"f_rmse": float(errors.mean().sqrt()), "near_share": float(errors[nearest].sum() / errors.sum())}
    found |= {"residual": residual, "seconds": time.perf_counter() - began}
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
    kernel, noise = learned(x[: chosen.learn], y[: chosen.learn, None])
    collected = Collected(chosen.json, "robot arm: factors of lengthscales", seed=0)
    for n in chosen.rows:
        for factor in chosen.factors:
            key = {"n": n, "factor": factor, "learn": chosen.learn, "epochs": chosen.epochs, "device": chosen.device}
            own = (scaled(kernel, factor), noise, x[:n], y[:n], chosen.block)
            collected.add(key, partial(measured, key, *own))
    collected.show()


if __name__ == "__main__":
    main()
