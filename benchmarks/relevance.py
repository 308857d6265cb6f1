"""Figure 3: how many of 500 kernel functions a relevance vector machine keeps of a noisy sinc, and how well.

One row for each way to train: the paper's own settings (AdaGrad at rate 0.1, Eq. (3)), what changes when one thing
is changed after another, and two twins without sampling: the same steps with all points and functions, and the
relevance vector machine whose evidence is maximised exactly (``bound`` is then the evidence). k = 10 dense columns,
rank 250, batches of 100 points and 250 functions; ``rmse`` is against the sinc itself.

    python benchmarks/relevance.py --json relevance.json
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from qsgp.bases import KernelFunctions
from qsgp.data.arrays import Arrays
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import fit
from qsgp.paper.prediction import predict, relevance_vectors
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.support import Support
from table import arguments, show

POINTS, RANK, DENSE, FINITE = 500, 250, 10, 1e4

PRINTED = Settings(n_tilde=100, m_tilde=250, iterations=3000, rate=0.1, control="gram")
NEWTON = replace(PRINTED, iterations=500, rate=0.3, final=0.1, control="kriging", mean_update="newton")
IMPLICIT = replace(PRINTED, iterations=600, control="kriging", mean_update="implicit")
WAYS = {  # name: settings and dense columns
    "the paper's": (PRINTED, DENSE),
    "AdaGrad, kriging": (replace(PRINTED, control="kriging"), DENSE),
    "AdaGrad, kriging, k = 0": (replace(PRINTED, control="kriging"), 0),
    "Newton for mu": (NEWTON, DENSE),
    "Newton for mu, k = 0": (NEWTON, 0),
    "implicit": (IMPLICIT, DENSE),
    "implicit, all points and functions": (
        replace(IMPLICIT, n_tilde=POINTS, m_tilde=POINTS, iterations=300, control="none"),
        DENSE,
    ),
}


@dataclass(frozen=True)
class Sinc:
    """One draw of the data, standardised, with the kernel and the noise of an exact GP."""

    x: Tensor
    y: Tensor
    centre: Tensor
    scale: Tensor
    kernel: SquaredExponential
    sigma2: Tensor

    @classmethod
    def of(cls, seed: int) -> "Sinc":
        g = torch.Generator().manual_seed(seed)
        x = 20 * torch.rand(POINTS, 1, generator=g, dtype=torch.float64) - 10
        y = sinc(x) + 0.1 * torch.randn(POINTS, generator=g, dtype=torch.float64)
        target, one = (y - y.mean()) / y.std(), torch.ones(1, dtype=torch.float64)
        kernel, sigma2 = fit_exact_gp(SquaredExponential(2 * one, one[0]), x, target, points=300)
        return cls(x, target, y.mean(), y.std(), kernel, sigma2)

    def problem(self, k: int) -> Problem:
        support = Support.build(self.kernel, self.x[:RANK])
        basis = KernelFunctions(self.kernel, self.x)
        return Problem(Arrays(self.x, self.y), basis, Gaussian(self.sigma2), Chevron(POINTS, k), support)

    def features(self, x: Tensor) -> Tensor:
        return KernelFunctions(self.kernel, self.x).features(x, self.x)

    def rmse(self, mean: Tensor) -> float:
        return float((mean * self.scale + self.centre - sinc(line())).square().mean().sqrt())


def sinc(x: Tensor) -> Tensor:
    return torch.sinc(x[:, 0] / torch.pi)


def line() -> Tensor:
    return torch.linspace(-10, 10, 400, dtype=torch.float64)[:, None]


def trained(data: Sinc, settings: Settings, k: int) -> dict[str, Any]:
    """The bound is exact: Eq. (2) at full n and m."""
    problem = data.problem(k)
    state = fit(problem, settings).state
    rows = state.rows
    assert rows.log_s is not None
    C = problem.covariance.to_dense(rows.L, rows.log_c)
    S = torch.diag(rows.log_s.exp())
    bound = dense.elbo(data.y, data.features(data.x), S, rows.mu[:, 0], C, data.sigma2)
    return {
        "vectors": len(relevance_vectors(state, FINITE)),
        "rmse": data.rmse(predict(problem, state, line(), relevant=FINITE).mean),
        "bound": float(bound),
    }


def exact(data: Sinc, rounds: int = 3000) -> dict[str, Any]:
    """MacKay's fixed point s = (1 - s Sigma_ii) / mu_i^2 (Tipping, 2001), with the exact posterior in every round."""
    Phi, left, s = data.features(data.x), torch.arange(POINTS), torch.ones(POINTS, dtype=torch.float64)
    for _ in range(rounds):
        mu, Sigma = dense.posterior(data.y, Phi[:, left], torch.diag(s), data.sigma2)
        s = (1 - s * Sigma.diagonal()).clamp_min(1e-12) / mu.square().clamp_min(1e-30)
        left, s = left[s < 1e10], s[s < 1e10]
    mu, _ = dense.posterior(data.y, Phi[:, left], torch.diag(s), data.sigma2)
    kept = s < FINITE
    return {
        "vectors": int(kept.sum()),
        "rmse": data.rmse(data.features(line())[:, left[kept]] @ mu[kept]),
        "bound": float(dense.log_evidence(data.y, Phi[:, left], torch.diag(s), data.sigma2)),
    }


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    rows = []
    for seed in range(options.seeds):
        data = Sinc.of(seed)
        for name, (settings, k) in WAYS.items():
            began = time.perf_counter()
            row = {"settings": name, "seed": seed} | trained(data, settings, k)
            rows.append(row | {"seconds": time.perf_counter() - began})
            print(rows[-1], flush=True)
        began = time.perf_counter()
        row = {"settings": "exact evidence", "seed": seed} | exact(data)
        rows.append(row | {"seconds": time.perf_counter() - began})
        print(rows[-1], flush=True)
    show(rows, options.json, "Relevance vectors of a noisy sinc, 500 functions")


if __name__ == "__main__":
    main()
