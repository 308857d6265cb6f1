"""K(X, X) and its slope in the hyperparameters, float64: what a step of a search for hyperparameters costs.

    OMP_NUM_THREADS=1 python benchmarks/gram.py --rows 2000

``seconds`` is `qsgp.kernels.gram` with its slope in variance and lengthscales for a random weight of every entry.
``plain_seconds`` is autograd through one pass over all pairs for each input, ``cdist_seconds`` through torch.cdist.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from qsgp.engine.formulas import FORMULAS
from qsgp.kernels import BY_NAME, gram
from table import arguments, show

D = 16


def seconds(matrix: Callable[[Tensor, Tensor, Tensor], Tensor], x: Tensor, repeats: int) -> float:
    """Median of value and slope; the weights are made beforehand."""
    weights, times = torch.randn(len(x), len(x), dtype=x.dtype), []
    for _ in range(repeats + 1):
        lengthscale = torch.full((D,), D**0.5, dtype=x.dtype, requires_grad=True)
        variance = torch.ones((), dtype=x.dtype, requires_grad=True)
        began = time.perf_counter()
        matrix(x, lengthscale, variance).backward(weights)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:] or times)


def row(name: str, x: Tensor, repeats: int) -> dict[str, Any]:
    formula = FORMULAS[name]

    def quick(x: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        return gram(BY_NAME[name](lengthscale, variance), x)

    def plain(x: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        z = (x / lengthscale).mT
        total: Any = sum((z_j[:, None] - z_j).abs() ** formula.norm for z_j in z)
        r = total if formula.norm == 1 else (total + 1e-300).sqrt()
        return variance * formula.profile(r)

    def cdist(x: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
        z = x / lengthscale
        mode = "donot_use_mm_for_euclid_dist"
        return variance * formula.profile(torch.cdist(z, z, p=float(formula.norm), compute_mode=mode))

    ways = {"seconds": quick, "plain_seconds": plain, "cdist_seconds": cdist}
    measured = {way: seconds(matrix, x, repeats) for way, matrix in ways.items()}
    return {"kernel": name, "rows": len(x), "d": D, "threads": torch.get_num_threads()} | measured


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--kernels", nargs="+", default=["matern32", "laplacian"], choices=list(BY_NAME))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    x = torch.randn(options.rows, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = [row(name, x, options.repeats) for name in options.kernels]
    show(rows, options.json, "Kernel matrices and their slopes")
