"""A model in a minute: robot-arm data, trained under a progress bar, beside a linear model and the noise floor.

python -m qsgp.demo [--rows 100000] [--seconds 60] [--features 4000] [--device cpu]
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from qsgp import datasets, metrics
from qsgp.bases import Fourier
from qsgp.covariances import Chevron
from qsgp.fit import fit
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.predict import predict
from qsgp.problem import Problem
from qsgp.sources import Arrays
from qsgp.start import start
from qsgp.state import State
from qsgp.step import Settings, step
from qsgp.support import Support

NOISE = 0.05
TEST_ROWS = 5000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="training rows (default 100,000)")
    parser.add_argument("--seconds", type=float, default=60, help="time for training (default 60)")
    parser.add_argument("--features", type=int, default=4000, help="Fourier features (default 4,000)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    options = parser.parse_args()
    console = Console()
    x, y = datasets.make_robot_arm(options.rows + TEST_ROWS, NOISE)
    inputs, targets = (torch.tensor(part, device=options.device) for part in (x, y))
    console.print(f"Robot arm: {options.rows:,} rows, 8 joint angles, target the distance of the tip to a point.")
    train = Arrays(inputs[:-TEST_ROWS], targets[:-TEST_ROWS])
    test = Arrays(inputs[-TEST_ROWS:], targets[-TEST_ROWS:])
    rows = {
        "linear model": linear_model(train, test),
        f"QSGP, m = {options.features:,}": qsgp(train, test, options.features, options.seconds, console),
        "noise floor": noise_floor(test),
    }
    table = Table("model", "RMSE", "MNLP", "95 % coverage", title=f"{TEST_ROWS:,} held-out rows, standardised target")
    for name, scores in rows.items():
        table.add_row(name, *(f"{score:.3f}" for score in scores))
    console.print(table)


def qsgp(train: Arrays, test: Arrays, m: int, seconds: float, console: Console) -> tuple[float, float, float]:
    """Hyperparameters from an exact GP on 1,000 points, then stochastic steps of 1,000 points for ``seconds``."""
    console.print("Initial hyperparameters from an exact GP on 1,000 points ...")
    lengthscale, variance = hyperparameters(2.0, 1.0, d=train.d, device=train.x.device)
    kernel, sigma2 = fit_exact_gp(SquaredExponential(lengthscale, variance), train.x, train.y)
    support = Support.build(kernel, train.x[:500])
    problem = Problem(train, Fourier(kernel, m), Gaussian(sigma2), Chevron(m), support)
    settings = Settings(
        n_tilde=min(1000, train.n),
        m_tilde=m,
        learn_hyperparameters=True,
        learned="likelihood",  # the kernel of the exact GP is better than what a mean-field bound would make of it
        control="none",  # every feature is in every batch: no sampling noise to control
        mean_update="newton",
        final=0.05,
    )
    iterations = iterations_in(seconds, problem, settings)
    # Over the run the noise may move by a factor of ten, from what 1,000 points say to what the model leaves over.
    settings = replace(settings, iterations=iterations, hyper_rate=8 / iterations)
    bar = Progress(
        TextColumn("training"),
        BarColumn(),
        TextColumn("step {task.completed:.0f} of {task.total}, held-out RMSE {task.fields[rmse]:.3f}"),
        TimeRemainingColumn(),
        console=console,
    )
    with bar:
        task = bar.add_task("", total=settings.iterations, rmse=float("nan"))

        def evaluate(state: State) -> dict[str, float]:
            return {"rmse": metrics.rmse(test.y[:1000], predict(problem, state, test.x[:1000]).mean)}

        def report(record: dict[str, float]) -> None:
            bar.update(task, completed=record["iteration"], rmse=record["rmse"])

        every = max(1, settings.iterations // 40)
        result = fit(problem, settings, evaluate=evaluate, report=report, every=every, max_seconds=1.5 * seconds)
    prediction = predict(problem, result.state, test.x)
    mean, spread = prediction.moments()
    return scores(test.y, mean, spread)


def iterations_in(seconds: float, problem: Problem, settings: Settings) -> int:
    """How many steps fit into ``seconds``, from timing a few: the rates decay over that many."""
    state = start(problem, settings)
    step(problem, state, settings)
    began = time.perf_counter()
    for _ in range(3):
        step(problem, state, settings)
    return max(10, int(seconds / ((time.perf_counter() - began) / 3)))


def linear_model(train: Arrays, test: Arrays) -> tuple[float, float, float]:
    """Least squares with an intercept; the residual variance is its uncertainty."""
    design = torch.cat([train.x, torch.ones_like(train.x[:, :1])], 1)
    weights = torch.linalg.lstsq(design, train.y[:, None]).solution[:, 0]
    spread = (train.y - design @ weights).square().mean()
    mean = test.x @ weights[:-1] + weights[-1]
    return scores(test.y, mean, spread.expand(len(mean)))


def noise_floor(test: Arrays) -> tuple[float, float, float]:
    """What knowing the true function would give."""
    exact = datasets.tip_distance(test.x.cpu().double().numpy())
    mean = (np.asarray(exact) - datasets.DISTANCE_MEAN) / datasets.DISTANCE_DEVIATION
    return scores(test.y.cpu(), torch.tensor(mean), torch.full((test.n,), NOISE**2, dtype=torch.float64))


def scores(y: Tensor, mean: Tensor, variance: Tensor) -> tuple[float, float, float]:
    """RMSE, MNLP, coverage of the 95 % interval."""
    density = metrics.gaussian_log_density(y, mean, variance)
    return metrics.rmse(y, mean), metrics.mnlp(density), metrics.coverage(y, mean, variance)


if __name__ == "__main__":
    main()
