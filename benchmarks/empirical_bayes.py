"""Hyperparameters learned through the bound: what it does to the model under mean field, a chevron and a full C.

Robot arm (noise of deviation 0.3), Fourier features, hyperparameters started from an exact GP on few rows. Every step
takes the best q of its shape in closed form, mu the posterior mean; Adam moves hyperparameters by the gradient of the
exact ELBO: what sampled steps estimate, without their noise. ``elbo`` of that q and ``evidence``, the log marginal
likelihood of the same features, in nats a row; ``rmse``, ``mnlp`` and ``cover`` (95 %) of 2,000 new rows with that q.
``shape`` is the geometric mean of the learned lengthscales over that of the optimum of the evidence; ``signal`` and
``noise`` are such ratios of variances. Rates: ``far``, Adam 0.05 until the bound has its optimum, and ``paper``, which
may move a logarithm as far as Adam 1e-5 does in the paper's 90,000 decaying steps (0.2). ``--by-steps 400`` trains by
`qsgp.paper.fit` in their place, over all rows and functions, as the estimators do: rate ``door``, Adam 4 / steps.

    python benchmarks/empirical_bayes.py --json empirical_bayes.json
    python benchmarks/empirical_bayes.py --by-steps 400 --rows 400 --functions 120
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from qsgp import metrics
from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.datasets import make_robot_arm
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import fit
from qsgp.paper.optimisers import decayed
from qsgp.paper.problem import Problem
from qsgp.paper.settings import PAPER, Settings
from qsgp.paper.support import Support
from table import arguments, show

NEW = 2000
LEARNED: dict[str, tuple[str, ...] | None] = {
    "noise": ("noise",),
    "signal and noise": ("variance", "noise"),
    "all": None,
}
Theta = dict[str, Tensor]


@dataclass(frozen=True)
class Data:
    x: Tensor
    y: Tensor
    x_new: Tensor
    y_new: Tensor
    basis: Fourier
    start: Theta

    @classmethod
    def of(cls, n: int, m: int, few: int) -> "Data":
        x, y = (torch.as_tensor(part, dtype=torch.float64) for part in make_robot_arm(n + NEW, noise=0.3)[:2])
        first = SquaredExponential(torch.full((x.shape[1],), 2.0, dtype=x.dtype), torch.ones((), dtype=x.dtype))
        kernel, sigma2 = fit_exact_gp(first, x[:few], y[:few], points=few, iterations=60)
        theta = {f"kernel.{name}": value.detach() for name, value in kernel.parameters().items()}
        theta |= {"likelihood.log_noise_variance": sigma2.log().detach()}
        return cls(x[:n], y[:n], x[n:], y[n:], Fourier(kernel, m, seed=1), theta)

    def features(self, theta: Theta, x: Tensor) -> Tensor:
        own = {name.removeprefix("kernel."): value for name, value in theta.items() if name.startswith("kernel.")}
        basis = Fourier(self.basis.kernel.with_parameters(own), self.basis.m, seed=1)  # type: ignore[arg-type]
        return basis.features(x, basis.columns(torch.arange(basis.m)))


def best_q(A: Tensor, k: int) -> Tensor:
    """The chevron of the least L_Sigma for the precision A: dense columns of the factor of A^-1, then Proposition 1."""
    C = torch.diag(A.diagonal().rsqrt())
    C[:, :k] = torch.linalg.cholesky(torch.linalg.inv(A))[:, :k]
    return C


def bound(data: Data, theta: Theta, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The ELBO at the best q, which its gradient in theta need not follow, with mu and C of that q."""
    Phi, sigma2 = data.features(theta, data.x), theta["likelihood.log_noise_variance"].exp()
    eye = torch.eye(data.basis.m, dtype=Phi.dtype)
    with torch.no_grad():
        mu = dense.posterior(data.y, Phi, eye, sigma2)[0]
        C = best_q(eye + Phi.mT @ Phi / sigma2, k)
    return dense.elbo(data.y, Phi, eye, mu, C, sigma2), mu, C


def learned(data: Data, k: int, words: tuple[str, ...] | None, rate: float, steps: int, final: float) -> Theta:
    chosen = Settings(learned=words)
    theta = {name: value.clone() for name, value in data.start.items()}
    moving = [value.requires_grad_() for name, value in theta.items() if chosen.learns(name)]
    adam = torch.optim.Adam(moving, lr=rate)
    for t in range(steps):
        adam.param_groups[0]["lr"] = decayed(rate, t, steps, final)
        adam.zero_grad()
        (-bound(data, theta, k)[0]).backward()  # type: ignore[no-untyped-call]
        adam.step()
    return {name: value.detach() for name, value in theta.items()}


