"""Time and working memory of one training step as n and m grow: they should not.

Steps of all sizes are interleaved, so that a busy moment of the machine hits all of them; medians are compared.

    python benchmarks/step_cost.py --json step_cost.json
"""

import gc
import statistics
import time
from functools import partial

import torch

from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.kernels import SquaredExponential
from qsgp.likelihoods import Gaussian, Logistic
from qsgp.paper.chevron import Chevron
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start
from qsgp.paper.stepping import step
from qsgp.paper.support import Support
from qsgp.reproduce.table_1 import wait, working_memory
from table import arguments, show

D = 8
DENSE_COLUMNS = 10
RANK = 300


def problem_of(task: str, n: int, m: int, device: str) -> Problem:
    g = torch.Generator(device).manual_seed(0)
    x = torch.randn(n, D, generator=g, device=device)
    y = torch.sin(x.sum(1)) + 0.1 * torch.randn(n, generator=g, device=device)
    kernel = SquaredExponential(torch.full((D,), 2.0, device=device), torch.tensor(1.0, device=device))
    likelihood = Gaussian(torch.tensor(0.01, device=device)) if task == "regression" else Logistic()
    y = y if task == "regression" else torch.where(y > 0, 1.0, -1.0)
    return Problem(
        Arrays(x, y), Fourier(kernel, m), likelihood, Chevron(m, DENSE_COLUMNS), Support.build(kernel, x[:RANK])
    )


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--batches", type=int, nargs="+", default=[500, 2000], help="batch_points = batch_features")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tasks", nargs="+", default=["regression", "classification"])
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    rows, ratios = [], []
    for task in options.tasks:
        for batch in options.batches:
            rows += measure(task, batch, [int(s) for s in options.sizes], options.steps, options.device)
            group = [row["step_ms"] for row in rows[-len(options.sizes) :]]
            ratios.append(f"{task}, batch {batch}: largest / smallest step time {max(group) / min(group):.2f}")
            gc.collect()
    title = f"One training step, {DENSE_COLUMNS} dense columns, control variate of rank {RANK}"
    show(rows, options.json, title, seed=0)
    print("\n".join(ratios))


def measure(task: str, batch: int, sizes: list[int], steps: int, device: str) -> list[dict[str, object]]:
    settings = Settings(n_tilde=batch, m_tilde=batch, learn_hyperparameters=True, frozen=0.0)
    runs = []
    for size in sizes:
        problem = problem_of(task, size, size, device)
        runs.append((size, problem, start(problem, settings)))
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for round_ in range(steps + 10):
        for size, problem, state in runs:
            wait(device)
            began = time.perf_counter()
            step(problem, state, settings)
            wait(device)
            if round_ >= 10:  # the first rounds warm caches and allocators
                times[size].append(time.perf_counter() - began)
    rows = []
    for size, problem, state in runs:
        rows.append(
            {
                "task": task,
                "device": device,
                "n": size,
                "m": size,
                "batch_points": batch,
                "batch_features": batch,
                "step_ms": 1e3 * statistics.median(times[size]),
                "working_mb": working_memory(partial(step, problem, state, settings), device) / 2**20,
            }
        )
    return rows


if __name__ == "__main__":
    main()
