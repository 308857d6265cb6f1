"""Rows that come in portions: the exact posterior of the weights, kept as natural parameters that add up.

Over m features, rows l with quadratic sites add Phi^T diag(lambda) Phi to the precision and Phi^T c1 to the linear
term, so Gaussian noise gives the same posterior however the rows are portioned. Other sites are tightened at the
posterior that has just seen them and stay there (assumed density filtering). Memory O(m^2), cost O(rows m^2 + m^3).
"""

import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float64
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.factor import cholesky
from qsgp.interfaces import Basis, Likelihood, SpectralKernel
from qsgp.kernels import WithLevels
from qsgp.memory import Need, check_fits
from qsgp.paper.chevron import Chevron
from qsgp.paper.state import Rows
from qsgp.posteriors.posteriors import (
    ClosedForm,
    Features,
    FourierWeights,
    KernelFunctionsAtRows,
    Posterior,
    WithEffects,
)
from qsgp.solvers.closed_form import Sites
from qsgp.solvers.feature_dual import never
from qsgp.training.options import FEATURES, MOST_FEATURES, Options
from qsgp.training.plan import make_plan
from qsgp.training.sizes import CLOSED_FORM

_ROUNDS = 3  # of tightening the sites of a portion
_BLOCK_ROWS = 2048
_FAR_INPUT, _FAR_TARGET = 10.0, 5.0  # deviations: a portion out there is not like the first
_REMEMBERED = 1000  # rows that are kept to learn hyperparameters from


@dataclass(frozen=True)
class Accumulated:
    """Posterior precision and linear term of the weights over all rows seen, in float64. Outputs share the precision:
    a row's sites touch at one xi for all of them, the best common one."""

    basis: Basis
    likelihood: Likelihood
    precision: Float[Tensor, "m m"]
    linear: Float[Tensor, "m o"]

    @classmethod
    def empty(cls, basis: Basis, likelihood: Likelihood, outputs: int) -> "Accumulated":
        """The prior."""
        parameter = next(iter(basis.kernel.parameters().values()))
        every = torch.arange(basis.m, device=parameter.device)
        S = basis.precision_diag(every).double()
        return cls(basis, likelihood, torch.diag(S), S.new_zeros(basis.m, outputs))

    @classmethod
    def of(cls, posterior: Features) -> "Accumulated":
        """A trained table as the prior of what comes: Sigma^-1 and Sigma^-1 mu."""
        rows = Rows.of(posterior.table.double(), posterior.outputs, posterior.covariance.k)
        C = posterior.covariance.to_dense(rows.L, rows.log_c)
        inverse = torch.linalg.solve_triangular(C, torch.eye(len(C), dtype=C.dtype, device=C.device), upper=False)
        precision = inverse.mT @ inverse
        return cls(posterior.basis, posterior.likelihood, precision, precision @ rows.mu)

    @torch.no_grad()
    def add(
        self,
        x: Float[Tensor, "l d"],
        Y: Float[Tensor, "l o"],
        weight: Float[Tensor, " l"] | None = None,
        late: Callable[[], bool] = never,
        half_life: Any = None,
    ) -> "Accumulated":
        """With the rows of one more portion; sites get a single round when time is up, as ``late`` says.

        Rows count half as much for every ``half_life`` rows that come after their block.
        """
        grown = self
        for rows in torch.arange(len(x)).split(_BLOCK_ROWS):
            grown = grown if half_life is None else grown.faded(0.5 ** (len(rows) / half_life))
            grown = grown._add(x[rows], Y[rows], Y.new_ones(len(rows)) if weight is None else weight[rows], late)
        return grown

    def faded(self, share: float) -> "Accumulated":
        """As if every row had counted ``share`` times; the prior stays."""
        every = torch.arange(self.basis.m, device=self.precision.device)
        prior = torch.diag(self.basis.precision_diag(every).to(self.precision))
        return replace(self, precision=torch.lerp(prior, self.precision, share), linear=share * self.linear)

    def _add(self, x: Tensor, Y: Tensor, weight: Tensor, late: Callable[[], bool]) -> "Accumulated":
        Phi = self.features(x)
        Y, weight = Y.to(Phi), weight.to(Phi)
        if self.likelihood.fixed_sites:
            return self.with_sites(Phi, Y, weight, torch.ones_like(Y))
        grown = self
        for _ in range(_ROUNDS):
            grown = self.with_sites(Phi, Y, weight, self.common_xi(Y, *grown.solved().moments(Phi)))
            if late():
                break
        return grown

    def features(self, x: Float[Tensor, "l d"]) -> Float64[Tensor, "l m"]:
        parameter = next(iter(self.basis.kernel.parameters().values()))
        every = torch.arange(self.basis.m, device=parameter.device)
        return self.basis.features(x.to(parameter), self.basis.columns(every)).double()

    def with_sites(self, Phi: Tensor, Y: Tensor, weight: Tensor, xi: Float[Tensor, "l o"]) -> "Accumulated":
        """With rows whose sites touch at ``xi``, the same for all outputs."""
        sites = [Sites.of(self.likelihood, y, at, weight) for y, at in zip(Y.mT, xi.mT, strict=True)]
        root = sites[0].root[:, None] * Phi
        linear = self.linear + Phi.mT @ torch.stack([site.linear for site in sites], 1)
        return replace(self, precision=torch.addmm(self.precision, root.mT, root), linear=linear)

    def common_xi(self, Y: Tensor, mean: Float[Tensor, "l o"], variance: Float[Tensor, " l"]) -> Float[Tensor, "l o"]:
        """The bounds of all outputs together are tightest at the root mean square of their own best xi."""
        own = torch.stack(
            [self.likelihood.optimal_xi(y, f, f.square() + variance) for y, f in zip(Y.mT, mean.mT, strict=True)], 1
        )
        return own.square().mean(1, keepdim=True).sqrt().expand_as(own)

    @torch.no_grad()
    def solved(self) -> "Weights":
        factor = cholesky(self.precision.flip(0, 1))[0]
        return Weights(torch.cholesky_solve(self.linear.flip(0), factor).flip(0), factor)

    @torch.no_grad()
    def posterior(self, k: int | None = None) -> Features:
        """As a table that predicts, draws and can be stored, with the best C of ``k`` dense columns, all unless said.

        A lower C parts the ELBO by columns: dense ones are those of the full C, and Proposition 1 gives the others.
        """
        m, outputs = self.linear.shape
        k = m if k is None else k
        solved = self.solved()
        C = solved.columns(k)
        diagonal = torch.cat([C.diagonal()[:k], self.precision.diagonal()[k:].rsqrt()])
        table = torch.cat([solved.mu, C.tril(-1), diagonal.log()[:, None]], 1)
        dtype = next(iter(self.basis.kernel.parameters().values())).dtype
        return Features(self.basis, self.likelihood, Chevron(m, k), table.to(dtype), outputs)


