"""Covariances trained by the paper's steps: exact L_Sigma at the end, the time of a step, and which columns to choose.

``trained``: robot arm, n = m, Fourier features, a squared exponential learned from 500 rows, AdaGrad 0.1 decaying to a
hundredth. L_Sigma is that of Eq. (2) over all rows and functions; ``start`` is mean field, ``best`` the optimum of the
same shape in closed form. ``orders``: best with the first k functions dense, and with those of the largest
phi_r^T phi_r / s_rr; mnlp of 2,000 new rows, exact mean. ``times``: a step of a full C in float32, with all its columns
and with r_tilde of them.

    python benchmarks/covariances.py --json covariances.json
"""

import gc
import statistics
import time
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from qsgp import metrics
from qsgp.bases import Fourier, Inducing
from qsgp.data.arrays import Arrays
from qsgp.datasets import make_robot_arm
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import fit
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start
from qsgp.paper.state import State
from qsgp.paper.stepping import step
from qsgp.paper.support import Support
from table import arguments, show

RANK, BATCH = 300, 200


@cache
def _learned(n: int) -> tuple[SquaredExponential, Tensor]:
    x, y = (torch.as_tensor(part, dtype=torch.float64) for part in make_robot_arm(n)[:2])
    first = SquaredExponential(torch.full((x.shape[1],), 2.0, dtype=x.dtype), torch.ones((), dtype=x.dtype))
    return fit_exact_gp(first, x, y, points=500, iterations=40)


