"""Table 1: time and memory of a training step as n and m grow, with the exponents of growth.

A step is the value of the objective and its gradient: the log evidence of an exact GP and the bound of VFE (SGPR) with
respect to hyperparameters (and inducing points), the sampled bound of SVGP with respect to these and q(u), and one step
of QSGP with its update, ten dense columns and a control variate of rank 300. Data are drawn, float32; nothing is
learned from them. A row is one method and one size that grows: its sizes are timed in turns, so that a busy moment of
the machine hits all of them, and medians are compared. Memory is the peak of what a step allocates beyond what it was
given.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.paper.chevron import Chevron
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start
from qsgp.paper.stepping import step
from qsgp.paper.support import Support
from qsgp.reproduce.experiment import Case, Choice, Experiment, Row

INPUTS, BATCH, RANK, DENSE = 8, 500, 300, 10
JITTER = 1e-3
Step = Callable[[], object]


def made(n: int, device: str) -> tuple[Float[Tensor, "n 8"], Float[Tensor, " n"]]:
    g = torch.Generator(device).manual_seed(0)
    x = torch.randn(n, INPUTS, generator=g, device=device)
    return x, torch.sin(x.sum(1)) + 0.1 * torch.randn(n, generator=g, device=device)


def leaves(device: str) -> list[Tensor]:
    """Logarithms of lengthscales, variance and noise variance."""
    start_at = [torch.full((INPUTS,), math.log(2.0)), torch.zeros(()), torch.tensor(math.log(0.01))]
    return [value.to(device).requires_grad_() for value in start_at]


def kernel_of(theta: Sequence[Tensor]) -> SquaredExponential:
    return SquaredExponential(theta[0].exp(), theta[1].exp())


def factor_of(K: Float[Tensor, "m m"], added: Tensor | float) -> Float[Tensor, "m m"]:
    return torch.linalg.cholesky(K + added * torch.eye(len(K), device=K.device))


def exact_loss(theta: Sequence[Tensor], x: Float[Tensor, "n d"], y: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Minus the log evidence."""
    factor = factor_of(kernel_of(theta)(x, x), theta[2].exp())
    white = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
    return (len(x) * math.log(2 * math.pi) + white.square().sum()) / 2 + factor.diagonal().log().sum()


def whitened(kernel: SquaredExponential, Z: Float[Tensor, "m d"], x: Float[Tensor, "l d"]) -> Float[Tensor, "m l"]:
    """A with A^T A = K_lm K_mm^-1 K_ml."""
    return torch.linalg.solve_triangular(factor_of(kernel(Z, Z), JITTER), kernel(Z, x), upper=False)


