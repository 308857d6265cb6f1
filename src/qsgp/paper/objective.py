"""The sampled negative ELBO of one batch: the theorems, the bounds and the control variates put together.

`loss` is what a step differentiates, and what the tests average over every batch of a small problem.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.interfaces import DensePriorBasis, Likelihood, Parameters
from qsgp.paper import bounds, control_variates, dense, theorems
from qsgp.paper.log_determinant import log_determinant
from qsgp.paper.problem import Problem, at_hyperparameters
from qsgp.paper.sampling import Batch
from qsgp.paper.settings import Control, Settings
from qsgp.paper.state import Rows, State
from qsgp.paper.support import Support


@dataclass(frozen=True)
class SupportValues:
    """What is known exactly at the support points before the draw; all constants of this step."""

    support: Support
    Phi_p: Float[Tensor, "p drawn"]  # features of the drawn functions there, at the initial kernel (Appendix F.3)
    a: Float[Tensor, "p c"]  # of the columns of C that were drawn
    variance: Float[Tensor, " p"] | None  # of all columns
    B: Float[Tensor, "p drawn"] | None = None  # Nystrom factor of a dense S
    a_prior: Float[Tensor, "p c"] | None = None

    def site_moments(self, W: Float[Tensor, "l p"], outputs: int) -> tuple[Float[Tensor, "l o"], Float[Tensor, " l"]]:
        """`kriged_moments` with the weights W."""
        assert self.variance is not None
        floor = 1e-8 * self.support.kernel.diag(self.support.U)
        return kriged_moments(self.a[:, :outputs], self.variance, floor, lambda values: W @ values)


def kriged_moments(
    mean: Float[Tensor, "p o"],
    variance: Float[Tensor, " p"],
    floor: Float[Tensor, " p"],
    kriged: Callable[[Tensor], Tensor],
) -> tuple[Float[Tensor, "l o"], Float[Tensor, " l"]]:
    """Mean and variance of f from those at the support points: independent of the draw, as eta and xi must be.

    The variance is kriged about its average and kept inside the range seen there. ``kriged`` takes columns.
    """
    variance = variance.clamp_min(floor)
    average = variance.mean()
    both = kriged(torch.cat([mean, (variance - average)[:, None]], 1))
    return both[:, :-1], torch.clamp(average + both[:, -1], min=0.5 * variance.min(), max=2 * variance.max())


class Estimate(NamedTuple):
    """The loss of one batch, the terms it is half the sum of, and what it was computed from."""

    loss: Float[Tensor, ""]
    terms: dict[str, Tensor]
    drawn: "Drawn"
    values: SupportValues | None


def loss(
    problem: Problem,
    state: State,
    batch: Batch,
    touched: Float[Tensor, "u w"],
    theta: Parameters,
    settings: Settings,
) -> Estimate:
    """Half the sampled -2 ELBO of ``batch``, in the mean over batches the ELBO itself (below it for other sites).

    ``touched`` is what `State.gather` takes from the table, ``theta`` the hyperparameters: what gradients are taken
    with respect to. Of ``state`` only the running products are read, constants of this step.
    """
    columns = problem.basis.columns(batch.drawn)
    wanted = settings.control != "none" or problem.needs_support
    values = support_values(problem, state, columns, batch.dense) if wanted else None
    drawn = Drawn.of(problem, batch, columns, state.named(touched, batch.dense), theta)
    if drawn.likelihood.fixed_sites:
        sigma2 = drawn.likelihood.noise_variance
        assert sigma2 is not None
        terms = gaussian_terms(drawn, sigma2, values, settings.control)
    else:
        assert values is not None
        terms = site_terms(drawn, values, settings)
    terms |= constant_terms(drawn)
    return Estimate(0.5 * torch.stack(list(terms.values())).sum(), terms, drawn, values)


def support_values(
    problem: Problem, state: State, columns: object, dense: Int[Tensor, " r"] | None = None
) -> SupportValues:
    """The drawn functions at the support points, with the initial kernel: Appendix F.3."""
    assert state.a is not None
    a, a_prior = state.a, state.a_prior
    if dense is not None:
        at = state.columns(dense)[: state.outputs + len(dense)]
        a, a_prior = a[:, at], None if a_prior is None else a_prior[:, at]
    with torch.no_grad():
        Phi_p = problem.basis.features(problem.support.U, columns)
        B = None
        if a_prior is not None:
            B = control_variates.nystrom_factor(problem.support.factor, Phi_p)
    return SupportValues(problem.support, Phi_p, a, state.variance, B, a_prior)


@dataclass(frozen=True)
class Drawn:
    """One batch: its points, and for the functions it drew rows of the table, features and prior precision."""

    batch: Batch
    x: Float[Tensor, "l d"]
    y: Float[Tensor, "l o"]
    weight: Float[Tensor, " l"] | None
    likelihood: Likelihood  # at the current hyperparameters
    V: Float[Tensor, "drawn c"]  # [mu, C_dense] at the drawn functions, of C_dense the columns that were drawn
    c: Float[Tensor, " drawn"]  # diagonal of C there
    arm: Float[Tensor, " drawn"]  # 1 where that column of C is diagonal
    Phi: Float[Tensor, "l drawn"]
    s: Float[Tensor, " drawn"]  # diagonal of S
    S_ji: Float[Tensor, "j i"] | None  # block of a dense S
    log_S: Float[Tensor, ""] | None  # of a dense S, where it is estimated
    n: int
    m: int
    k: int  # dense columns of C, drawn or not

    @classmethod
    def of(cls, problem: Problem, batch: Batch, columns: Any, rows: Rows, theta: Parameters) -> "Drawn":
        """``rows`` are those of ``batch.touched``, ``columns`` what the drawn functions are made of."""
        basis, likelihood = at_hyperparameters(problem, theta)
        index, at, chevron = batch.drawn, batch.at, problem.covariance
        x, y = problem.source.take(batch.l)
        log_c = rows.log_c[at]
        V = torch.cat([rows.mu[at], chevron.dense_columns(index, rows.L[at], log_c, batch.dense)], 1)
        s = basis.precision_diag(index) if rows.log_s is None else rows.log_s[at].exp()
        S_ji = log_S = None
        if isinstance(basis, DensePriorBasis):
            i, j = batch.split(torch.arange(len(index), device=index.device))[:2]
            S_ji = basis.precision(columns[j], columns[i])
            if batch.looked is not None and problem.earlier is not None:
                log_S = log_determinant(basis, problem.earlier, batch.looked)
        return cls(
            batch,
            x,
            y.reshape(len(y), -1),
            problem.source.weights(batch.l),
            likelihood,
            V,
            log_c.exp(),
            chevron.diagonal_rows(index, V.dtype),
            basis.features(x, columns),
            s,
            S_ji,
            log_S,
            problem.source.n,
            basis.m,
            chevron.k,
        )

    @property
    def outputs(self) -> int:
        """How many columns of V are means."""
        return self.y.shape[1]

    @property
    def per_column(self) -> float:
        """k / r_tilde: how many dense columns a drawn one stands for."""
        return self.k / max(self.V.shape[1] - self.outputs, 1)

    @property
    def S(self) -> theorems.Precision:
        """The prior precision as the theorems take it: the block of a dense S, the diagonal at i and at j."""
        if self.S_ji is not None:
            return self.S_ji
        s_i, s_j = self.batch.split(self.s)[:2]
        return s_i, s_j

    def sampled(self) -> theorems.Sampled:
        """V and its predictions from the draws i and j."""
        Phi, V = self.batch.split(self.Phi, 1), self.batch.split(self.V)
        return theorems.Sampled.of(Phi[0], Phi[1], V[0], V[1], self.n, self.m)

    def weighted(self) -> "Drawn":
        """For what is quadratic in the rows l: there a weight of a point scales its row by the root of it."""
        if self.weight is None:
            return self
        root = self.weight.sqrt()[:, None]
        return replace(self, Phi=root * self.Phi, y=root * self.y)

    def total(self, of_columns: Float[Tensor, " c"]) -> Float[Tensor, ""]:
        """Sum over [mu, C_dense] from the columns drawn. All outputs share C: it counts once for each of them."""
        dense = self.per_column * of_columns[self.outputs :].sum()
        return of_columns[: self.outputs].sum() + self.outputs * dense

    def predictions(self, Phi: Float[Tensor, "x drawn"]) -> list[Float[Tensor, "x c"]]:
        """(m / m_tilde) Phi_i V_i for each of the draws i, j (and r)."""
        parts = zip(self.batch.split(Phi, 1), self.batch.split(self.V), strict=True)
        return [self.m / len(V_i) * (Phi_i @ V_i) for Phi_i, V_i in parts]

    def sketched(self, B: Float[Tensor, "p drawn"]) -> list[control_variates.Part]:
        """A sketch at the draws i and j, and at all that was drawn."""
        B_of, V_of = self.batch.split(B, 1), self.batch.split(self.V)
        pairs = ((B_of[0], V_of[0]), (B_of[1], V_of[1]), (B, self.V))
        return [control_variates.Part(*pair) for pair in pairs]


def gaussian_terms(
    drawn: Drawn, sigma2: Float[Tensor, ""], values: SupportValues | None, control: Control
) -> dict[str, Tensor]:
    """L_mu and L_Sigma as the theorems estimate them, and control variates of zero mean."""
    drawn, o, S = drawn.weighted(), drawn.outputs, drawn.S
    seen = drawn.sampled()
    mu, C = seen.columns(slice(None, o)), seen.columns(slice(o, None))
    dense = theorems.covariance_loss(C, drawn.c, S, sigma2, columns=drawn.k)
    arms = theorems.diagonal_quadratic(drawn.Phi, drawn.s, drawn.arm * drawn.c, sigma2, drawn.n, drawn.m)
    terms = {"mean": theorems.mean_loss(drawn.y, mu, S, sigma2), "covariance": o * (dense + arms)}
    if values is not None and control == "kriging":
        terms["control"] = drawn.total(_kriging(drawn, seen, values)) / sigma2
    elif values is not None and control == "gram":
        i, j, every = drawn.sketched(values.Phi_p)
        share = drawn.batch.share(drawn.V.dtype)
        known = control_variates.gram(i, j, every, share, values.a, drawn.n, drawn.m)
        terms["control"] = drawn.total(known) / sigma2
    return terms | nystrom_terms(drawn, values)


def _kriging(drawn: Drawn, seen: theorems.Sampled, values: SupportValues) -> Float[Tensor, " c"]:
    W = values.support.weights(drawn.x)
    W = W if drawn.weight is None else drawn.weight.sqrt()[:, None] * W
    targets = torch.cat([drawn.y, drawn.y.new_zeros(len(drawn.y), drawn.V.shape[1] - drawn.outputs)], 1)
    F_pi, F_pj = (F.detach() for F in drawn.predictions(values.Phi_p)[:2])
    f_i = control_variates.kriged(seen.F_i, F_pi, values.a, W)
    f_j = control_variates.kriged(seen.F_j, F_pj, values.a, W)
    return control_variates.kriging(targets, seen.F_i, seen.F_j, f_i, f_j, drawn.n)


def nystrom_terms(drawn: Drawn, values: SupportValues | None) -> dict[str, Tensor]:
    """The control variate of a dense S."""
    if drawn.S_ji is None or values is None or values.B is None or values.a_prior is None:
        return {}
    i, j, every = drawn.sketched(values.B)
    known = control_variates.nystrom(i, j, every, drawn.batch.share(drawn.V.dtype), values.a_prior, drawn.m)
    return {"prior control": drawn.total(known)}


def prior_terms(drawn: Drawn, values: SupportValues | None) -> dict[str, Tensor]:
    """mu^T S mu + tr(S Sigma) - log |Sigma|: what Theorems 1 and 2 have beside the likelihood."""
    c_arm = (drawn.arm * drawn.c)[:, None]
    arms = theorems.prior_quadratic(drawn.s, c_arm, c_arm, drawn.m).sum()
    if drawn.S_ji is None:  # every draw serves, r too
        dense = theorems.prior_quadratic(drawn.s, drawn.V, drawn.V, drawn.m)
    else:
        V_i, V_j = drawn.batch.split(drawn.V)[:2]
        dense = theorems.prior_quadratic(drawn.S_ji, V_i, V_j, drawn.m)
    covariance = arms - theorems.log_determinant(drawn.c, drawn.m)
    return {"prior": drawn.outputs * covariance + drawn.total(dense)} | nystrom_terms(drawn, values)


def site_terms(drawn: Drawn, values: SupportValues, settings: Settings) -> dict[str, Tensor]:
    """-2 times a lower bound of E_q log Pr(y | X, w) (bounds A, B, Q; as printed it is none), and the prior.

    Every pair (point, output) is a site of its own; they share the variance of their point.
    """
    if settings.bound == "A":
        bound = _bound_a(drawn)
    else:
        bound = _bound_b_or_q(drawn, values, settings)
    return {"fit": -2 * bound} | prior_terms(drawn, values)


def _sites(drawn: Drawn) -> tuple[Float[Tensor, " sites"], int, Float[Tensor, " sites"] | None]:
    """Targets of all sites, how many there are in the whole data, and their weights."""
    weight = None if drawn.weight is None else drawn.weight.repeat_interleave(drawn.outputs)
    return drawn.y.reshape(-1), drawn.n * drawn.outputs, weight


def _bound_a(drawn: Drawn) -> Float[Tensor, ""]:
    """The average of both: i and j serve as each other's mirror."""
    y, sites, weight = _sites(drawn)
    given = [(f.reshape(-1), v.repeat_interleave(drawn.outputs)) for f, v in _given_i(drawn)]
    both = [bounds.site_bound_a(drawn.likelihood, y, f, v, sites, weight) for f, v in given]
    return 0.5 * (both[0] + both[1])