def problem_of(n: int, k: int, basis: str = "fourier", new: int = 0) -> tuple[Problem, Tensor, Tensor]:
    """The problem of ``n`` rows and functions, and ``new`` rows more."""
    x, y = (torch.as_tensor(part, dtype=torch.float64) for part in make_robot_arm(n + new)[:2])
    kernel, sigma2 = _learned(n)
    made: Any = Fourier(kernel, n) if basis == "fourier" else Inducing(kernel, x[:n])
    support = Support.build(kernel, x[: min(RANK, n // 2)])
    return Problem(Arrays(x[:n], y[:n]), made, Gaussian(sigma2), Chevron(n, k), support), x[n:], y[n:]


def matrices(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Phi, S and the exact precision S + Phi^T Phi / sigma2."""
    everything, basis, sigma2 = torch.arange(problem.basis.m), problem.basis, problem.likelihood.noise_variance
    columns = basis.columns(everything)
    Phi = basis.features(problem.source.x, columns)
    S = torch.diag(basis.precision_diag(everything)) if basis.diagonal else basis.precision(columns, columns)
    return Phi, S, S + Phi.mT @ Phi / sigma2


def loss_of(A: Tensor, problem: Problem, state: State) -> float:
    C = problem.covariance.to_dense(state.rows.L, state.rows.log_c)
    return float((C * (A @ C)).sum() - 2 * state.rows.log_c.sum())


def best(A: Tensor, k: int) -> Tensor:
    """The chevron of the least L_Sigma for the exact precision A: dense columns of the factor of A^-1, then
    Proposition 1. Column r of a lower triangular factor knows the rows from r on alone."""
    C = torch.diag(A.diagonal().rsqrt())
    C[:, :k] = torch.linalg.cholesky(torch.linalg.inv(A))[:, :k]
    return C


def trained(n: int, steps: int) -> list[dict[str, Any]]:
    rows = []
    cases: list[tuple[int, str, int | None]] = [(0, "row", None), (n // 10, "entry", None), (n // 10, "row", None)]
    cases += [(n, "row", None), (n, "row", n // 10)]
    for control in ("gram", "kriging"):
        for k, update, r_tilde in cases:
            problem, *_ = problem_of(n, k)
            A = matrices(problem)[2]
            settings = Settings(BATCH, BATCH, r_tilde, steps, control=control, every=steps)
            settings = replace(settings, covariance_update=update)
            first, began = loss_of(A, problem, start(problem, settings)), time.perf_counter()
            last = loss_of(A, problem, fit(problem, settings).state)
            C = best(A, k)
            row = {"control": control, "k": k, "update": update, "r_tilde": r_tilde, "start": first, "end": last}
            row |= {"best": float((C * (A @ C)).sum() - 2 * C.diagonal().log().sum())}
            rows.append(row | {"step_ms": 1e3 * (time.perf_counter() - began) / steps})
            print(rows[-1], flush=True)
    return rows


def orders(n: int) -> list[dict[str, Any]]:
    rows = []
    for basis in ("fourier", "inducing"):
        problem, x_new, y_new = problem_of(n, 0, basis, new=2000)
        Phi, S, A = matrices(problem)
        everything = torch.arange(n)
        features = problem.basis.features(x_new, problem.basis.columns(everything))
        mean = features @ dense.posterior(problem.source.y, Phi, S, problem.likelihood.noise_variance)[0]
        largest = (Phi.square().sum(0) / S.diagonal()).argsort(descending=True)
        for k in (0, n // 100, n // 10, n // 3, n):
            for name, order in (("first", everything), ("largest", largest)):
                part = A[order][:, order]
                C = best(part, k)
                variance = (features[:, order] @ C).square().sum(1) + problem.likelihood.noise_variance
                density = metrics.gaussian_log_density(y_new, mean, variance)
                loss = float((C * (part @ C)).sum() - 2 * C.diagonal().log().sum())
                rows.append({"basis": basis, "k": k, "order": name, "best": loss, "mnlp": metrics.mnlp(density)})
    return rows


def times(sizes: list[int], r_tilde: int, steps: int) -> list[dict[str, Any]]:
    """Float32 steps of a full C, BATCH rows and functions; sizes and kinds in turns, medians."""
    runs: list[tuple[int, int | None, Problem, State, Settings]] = []
    for m in sizes:
        g = torch.Generator().manual_seed(0)
        x = torch.randn(m, 8, generator=g)
        kernel = SquaredExponential(torch.full((8,), 2.0), torch.tensor(1.0))
        source, support = Arrays(x, torch.sin(x.sum(1))), Support.build(kernel, x[:RANK])
        problem = Problem(source, Fourier(kernel, m), Gaussian(torch.tensor(0.01)), Chevron(m, m), support)
        for kind in (None, r_tilde):
            settings = Settings(BATCH, BATCH, kind)
            runs.append((m, kind, problem, start(problem, settings), settings))
    spent: dict[tuple[int, int | None], list[float]] = {(m, kind): [] for m, kind, *_ in runs}
    for number in range(steps + 5):
        for m, kind, problem, state, settings in runs:
            began = time.perf_counter()
            step(problem, state, settings)
            if number >= 5:
                spent[m, kind].append(time.perf_counter() - began)
        gc.collect()
    return [{"m": m, "r_tilde": kind, "step_ms": 1e3 * statistics.median(took)} for (m, kind), took in spent.items()]


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000, help="n = m of the training")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--sizes", nargs="*", type=int, default=[500, 1000, 2000, 4000], help="m = k of the timing")
    parser.add_argument("--r-tilde", type=int, default=100)
    parser.add_argument("--only", choices=["trained", "orders", "times"])
    chosen = parser.parse_args()
    wanted = [chosen.only] if chosen.only else ["times", "orders", "trained"]
    rows: list[dict[str, Any]] = []
    for what in wanted:
        found = {
            "trained": lambda: trained(chosen.rows, chosen.steps),
            "orders": lambda: orders(chosen.rows),
            "times": lambda: times(chosen.sizes, chosen.r_tilde, 30),
        }[what]()
        show(found, None, what, seed=0)
        rows += [{"what": what} | row for row in found]
    if chosen.json:
        show(rows, chosen.json, "covariances", seed=0)


if __name__ == "__main__":
    main()
