"""The truth at full n and m: Eqs. (1), (2), (5), exact posteriors. For tests and tutorials, O(n m^2 + m^3).

Every estimator of `theorems` and `bounds` has its twin of the same name here.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Kernel, Likelihood


def gram_quadratic(Phi: Float[Tensor, "n m"], V: Float[Tensor, "m c"]) -> Float[Tensor, " c"]:
    """v^T Phi^T Phi v for every column v of V."""
    return (Phi @ V).square().sum(0)


def prior_quadratic(S: Float[Tensor, "m m"], V: Float[Tensor, "m c"]) -> Float[Tensor, " c"]:
    """v^T S v for every column v of V."""
    return (V * (S @ V)).sum(0)


def mean_loss(
    y: Float[Tensor, " n"],
    Phi: Float[Tensor, "n m"],
    S: Float[Tensor, "m m"],
    mu: Float[Tensor, " m"],
    sigma2: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """L_mu of Eq. (2)."""
    f = Phi @ mu
    return (-2 * y @ f + f @ f) / sigma2 + mu @ S @ mu


def covariance_loss(
    Phi: Float[Tensor, "n m"], S: Float[Tensor, "m m"], C: Float[Tensor, "m m"], sigma2: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """L_Sigma of Eq. (2), Sigma = C C^T."""
    return (gram_quadratic(Phi, C) / sigma2 + prior_quadratic(S, C) - 2 * C.diagonal().log()).sum()


def constant_loss(y: Float[Tensor, " n"], S: Float[Tensor, "m m"], sigma2: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """L_const of Eq. (2)."""
    n, m = len(y), len(S)
    return -torch.logdet(S) - m + n * torch.log(2 * math.pi * sigma2) + y @ y / sigma2


def elbo(
    y: Float[Tensor, " n"],
    Phi: Float[Tensor, "n m"],
    S: Float[Tensor, "m m"],
    mu: Float[Tensor, " m"],
    C: Float[Tensor, "m m"],
    sigma2: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """Eq. (2): the evidence lower bound of Eq. (1) for a Gaussian likelihood."""
    total = mean_loss(y, Phi, S, mu, sigma2) + covariance_loss(Phi, S, C, sigma2) + constant_loss(y, S, sigma2)
    return -0.5 * total


def log_evidence(
    y: Float[Tensor, " n"], Phi: Float[Tensor, "n m"], S: Float[Tensor, "m m"], sigma2: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """log Pr(y | X) of Eq. (1), which the ELBO bounds."""
    K = Phi @ torch.linalg.solve(S, Phi.mT)
    return log_marginal_likelihood(K, y, sigma2)


def log_marginal_likelihood(
    K: Float[Tensor, "n n"], y: Float[Tensor, " n"], sigma2: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """log N(y | 0, K + sigma2 I)."""
    n = len(y)
    factor = torch.linalg.cholesky(K + sigma2 * torch.eye(n, dtype=K.dtype, device=K.device))
    white = torch.linalg.solve_triangular(factor, y[:, None], upper=False)[:, 0]
    return -0.5 * (white @ white) - factor.diagonal().log().sum() - 0.5 * n * math.log(2 * math.pi)


def posterior(
    y: Float[Tensor, " n"], Phi: Float[Tensor, "n m"], S: Float[Tensor, "m m"], sigma2: Float[Tensor, ""]
) -> tuple[Float[Tensor, " m"], Float[Tensor, "m m"]]:
    """Exact mean and covariance of the weights: Sigma = (S + Phi^T Phi / sigma2)^-1, mu = Sigma Phi^T y / sigma2."""
    factor = torch.linalg.cholesky(S + Phi.mT @ Phi / sigma2)
    return torch.cholesky_solve((Phi.mT @ y / sigma2)[:, None], factor)[:, 0], torch.cholesky_inverse(factor)


def gaussian_process(
    kernel: Kernel,
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    sigma2: Float[Tensor, ""],
    x_star: Float[Tensor, "t d"],
) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
    """Background section: exact mean and variance of f at x_star (add sigma2 for the variance of y)."""
    K = kernel(x, x)
    factor = torch.linalg.cholesky(K + sigma2 * torch.eye(len(x), dtype=K.dtype, device=K.device))
    k_star = kernel(x, x_star)
    mean = k_star.mT @ torch.cholesky_solve(y[:, None], factor)[:, 0]
    white = torch.linalg.solve_triangular(factor, k_star, upper=False)
    return mean, kernel.diag(x_star) - white.square().sum(0)


def augmented_variance(
    Phi: Float[Tensor, "n m"],
    S: Float[Tensor, "m m"],
    phi_star: Float[Tensor, "t m"],
    k_star: Float[Tensor, "t n"],
    k_diag: Float[Tensor, " t"],
    C: Float[Tensor, "m m"],
    sigma2: Float[Tensor, ""],
) -> Float[Tensor, " t"]:
    """Proposition 4 by its definition: append phi_{m+1} = k(., x_*), minimise L_Sigma over c'_{m+1,m+1}, read off.

    The closed form is `theorems.augmentation`; here the optimum comes from the (m+1)-sized problem itself.
    """
    variances = []
    for phi_t, k_t, k_tt in zip(phi_star, k_star, k_diag, strict=True):
        Phi_plus = torch.cat([Phi, k_t[:, None]], 1)
        S_plus = torch.zeros(len(S) + 1, len(S) + 1, dtype=S.dtype, device=S.device)
        S_plus[:-1, :-1], S_plus[-1, -1] = S, k_tt
        precision = Phi_plus.mT @ Phi_plus / sigma2 + S_plus
        Sigma_plus = torch.block_diag(C @ C.mT, 1 / precision[-1:, -1:])
        phi_plus = torch.cat([phi_t, k_tt[None]])
        variances.append(phi_plus @ Sigma_plus @ phi_plus)
    return torch.stack(variances)


# Sites: Section 3.


def expected_log_likelihood(
    likelihood: Likelihood,
    y: Float[Tensor, " n"],
    Phi: Float[Tensor, "n m"],
    mu: Float[Tensor, " m"],
    C: Float[Tensor, "m c"],
) -> Float[Tensor, ""]:
    """Eq. (5) mended: sum_l E_z log g_l(phi_l mu + z sqrt(phi_l Sigma phi_l^T)), Sigma = C C^T.

    phi_l w has *variance* phi_l Sigma phi_l^T; the printed equation multiplies z by it (`printed_expectation`).
    """
    return likelihood.expected_log_site(y, Phi @ mu, (Phi @ C).square().sum(1).sqrt()).sum()


def printed_expectation(
    likelihood: Likelihood,
    y: Float[Tensor, " n"],
    Phi: Float[Tensor, "n m"],
    mu: Float[Tensor, " m"],
    C: Float[Tensor, "m c"],
) -> Float[Tensor, ""]:
    """Eq. (5) as printed, z times the variance. Not E_q log Pr(y | w): above it where the variance is below 1."""
    return likelihood.expected_log_site(y, Phi @ mu, (Phi @ C).square().sum(1)).sum()


def printed_theorem_3(
    likelihood: Likelihood,
    y_l: Float[Tensor, " l"],
    f_hat: Float[Tensor, " l"],
    v_hat: Float[Tensor, " l"],
    n: int,
    weight: Float[Tensor, " l"] | None = None,
) -> Float[Tensor, ""]:
    """Theorem 3 as printed, for one draw of l, i, j, r. Not a bound: its mean can exceed what it should bound.

    z is multiplied by an estimate of the variance, as in `printed_expectation`: ``f_hat`` and ``v_hat`` are
    `bounds.sampled_argument` and `bounds.sampled_variance`. `bounds` has what holds instead.
    """
    sites = likelihood.expected_log_site(y_l, f_hat, v_hat)
    return n * (sites if weight is None else weight * sites).mean()
