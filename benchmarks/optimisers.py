"""kin40k with Fourier features, fixed hyperparameters: how near to the exactly solved model each optimiser comes.

Methods: ``dual``, conjugate gradients with the residual kept at all rows, m_tilde features at a time
(`qsgp.solvers.feature_dual`); ``preconditioned``, rows and features sampled (`qsgp.paper.preconditioned`); ``adagrad``,
the paper's step over blocks with the kriging control variate (`qsgp.paper.blocks`). exact_rmse: the same model solved
to a residual of 1e-4. Split 0, standardised; hyperparameters of an exact GP on 1,000 points. Frequencies of several
--seeds tell how far luck moves a model of so many features. Rows in the JSON file are not measured again.

    QSGP_DATA=... python benchmarks/optimisers.py --json optimisers.json
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from qsgp import datasets
from qsgp.bases import Fourier
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.paper import blocks, preconditioned
from qsgp.paper.support import Support
from qsgp.solvers import feature_dual
from qsgp.solvers.feature_dual import Descent
from small import halves
from table import Collected, arguments

LENGTHSCALES = [3.133, 2.817, 1.579, 1.818, 1.693, 1.412, 1.427, 2.041]
VARIANCE, SIGMA2 = 1.7530, 0.011225
# method, m, m_tilde, seconds it may take
FULL = [
    ("dual", 100_000, 100_000, 2.0),
    ("dual", 100_000, 10_000, 20.0),
    ("preconditioned", 100_000, 10_000, 20.0),
    ("adagrad", 100_000, 10_000, 20.0),
    ("dual", 1_000_000, 20_000, 120.0),
    ("preconditioned", 1_000_000, 20_000, 120.0),
]
QUICK = [
    ("dual", 4_000, 4_000, 20.0),
    ("dual", 4_000, 400, 20.0),
    ("preconditioned", 4_000, 400, 20.0),
    ("adagrad", 4_000, 400, 20.0),
    ("dual", 20_000, 2_000, 20.0),
    ("preconditioned", 20_000, 2_000, 20.0),
]


class Problem:
    """Data and kernel on one device; a model of m features solved exactly, once."""

    def __init__(self, n: int, support: int, device: str) -> None:
        (x, y), (x_new, y_new) = halves(datasets.load("kin40k", 0))

        def put(table: Any) -> torch.Tensor:
            return torch.tensor(table, dtype=torch.float32, device=device)

        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:n]
        self.x, self.y, self.x_new, self.y_new = put(x)[order], put(y)[order, None], put(x_new), put(y_new)[:, None]
        self.kernel = SquaredExponential(*hyperparameters(LENGTHSCALES, VARIANCE, dtype=torch.float32, device=device))
        self.noise, self.U, self.device = torch.full_like(self.y[:, 0], SIGMA2), self.x[:support], device
        self.seed, self.exact_rmse = 0, cache(self._exact_rmse)  # of the frequencies

    def basis(self, m: int) -> Fourier:
        return Fourier(self.kernel, m, seed=self.seed)

    def rmse(self, m: int, V: torch.Tensor) -> float:
        mean = feature_dual.Features.of(self.basis(m), self.x).times(V, self.x_new)
        return float((mean - self.y_new).square().mean().sqrt())

    def _exact_rmse(self, m: int, seed: int) -> float:
        found = feature_dual.solve(
            self.basis(m), self.x, self.y, self.noise, self.U, Descent(passes=200, tolerance=1e-4)
        )
        return self.rmse(m, found.V)

    def wait(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()


def dual(problem: Problem, m: int, m_tilde: int, seconds: float) -> torch.Tensor:
    end = time.perf_counter() + 0.9 * seconds  # a pass begun is finished, and weights are made at the end
    descent = Descent(m_tilde, tolerance=0.005, halt=lambda: time.perf_counter() > end)
    return feature_dual.solve(problem.basis(m), problem.x, problem.y, problem.noise, problem.U, descent).V


def prepared(problem: Problem, m: int, m_tilde: int) -> blocks.Blocks:
    support = Support.build(problem.kernel, problem.U)
    n_tilde = min(1000, len(problem.x) // 8)
    return blocks.Blocks.build(problem.x, problem.y, SIGMA2, problem.basis(m), support, n_tilde, m_tilde)


def sampled(problem: Problem, m: int, m_tilde: int, seconds: float) -> torch.Tensor:
    """As many steps as the time allows: the average needs their number beforehand."""
    table = prepared(problem, m, m_tilde)
    preconditioned.fit(table, 1, 10)
    problem.wait()
    began = time.perf_counter()
    preconditioned.fit(table, 1, 50)
    problem.wait()
    spent = time.perf_counter() - began
    return preconditioned.fit(table, 1, max(50, int(0.9 * seconds / spent * 50)))


def adagrad(problem: Problem, m: int, m_tilde: int, seconds: float) -> torch.Tensor:
    table = prepared(problem, m, m_tilde)
    state = blocks.BlockState.zeros(table, 1)
    once, end = blocks.stepper(table, state, 0.1), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(20):
            once()
        problem.wait()
    return state.V


METHODS: dict[str, Callable[[Problem, int, int, float], torch.Tensor]] = {
    "dual": dual,
    "preconditioned": sampled,
    "adagrad": adagrad,
}


def row(problem: Problem, method: str, m: int, m_tilde: int, seconds: float) -> dict[str, Any]:
    if problem.device.startswith("cuda"):  # compile the kernels of this shape before the clock starts
        METHODS[method](problem, m, m_tilde, 0.0)
    problem.wait()
    began = time.perf_counter()
    V = METHODS[method](problem, m, m_tilde, seconds)
    problem.wait()
    spent = time.perf_counter() - began
    return {
        "data": "kin40k",
        "n": len(problem.x),
        "method": method,
        "m": m,
        "m_tilde": m_tilde,
        "seed": problem.seed,
        "budget_s": seconds,
        "seconds": spent,
        "rmse": problem.rmse(m, V),
        "exact_rmse": problem.exact_rmse(m, problem.seed),
        "device": problem.device,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--quick", action="store_true", help="8,000 rows and few features, for a CPU")
    parser.add_argument("--support", type=int, help="support points; 4,000, or 800 with --quick")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="of the frequencies")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    rows, n = (
        Collected(chosen.json, "kin40k, Fourier features, fixed hyperparameters", seed=chosen.seeds),
        8_000 if chosen.quick else 36_000,
    )
    problem = Problem(n, chosen.support or (800 if chosen.quick else 4_000), chosen.device)
    for method, m, m_tilde, seconds in QUICK if chosen.quick else FULL:
        if method not in chosen.methods:
            continue
        for problem.seed in chosen.seeds:
            key = {"n": n, "method": method, "m": m, "m_tilde": m_tilde, "seed": problem.seed, "device": chosen.device}
            rows.add(key, lambda case=(method, m, m_tilde, seconds): row(problem, *case))
    rows.show()


if __name__ == "__main__":
    main()
