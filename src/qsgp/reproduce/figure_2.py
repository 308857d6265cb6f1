"""Figure 2: variances with and without augmentation (Proposition 4), beside those of the exact GP.

A noisy sinc at 20 points, inducing functions at all of them (Phi = S = K). Mean field, a chevron of five dense columns
and a full C are trained by the paper's steps: draws of ten points and twice ten functions, AdaGrad. The paper does not
say where its points are. Here they are at equal distances: two that lie close together make K so badly conditioned that
steps leave a full C half way. Fast or not, the figure is the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.bases import Inducing
from qsgp.data.arrays import Arrays
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import fit
from qsgp.paper.prediction import augment, predict
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.support import Support
from qsgp.reproduce.experiment import Case, Choice, Experiment, Row

POINTS, REACH, RANK = 20, 10.0, 10
COVARIANCES = {"mean field": 0, "chevron": 5, "full": POINTS}  # dense columns
SETTINGS = Settings(n_tilde=10, m_tilde=10, iterations=3000, rate=1.0, control="kriging", every=3000)


@dataclass(frozen=True)
class Sinc:
    """One draw of the data, with the kernel and the noise of an exact GP."""

    x: Float[Tensor, "n 1"]
    y: Float[Tensor, " n"]
    kernel: SquaredExponential
    sigma2: Float[Tensor, ""]

    @classmethod
    def of(cls, seed: int, device: str) -> "Sinc":
        x = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)[:, None]
        noise = torch.randn(POINTS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        x, y = x.to(device), (torch.sinc(x[:, 0] / torch.pi) + 0.1 * noise).to(device)
        first = SquaredExponential(*hyperparameters([2.0], 0.3, dtype=x.dtype, device=x.device))
        return cls(x, y, *fit_exact_gp(first, x, y))

    def problem(self, k: int) -> Problem:
        basis, support = Inducing(self.kernel, self.x), Support.build(self.kernel, self.x[:: POINTS // RANK])
        return Problem(Arrays(self.x, self.y), basis, Gaussian(self.sigma2), Chevron(POINTS, k), support)


def measured(seed: int, device: str, k: int, settings: Settings = SETTINGS) -> Row:
    """Deviations of f: averaged near the data, and at four times their reach, where the prior's is the exact one."""
    data = Sinc.of(seed, device)
    problem = data.problem(k)
    state = fit(problem, settings).state
    line = torch.linspace(-2 * REACH, 2 * REACH, 201, dtype=torch.float64, device=device)[:, None]
    away = line.new_full((1, 1), 4 * REACH)
    x = torch.cat([line, away])
    exact_mean, exact_variance = dense.gaussian_process(data.kernel, data.x, data.y, data.sigma2, x)
    plain = predict(problem, state, x)
    augmented = augment(plain, data.kernel, problem.source, x, data.sigma2)
    exact, without, with_it = (v.clamp_min(0).sqrt() for v in (exact_variance, plain.variance, augmented.variance))
    near = (x[:, 0].abs() <= REACH).nonzero()[:, 0]

    def distance(one: Tensor, other: Tensor) -> float:
        return float((one - other)[near].square().mean().sqrt())

    return {
        "near_exact": float(exact[near].mean()),
        "near_plain": float(without[near].mean()),
        "near_augmented": float(with_it[near].mean()),
        "far_exact": float(exact[-1]),
        "far_plain": float(without[-1]),
        "far_augmented": float(with_it[-1]),
        "distance_plain": distance(without, exact),
        "distance_augmented": distance(with_it, exact),
        "distance_mean": distance(plain.mean, exact_mean),
        "curves": {
            "x": line[:, 0].tolist(),
            "points": data.x[:, 0].tolist(),
            "targets": data.y.tolist(),
            "mean": plain.mean[:-1].tolist(),
            "exact_mean": exact_mean[:-1].tolist(),
            "exact": exact[:-1].tolist(),
            "plain": without[:-1].tolist(),
            "augmented": with_it[:-1].tolist(),
        },
    }


def cases(choice: Choice) -> Iterable[Case]:
    for name, k in COVARIANCES.items():
        key = {"covariance": name, "dense_columns": k, "seed": choice.seed}
        yield Case(key, lambda k=k: measured(choice.seed, choice.device, k))  # type: ignore[misc]


def summary(rows: Sequence[Row]) -> str:
    return "\n".join(
        f"{row['covariance']}: far from the data the deviation is {row['far_plain']:.3f}, with augmentation "
        f"{row['far_augmented']:.3f}, that of the exact GP {row['far_exact']:.3f}. Near the data it is "
        f"{row['distance_plain']:.3f} from the exact one, with augmentation {row['distance_augmented']:.3f}."
        for row in rows
    )


def picture(rows: Sequence[Row], figure: Any) -> None:
    """A column for each covariance; without augmentation above, with it below."""
    figure.set_size_inches(10, 5)
    axes = figure.subplots(2, len(rows), sharex=True, sharey=True, squeeze=False)
    for column, row in enumerate(rows):
        curves = {name: torch.tensor(values) for name, values in row["curves"].items()}
        for ax, kind in zip(axes[:, column], ("plain", "augmented"), strict=True):
            low, high = curves["mean"] - 2 * curves[kind], curves["mean"] + 2 * curves[kind]
            ax.fill_between(curves["x"], low, high, alpha=0.3, linewidth=0, label="mean and two deviations")
            ax.plot(curves["x"], curves["mean"])
            for sign, label in ((-2, "exact GP"), (2, None)):
                edge = curves["exact_mean"] + sign * curves["exact"]
                ax.plot(curves["x"], edge, "--", color="C1", linewidth=1, label=label)
            ax.plot(curves["points"], curves["targets"], ".k", markersize=4)
            ax.set_title(row["covariance"] + (", augmented" if kind == "augmented" else ""), fontsize="medium")
    axes[0, 0].legend(frameon=False, fontsize="small", loc="lower left")


FIGURE_2 = Experiment(
    "figure-2",
    "Figure 2: deviations of f with and without augmentation",
    "near the data all agree with the exact GP; beyond them augmentation returns to the prior, without it the "
    "deviation falls to zero, and a full C is better than mean field where the data end.",
    cases,
    summary,
    picture,
)
