"""Theorems 1 and 2, Propositions 1, 2 and 4: pure functions of sampled blocks, cost independent of n and m.

Index sets l (data), i, j, r (basis functions) must be mutually independent uniform draws, with or without
replacement (`docs/paper_notes.md`). A prior precision arrives as the sampled block S_ji when it is dense and as
vectors s_i, s_j when it is diagonal; vectors select the low-variance form, which needs one draw instead of two.
`objective.loss` puts these functions together; the tests average both over every draw of a small problem.
The exact values are the functions of the same name in `dense`.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_positive, check_rows, check_shape, check_vectors

_NOISE_REMEDY = "Give the noise variance, not its logarithm; for noise-free data use a small value such as 1e-6."
_ROWS_REMEDY = "Give one row for each drawn function, and the same columns for both draws."
_DIAGONAL_REMEDY = "The diagonal of C is taken at the columns r."


# The block S_ji of a dense S, or the entries of a diagonal one at the rows of each draw.
Precision = Float[Tensor, "j i"] | Float[Tensor, " i"] | tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Sampled:
    """What draws of l, i and j show of some columns V of [mu, C]: rows V_i and V_j, and what they predict at l.

    F_i = (m / m_tilde) Phi_li V_i estimates Phi_l V without bias, and so does F_j. Theorems 1 and 2 are made of their
    products, because i and j are independent.
    """

    V_i: Float[Tensor, "i c"]
    V_j: Float[Tensor, "j c"]
    F_i: Float[Tensor, "l c"]
    F_j: Float[Tensor, "l c"]
    n: int
    m: int

    @classmethod
    def of(
        cls,
        Phi_li: Float[Tensor, "l i"],
        Phi_lj: Float[Tensor, "l j"],
        V_i: Float[Tensor, "i c"],
        V_j: Float[Tensor, "j c"],
        n: int,
        m: int,
    ) -> "Sampled":
        """Cost O(n_tilde m_tilde c)."""
        check_rows(Phi_li=Phi_li, Phi_lj=Phi_lj)
        check_shape("V_i", V_i, (Phi_li.shape[1], V_i.shape[-1]), _ROWS_REMEDY)
        check_shape("V_j", V_j, (Phi_lj.shape[1], V_i.shape[-1]), _ROWS_REMEDY)
        return cls(V_i, V_j, m / len(V_i) * (Phi_li @ V_i), m / len(V_j) * (Phi_lj @ V_j), n, m)

    def columns(self, part: slice) -> "Sampled":
        """Some of the columns."""
        return Sampled(self.V_i[:, part], self.V_j[:, part], self.F_i[:, part], self.F_j[:, part], self.n, self.m)


def gram_quadratic(V: Sampled) -> Float[Tensor, " c"]:
    """Second term of Theorems 1 and 2, times sigma2: unbiased estimate of v^T Phi^T Phi v for every column v.

    n / n_tilde sum_l F_j F_i = n m^2 / (n_tilde m_tilde^2) v_j^T Phi_lj^T Phi_li v_i.
    """
    return V.n / len(V.F_i) * (V.F_i * V.F_j).sum(0)


def prior_quadratic(S: Precision, V_i: Float[Tensor, "i c"], V_j: Float[Tensor, "j c"], m: int) -> Float[Tensor, " c"]:
    """Third term of Theorems 1 and 2: unbiased estimate of v^T S v for every column v.

    Dense S: (m / m_tilde)^2 v_j^T S_ji v_i. Diagonal S: (m / m_tilde) sum_i s_i v_i^2, whose variance is smaller
    by a factor that grows with m / m_tilde, because the printed form sees the diagonal only where i meets j. Given
    s_i and s_j it is the average over both draws.
    """
    if isinstance(S, tuple):
        return 0.5 * (prior_quadratic(S[0], V_i, V_i, m) + prior_quadratic(S[1], V_j, V_j, m))
    if S.ndim == 1:
        check_shape("s_i", S, (len(V_i),), "The diagonal of S is taken at the rows i.")
        return m / len(V_i) * (S[:, None] * V_i.square()).sum(0)
    check_shape("V_j", V_j, (len(V_j), V_i.shape[-1]), _ROWS_REMEDY)
    check_shape("S_ji", S, (len(V_j), len(V_i)), "Rows of the block follow j, columns follow i.")
    return (m / len(V_i)) * (m / len(V_j)) * (V_j * (S @ V_i)).sum(0)


def mean_loss(y_l: Float[Tensor, "l o"], mu: Sampled, S: Precision, sigma2: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Theorem 1: unbiased estimate of L_mu, Eq. (2), summed over outputs. Cost O(m_tilde^2) beyond that of ``mu``.

    i and j must be independent draws: the same set for both biases the quadratic terms. Both of them estimate the
    linear term; the printed one uses i alone.
    """
    check_positive("sigma2", sigma2, _NOISE_REMEDY)
    n_tilde = check_rows(y_l=y_l, Phi_li=mu.F_i)
    check_shape("y_l", y_l, tuple(mu.F_i.shape), "Give one column of targets for each output.")
    linear = mu.n / n_tilde * 0.5 * (y_l * (mu.F_i + mu.F_j)).sum()
    prior = prior_quadratic(S, mu.V_i, mu.V_j, mu.m)
    return (gram_quadratic(mu).sum() - 2 * linear) / sigma2 + prior.sum()


