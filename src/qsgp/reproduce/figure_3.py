"""Figure 3: how many of 500 kernel functions a relevance vector machine keeps of a noisy sinc, and how well.

n = m = 500, k = 10 dense columns, rank 250, batches of 100 points and 250 functions. Three ways to train: the paper's
settings as printed (AdaGrad at rate 0.1, Eq. (3)); steps implicit in the prior, which stay sparse; and the relevance
vector machine whose evidence is maximised exactly, with no sampling (``bound`` is then the evidence). fastrvm, where it
is installed, is a fourth. ``rmse`` is against the sinc itself. Fast: 200 points, batches and steps in proportion.
"""

import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.bases import KernelFunctions
from qsgp.data.arrays import Arrays
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import fit
from qsgp.paper.prediction import predict, relevance_vectors
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.support import Support
from qsgp.reproduce.experiment import Case, Choice, Experiment, Row

POINTS, FAST_POINTS, DENSE, FINITE = 500, 200, 10, 1e4
PRINTED = Settings(n_tilde=100, m_tilde=250, iterations=3000, rate=0.1, control="gram", covariance_update="entry")
IMPLICIT = replace(PRINTED, iterations=600, control="kriging", mean_update="implicit", covariance_update="row")
WAYS = {"the paper's settings": PRINTED, "implicit steps": IMPLICIT}
EXACT, LIBRARY = "exact evidence", "fastrvm"