def vfe_loss(
    theta: Sequence[Tensor], Z: Float[Tensor, "m d"], x: Float[Tensor, "n d"], y: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    """Minus the bound of Titsias (2009): log evidence of Q + sigma2 I less tr(K - Q) / (2 sigma2), Q = A^T A."""
    kernel, sigma2 = kernel_of(theta), theta[2].exp()
    A = whitened(kernel, Z, x)
    factor = factor_of(A @ A.mT / sigma2, 1.0)
    c = torch.linalg.solve_triangular(factor, (A @ y)[:, None], upper=False)
    fitted = (y @ y - c.square().sum() / sigma2) / sigma2
    missing = (kernel.diag(x).sum() - A.square().sum()) / sigma2
    return (len(x) * (math.log(2 * math.pi) + theta[2]) + fitted + missing) / 2 + factor.diagonal().log().sum()


def svgp_loss(
    theta: Sequence[Tensor],
    Z: Float[Tensor, "m d"],
    mu: Float[Tensor, " m"],
    R: Float[Tensor, "m m"],
    x_l: Float[Tensor, "l d"],
    y_l: Float[Tensor, " l"],
    n: int,
) -> Float[Tensor, ""]:
    """Minus the bound of Hensman et al. (2013) from the rows l: u = F v with F F^T = K_mm, q(v) = N(mu, R R^T)."""
    kernel, sigma2 = kernel_of(theta), theta[2].exp()
    A, lower = whitened(kernel, Z, x_l), R.tril()
    variance = kernel.diag(x_l) - A.square().sum(0) + (lower.mT @ A).square().sum(0)
    misfit = ((y_l - A.mT @ mu).square() + variance) / sigma2 + math.log(2 * math.pi) + theta[2]
    divergence = (lower.square().sum() + mu @ mu - len(mu)) / 2 - lower.diagonal().log().sum()
    return n / (2 * len(x_l)) * misfit.sum() + divergence


def exact_step(n: int, m: int, device: str) -> Step:
    """There is no m."""
    (x, y), theta = made(n, device), leaves(device)
    return lambda: torch.autograd.grad(exact_loss(theta, x, y), theta)


def vfe_step(n: int, m: int, device: str) -> Step:
    (x, y), theta, Z = made(n, device), leaves(device), made(m, device)[0].requires_grad_()
    return lambda: torch.autograd.grad(vfe_loss(theta, Z, x, y), [*theta, Z])


def svgp_step(n: int, m: int, device: str) -> Step:
    (x, y), theta, Z = made(n, device), leaves(device), made(m, device)[0].requires_grad_()
    mu, R = torch.zeros(m, device=device, requires_grad=True), torch.eye(m, device=device, requires_grad=True)
    g = torch.Generator(device).manual_seed(0)

    def run() -> object:
        l = torch.randint(n, (BATCH,), generator=g, device=device)
        return torch.autograd.grad(svgp_loss(theta, Z, mu, R, x[l], y[l], n), [*theta, Z, mu, R])

    return run


def qsgp_step(n: int, m: int, device: str) -> Step:
    """A whole step: gradients, those of hyperparameters included, and the update of the touched rows."""
    x, y = made(n, device)
    kernel = SquaredExponential(*hyperparameters(2.0, d=INPUTS, device=device))
    likelihood, support = Gaussian(torch.tensor(0.01, device=device)), Support.build(kernel, x[:RANK])
    problem = Problem(Arrays(x, y), Fourier(kernel, m), likelihood, Chevron(m, DENSE), support)
    settings = Settings(n_tilde=BATCH, m_tilde=BATCH, learn_hyperparameters=True, frozen=0.0)
    state = start(problem, settings)
    return lambda: step(problem, state, settings)


# method: its step, and the paper's exponents of time and memory in n and in m (n^2 m of VFE: linear in n, m^2 in m)
METHODS: dict[str, tuple[Callable[[int, int, str], Step], dict[str, tuple[str, str]]]] = {
    "exact GP": (exact_step, {"n": ("n^3", "n^2")}),
    "VFE": (vfe_step, {"n": ("n m^2 + m^3", "n m + m^2"), "m": ("n m^2 + m^3", "n m + m^2")}),
    "SVGP": (svgp_step, {"n": ("m^3", "m^2"), "m": ("m^3", "m^2")}),
    "QSGP": (qsgp_step, {"n": ("1", "1"), "m": ("1", "1")}),
}

# what grows, and what stays: sizes of the growing one, and the other's; those of --fast below
SIZES = {
    ("exact GP", "n"): ([1000, 2000, 4000], 0),
    ("VFE", "n"): ([4000, 8000, 16_000, 32_000], 250),
    ("VFE", "m"): ([500, 1000, 2000], 4000),
    ("SVGP", "n"): ([10_000, 100_000, 1_000_000], 500),
    ("SVGP", "m"): ([750, 1500, 3000], 10_000),
    ("QSGP", "n"): ([10_000, 100_000, 1_000_000], 10_000),
    ("QSGP", "m"): ([10_000, 100_000, 1_000_000], 10_000),
}
FAST_SIZES = {
    ("exact GP", "n"): ([500, 1000, 2000], 0),
    ("VFE", "n"): ([2000, 4000, 8000], 200),
    ("VFE", "m"): ([250, 500, 1000], 2000),
    ("SVGP", "n"): ([10_000, 100_000], 200),
    ("SVGP", "m"): ([500, 1000, 2000], 10_000),
    ("QSGP", "n"): ([10_000, 100_000], 10_000),
    ("QSGP", "m"): ([10_000, 100_000], 10_000),
}


def measured(method: str, grows: str, device: str, fast: bool) -> Row:
    sizes, other = (FAST_SIZES if fast else SIZES)[method, grows]
    make, paper = METHODS[method]
    steps = {size: make(*((size, other) if grows == "n" else (other, size)), device) for size in sizes}
    seconds = timed(steps, device, enough=1.0 if fast else 6.0)
    memory = {size: working_memory(run, device) for size, run in steps.items()}
    return {
        "from": sizes[0],
        "to": sizes[-1],
        "time_exponent": exponent(seconds),
        "paper_time": f"O({paper[grows][0]})",
        "memory_exponent": exponent(memory),
        "paper_memory": f"O({paper[grows][1]})",
        "largest_ms": 1e3 * seconds[sizes[-1]],
        "largest_mb": memory[sizes[-1]] / 2**20,
        "curves": {
            "size": sizes,
            "step_ms": [1e3 * value for value in seconds.values()],
            "working_mb": [value / 2**20 for value in memory.values()],
        },
    }


def timed(steps: dict[int, Step], device: str, enough: float) -> dict[int, float]:
    """Median seconds of each step, in turns, for as many rounds as ``enough`` seconds allow: 3 to 60."""
    taken: dict[int, list[float]] = {size: [] for size in steps}
    began = time.perf_counter()
    for number in range(61):
        for size, run in steps.items():
            spent = once(run, device)
            if number:  # the first round warms caches and allocators
                taken[size].append(spent)
        if number >= 3 and time.perf_counter() - began > enough:
            break
    return {size: statistics.median(values) for size, values in taken.items()}


def once(run: Step, device: str) -> float:
    wait(device)
    began = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - began


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def working_memory(run: Step, device: str) -> float:
    """Peak bytes that one step allocates beyond what it was given."""
    if device.startswith("cuda"):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return float(torch.cuda.max_memory_allocated() - before)
    cpu = torch.profiler.ProfilerActivity.CPU
    with without_stderr(), torch.profiler.profile(activities=[cpu], profile_memory=True) as profile:
        run()
    assert profile.profiler is not None and profile.profiler.kineto_results is not None
    events = profile.profiler.kineto_results.events()
    return float(max(accumulate(event.nbytes() for event in events if event.name() == "[memory]")))


@contextmanager
def without_stderr() -> Iterator[None]:
    """The profiler of some PyTorch releases writes there, past Python, whenever it starts and ends."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def exponent(measures: dict[int, float]) -> float:
    """Slope of log measure over log size, by least squares."""
    logs = torch.tensor([[math.log(size), math.log(value)] for size, value in measures.items()], dtype=torch.float64)
    size, value = (logs - logs.mean(0)).T
    return float((size @ value) / (size @ size))


def cases(choice: Choice) -> Iterable[Case]:
    for method, grows in SIZES:
        sizes, other = (FAST_SIZES if choice.fast else SIZES)[method, grows]
        key: Row = {
            "method": method,
            "grows": grows,
            "sizes": "fast" if choice.fast else "full",
            "device": choice.device,
        }
        key |= {"m" if grows == "n" else "n": other} if other else {}
        yield Case(
            key,
            lambda method=method, grows=grows: measured(method, grows, choice.device, choice.fast),  # type: ignore[misc]
        )


def summary(rows: Sequence[Row]) -> str:
    return "\n".join(
        f"{row['method']}: time grows as {row['grows']}^{row['time_exponent']:.2f}, memory as "
        f"{row['grows']}^{row['memory_exponent']:.2f}; the paper says {row['paper_time']} and {row['paper_memory']}."
        for row in rows
    )


def picture(rows: Sequence[Row], figure: Any) -> None:
    axes = figure.subplots(1, 2, sharey=True)
    for ax, grows in zip(axes, ("n", "m"), strict=True):
        for row in (row for row in rows if row["grows"] == grows):
            color = f"C{list(METHODS).index(row['method'])}"
            label = f"{row['method']}, slope {row['time_exponent']:.2f}"
            ax.loglog(row["curves"]["size"], row["curves"]["step_ms"], marker="o", color=color, label=label)
        ax.set_xlabel("training points n" if grows == "n" else "basis functions m")
        ax.legend(frameon=False, fontsize="small")
    axes[0].set_ylabel("milliseconds for a step")


TABLE_1 = Experiment(
    "table-1",
    "Table 1: time and memory of a training step",
    "exact GP O(n^3) and O(n^2), VFE O(n m^2 + m^3) and O(n m + m^2), SVGP O(m^3) and O(m^2), QSGP O(1) and O(1).",
    cases,
    summary,
    picture,
)