def _bound_b_or_q(drawn: Drawn, values: SupportValues, settings: Settings) -> Float[Tensor, ""]:
    o, likelihood = drawn.outputs, drawn.likelihood
    y, sites, weight = _sites(drawn)
    W = values.support.weights(drawn.x)
    f_i, f_j = _site_arguments(drawn, values, W, settings.control)
    # i and j alone: r carries the path of a and must stay independent of all that the site sees.
    Phi_i, Phi_j = drawn.batch.split(drawn.Phi, 1)[:2]
    c_i, c_j = drawn.batch.split(drawn.arm * drawn.c)[:2]
    arms = 0.5 * (bounds.diagonal_variance(Phi_i, c_i, drawn.m) + bounds.diagonal_variance(Phi_j, c_j, drawn.m))
    v_hat = (drawn.per_column * (f_i[:, o:] * f_j[:, o:]).sum(1) + arms).repeat_interleave(o)
    mean_i, mean_j = f_i[:, :o].reshape(-1), f_j[:, :o].reshape(-1)
    if settings.bound == "printed":
        printed = [dense.printed_theorem_3(likelihood, y, f, v_hat, sites, weight) for f in (mean_i, mean_j)]
        return 0.5 * (printed[0] + printed[1])
    known_mean, known_variance = (moment.detach() for moment in values.site_moments(W, o))
    known_variance = known_variance.repeat_interleave(o)
    if settings.bound == "Q":
        xi = likelihood.optimal_xi(y, known_mean.reshape(-1), known_mean.reshape(-1).square() + known_variance)
        moments = bounds.Moments(0.5 * (mean_i + mean_j), mean_i * mean_j, v_hat)
        return bounds.site_bound_q(likelihood, y, moments, xi, sites, weight)
    eta = known_variance.sqrt()
    both = [bounds.site_bound_b(likelihood, y, f, v_hat, eta, sites, weight) for f in (mean_i, mean_j)]
    return 0.5 * (both[0] + both[1])


