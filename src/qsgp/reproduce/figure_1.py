"""Figure 1: what a control variate leaves of the variance of mu^T Phi^T Phi mu / sigma2 and of its gradient.

kin40k with all its rows, m = 10,000 Fourier features, m_tilde = n_tilde = 500, mu a draw from the prior,
hyperparameters of an exact GP on 1,000 rows, 1,000 draws for each variance; Eq. (3) and kriging see the same draws.
Further rows change one thing at a time at rank 300. Fast: robot-arm data, fewer functions and draws.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from qsgp import datasets
from qsgp.bases import Fourier
from qsgp.bases.fourier import FourierColumns
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.paper import control_variates, theorems
from qsgp.paper.control_variates import Part
from qsgp.paper.sampling import Batch, draw, step_generator
from qsgp.paper.support import Support
from qsgp.paper.theorems import Sampled
from qsgp.reproduce.experiment import Case, Choice, Experiment, Row

ARM = "robot arm"
RANKS = (10, 30, 100, 300, 1000)
CHANGES = (  # one at a time
    "other rows for the hyperparameters",
    "another draw of mu",
    "other frequencies",
    "random phases for pairs",
    "another support set",
    "first rows as support set",
    "k-means centres as support set",
    "draws with replacement",
    "one lengthscale for all inputs",
    "lengthscales 1.1 times as long",
)


@dataclass(frozen=True)
class Setting:
    """What a study is of."""

    data: str = "kin40k"
    m: int = 10_000
    batch: int = 500  # m_tilde = n_tilde
    repeats: int = 1000
    points: int = 1000  # for the hyperparameters
    seed: int = 0
    change: str = "none"
    device: str = "cpu"


FAST = Setting(ARM, m=2000, batch=200, repeats=200, points=300)


class Study:
    """One fixed problem, and the variance of estimates over the draws of l, i and j."""

    def __init__(self, setting: Setting) -> None:
        self.setting, device = setting, setting.device
        self.x, y = (part.to(device) for part in rows_of(setting.data))
        self.kernel, self.sigma2 = learned(setting, self.x, y)
        seed = setting.seed
        self.basis = Fourier(self.kernel, setting.m, seed=seed + (1000 if self._is("other frequencies") else 0))
        self.columns = self.basis.columns(torch.arange(setting.m, device=device))
        if self._is("random phases for pairs"):
            self.columns = single(self.columns, self.kernel, setting)
        weights = torch.Generator().manual_seed(seed + (1000 if self._is("another draw of mu") else 0))
        self.mu = torch.randn(setting.m, generator=weights).to(device)  # S = I
        order = torch.Generator().manual_seed(seed + (1001 if self._is("another support set") else 1))
        self.order = torch.randperm(len(self.x), generator=order).to(device)

    def _is(self, change: str) -> bool:
        return self.setting.change == change

    def support(self, rank: int) -> Support:
        """The first ``rank`` of a random order, so that larger support sets contain the smaller ones."""
        U = self.x[self.order[:rank]]
        if self._is("first rows as support set"):
            U = self.x[:rank]
        if self._is("k-means centres as support set"):
            found = MiniBatchKMeans(rank, random_state=self.setting.seed, n_init=1).fit(self.x.cpu().numpy())
            U = torch.as_tensor(found.cluster_centers_, dtype=U.dtype, device=U.device)
        return Support.build(self.kernel, U)

    def features(self, x: Float[Tensor, "l d"], index: Tensor) -> Float[Tensor, "l i"]:
        return self.basis.features(x, FourierColumns(*(part[index] for part in self.columns)))

    def variances(self, kind: str, rank: int) -> tuple[float, float]:
        """Of the objective, and of its gradient averaged over its elements, relative to no control variate."""
        none = self.without
        found = self._measured(kind, rank) if kind != "none" else none
        return found[0] / none[0], found[1] / none[1]

    @cached_property
    def without(self) -> tuple[float, float]:
        return self._measured("none", 0)

    def _measured(self, kind: str, rank: int) -> tuple[float, float]:
        value, gradient, setting = Running(), Running(), self.setting
        support = self.support(rank) if kind != "none" else None
        Phi_p = self.features(support.U, torch.arange(setting.m, device=self.x.device)) if support else None
        with_repeats = self._is("draws with replacement")
        for t in range(setting.repeats):
            g = step_generator(setting.seed, t, self.x.device)
            batch = draw(len(self.x), setting.m, setting.batch, setting.batch, g, replacement=with_repeats)
            mu = self.mu.clone().requires_grad_()
            estimate = self.estimate(mu, batch, kind, support, Phi_p) / self.sigma2
            (slope,) = torch.autograd.grad(estimate, mu)
            value.add(estimate.detach())
            gradient.add(slope)
        return value.variance(), gradient.variance()

    def estimate(
        self, mu: Float[Tensor, " m"], batch: Batch, kind: str, support: Support | None, Phi_p: Tensor | None
    ) -> Float[Tensor, ""]:
        """The quadratic term of the mean's loss, times sigma2, with the control variate ``kind``."""
        n, m, x_l = len(self.x), len(mu), self.x[batch.l]
        V_u = mu[batch.drawn, None]
        V_i, V_j = batch.split(V_u)
        Phi_li, Phi_lj = batch.split(self.features(x_l, batch.drawn), 1)
        seen = Sampled.of(Phi_li, Phi_lj, V_i, V_j, n, m)
        value = theorems.gram_quadratic(seen).sum()
        if support is None or Phi_p is None:
            return value
        a, Phi_pu = (Phi_p @ self.mu)[:, None], Phi_p[:, batch.drawn]
        i, j = (Part(*pair) for pair in zip(batch.split(Phi_pu, 1), (V_i, V_j), strict=True))
        if kind == "gram":
            return value + control_variates.gram(i, j, Part(Phi_pu, V_u), batch.share(mu.dtype), a, n, m).sum()
        W, scale = support.weights(x_l), m / self.setting.batch
        f_i = control_variates.kriged(seen.F_i, scale * i.B @ i.V, a, W)
        f_j = control_variates.kriged(seen.F_j, scale * j.B @ j.V, a, W)
        no_target = torch.zeros_like(f_i)
        return value + control_variates.kriging(no_target, seen.F_i, seen.F_j, f_i, f_j, n).sum()

    @cached_property
    def alike(self) -> float:
        """Mean squared correlation k(x, x')^2 / k(x, x)^2 of two rows."""
        g = torch.Generator().manual_seed(0)
        rows = self.x[torch.randperm(len(self.x), generator=g)[:4000].to(self.x.device)]
        squares = (self.kernel(rows, rows) / self.kernel.variance).square()
        return float((squares.sum() - squares.diagonal().sum()) / (len(rows) * (len(rows) - 1)))

    def expected(self, rank: int) -> float:
        """What the paper's control variate should leave of the variance of the objective.

        Given i and j, F_i F_j is a function of x. Let its variance over rows be 1; that of its mean over all rows is
        then about c = `alike`, because F_i is mostly noise with the correlations of the kernel. Drawing rows l adds
        1 / n_tilde, and Eq. (3) puts the error 1 / n_bar of a mean over the support points in place of c.
        """
        of_rows = 1 / self.setting.batch
        return (of_rows + 1 / rank) / (of_rows + self.alike)


