"""What the covariance alone costs: MNLP of the exact mean with each variance, against the exact mean and variance.

Baseline ``exact``: at m features the same Fourier model solved by a dense factor, mean and variance; at m = 0 the exact
GP. Every other row has the baseline's mean and another variance: ``support`` points, ``samples`` (posterior draws
alone), ``blend`` of the two (`qsgp.posteriors.solved_features`), ``meanfield`` (Proposition 1). With --exact-mean M
these come from M features but stand beside the mean of the exact GP. Split 0, standardised; rbf or matern32 and
hyperparameters by the evidence of a random part of the training rows; 500 training rows are left out of everything: the
blend is fitted to their inputs. cost: nats above the baseline. Rows in the JSON file are not measured again.

    QSGP_DATA=... python benchmarks/covariance.py --json covariance.json
"""

import time
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from qsgp import datasets, engine, metrics
from qsgp.bases import Fourier
from qsgp.data.rows import Rows
from qsgp.hyperparameters.prior import lengthscale_prior
from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.paper.theorems import optimal_diagonal
from qsgp.posteriors import solved_features as feature_posterior
from qsgp.solvers.closed_form import Effort, fit_hyperparameters
from qsgp.solvers.feature_dual import Descent, Features
from small import halves
from table import Collected, arguments

SETS = ["kin40k", "protein", "pol", "elevators"]
COVARIANCES = ["exact", "support", "samples", "blend", "meanfield"]
UNSEEN = 500


class Problem(NamedTuple):
    """Rows known, inputs left out, rows to predict; a kernel and a noise variance."""

    x: Tensor
    y: Tensor
    unseen: Tensor
    x_new: Tensor
    y_new: Tensor
    kernel: Any
    sigma2: Tensor


def read(name: str, rows: int | None, learn: int, device: str) -> Problem:
    (x, y), (x_new, y_new) = (
        [torch.tensor(part, dtype=torch.float32, device=device) for part in half]
        for half in halves(datasets.load(name))
    )
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(device)
    known, aside = order[UNSEEN:][:rows], order[:UNSEEN]
    kernel, sigma2 = learned(x[known[:learn]], y[known[:learn], None])
    return Problem(x[known], y[known, None], x[aside], x_new, y_new, kernel, sigma2)


def learned(x: Tensor, y: Tensor) -> tuple[Any, Tensor]:
    """The better of two kernels by its evidence, and the noise variance; O(n^3), so of a part of the rows."""
    n, d = x.shape
    part = Rows(x.double(), y.double(), torch.ones(n, dtype=torch.float64, device=x.device))
    first = hyperparameters(d**0.5, 1.0, d=d, dtype=torch.float64, device=x.device)
    noise = Gaussian(torch.tensor(0.1, dtype=torch.float64, device=x.device))
    found = [
        fit_hyperparameters(BY_NAME[kind](*first), noise, part, Effort(60, 1e-5), prior=lengthscale_prior)
        for kind in ("rbf", "matern32")
    ]
    kernel, sites, _ = max(found, key=lambda each: each[2])
    single = {name: value.float() for name, value in kernel.parameters().items()}
    return kernel.with_parameters(single), sites.noise_variance.float()


def gram(problem: Problem, m: int, x: Tensor, z: Tensor) -> Tensor:
    """The prior covariance in float64: of m features, or of the kernel itself for m = 0."""
    out = torch.zeros(len(x), len(z), dtype=torch.float64, device=x.device)
    if not m:
        double = {name: value.double() for name, value in problem.kernel.parameters().items()}
        for rows in torch.arange(len(x), device=x.device).split(4096):
            out[rows] = problem.kernel.with_parameters(double)(x[rows].double(), z.double())
        return out
    features, width = Features.of(Fourier(problem.kernel, m), x[:1]), 4096
    for first in range(0, m, width):
        part = slice(first, min(first + width, m))
        Phi_z = features.matrix(z, part)
        for rows in torch.arange(len(x), device=x.device).split(4096):
            out[rows] += features.matrix(x[rows], part) @ Phi_z.mT
    return out