def _site_arguments(
    drawn: Drawn, values: SupportValues, W: Float[Tensor, "l p"], control: Control
) -> tuple[Float[Tensor, "l c"], Float[Tensor, "l c"]]:
    """What i and what j predict, kriged where that is wanted."""
    seen = drawn.sampled()
    if control != "kriging":
        return seen.F_i, seen.F_j
    F_pi, F_pj, F_pr = drawn.predictions(values.Phi_p)
    return (
        control_variates.kriged_in_site(seen.F_i, F_pi, F_pr, values.a, W),
        control_variates.kriged_in_site(seen.F_j, F_pj, F_pr, values.a, W),
    )


def _given_i(drawn: Drawn) -> list[tuple[Float[Tensor, "l o"], Float[Tensor, " l"]]]:
    """Mean and variance of the argument of bound A given i, and given j."""
    parts = zip(
        drawn.batch.draws[:2],
        drawn.batch.split(drawn.Phi, 1)[:2],
        drawn.batch.split(drawn.V)[:2],
        drawn.batch.split(drawn.arm * drawn.c)[:2],
        strict=True,
    )
    both, m = [], drawn.m
    for index, Phi_i, V_i, c_i in parts:
        _, at, counts = torch.unique(index, return_inverse=True, return_counts=True)
        variance = bounds.conditional_variance(Phi_i, V_i[:, drawn.outputs :], m)
        variance = variance + bounds.conditional_diagonal_variance(Phi_i, c_i, counts[at].to(c_i.dtype), m)
        both.append((m / len(V_i) * (Phi_i @ V_i[:, : drawn.outputs]), variance))
    return both