class Running:
    """Mean and variance of a tensor seen many times (Welford): no list of gradients is kept."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, torch.zeros(()), torch.zeros(())

    def add(self, value: Tensor) -> None:
        self.count += 1
        difference = value.double() - self.mean.to(value.device)
        self.mean = self.mean.to(value.device) + difference / self.count
        self.squares = self.squares.to(value.device) + difference * (value.double() - self.mean)

    def variance(self) -> float:
        """Averaged over the elements."""
        return float(self.squares.mean() / (self.count - 1))


def rows_of(name: str) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """All rows of a set, standardised."""
    if name == ARM:
        x, y = datasets.make_robot_arm(10_000, noise=0.3)
    else:
        data = datasets.load(name)
        x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    return torch.tensor(datasets.standardise(x)[0]), torch.tensor(datasets.standardise(y)[0])


def learned(
    setting: Setting, x: Float[Tensor, "n d"], y: Float[Tensor, " n"]
) -> tuple[SquaredExponential, Float[Tensor, ""]]:
    one = setting.change == "one lengthscale for all inputs"
    first = SquaredExponential(*hyperparameters(1.0, 1.0, d=1 if one else x.shape[1], device=x.device))
    other = setting.change == "other rows for the hyperparameters"
    kernel, sigma2 = fit_exact_gp(first, x, y, points=setting.points, seed=setting.seed + (1000 if other else 0))
    if setting.change == "lengthscales 1.1 times as long":
        kernel = replace(kernel, lengthscale=1.1 * kernel.lengthscale)
    return replace(kernel, lengthscale=kernel.lengthscale.expand(x.shape[1])), sigma2


def single(columns: FourierColumns, kernel: SquaredExponential, setting: Setting) -> FourierColumns:
    """A frequency and a random phase for every function, in place of cosine and sine of one frequency."""
    every_second = torch.arange(0, 2 * setting.m, 2, device=columns.phase.device)
    omega = Fourier(kernel, 2 * setting.m, seed=setting.seed).columns(every_second).omega
    phase = torch.rand(setting.m, generator=torch.Generator().manual_seed(setting.seed))
    return FourierColumns(omega, 2 * torch.pi * phase.to(omega))


@cache
def study(setting: Setting) -> Study:
    """Rows of one study share its hyperparameters and the variance without control variate."""
    return Study(setting)


def measured(setting: Setting, kind: str, rank: int) -> Row:
    of = study(setting)
    objective, gradient = of.variances(kind, rank)
    row = {"objective_variance": objective, "gradient_variance": gradient}
    return row | ({"expected": of.expected(rank)} if kind == "gram" else {})


def cases(choice: Choice) -> Iterable[Case]:
    setting = replace(FAST if choice.fast else Setting(), seed=choice.seed, device=choice.device)
    wanted = [(setting, kind, rank) for rank in RANKS for kind in ("gram", "kriging")]
    if not choice.fast:
        wanted += [(replace(setting, change=change), "gram", 300) for change in CHANGES]
    for one, kind, rank in wanted:
        key = {"data": one.data, "m": one.m, "repeats": one.repeats, "seed": one.seed}
        key |= {"change": one.change, "control_variate": kind, "rank": rank}
        yield Case(key, lambda one=one, kind=kind, rank=rank: measured(one, kind, rank))  # type: ignore[misc]


def summary(rows: Sequence[Row]) -> str:
    sentences = []
    for kind, words in (("gram", "Eq. (3)"), ("kriging", "kriging")):
        found = [row for row in rows if (row["control_variate"], row["rank"], row["change"]) == (kind, 300, "none")]
        sentences += [
            f"At rank 300 {words} makes the variance of the objective {1 / row['objective_variance']:.1f} times "
            f"smaller, that of the gradient {1 / row['gradient_variance']:.1f} times."
            for row in found
        ]
    changed = {row["change"]: 1 / row["objective_variance"] for row in rows if row["change"] != "none"}
    if changed:
        listed = "; ".join(f"{change} {factor:.1f}" for change, factor in changed.items())
        sentences.append(f"Eq. (3) at rank 300 with one thing changed: {listed}.")
    return " ".join(sentences)


def picture(rows: Sequence[Row], figure: Any) -> None:
    axes = figure.subplots(1, 2, sharey=True)
    plain = [row for row in rows if row["change"] == "none"]
    for ax, name in zip(axes, ("objective", "gradient"), strict=True):
        for kind, label in (("gram", "paper, Eq. (3)"), ("kriging", "kriging")):
            line = sorted((row["rank"], row[f"{name}_variance"]) for row in plain if row["control_variate"] == kind)
            ax.loglog(*zip(*line, strict=True), marker="o", label=label)
        ax.axhline(1, color="0.6", linewidth=1)
        ax.axhline(0.1, color="0.6", linewidth=1, linestyle=":")
        ax.set(title=name, xlabel="rank of the control variate")
    axes[0].set_ylabel("variance / without control variate")
    axes[0].legend(frameon=False)


FIGURE_1 = Experiment(
    "figure-1",
    "Figure 1: variance left by a control variate, relative to none",
    "at rank 300 Eq. (3) has lowered the variance of objective and gradient by an order of magnitude (kin40k).",
    cases,
    summary,
    picture,
)