def exact(problem: Problem, m: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of f at the new rows by a dense factor."""
    K = gram(problem, m, problem.x, problem.x)
    K.diagonal().add_(problem.sigma2.double())
    factor = torch.linalg.cholesky(K, out=K)
    cross = gram(problem, m, problem.x, problem.x_new)
    mean = (cross.mT @ torch.cholesky_solve(problem.y.double(), factor))[:, 0]
    known = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(0)
    return mean, (problem.kernel.variance.double() - known).clamp_min(0)


def approximate(problem: Problem, m: int, support: int, m_tilde: int) -> dict[str, Tensor]:
    """Variance of f at the new rows for each covariance."""
    basis, noise = Fourier(problem.kernel, m), problem.sigma2.expand(len(problem.x)).contiguous()
    found = feature_posterior.solve(
        basis,
        feature_posterior.Seen(problem.x, problem.y, noise),
        problem.x[:support],
        problem.unseen,
        descent=Descent(min(m, m_tilde)),
    )
    _, draws = found.pieces(problem.x_new)
    variance = optimal_diagonal(norms(basis, problem.x), torch.ones(m).to(noise), problem.sigma2).square()
    return {
        "support": found.spread.support(problem.x_new)[:, 0],
        "samples": draws[:, 0].square().mean(1),
        "blend": found.latent(problem.x_new)[1][:, 0],
        "meanfield": basis.phi2_v(problem.x_new, variance),
    }


def norms(basis: Fourier, x: Tensor) -> Tensor:
    """phi_r^T phi_r of every function: cos^2 and sin^2 are (1 +- cos of twice the angle) / 2."""
    drawn, kernel = engine.Drawn(basis.seed, 0, basis.m // 2, basis.kernel.degrees), basis.kernel
    ones, unit = torch.ones_like(x[:, :1]), torch.ones_like(kernel.variance)
    double = engine.phit_r(x, drawn, ones, kernel.lengthscale / 2, unit, total=2)[::2, 0]
    return kernel.variance / basis.m * torch.stack((len(x) + double, len(x) - double), 1).flatten()


def rows_of(problem: Problem, m: int, exact_mean: bool, chosen: Any) -> dict[str, dict[str, Any]]:
    """A row for every covariance."""
    began = time.perf_counter()
    mean, variance = exact(problem, 0 if exact_mean else m)
    variances = {"exact": variance} | approximate(problem, m, chosen.support, chosen.batch_features)
    spent, sigma2 = time.perf_counter() - began, problem.sigma2.double()
    found = {}
    for name, own in variances.items():
        total = own.double() + sigma2
        density = metrics.gaussian_log_density(problem.y_new, mean, total)
        found[name] = {"rmse": metrics.rmse(problem.y_new, mean), "mnlp": metrics.mnlp(density)}
        found[name] |= {"coverage95": metrics.coverage(problem.y_new, mean, total), "seconds": spent}
    return found


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--quick", action="store_true", help="3,000 rows, 2,000 features, for a CPU")
    parser.add_argument("--data", nargs="+", default=SETS)
    parser.add_argument("--features", nargs="+", type=int, help="m; 10,000 and 100,000, or 2,000 with --quick")
    parser.add_argument("--exact-mean", nargs="*", type=int, help="m beside the exact GP; 1,000,000, or 20,000")
    parser.add_argument("--support", type=int, help="support points; 4,000, or 750 with --quick")
    parser.add_argument("--batch-features", type=int, default=100_000, help="m_tilde of the solver")
    parser.add_argument("--learn", type=int, help="rows for hyperparameters; 8,000, or 1,000 with --quick")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    quick, device = chosen.quick, chosen.device
    chosen.support = chosen.support or (750 if quick else 4_000)
    features = chosen.features or ([2_000] if quick else [10_000, 100_000])
    beside = ([20_000] if quick else [1_000_000]) if chosen.exact_mean is None else chosen.exact_mean
    learn = chosen.learn or (1_000 if quick else 8_000)
    problem_of = cache(lambda name: read(name, 3_000 if quick else None, learn, device))
    solved = cache(lambda name, m, exact_mean: rows_of(problem_of(name), m, exact_mean, chosen))
    collected = Collected(chosen.json, "exact mean, several variances", seed=0)
    for name in chosen.data:
        for m, exact_mean in [(m, False) for m in features] + [(m, True) for m in beside]:
            for covariance in COVARIANCES:
                key = {"data": name, "quick": quick, "m": m, "exact_mean": exact_mean, "covariance": covariance}

                def measure(key: Any = key, case: Any = (name, m, exact_mean)) -> dict[str, Any]:
                    found, problem = solved(*case), problem_of(case[0])
                    own = found[key["covariance"]]
                    kernel = type(problem.kernel).__name__
                    cost = own["mnlp"] - found["exact"]["mnlp"]
                    return key | {"n": len(problem.x), "kernel": kernel, "cost": cost} | own | {"device": device}

                collected.add(key | {"device": device}, measure)
    collected.show()


if __name__ == "__main__":
    main()