def covariance_loss(
    C: Sampled, c_rr: Float[Tensor, " r"], S: Precision, sigma2: Float[Tensor, ""], columns: int | None = None
) -> Float[Tensor, ""]:
    """Theorem 2: unbiased estimate of L_Sigma, Eq. (2), from rows i and j of the columns r of C.

    A training step calls this from `objective.gaussian_terms` with the r_tilde dense columns that it drew, or all k.
    The sum over r covers all three terms (the printed parentheses are missing). ``columns`` is the number of columns
    that those of ``C`` were drawn from: m as printed, k for the k dense columns of a chevron. What diagonal columns
    add then is `diagonal_quadratic`; ``c_rr`` is a draw from the whole diagonal always.
    """
    check_positive("sigma2", sigma2, _NOISE_REMEDY)
    r_tilde = C.V_i.shape[1]
    if columns is None:
        check_shape("c_rr", c_rr, (r_tilde,), _DIAGONAL_REMEDY)
    scale = (C.m if columns is None else columns) / max(r_tilde, 1)  # no dense columns: mean field
    quadratic = gram_quadratic(C) / sigma2 + prior_quadratic(S, C.V_i, C.V_j, C.m)
    return scale * quadratic.sum() - log_determinant(c_rr, C.m)


def diagonal_gram(Phi_lr: Float[Tensor, "l r"], c_rr: Float[Tensor, " r"], n: int, m: int) -> Float[Tensor, ""]:
    """Second term of Theorem 2 for columns c_r = e_r c_rr, times sigma2: sum_r c_rr^2 phi_r^T phi_r, from l and r."""
    check_shape("c_rr", c_rr, (Phi_lr.shape[1],), _DIAGONAL_REMEDY)
    return n / len(Phi_lr) * m / len(c_rr) * (Phi_lr.square().sum(0) @ c_rr.square())


def log_determinant(c_rr: Float[Tensor, " r"], m: int) -> Float[Tensor, ""]:
    """Last term of Theorem 2: log |Sigma| = sum_r 2 log c_rr from the sampled diagonal of C."""
    return 2 * m / len(c_rr) * c_rr.log().sum()


def diagonal_quadratic(
    Phi_lr: Float[Tensor, "l r"],
    s_r: Float[Tensor, " r"],
    c_rr: Float[Tensor, " r"],
    sigma2: Float[Tensor, ""],
    n: int,
    m: int,
) -> Float[Tensor, ""]:
    """Theorem 2 without its log-determinant for columns c_r = e_r c_rr (mean field, the chevron's arms), c_rr = 0
    where column r is dense.

    (m / r_tilde) sum_r (n / (n_tilde sigma2) phi_lr^T phi_lr + s_rr) c_rr^2: only l and r are sampled. Much less
    variance than the generic form, which sees such a column only where i and j both meet r.
    """
    check_positive("sigma2", sigma2, _NOISE_REMEDY)
    gram = diagonal_gram(Phi_lr, c_rr, n, m)
    return gram / sigma2 + prior_quadratic(s_r, c_rr[:, None], c_rr[:, None], m)[0]


