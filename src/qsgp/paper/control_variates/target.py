"""Appendix F.2: b = Phi^T y for the linear term of Theorem 1. It removes the noise of i, not that of l."""

from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_vectors


def target(
    b_i: Float[Tensor, " i"],
    mu_i: Float[Tensor, " i"],
    b_u: Float[Tensor, " u"],
    mu_u: Float[Tensor, " u"],
    share: Float[Tensor, " u"],
    b_mu: Float[Tensor, ""],
    m: int,
) -> Float[Tensor, ""]:
    """Appendix F.2, times sigma2: 2 (m / m_tilde) b_i^T mu_i - 2 b^T mu, to add to L_mu.

    ``b_mu`` is the running b^T mu, advanced as in Proposition 3; its gradient is sparse as in Appendix F.1.
    """
    check_vectors(b_i=b_i, mu_i=mu_i)
    check_vectors(b_u=b_u, mu_u=mu_u, share=share)
    path = 2 * (m / share.sum()) * (share * b_u) @ mu_u
    return 2 * m / len(mu_i) * (b_i @ mu_i) - (2 * b_mu).detach() - path + path.detach()


def exact_target(b_i: Float[Tensor, " i"], mu_i: Float[Tensor, " i"], m: int) -> Float[Tensor, ""]:
    """The linear term itself, times sigma2: -2 (m / m_tilde) b_i^T mu_i. When b is known no point need be sampled."""
    check_vectors(b_i=b_i, mu_i=mu_i)
    return -2 * m / len(mu_i) * (b_i @ mu_i)