@dataclass(frozen=True)
class Sinc:
    """One draw of the data, standardised, with the kernel and the noise of an exact GP."""

    x: Float[Tensor, "n 1"]
    y: Float[Tensor, " n"]
    centre: Float[Tensor, ""]
    scale: Float[Tensor, ""]
    kernel: SquaredExponential
    sigma2: Float[Tensor, ""]

    @classmethod
    def of(cls, seed: int, points: int = POINTS, device: str = "cpu") -> "Sinc":
        g = torch.Generator().manual_seed(seed)
        x = 20 * torch.rand(points, 1, generator=g, dtype=torch.float64) - 10
        y = sinc(x) + 0.1 * torch.randn(points, generator=g, dtype=torch.float64)
        x, y = x.to(device), y.to(device)
        target = (y - y.mean()) / y.std()
        first = SquaredExponential(*hyperparameters([2.0], 1.0, dtype=x.dtype, device=x.device))
        kernel, sigma2 = fit_exact_gp(first, x, target, points=300)
        return cls(x, target, y.mean(), y.std(), kernel, sigma2)

    def problem(self, k: int = DENSE) -> Problem:
        m = len(self.x)
        support = Support.build(self.kernel, self.x[: m // 2])
        basis = KernelFunctions(self.kernel, self.x)
        return Problem(Arrays(self.x, self.y), basis, Gaussian(self.sigma2), Chevron(m, k), support)

    def features(self, x: Float[Tensor, "t 1"]) -> Float[Tensor, "t n"]:
        return KernelFunctions(self.kernel, self.x).features(x, self.x)

    def line(self) -> Float[Tensor, "t 1"]:
        return torch.linspace(-10, 10, 400, dtype=torch.float64, device=self.x.device)[:, None]

    def found(
        self,
        bound: float | None,
        kept: Int[Tensor, " v"],
        mean: Float[Tensor, " t"],
        variance: Float[Tensor, " t"],
    ) -> Row:
        """A row: mean and variance of standardised y on the line, in the unit of the data."""
        mean, line = mean * self.scale + self.centre, self.line()
        y = self.y * self.scale + self.centre
        return {
            "vectors": len(kept),
            "rmse": float((mean - sinc(line)).square().mean().sqrt()),
            "bound": bound,
            "curves": {
                "x": line[:, 0].tolist(),
                "mean": mean.tolist(),
                "deviation": (variance.sqrt() * self.scale).tolist(),
                "points": self.x[:, 0].tolist(),
                "targets": y.tolist(),
                "vectors": self.x[kept, 0].tolist(),
                "vector_targets": y[kept].tolist(),
            },
        }


def sinc(x: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
    return torch.sinc(x[:, 0] / torch.pi)


def trained(data: Sinc, settings: Settings, k: int = DENSE) -> Row:
    """The bound is exact: Eq. (2) at full n and m."""
    problem = data.problem(k)
    state = fit(problem, settings).state
    rows = state.rows
    assert rows.log_s is not None
    C = problem.covariance.to_dense(rows.L, rows.log_c)
    S = torch.diag(rows.log_s.exp())
    bound = dense.elbo(data.y, data.features(data.x), S, rows.mu[:, 0], C, data.sigma2)
    mean, variance = predict(problem, state, data.line(), relevant=FINITE).moments()
    return data.found(float(bound), relevance_vectors(state, FINITE), mean, variance)


def exact(data: Sinc, rounds: int = 3000) -> Row:
    """MacKay's fixed point s = (1 - s Sigma_ii) / mu_i^2 (Tipping, 2001), with the exact posterior in every round."""
    Phi, left = data.features(data.x), torch.arange(len(data.x), device=data.x.device)
    s = Phi.new_ones(len(left))
    for _ in range(rounds):
        mu, Sigma = dense.posterior(data.y, Phi[:, left], torch.diag(s), data.sigma2)
        s = (1 - s * Sigma.diagonal()).clamp_min(1e-12) / mu.square().clamp_min(1e-30)
        left, s = left[s < 1e10], s[s < 1e10]
    evidence = dense.log_evidence(data.y, Phi[:, left], torch.diag(s), data.sigma2)
    left, s = left[s < FINITE], s[s < FINITE]
    mu, Sigma = dense.posterior(data.y, Phi[:, left], torch.diag(s), data.sigma2)
    phi = data.features(data.line())[:, left]
    variance = (phi @ Sigma * phi).sum(1) + data.sigma2
    return data.found(float(evidence), left, phi @ mu, variance)


def by_fastrvm(data: Sinc) -> Row:
    """The same kernel and data; noise and precisions are its own."""
    gamma = 0.5 / float(data.kernel.lengthscale) ** 2
    model = importlib.import_module(LIBRARY).RVR(kernel="rbf", gamma=gamma)
    model.fit(data.x.cpu().numpy(), data.y.cpu().numpy())
    found = model.predict(data.line().cpu().numpy(), return_std=True)
    mean, deviation = (torch.as_tensor(part, dtype=data.y.dtype, device=data.y.device) for part in found)
    kept = torch.as_tensor(model.relevance_, device=data.y.device).long()
    return data.found(None, kept, mean, deviation.square())


def measured(way: str, points: int, seed: int, device: str) -> Row:
    data = Sinc.of(seed, points, device)
    if way == EXACT:
        return exact(data, rounds=3000 if points == POINTS else 1000)
    if way == LIBRARY:
        return by_fastrvm(data)
    return trained(data, smaller(WAYS[way], points / POINTS))


def smaller(settings: Settings, part: float) -> Settings:
    """Batches and steps in proportion to the points."""
    n_tilde, m_tilde = int(part * settings.n_tilde), int(part * settings.m_tilde)
    return replace(settings, n_tilde=n_tilde, m_tilde=m_tilde, iterations=int(part * settings.iterations))


def cases(choice: Choice) -> Iterable[Case]:
    points = FAST_POINTS if choice.fast else POINTS
    ways = [*WAYS, EXACT, *([LIBRARY] if importlib.util.find_spec(LIBRARY) else [])]
    for way in ways:
        key = {"training": way, "points": points, "seed": choice.seed}
        yield Case(key, lambda way=way: measured(way, points, choice.seed, choice.device))  # type: ignore[misc]


def summary(rows: Sequence[Row]) -> str:
    kept = "; ".join(f"{row['training']} {row['vectors']} of {row['points']}, RMSE {row['rmse']:.4f}" for row in rows)
    missing = "" if any(row["training"] == LIBRARY for row in rows) else " fastrvm is not installed, and was left out."
    return f"Relevance vectors: {kept}.{missing}"


def picture(rows: Sequence[Row], figure: Any) -> None:
    figure.set_size_inches(10, 3 * ((len(rows) + 1) // 2))
    axes = figure.subplots((len(rows) + 1) // 2, 2, sharey=True, squeeze=False)
    for ax, row in zip(axes.flat, rows, strict=False):
        curves = {name: torch.tensor(values) for name, values in row["curves"].items()}
        low, high = curves["mean"] - curves["deviation"], curves["mean"] + curves["deviation"]
        ax.fill_between(curves["x"], low, high, alpha=0.25, linewidth=0)
        ax.plot(curves["x"], curves["mean"], label="mean and one deviation of y")
        ax.plot(curves["points"], curves["targets"], ".k", markersize=2, label="training points")
        ax.plot(curves["vectors"], curves["vector_targets"], "ok", markersize=6, label="relevance vectors")
        ax.set_title(f"{row['training']}: {row['vectors']} vectors", fontsize="medium")
    for ax in axes.flat[len(rows) :]:
        ax.set_visible(False)
    axes[0, 0].legend(frameon=False, fontsize="small", loc="upper left")


FIGURE_3 = Experiment(
    "figure-3",
    "Figure 3: relevance vectors of a noisy sinc",
    "13 of 500 functions are left (s < 10,000).",
    cases,
    summary,
    picture,
)