def site_curvature(drawn: Drawn, values: SupportValues | None) -> Float[Tensor, " l"]:
    """-d^2 log g / df^2 of the quadratic sites: 1 / sigma2 for Gaussian noise, a majorant for the others.

    One Hessian serves all outputs: the largest curvature of a point is taken, times its weight.
    """
    y, likelihood = drawn.y, drawn.likelihood
    mean, variance = torch.zeros_like(y), torch.zeros_like(y[:, 0])
    if values is not None and values.variance is not None:
        mean, variance = values.site_moments(values.support.weights(drawn.x), y.shape[1])
    xi = likelihood.optimal_xi(y, mean, mean.square() + variance[:, None])
    curvature = -2 * likelihood.quadratic_bound(y, xi).quadratic.detach().amin(1)
    return curvature if drawn.weight is None else drawn.weight * curvature


def constant_terms(drawn: Drawn) -> dict[str, Tensor]:
    """Proposition 2; for other likelihoods its part without data. None for a dense S whose log |S| is not estimated."""
    n, m, likelihood, weight, log_S = drawn.n, drawn.m, drawn.likelihood, drawn.weight, drawn.log_S
    if drawn.S_ji is not None and log_S is None:
        return {}
    if not likelihood.fixed_sites:
        log_S = m / len(drawn.s) * drawn.s.log().sum() if log_S is None else log_S
        return {"constant": drawn.outputs * (-log_S - m)}
    sigma2 = likelihood.noise_variance
    assert sigma2 is not None
    y = drawn.y if weight is None else weight.sqrt()[:, None] * drawn.y
    if log_S is None:
        constant = sum(theorems.constant_loss(target, drawn.s, sigma2, n, m) for target in y.mT)
    else:
        constant = sum(theorems.constant_loss_dense(target, log_S, sigma2, n, m) for target in y.mT)
    if weight is not None:  # n log(2 pi sigma2) counts every point once
        constant = constant + drawn.outputs * n * (weight.mean() - 1) * torch.log(2 * math.pi * sigma2)
    return {"constant": torch.as_tensor(constant)}