class Weights(NamedTuple):
    """N(mu, precision^-1)."""

    mu: Float64[Tensor, "m o"]
    factor: Float64[Tensor, "m m"]  # of the precision from its last row to its first: the inverse gives a lower C

    def moments(self, Phi: Float64[Tensor, "l m"]) -> tuple[Float64[Tensor, "l o"], Float64[Tensor, " l"]]:
        """Mean and variance of f."""
        half = torch.linalg.solve_triangular(self.factor, Phi.flip(1).mT, upper=False)
        return Phi @ self.mu, half.square().sum(0)

    def columns(self, k: int) -> Float64[Tensor, "m k"]:
        """The first k columns of the lower C with C C^T = precision^-1."""
        m = len(self.factor)
        last = torch.eye(m, dtype=self.factor.dtype, device=self.factor.device)[:, :k]
        return torch.linalg.solve_triangular(self.factor.flip(0, 1).mT, last, upper=False)


def check_portions(options: Options) -> None:
    """Keywords that portions cannot follow are refused with the first of them, not with the one that finds out."""
    if options.basis not in ("auto", "fourier"):
        raise ValueError(
            f"Expected basis 'auto' or 'fourier' for partial_fit, got {options.basis!r}. Portions are added over "
            "Fourier features; a grid can be fitted first and take portions then."
        )
    options.without_map("for partial_fit")
    m = options.n_features
    if m is not None and (m % 2 or m > MOST_FEATURES):
        raise ValueError(f"Expected an even n_features of at most {MOST_FEATURES} for partial_fit, got {m}. Change it.")


def check_half_life(half_life: Any) -> None:
    if half_life is None:
        return
    number = isinstance(half_life, numbers.Real) and not isinstance(half_life, bool)
    if not number or not math.isfinite(half_life) or half_life < 1:
        raise ValueError(
            f"Expected half_life as a number of rows >= 1, or None to forget nothing, got {half_life!r}. Begin with a "
            "fifth of the rows over which the data stay the same."
        )