def gram_quadratic_u(Phi_lk: Float[Tensor, "l k"], V_k: Float[Tensor, "k c"], n: int, m: int) -> Float[Tensor, " c"]:
    """Theorems 1 and 2 from one draw of k >= 2 functions *without* replacement: a U-statistic of v^T Phi^T Phi v.

    Pairs of different functions are scaled by m (m - 1) / (k (k - 1)), a function with itself by m / k. The same
    features as two draws of k / 2; up to half the variance. With replacement this scaling is biased.
    """
    off, own = _u_scales(len(V_k), m)
    check_shape("V_k", V_k, (Phi_lk.shape[1], V_k.shape[-1]), "Give one row for each drawn function.")
    f = Phi_lk @ V_k
    diagonal = Phi_lk.square() @ V_k.square()
    return n / len(Phi_lk) * (off * (f.square() - diagonal) + own * diagonal).sum(0)


def prior_quadratic_u(S_kk: Float[Tensor, "k k"], V_k: Float[Tensor, "k c"], m: int) -> Float[Tensor, " c"]:
    """Theorems 1 and 2, one-draw form of v^T S v for a dense S (see `gram_quadratic_u`)."""
    off, own = _u_scales(len(V_k), m)
    check_shape("S_kk", S_kk, (len(V_k), len(V_k)), "Rows and columns of the block follow k.")
    diagonal = S_kk.diagonal() @ V_k.square()
    return off * ((V_k * (S_kk @ V_k)).sum(0) - diagonal) + own * diagonal


def _u_scales(k: int, m: int) -> tuple[float, float]:
    if not 2 <= k <= m:
        raise ValueError(
            f"The U-statistic form needs 2 <= k <= m = {m} distinct functions, got k = {k}. "
            "Draw two or more without replacement."
        )
    return m * (m - 1) / (k * (k - 1)), m / k


def constant_loss(
    y_l: Float[Tensor, " l"], s_i: Float[Tensor, " i"], sigma2: Float[Tensor, ""], n: int, m: int
) -> Float[Tensor, ""]:
    """Proposition 2: unbiased estimate of L_const, Eq. (2), for a diagonal S. Needed for empirical Bayes only."""
    if s_i.ndim != 1:
        raise ValueError(
            f"constant_loss needs a diagonal S (Proposition 2), got a block of shape {tuple(s_i.shape)}. "
            "Estimate log |S| by log_determinant and give it to constant_loss_dense."
        )
    return constant_loss_dense(y_l, m / len(s_i) * s_i.log().sum(), sigma2, n, m)


def constant_loss_dense(
    y_l: Float[Tensor, " l"], log_S: Float[Tensor, ""], sigma2: Float[Tensor, ""], n: int, m: int
) -> Float[Tensor, ""]:
    """L_const, Eq. (2), for any S: unbiased where ``log_S`` is for log |S| (`log_determinant`)."""
    check_positive("sigma2", sigma2, _NOISE_REMEDY)
    check_vectors(y_l=y_l)
    return -log_S - m + n * torch.log(2 * math.pi * sigma2) + n / len(y_l) * (y_l @ y_l) / sigma2


def optimal_diagonal(
    norm2_r: Float[Tensor, " r"], s_r: Float[Tensor, " r"], sigma2: Float[Tensor, ""]
) -> Float[Tensor, " r"]:
    """Proposition 1: the ELBO-optimal c_rr = sqrt(sigma2 / (phi_r^T phi_r + sigma2 s_rr)) of a diagonal column.

    ``norm2_r`` is phi_r^T phi_r over all n points, O(n) once per column: from a sampled value c_rr is biased.
    """
    check_vectors(norm2_r=norm2_r, s_r=s_r)
    check_positive("sigma2", sigma2, _NOISE_REMEDY)
    return torch.sqrt(sigma2 / (norm2_r + sigma2 * s_r))


def augmentation(
    k_norm2: Float[Tensor, " t"], k_diag: Float[Tensor, " t"], sigma2: Float[Tensor, ""]
) -> Float[Tensor, " t"]:
    """Proposition 4: variance that a basis function k(., x_*) at the test point adds to f(x_*).

    sigma2 k_**^2 / (k_*^T k_* + sigma2 k_**), with ``k_norm2`` = k_*^T k_* over the n training points whatever m
    is. Never negative; the prior variance k_** far from the data. With a full C it counts twice near the data.
    """
    check_vectors(k_norm2=k_norm2, k_diag=k_diag)
    check_positive("sigma2", sigma2, _NOISE_REMEDY)
    return sigma2 * k_diag.square() / (k_norm2 + sigma2 * k_diag)
