"""One training step over contiguous blocks: plain PyTorch against one replayed graph, as m grows.

n_tilde = 1,000 rows, m_tilde = 10,000 features, d = 8, kriging control variate of rank 500. The plain step is the same
mathematics with whole feature matrices, called from Python; both draw their own batch.

    python benchmarks/block_step.py --json block_step.json
"""

import statistics
import time

import torch

from qsgp.bases import Fourier
from qsgp.kernels import SquaredExponential
from qsgp.paper import blocks as B
from qsgp.paper.support import Support
from table import arguments, show

D, ROWS, FEATURES, RANK = 8, 1_000, 10_000, 500


def problem(n: int, m: int, device: str) -> B.Blocks:
    g = torch.Generator(device).manual_seed(0)
    x = torch.randn(n, D, generator=g, device=device)
    y = torch.sin(x.sum(1, keepdim=True)) + 0.1 * torch.randn(n, 1, generator=g, device=device)
    kernel = SquaredExponential(torch.full((D,), 2.0, device=device), torch.tensor(1.0, device=device))
    return B.Blocks.build(x, y, 0.01, Fourier(kernel, m), Support.build(kernel, x[:RANK]), ROWS, FEATURES)


def plain_step(blocks: B.Blocks, state: B.BlockState, rate: float) -> None:
    kernel, batch = blocks.basis.kernel, B.draw(blocks)
    pair_i, i = B.rows_of(blocks, batch.start[0])
    pair_j, j = B.rows_of(blocks, batch.start[1])
    x_l, Y_l = blocks.x[batch.l], blocks.Y[batch.l]
    height = (2 * kernel.variance / blocks.basis.m).sqrt()

    def features(x: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
        t = (x / kernel.lengthscale) @ blocks.omega[:, pair]
        return height * torch.stack((t.cos(), t.sin()), -1).flatten(1)

    f = blocks.scale * (features(torch.cat([x_l, blocks.U]), pair_j) @ state.V[j])
    weights = kernel(x_l, blocks.U) @ blocks.inverse
    residual = f[: len(x_l)] - weights @ (f[len(x_l) :] - state.a)
    residual[:, :1] -= Y_l
    residual *= len(blocks.x) / (ROWS * blocks.sigma2)
    Phi_i = features(torch.cat([x_l, blocks.U]), pair_i)
    g = blocks.scale * (Phi_i[: len(x_l)].mT @ residual + state.V[i])
    sums = state.sums[i] + g.square()
    change = -rate * g / (sums.sqrt() + 1e-10)
    state.sums.index_copy_(0, i, sums)
    state.V.index_add_(0, i, change)
    state.a += Phi_i[len(x_l) :] @ change


def time_of(once, device: str, calls: int) -> float:
    """Median over five rounds, milliseconds a call; calls follow each other as they do in training."""
    times = []
    for _ in range(6):
        _wait(device)
        began = time.perf_counter()
        for _ in range(calls):
            once()
        _wait(device)
        times.append((time.perf_counter() - began) / calls * 1e3)
    return statistics.median(times[1:])


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 101])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calls", type=int, default=200)
    chosen = parser.parse_args()
    rows = []
    for columns in chosen.columns:
        for size in map(int, chosen.sizes):
            blocks = problem(size, size, chosen.device)
            state = B.BlockState.zeros(blocks, columns)
            plain = time_of(lambda b=blocks, s=state: plain_step(b, s, 0.1), chosen.device, chosen.calls)
            once = B.stepper(blocks, state, 0.1)
            if chosen.device.startswith("cuda"):
                torch.cuda.reset_peak_memory_stats()
            step_ms = time_of(once, chosen.device, chosen.calls)
            rows.append(
                {
                    "task": "regression, blocks",
                    "device": chosen.device,
                    "n": size,
                    "m": size,
                    "batch_points": ROWS,
                    "batch_features": FEATURES,
                    "columns": columns,
                    "step_ms": step_ms,
                    "plain_ms": plain,
                    "plain_over_step": plain / step_ms,
                }
            )
            del blocks, state, once
    show(rows, chosen.json, f"one step over blocks, d = {D}, control variate of rank {RANK}", seed=0)


if __name__ == "__main__":
    main()