def rows_to_keep(d: int, outputs: int, options: Options) -> int:
    """As many as the closed form may have within the memory: 1,000 if there is some."""
    rows = _REMEMBERED
    while rows > 4 and make_plan(rows, d, outputs, options, keep=True).road != CLOSED_FORM:
        rows //= 2
    return rows


def is_constant(values: Float[Tensor, "l c"]) -> bool:
    """All rows are alike: no scale can be told from them, nor a hyperparameter."""
    return not bool((values != values[:1]).any())


def says_more(kept: ClosedForm, x: Float[Tensor, "l d"], Y: Float[Tensor, "l o"]) -> bool:
    """A column was constant so far, or a portion lies where the scales of the rows ``kept`` say nothing."""
    for known, new in ((kept.x, x), (kept.Y, Y)):
        new = new.to(known)
        constant = (known == known[:1]).all(0)
        if bool((constant & ((new - known[0]).abs() > 1e-9 * (1 + known[0].abs())).any(0)).any()):
            return True
    return _far(x, Y) > 1


def warn_if_unlike(x: Float[Tensor, "l d"], Y: Float[Tensor, "l o"]) -> None:
    """Sums cannot be rescaled: a portion that the first rows do not resemble is added, with a warning."""
    if _far(x, Y) > 1:
        warnings.warn(
            "This portion lies far from the rows that scales and hyperparameters were learned from, which cannot be "
            "learned again: predictions and intervals may be wrong. Give portions in random order, or begin with a "
            "new model and a first portion that is like the others.",
            ConvergenceWarning,
            stacklevel=2,
        )


def _far(x: Float[Tensor, "l d"], Y: Float[Tensor, "l o"]) -> float:
    """Standardised rows have a mean square of 1: above 1 where that of a portion is more than can be."""
    return max(float(part.square().mean(0).max().sqrt()) / most for part, most in ((x, _FAR_INPUT), (Y, _FAR_TARGET)))


def need_of(m: int) -> Need:
    """Bytes at the peak, when a table is made of the precision matrix; measured 5.3 matrices."""
    return Need({"precision of the weights": 6 * 8 * m**2, "features": 2 * 8 * _BLOCK_ROWS * m})


def start_accumulating(posterior: Posterior, options: Options) -> Accumulated:
    """The rows of a closed form over Fourier features, or a table as it stands."""
    if isinstance(posterior.kernel, WithLevels):
        raise ValueError(
            "Expected a model that can take portions, got one with effects of identifiers. Fit it on all rows at once."
        )
    if isinstance(posterior, KernelFunctionsAtRows | FourierWeights):
        found = "kernel functions at its rows" if isinstance(posterior, KernelFunctionsAtRows) else "weights and draws"
        raise ValueError(
            f"Expected a model that can take portions, got one of {found}. Begin with partial_fit, "
            f"or fit with n_features={FEATURES}."
        )
    if not isinstance(posterior, ClosedForm):
        assert not isinstance(posterior, WithEffects)  # of a kernel with levels
        if not posterior.basis.diagonal or posterior.basis.m > MOST_FEATURES:
            raise ValueError(
                f"Expected a basis of at most {MOST_FEATURES} features with S = I to add rows to, got "
                f"{type(posterior.basis).__name__} with {posterior.basis.m}. Fit with n_features={FEATURES} first."
            )
        check_fits(need_of(posterior.basis.m), options.max_memory, "Fit with a smaller n_features first.")
        return Accumulated.of(posterior)
    m = options.n_features or FEATURES
    while options.n_features is None and m > 64 and need_of(m).total > options.max_memory:
        m = m // 4 * 2
    check_fits(need_of(m), options.max_memory, f"Lower n_features (now {m}).")
    dtype = torch.float64
    kernel = posterior.kernel.with_parameters({n: v.to(dtype) for n, v in posterior.kernel.parameters().items()})
    assert isinstance(kernel, SpectralKernel)
    basis = Fourier(kernel, m, seed=options.seed)
    grown = Accumulated.empty(basis, posterior.likelihood, posterior.Y.shape[1])
    xi = posterior.xi.square().mean(1, keepdim=True).sqrt().expand_as(posterior.xi)  # tight for the exact GP
    for rows in torch.arange(len(posterior.x)).split(_BLOCK_ROWS):
        Phi = grown.features(posterior.x[rows])
        grown = grown.with_sites(Phi, posterior.Y[rows].to(Phi), posterior.weight[rows].to(Phi), xi[rows].to(Phi))
    return grown