def row(data: Data, theta: Theta, q: tuple[Tensor, Tensor, Tensor], optimum: Theta) -> dict[str, float]:
    """``q`` is the ELBO, mu and C."""
    n, (elbo, mu, C) = len(data.x), q
    with torch.no_grad():
        evidence = bound(data, theta, data.basis.m)[0]
        Phi, sigma2 = data.features(theta, data.x_new), theta["likelihood.log_noise_variance"].exp()
    mean, variance = Phi @ mu, (Phi @ C).square().sum(1) + sigma2
    ratio = {name: float((theta[name] - optimum[name]).mean().exp()) for name in theta}
    density = metrics.gaussian_log_density(data.y_new, mean, variance)
    return {
        "elbo": float(elbo.detach()) / n,
        "evidence": float(evidence) / n,
        "rmse": metrics.rmse(data.y_new, mean),
        "mnlp": metrics.mnlp(density),
        "cover": float(metrics.coverage(data.y_new, mean, variance)),
        "shape": ratio["kernel.log_lengthscale"],
        "signal": ratio["kernel.log_variance"],
        "noise": ratio["likelihood.log_noise_variance"],
    }


def stepped(
    data: Data, k: int, words: tuple[str, ...] | None, iterations: int
) -> tuple[Theta, tuple[Tensor, Tensor, Tensor]]:
    """By steps over all rows and functions, Newton for mu, rates as the estimators have them."""
    m, sigma2 = data.basis.m, data.start["likelihood.log_noise_variance"].exp()
    support = Support.build(data.basis.kernel, data.x[:50])
    problem = Problem(Arrays(data.x, data.y), data.basis, Gaussian(sigma2), Chevron(m, k), support)
    settings = Settings(len(data.x), m, None, iterations, final=0.05, hyper_rate=4 / iterations, learned=words)
    settings = replace(settings, mean_update="newton", control="none", learn_hyperparameters=words != ())
    state = fit(problem, replace(settings, every=iterations)).state
    theta = {name: value.detach() for name, value in state.theta.items()}
    Phi, rows = data.features(theta, data.x), state.rows
    mu, C = rows.mu[:, 0], problem.covariance.to_dense(rows.L, rows.log_c)
    noise = theta["likelihood.log_noise_variance"].exp()
    return theta, (dense.elbo(data.y, Phi, torch.eye(m, dtype=Phi.dtype), mu, C, noise), mu, C)


def shaped(data: Data, name: str) -> int:
    return {"meanfield": 0, "chevron": data.basis.m // 10, "full": data.basis.m}[name]


def by_steps(data: Data, shapes: list[str], far: int, iterations: int) -> list[dict[str, Any]]:
    optimum, rows = learned(data, data.basis.m, None, 0.05, far, 0.05), list[dict[str, Any]]()
    for name in shapes:
        for words, chosen in ({"nothing": ()} | LEARNED).items():
            theta, q = stepped(data, shaped(data, name), chosen, iterations)
            rows.append({"C": name, "learned": words, "rate": "door"} | row(data, theta, q, optimum))
            print(rows[-1], flush=True)
    return rows


def study(data: Data, shapes: list[str], far: int) -> list[dict[str, Any]]:
    m, rows = data.basis.m, list[dict[str, Any]]()
    # the paper's path in a thousandth of its steps, each as long as a thousand
    left = 1 - PAPER.frozen
    rates = {"far": (0.05, far, 0.05)}
    first = 1000 * PAPER.hyper_rate * PAPER.final**PAPER.frozen
    rates["paper"] = (first, int(left * PAPER.iterations / 1000), PAPER.final**left)
    optimum = learned(data, m, None, *rates["far"])
    for name in shapes:
        k = shaped(data, name)
        start = row(data, data.start, bound(data, data.start, k), optimum)
        rows.append({"C": name, "learned": "nothing", "rate": "-"} | start)
        for words, chosen in LEARNED.items():
            for rate, how in rates.items():
                theta = optimum if (k, words, rate) == (m, "all", "far") else learned(data, k, chosen, *how)
                found = row(data, theta, bound(data, theta, k), optimum)
                rows.append({"C": name, "learned": words, "rate": rate} | found)
                print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--functions", type=int, default=300)
    parser.add_argument("--few", type=int, default=300, help="rows that the hyperparameters start from")
    parser.add_argument("--steps", type=int, default=100, help="of Adam until the optimum of the bound")
    parser.add_argument("--shapes", nargs="+", default=["meanfield", "chevron", "full"], help="of C")
    parser.add_argument("--by-steps", type=int, metavar="N", help="train by N steps of `qsgp.paper.fit`")
    chosen = parser.parse_args()
    data = Data.of(chosen.rows, chosen.functions, chosen.few)
    if chosen.by_steps:
        rows = by_steps(data, chosen.shapes, chosen.steps, chosen.by_steps)
    else:
        rows = study(data, chosen.shapes, chosen.steps)
    show(rows, chosen.json, "empirical Bayes through the bound", seed=[0, 1])


if __name__ == "__main__":
    main()
