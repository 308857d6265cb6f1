"""A training step of `fit` by blocks of Fourier features against the same step by scattered ones, interleaved.

The paper's sizes: n_tilde = 500 rows, m_tilde = 10,000 of m = 100,000 features, rank 500, d = 8, float32. A scattered
step moves the functions of both its draws, a step by blocks those of one.

    python benchmarks/block_training.py --json block_training.json

With --train: robot arm, n = m = 4,000 of which a step draws 500 rows and 800 functions, the same number of steps of
both, and of blocks as many as take the time of the scattered ones.

    python benchmarks/block_training.py --train 600 --json block_training_error.json
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.datasets import make_robot_arm
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential
from qsgp.likelihoods import Gaussian, Logistic
from qsgp.paper import Chevron, Problem, Settings, Support, fit, predict, start, step
from qsgp.paper.block_training import BlockSteps
from table import arguments, show

D, RANK = 8, 500


def problem_of(task: str, n: int, m: int, k: int, device: str) -> Problem:
    g = torch.Generator(device).manual_seed(0)
    x = torch.randn(n, D, generator=g, device=device)
    y = torch.sin(x.sum(1)) + 0.1 * torch.randn(n, generator=g, device=device)
    kernel = SquaredExponential(torch.full((D,), 2.0, device=device), torch.tensor(1.0, device=device))
    likelihood = Gaussian(torch.tensor(0.01, device=device)) if task == "regression" else Logistic()
    y = y if task == "regression" else torch.where(y > 0, 1.0, -1.0)
    return Problem(Arrays(x, y), Fourier(kernel, m), likelihood, Chevron(m, k), Support.build(kernel, x[:RANK]))


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def medians(ways: list[Callable[[], object]], device: str, steps: int, calls: int) -> list[float]:
    """Milliseconds a call: in every round each way makes ``calls`` of them, one way after the other."""
    times: list[list[float]] = [[] for _ in ways]
    for round_ in range(steps + 2):
        for way, seconds in zip(ways, times, strict=True):
            wait(device)
            began = time.perf_counter()
            for _ in range(calls):
                way()
            wait(device)
            if round_ >= 2:  # the first rounds compile, record graphs and warm caches
                seconds.append((time.perf_counter() - began) / calls)
    return [1e3 * statistics.median(seconds) for seconds in times]


def errors(steps: int, controls: list[str], columns: list[int]) -> list[dict[str, object]]:
    """RMSE of 2,000 new rows and L_Sigma of Eq. (2) over the training rows after training."""
    x, y = (torch.as_tensor(part, dtype=torch.float64) for part in make_robot_arm(6_000)[:2])
    first = SquaredExponential(torch.full((x.shape[1],), 2.0, dtype=x.dtype), torch.ones((), dtype=x.dtype))
    kernel, sigma2 = fit_exact_gp(first, x[:4_000], y[:4_000], points=500, iterations=40)
    x, y, sigma2 = x.float(), y.float(), sigma2.float()
    kernel = SquaredExponential(kernel.lengthscale.float(), kernel.variance.float())
    basis, support = Fourier(kernel, 4_000), Support.build(kernel, x[:RANK])
    Phi = basis.features(x[:4_000], basis.columns(torch.arange(4_000)))
    found: list[dict[str, object]] = []
    for control, k in ((control, k) for control in controls for k in columns):
        problem = Problem(Arrays(x[:4_000], y[:4_000]), basis, Gaussian(sigma2), Chevron(4_000, k), support)
        limit = float("inf")
        for draws, iterations in (("scattered", steps), ("blocks", steps), ("blocks", 20 * steps)):
            settings = Settings(500, 800, iterations=iterations, control=control, every=steps, draws=draws)
            if iterations > steps:  # a schedule that ends when the time does
                settings = replace(settings, iterations=max(steps, int(steps * limit / seconds)))
            began = time.perf_counter()
            state = fit(problem, settings).state
            seconds = time.perf_counter() - began
            limit = seconds if draws == "scattered" else limit
            mean = torch.cat([predict(problem, state, part).mean for part in x[4_000:].split(500)])
            C = problem.covariance.to_dense(state.rows.L, state.rows.log_c)
            covariance = (Phi @ C).square().sum() / sigma2 + C.square().sum() - 2 * state.rows.log_c.sum()
            row = {"control": control, "dense_columns": k, "draws": draws, "steps": settings.iterations}
            row |= {"seconds": seconds, "rmse": float((mean - y[4_000:]).square().mean().sqrt())}
            found.append(row | {"L_Sigma": float(covariance)})
            print(found[-1], flush=True)
    return found


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--size", type=float, default=1e5, help="n = m")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--functions", type=int, default=10_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[0, 100])
    parser.add_argument("--tasks", nargs="+", default=["regression", "classification"])
    parser.add_argument("--controls", nargs="+", default=["kriging", "gram"])
    parser.add_argument("--learn", type=int, nargs="+", default=[0, 1], help="hyperparameters too")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--train", type=int, default=0, help="steps of training, in place of the times of a step")
    chosen = parser.parse_args()
    if chosen.train:
        found = errors(chosen.train, chosen.controls, chosen.columns)
        show(found, chosen.json, "Trained by scattered draws and blocks", seed=0)
        return
    rows = []
    cases = [
        (task, k, control, bool(learn))
        for task in chosen.tasks
        for k in chosen.columns
        for control in chosen.controls
        for learn in chosen.learn
        if task == "regression" or control != "gram"
    ]
    for task, k, control, learn in cases:
        size, device = int(chosen.size), chosen.device
        problem = problem_of(task, size, size, k, device)
        settings = Settings(
            chosen.rows, chosen.functions, iterations=10**6, control=control, bound="Q",
            learn_hyperparameters=learn, frozen=0.0,
        )  # fmt: skip
        by_blocks, scattered = start(problem, settings), start(problem, settings)
        ways = [
            BlockSteps.of(problem, by_blocks, settings),
            lambda p=problem, s=scattered, c=settings: step(p, s, c),
        ]
        blocks_ms, scattered_ms = medians(ways, device, chosen.steps, chosen.calls)
        rows.append(
            {
                "task": task,
                "device": device,
                "control": control,
                "dense_columns": k,
                "hyperparameters": learn,
                "blocks_ms": blocks_ms,
                "scattered_ms": scattered_ms,
                "scattered_over_blocks": scattered_ms / blocks_ms,
            }
        )
        print(rows[-1], flush=True)
    title = f"{chosen.rows} rows, {chosen.functions} of {int(chosen.size)} features, rank {RANK}, d = {D}"
    show(rows, chosen.json, title, seed=0)


if __name__ == "__main__":
    main()
