"""Theorems 1 and 2 over blocks of Fourier features: what one draw says of [mu, C] and the hyperparameters.

Functions j predict at the rows l, the rows i of the table get the gradient. i is a contiguous block. j is spread over
the table at equal distances: neighbours that moved together share their errors, and a block of them would show these
m / m_tilde times as large. In both each function is as likely as any other. Sites are quadratic: Gaussian noise is, for
others the bound is (Q). With E f_j = Phi V and i independent of j, (m / m_tilde) Phi_li^T (curvature f_j - linear) is
then unbiased.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.interfaces import Likelihood, Parameters, SpectralKernel
from qsgp.paper.blocks import Draw
from qsgp.paper.objective import kriged_moments
from qsgp.paper.pairs import Pairs
from qsgp.paper.problem import Problem, at_hyperparameters
from qsgp.paper.settings import Settings
from qsgp.paper.sharing import SharedPairs
from qsgp.paper.state import State


@dataclass(frozen=True)
class Given:
    """What all steps of a run read."""

    problem: Problem
    settings: Settings
    pairs: Pairs | SharedPairs
    inverse: Float[Tensor, "p p"]  # of K(U, U) + jitter

    @property
    def kernel(self) -> SpectralKernel:
        """The initial one, which the support points keep (Appendix F.3)."""
        kernel = self.problem.basis.kernel
        assert isinstance(kernel, SpectralKernel)
        return kernel

    @property
    def kriges(self) -> bool:
        return self.settings.control == "kriging"

    @property
    def gram(self) -> bool:
        """Eq. (3) is for Gaussian noise."""
        return self.settings.control == "gram" and self.problem.likelihood.fixed_sites

    def kriged(self, x: Float[Tensor, "l d"], values: Float[Tensor, "p c"]) -> Float[Tensor, "l c"]:
        """k(x, U) (K_UU + eps)^-1 values."""
        return self.kernel.product(x, self.problem.support.U, self.inverse @ values)


class Rows(NamedTuple):
    """Block i of the table."""

    pair: Int[Tensor, " q"]
    at: Int[Tensor, " i"]
    V: Float[Tensor, "i c"]  # [mu, C_dense]
    log_c: Float[Tensor, " i"]
    arm: Float[Tensor, " i"]  # c_rr^2 where that column of C is diagonal, 0 where it is dense


class Seen(NamedTuple):
    """Rows l, and what the functions j predict there and at the support points."""

    x: Float[Tensor, "l d"]
    y: Float[Tensor, "l o"]
    weight: Float[Tensor, " l"] | None
    f: Float[Tensor, "l c"]  # (m / m_tilde) Phi_lj V_j, kriged where that is wanted
    F_p: Float[Tensor, "p c"] | None
    xi: Float[Tensor, "l o"]  # where the sites' bounds touch


class Sites(NamedTuple):
    """-log g <= curvature f^2 / 2 - linear f - constant at each row, (n / n_tilde) times over and weighted."""

    constant: Float[Tensor, "l o"]
    linear: Float[Tensor, "l o"]
    curvature: Float[Tensor, "l c"]  # of [mu, C_dense]: all outputs share C

    @classmethod
    def of(cls, given: Given, likelihood: Likelihood, seen: Seen, k: int) -> "Sites":
        constant, linear, quadratic = likelihood.quadratic_bound(seen.y, seen.xi)
        times = given.problem.source.n / len(seen.y) * torch.ones_like(seen.y[:, :1])
        if seen.weight is not None:
            times = times * seen.weight[:, None]
        curvature = -2 * times * quadratic
        shared = curvature.sum(1, keepdim=True).expand(-1, k)
        return cls(times * constant, times * linear, torch.cat([curvature, shared], 1))

    @property
    def outputs(self) -> int:
        return self.linear.shape[1]

    @property
    def total(self) -> Float[Tensor, " l"]:
        """Curvature of all outputs: what the variance of f is multiplied with."""
        return self.curvature[:, : self.outputs].sum(1)


class Gradient(NamedTuple):
    """Half the gradient of the sampled -2 ELBO at the rows i, and its value."""

    rows: Rows
    table: Float[Tensor, "i w"]
    value: Float[Tensor, ""]
    theta: Parameters


def rows_of(given: Given, state: State, start: Int[Tensor, ""], apart: int = 1) -> Rows:
    pair, index = given.pairs.block(start, apart)
    table, chevron = state.named(state.table[index]), given.problem.covariance
    V = torch.cat([table.mu, chevron.dense_columns(index, table.L, table.log_c)], 1)
    return Rows(pair, index, V, table.log_c, chevron.diagonal_rows(index, V.dtype) * torch.exp(2 * table.log_c))


def see(given: Given, state: State, kernel: SpectralKernel, likelihood: Likelihood, batch: Draw) -> Seen:
    """Cost O((n_tilde + n_bar) m_tilde (d + c)): the first half of a step."""
    source, U, o = given.problem.source, given.problem.support.U, state.outputs
    x, y = source.take(batch.l)
    y = y.reshape(len(y), o)
    j = rows_of(given, state, batch.start[1], given.pairs.apart)
    f, F_p = given.pairs.scale * given.pairs.phi_v(kernel, x, j.pair, j.V), None
    if given.kriges or given.gram:
        F_p = given.pairs.scale * given.pairs.phi_v(given.kernel, U, j.pair, j.V)
    if given.kriges:
        assert F_p is not None and state.a is not None
        f = f - given.kriged(x, F_p - state.a)
    mean, variance = torch.zeros_like(y), torch.zeros_like(y[:, 0])
    if state.variance is not None:
        assert state.a is not None
        floor = 1e-8 * given.kernel.diag(U)
        mean, variance = kriged_moments(state.a[:, :o], state.variance, floor, lambda values: given.kriged(x, values))
    xi = likelihood.optimal_xi(y, mean, mean.square() + variance[:, None])
    return Seen(x, y, source.weights(batch.l), f, F_p, xi)


def gradient(given: Given, state: State, batch: Draw, moving: tuple[str, ...] = ()) -> Gradient:
    """Theorems 1 and 2 with the control variate: half the gradient of an unbiased estimate of -2 ELBO, and its value.

    Rows of V: (m / m_tilde) [Phi_li^T (curvature f_j - linear) + V_i], with Eq. (3) plus Phi_pi^T (a - F_pj) times
    `strength`. Diagonal columns: closed form (`theorems.diagonal_quadratic`). ``moving``: hyperparameters that move.
    """
    theta = {name: value.detach().requires_grad_(name in moving) for name, value in state.theta.items()}
    basis, likelihood = at_hyperparameters(given.problem, theta)
    now, pairs, o, k = basis.kernel, given.pairs, state.outputs, state.k
    assert isinstance(now, SpectralKernel)
    with torch.no_grad():
        seen = see(given, state, now, likelihood, batch)
        sites = Sites.of(given, likelihood, seen, k)
        i = rows_of(given, state, batch.start[0])
        residual = sites.curvature * seen.f
        residual[:, :o] -= sites.linear
        product = pairs.phit_r(now, seen.x, i.pair, residual)
        if given.gram:
            assert state.a is not None and seen.F_p is not None
            known = strength(given, state) * times(state.a, o) * (state.a - seen.F_p)
            product = product + pairs.phit_r(given.kernel, given.problem.support.U, i.pair, known)
        squares = pairs.squares_r(now, seen.x, i.pair, sites.total) if k < pairs.m else torch.zeros_like(i.log_c)
        of_V = pairs.scale * (product + i.V * times(i.V, o))
        of_L, of_log_c = given.problem.covariance.pulled_back(i.at, of_V[:, o:], i.log_c)
        of_log_c = of_log_c + pairs.scale * (i.arm * (squares + o) - o)
        diagonal = pairs.scale * (i.arm @ (squares + o) - 2 * o * i.log_c.sum())
        value = pairs.summed((i.V * of_V).sum() + diagonal) - o * pairs.m  # (m / m_tilde) V_i^T Phi_li^T is F_i^T
        value = value - (sites.linear * seen.f[:, :o]).sum() - 2 * sites.constant.sum()
        value = value + _steadier(given, state, seen, i, residual[:, :o])
    of_theta: Parameters = {}
    if moving:
        half = hyper_loss(given, state, (now, likelihood), i, seen)
        wanted = torch.autograd.grad(half, [theta[name] for name in moving])
        # functions alone read the kernel; what ranks have in common reads the likelihood, and is whole on each
        whole = [pairs.summed(w) if n.startswith("kernel.") else w for n, w in zip(moving, wanted, strict=True)]
        of_theta = dict(zip(moving, whole, strict=True))
    return Gradient(i, torch.cat([of_V[:, :o], of_L, of_log_c[:, None]], 1), value, of_theta)


def times(V: Float[Tensor, "i c"], outputs: int) -> Float[Tensor, " c"]:
    """How often each column counts: once for a mean, once for every output for those of C, which all share."""
    return torch.cat([V.new_ones(outputs), V.new_full((V.shape[1] - outputs,), outputs)])


def strength(given: Given, state: State) -> Float[Tensor, ""]:
    """Eq. (3): n / (n_bar sigma2), what the support points' Gram matrix is multiplied with."""
    sigma2 = given.problem.likelihood.with_parameters(own(state.theta)).noise_variance
    assert sigma2 is not None
    return given.problem.source.n / len(given.problem.support.U) / sigma2


