"""The sampled negative ELBO of one batch, assembled from the estimators, the bounds and the control variates."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Basis, DensePriorBasis, Likelihood
from qsgp.paper import bounds, control_variates
from qsgp.paper import theorems as estimators
from qsgp.paper.chevron import Chevron
from qsgp.paper.sampling import Batch
from qsgp.paper.state import Rows
from qsgp.paper.support import Support

Control = Literal["none", "gram", "kriging"]
Bound = Literal["A", "B", "Q"]


@dataclass(frozen=True)
class SupportValues:
    """What is known exactly at the support points before the draw; all constants of this step."""

    support: Support
    Phi_p: Float[Tensor, "p drawn"]  # features of the drawn functions there, at the initial kernel (Appendix F.3)
    a: Float[Tensor, "p c"]
    spread: Float[Tensor, " p"] | None
    B: Float[Tensor, "p drawn"] | None = None  # Nystrom factor of a dense S
    a_prior: Float[Tensor, "p c"] | None = None

    def site_moments(self, W: Float[Tensor, "l p"], outputs: int) -> tuple[Float[Tensor, "l o"], Float[Tensor, " l"]]:
        """Kriged mean and variance of f for the weights W: independent of the draw, as eta and xi must be.

        The variance is kriged about its average and kept inside the range seen at the support points.
        """
        variance = self.a[:, outputs:].square().sum(1)
        variance = variance if self.spread is None else variance + self.spread
        variance = variance.clamp_min(1e-8 * self.support.kernel.diag(self.support.U))
        average = variance.mean()
        at_x = average + W @ (variance - average)
        return W @ self.a[:, :outputs], torch.clamp(at_x, min=0.5 * variance.min(), max=2 * variance.max())


@dataclass(frozen=True)
class Drawn:
    """The drawn functions of one batch: rows of the table, features, prior precision."""

    batch: Batch
    V: Float[Tensor, "drawn c"]  # [mu, C_dense] at the drawn functions
    outputs: int  # how many columns of V are means
    c: Float[Tensor, " drawn"]  # diagonal of C there
    arm: Float[Tensor, " drawn"]  # 1 where that column of C is diagonal
    Phi: Float[Tensor, "l drawn"]
    s: Float[Tensor, " drawn"]  # diagonal of S
    S_ji: Float[Tensor, "j i"] | None  # block of a dense S

    @classmethod
    def of(cls, batch: Batch, rows: Rows, chevron: Chevron, basis: Basis, columns: Any, x: Tensor) -> "Drawn":
        index, at = batch.drawn, batch.at
        log_c = rows.log_c[at]
        V = torch.cat([rows.mu[at], chevron.dense_columns(index, rows.L[at], log_c)], 1)
        s = basis.precision_diag(index) if rows.log_s is None else rows.log_s[at].exp()
        S_ji = None
        if isinstance(basis, DensePriorBasis):
            i, j = batch.split(torch.arange(len(index), device=index.device))[:2]
            S_ji = basis.precision(columns[j], columns[i])
        arm = chevron.diagonal_rows(index, V.dtype)
        return cls(batch, V, rows.mu.shape[1], log_c.exp(), arm, basis.features(x, columns), s, S_ji)

    def total(self, of_columns: Float[Tensor, " c"]) -> Float[Tensor, ""]:
        """Sum over [mu, C_dense]. All outputs share C, so its columns count once for each of them."""
        return of_columns[: self.outputs].sum() + self.outputs * of_columns[self.outputs :].sum()

    def predictions(self, Phi: Float[Tensor, "x drawn"], m: int) -> list[Float[Tensor, "x c"]]:
        """(m / m_tilde) Phi_i V_i for each of the draws i, j (and r)."""
        parts = zip(self.batch.split(Phi, 1), self.batch.split(self.V), strict=True)
        return [m / len(V_i) * (Phi_i @ V_i) for Phi_i, V_i in parts]


def prior_terms(drawn: Drawn, values: SupportValues | None, m: int) -> dict[str, Tensor]:
    """mu^T S mu + tr(S Sigma) - log |Sigma|: what Theorems 1 and 2 have beside the likelihood."""
    c_arm = (drawn.arm * drawn.c)[:, None]
    arms = estimators.prior_quadratic(drawn.s, c_arm, c_arm, m).sum()
    if drawn.S_ji is None:
        dense = estimators.prior_quadratic(drawn.s, drawn.V, drawn.V, m)
    else:
        V_i, V_j = drawn.batch.split(drawn.V)[:2]
        dense = estimators.prior_quadratic(drawn.S_ji, V_i, V_j, m)
        if values is not None and values.B is not None and values.a_prior is not None:
            B_i, B_j = drawn.batch.split(values.B, 1)[:2]
            share = drawn.batch.share(drawn.V.dtype)
            dense = dense + control_variates.nystrom(B_i, B_j, values.B, V_i, V_j, drawn.V, share, values.a_prior, m)
    log_determinant = estimators.log_determinant(drawn.c, m)
    return {"prior": drawn.outputs * arms + drawn.total(dense), "log_determinant": -drawn.outputs * log_determinant}


def gaussian_terms(
    drawn: Drawn,
    x: Float[Tensor, "l d"],
    y: Float[Tensor, "l o"],
    weight: Float[Tensor, " l"] | None,
    sigma2: Float[Tensor, ""],
    values: SupportValues | None,
    control: Control,
    n: int,
    m: int,
) -> dict[str, Tensor]:
    """Theorems 1 and 2 without their prior terms, for mu and all columns of C together.

    Everything here is quadratic in the rows l, so a weight of a point scales its row by the root of it.
    """
    W = values.support.weights(x) if control == "kriging" and values is not None else None
    if weight is not None:
        root = weight.sqrt()[:, None]
        drawn, y, W = replace(drawn, Phi=root * drawn.Phi), root * y, None if W is None else root * W
    Phi_i, Phi_j = drawn.batch.split(drawn.Phi, 1)[:2]
    V_i, V_j = drawn.batch.split(drawn.V)[:2]
    linear = y.new_zeros(())
    if W is not None and values is not None:
        targets = torch.cat([y, y.new_zeros(len(y), drawn.V.shape[1] - drawn.outputs)], 1)
        F_li, F_lj = drawn.predictions(drawn.Phi, m)[:2]
        F_pi, F_pj = (F.detach() for F in drawn.predictions(values.Phi_p, m)[:2])
        f_i, f_j = (control_variates.kriged(F_l, F_p, values.a, W) for F_l, F_p in ((F_li, F_pi), (F_lj, F_pj)))
        quadratic = control_variates.kriged_quadratic(targets, F_li, F_lj, f_i, f_j, n)
    else:
        # Both draws estimate the linear term; the printed one uses i alone.
        linear = n * m / drawn.Phi.numel() * (y * (drawn.Phi @ drawn.V[:, : drawn.outputs])).sum()
        quadratic = estimators.gram_quadratic(Phi_i, Phi_j, V_i, V_j, n, m)
        if control == "gram" and values is not None:
            Phi_pi, Phi_pj = drawn.batch.split(values.Phi_p, 1)[:2]
            share = drawn.batch.share(drawn.V.dtype)
            quadratic = quadratic + control_variates.gram(
                Phi_pi, Phi_pj, values.Phi_p, V_i, V_j, drawn.V, share, values.a, n, m
            )
    arms = estimators.diagonal_gram(drawn.Phi, drawn.arm * drawn.c, n, m)
    return {"fit": (drawn.total(quadratic) - 2 * linear + drawn.outputs * arms) / sigma2}


def site_terms(
    drawn: Drawn,
    x: Float[Tensor, "l d"],
    y: Float[Tensor, "l o"],
    weight: Float[Tensor, " l"] | None,
    likelihood: Likelihood,
    values: SupportValues,
    control: Control,
    bound: Bound,
    n: int,
    m: int,
) -> dict[str, Tensor]:
    """-2 times a lower bound of E_q log Pr(y | X, w) (bounds A, B, Q); i and j serve as each other's mirror.

    Every pair (point, output) is a site of its own; they share the variance of their point.
    """
    o = drawn.outputs
    flat, scale = y.reshape(-1), n * o
    weights = None if weight is None else weight.repeat_interleave(o)
    if bound == "A":
        given = [(f.reshape(-1), v.repeat_interleave(o)) for f, v in _given_i(drawn, m)]
        values_a = [bounds.site_bound_a(likelihood, flat, f, v, scale, weights) for f, v in given]
        return {"fit": -(values_a[0] + values_a[1])}
    W = values.support.weights(x)
    f_i, f_j = drawn.predictions(drawn.Phi, m)[:2]
    if control == "kriging":
        F_pi, F_pj, F_pr = drawn.predictions(values.Phi_p, m)
        f_i = control_variates.kriged_in_site(f_i, F_pi, F_pr, values.a, W)
        f_j = control_variates.kriged_in_site(f_j, F_pj, F_pr, values.a, W)
    # i and j alone: r carries the path of a and must stay independent of all that the site sees.
    Phi_i, Phi_j = drawn.batch.split(drawn.Phi, 1)[:2]
    c_i, c_j = drawn.batch.split(drawn.arm * drawn.c)[:2]
    arms = 0.5 * (bounds.diagonal_variance(Phi_i, c_i, m) + bounds.diagonal_variance(Phi_j, c_j, m))
    v_hat = (f_i[:, o:] * f_j[:, o:]).sum(1) + arms
    v_hat = v_hat.repeat_interleave(o)
    mean_i, mean_j = f_i[:, :o].reshape(-1), f_j[:, :o].reshape(-1)
    known_mean, known_variance = (moment.detach() for moment in values.site_moments(W, o))
    known_variance = known_variance.repeat_interleave(o)
    if bound == "Q":
        xi = likelihood.optimal_xi(flat, known_mean.reshape(-1), known_mean.reshape(-1).square() + known_variance)
        f_hat, f2_hat = 0.5 * (mean_i + mean_j), mean_i * mean_j
        return {"fit": -2 * bounds.site_bound_q(likelihood, flat, f_hat, f2_hat, v_hat, xi, scale, weights)}
    eta = known_variance.sqrt()
    both = [bounds.site_bound_b(likelihood, flat, f, v_hat, eta, scale, weights) for f in (mean_i, mean_j)]
    return {"fit": -(both[0] + both[1])}


def _given_i(drawn: Drawn, m: int) -> list[tuple[Float[Tensor, "l o"], Float[Tensor, " l"]]]:
    """Mean and variance of the argument of bound A given i, and given j."""
    parts = zip(
        drawn.batch.draws[:2],
        drawn.batch.split(drawn.Phi, 1)[:2],
        drawn.batch.split(drawn.V)[:2],
        drawn.batch.split(drawn.arm * drawn.c)[:2],
        strict=True,
    )
    both = []
    for index, Phi_i, V_i, c_i in parts:
        _, at, counts = torch.unique(index, return_inverse=True, return_counts=True)
        variance = bounds.conditional_variance(Phi_i, V_i[:, drawn.outputs :], m)
        variance = variance + bounds.conditional_diagonal_variance(Phi_i, c_i, counts[at].to(c_i.dtype), m)
        both.append((m / len(V_i) * (Phi_i @ V_i[:, : drawn.outputs]), variance))
    return both


def site_curvature(
    likelihood: Likelihood, x: Float[Tensor, "l d"], y: Float[Tensor, "l o"], values: SupportValues | None
) -> Float[Tensor, " l"]:
    """-d^2 log g / df^2 of the quadratic sites: 1 / sigma2 for Gaussian noise, a majorant for the others.

    One Hessian serves all outputs: the largest curvature of a point is taken.
    """
    mean, variance = torch.zeros_like(y), torch.zeros_like(y[:, 0])
    if values is not None:
        mean, variance = values.site_moments(values.support.weights(x), y.shape[1])
    xi = likelihood.optimal_xi(y, mean, mean.square() + variance[:, None])
    return -2 * likelihood.quadratic_bound(y, xi).quadratic.detach().amin(1)


def constant_terms(
    drawn: Drawn,
    y: Float[Tensor, "l o"],
    weight: Float[Tensor, " l"] | None,
    likelihood: Likelihood,
    n: int,
    m: int,
) -> dict[str, Tensor]:
    """Proposition 2; for other likelihoods its part without data. None for a dense S: log |S| is not estimated."""
    if drawn.S_ji is not None:
        return {}
    if not likelihood.fixed_sites:
        return {"constant": drawn.outputs * (-m / len(drawn.s) * drawn.s.log().sum() - m)}
    sigma2 = likelihood.noise_variance
    assert sigma2 is not None
    root = 1.0 if weight is None else weight.sqrt()
    constant = sum(estimators.constant_loss(root * target, drawn.s, sigma2, n, m) for target in y.mT)
    if weight is not None:  # n log(2 pi sigma2) counts every point once
        constant = constant + drawn.outputs * n * (weight.mean() - 1) * torch.log(2 * math.pi * sigma2)
    return {"constant": torch.as_tensor(constant)}