def _steadier(given: Given, state: State, seen: Seen, i: Rows, residual: Float[Tensor, "l o"]) -> Float[Tensor, ""]:
    """Zero in the mean over i: with it the value has f_i of mu kriged, or the known a in place of F_pi for Eq. (3)."""
    if seen.F_p is None or state.a is None:
        return residual.new_zeros(())
    U, a = given.problem.support.U, state.a[:, : residual.shape[1]]
    error = given.pairs.scale * given.pairs.phi_v(given.kernel, U, i.pair, i.V[:, : a.shape[1]]) - a
    if given.gram:
        return -strength(given, state) * (a * error).sum()
    at_support = given.kernel.product(U, seen.x, residual)
    return -(error * (given.inverse @ at_support)).sum()


def own(theta: Parameters) -> Parameters:
    return {name.removeprefix("likelihood."): value for name, value in theta.items() if name.startswith("likelihood.")}


def hyper_loss(
    given: Given, state: State, model: tuple[SpectralKernel, Likelihood], i: Rows, seen: Seen
) -> Float[Tensor, ""]:
    """Empirical Bayes: a function whose gradient in the hyperparameters estimates that of -ELBO without bias.

    Of f_i f_j the kernel's part is taken through f_i alone, twice: i and j are alike. Support points keep the initial
    kernel. Cost: another (n_tilde + n_bar) m_tilde features, and the gradient of the engine's product.
    """
    (kernel, likelihood), pairs, o = model, given.pairs, state.outputs
    sites = Sites.of(given, likelihood, seen, state.k)
    F_i = pairs.scale * pairs.phi_v(kernel, seen.x, i.pair, i.V)
    f_i, residual = F_i.detach(), (sites.curvature * seen.f).detach()
    residual[:, :o] -= sites.linear.detach()
    arms = i.arm @ pairs.squares_r(kernel, seen.x, i.pair, sites.total)
    half = (F_i * residual).sum() - sites.constant.sum() + 0.5 * pairs.scale * arms
    if seen.F_p is not None:
        assert state.a is not None
        with torch.no_grad():
            F_p = pairs.scale * pairs.phi_v(given.kernel, given.problem.support.U, i.pair, i.V)
            known = (times(F_p, o) * (state.a.square() - F_p * seen.F_p)).sum()
            f_i = f_i - given.kriged(seen.x, F_p - state.a) if given.kriges else f_i
        if given.gram and likelihood.noise_variance is not None:  # `strength`, and its gradient
            half = half + 0.5 * given.problem.source.n / len(F_p) / likelihood.noise_variance * known
    half = half + 0.5 * (sites.curvature * f_i * seen.f).sum()
    return half - 0.5 * (sites.linear * (f_i + seen.f)[:, :o]).sum()
