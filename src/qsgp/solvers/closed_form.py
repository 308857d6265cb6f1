"""Small data: the exact GP, for every likelihood, through its quadratic sites (bound Q). O(n^3) once or a few times.

With log g_l(f) >= c0 + c1 f - lambda f^2 / 2 the posterior is that of a GP seeing targets c1 / lambda with noise
1 / lambda. Gaussian sites are quadratic themselves, so for them this is the exact GP; logistic and Laplace sites are
tightened at the current posterior until nothing moves. Weights multiply sites: weight 2 is the row given twice.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from qsgp.data.rows import Rows
from qsgp.factor import NotPositiveDefinite, cholesky
from qsgp.interfaces import Kernel, Likelihood
from qsgp.kernels.gram import gram
from qsgp.likelihoods import LabelsAsNumbers
from qsgp.solvers import left_out

K = TypeVar("K", bound=Kernel)
L = TypeVar("L", bound=Likelihood)
Prior = Callable[[Kernel, Likelihood], Tensor]  # a log density of their parameters

_PARTS = 4  # of the number of known rows: so many others are predicted at a time
_ROUNDS = 50  # of tightening; logistic and Laplace sites settle in about 10
# Rounding of a factor of n rows is at worst n eps |B|, and |B| up to n times its diagonal. A part of that share of the
# signal variance counts as noise of every row (1e-10 of it with 8,000 rows): evidence leads where factors are rare.
_ROUNDED = 0.01
_LOG_RANGE = (-12.0, 9.0)
_LOG_NOISE_RANGE = (-15.0, 5.0)  # down to a deviation of 5e-4 of the target's


@dataclass(frozen=True)
class Sites:
    """Quadratic sites of one output at the n training points, weights included."""

    constant: Float[Tensor, ""]
    linear: Float[Tensor, " n"]
    precision: Float[Tensor, " n"]

    @classmethod
    def of(cls, likelihood: Likelihood, y: Tensor, xi: Tensor, weight: Tensor) -> "Sites":
        constant, linear, quadratic = likelihood.quadratic_bound(y, xi)
        return cls((weight * constant).sum(), weight * linear, -2 * weight * quadratic)

    @property
    def root(self) -> Float[Tensor, " n"]:
        return self.precision.sqrt()

    @property
    def white(self) -> Float[Tensor, " n"]:
        """linear / root: the targets in units of their noise; 0 where a weight of 0 switched the row off."""
        return torch.where(self.precision > 0, self.linear / torch.where(self.precision > 0, self.root, 1.0), 0.0)


@dataclass(frozen=True)
class Solved:
    """The posterior of one output: mean k(x, X) alpha, variance k(x, x) - |factor^-1 root k(X, x)|^2."""

    sites: Sites
    factor: Float[Tensor, "n n"]  # of B = I + root K root
    alpha: Float[Tensor, " n"]
    evidence: Float[Tensor, ""]  # log evidence, or its lower bound for sites that are not Gaussian


def solve(Gram: Float[Tensor, "n n"], sites: Sites) -> Solved:
    """Posterior and log evidence for given sites, from a factor of I + root K root (eigenvalues >= 1)."""
    evidence, factor, solved = _Evidence.apply(Gram, sites.root, sites.white[:, None])
    return Solved(sites, factor, sites.root * solved[:, 0], sites.constant + evidence)


def evidence_of(Gram: Float[Tensor, "n n"], sites: list[Sites], shared: bool) -> Float[Tensor, ""]:
    """The log evidence, or its bound, of all outputs; ``shared``: their precisions are equal, and so is the factor."""
    if not shared:
        return torch.stack([solve(Gram, own).evidence for own in sites]).sum()
    white = torch.stack([own.white for own in sites], 1)
    return _Evidence.apply(Gram, sites[0].root, white)[0] + torch.stack([own.constant for own in sites]).sum()


class _Evidence(torch.autograd.Function):
    """log E = tr(w^T w - w^T B^-1 w) / 2 - p log |B| / 2 with B = I + root K root, w for p outputs in columns.

    Its gradient from one inverse of B: with s = B^-1 w and G = (s s^T - p B^-1) / 2, dE/dK = root G root,
    dE/droot = 2 (G * K) root, dE/dw = w - s. The derivative of a Cholesky factor, which automatic differentiation
    would take, costs four times as much.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, Gram: Float[Tensor, "n n"], root: Float[Tensor, " n"], white: Float[Tensor, "n p"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n n"], Float[Tensor, "n p"]]:
        B = (root[:, None] * Gram).mul_(root)
        B.diagonal().mul_(1 + _ROUNDED * torch.finfo(B.dtype).eps * len(B) ** 2).add_(1)
        factor, _ = cholesky(B)  # jitter at worst: a little more noise in this evidence
        solved = torch.cholesky_solve(white, factor)
        evidence = 0.5 * (white * (white - solved)).sum() - white.shape[1] * factor.diagonal().log().sum()
        ctx.save_for_backward(Gram, root, white, factor, solved)
        ctx.mark_non_differentiable(factor, solved)
        return evidence, factor, solved

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Float[Tensor, ""], *_: Tensor
    ) -> tuple[Float[Tensor, "n n"], Float[Tensor, " n"], Float[Tensor, "n p"]]:
        Gram, root, white, factor, solved = ctx.saved_tensors
        inverse = torch.cholesky_inverse(factor)
        G = torch.addmm(inverse, solved, solved.mT, alpha=0.5, beta=-0.5 * white.shape[1])
        dGram = (root[:, None] * G).mul_(root).mul_(gradient)
        droot = 2 * gradient * (G.mul_(Gram) @ root)
        return dGram, droot, gradient * (white - solved)


def tighten(
    Gram: Float[Tensor, "n n"],
    likelihood: Likelihood,
    y: Float[Tensor, " n"],
    weight: Float[Tensor, " n"],
    first: Float[Tensor, " n"] | None = None,
    rounds: int = _ROUNDS,
    halt: Callable[[], bool] | None = None,
) -> Float[Tensor, " n"]:
    """The xi at which the quadratic sites are tightest for their own posterior, from a ``first`` guess; O(n^3) a round.

    Gaussian sites are exact wherever they touch. Any xi gives a lower bound, so few rounds do while searching, or
    when ``halt``, asked after every round, says so.
    """
    xi = _first_xi(Gram, likelihood, y) if first is None else first
    for tighter in islice(_tightened(Gram, likelihood, y, weight, xi), rounds):
        xi = tighter
        if halt is not None and halt():
            break
    return xi


@torch.no_grad()
def tighten_all(
    Gram: Float[Tensor, "n n"],
    likelihood: Likelihood,
    Y: Float[Tensor, "n o"],
    weight: Float[Tensor, " n"],
    halt: Callable[[], bool] | None = None,
) -> Float[Tensor, "n o"]:
    """`tighten` for every output, round by round: when ``halt`` ends it, all outputs have had their turns."""
    xis = [_first_xi(Gram, likelihood, y) for y in Y.mT]
    rounds = {o: _tightened(Gram, likelihood, Y[:, o], weight, xi) for o, xi in enumerate(xis)}
    for _ in range(_ROUNDS):
        for output in list(rounds):
            if halt is not None and halt():
                return torch.stack(xis, 1)
            tighter = next(rounds[output], None)
            if tighter is None:
                del rounds[output]
            else:
                xis[output] = tighter
    return torch.stack(xis, 1)


def _first_xi(Gram: Float[Tensor, "n n"], likelihood: Likelihood, y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The tightest for the prior."""
    return likelihood.optimal_xi(y, torch.zeros_like(y), Gram.diagonal())


def _tightened(
    Gram: Float[Tensor, "n n"], likelihood: Likelihood, y: Tensor, weight: Tensor, xi: Float[Tensor, " n"]
) -> Iterator[Float[Tensor, " n"]]:
    """xi after every round, until they settle; for Gaussian sites none.

    Where labels are easy to tell, plain rounds move by less and less for hundreds of them. After every two their
    logarithms go on as these two foretell (SQUAREM, Varadhan and Roland 2008), if that raises the evidence.
    """

    def tighter(at: Tensor) -> tuple[Tensor, float, bool]:
        solved = solve(Gram, Sites.of(likelihood, y, at, weight))
        mean, variance = Gram @ solved.alpha, variance_at_data(solved, Gram.diagonal())
        new = likelihood.optimal_xi(y, mean, mean.square() + variance)
        return new, float(solved.evidence), float((new - at).abs().max()) < 1e-5 * (1 + float(new.max()))

    settled = likelihood.fixed_sites
    while not settled:
        once, _, settled = tighter(xi)
        yield once
        if settled:
            return
        twice, evidence, settled = tighter(once)
        yield twice
        step, bend = _log(once) - _log(xi), _log(twice) - 2 * _log(once) + _log(xi)
        length = math.sqrt(float(weight @ step.square()) / max(float(weight @ bend.square()), 1e-300))
        xi = twice
        if not settled and length > 1:
            ahead, higher, _ = tighter((_log(once) + (2 * length - 1) * step + length**2 * bend).clamp(-30, 30).exp())
            xi = ahead if higher > evidence + 1e-9 * abs(evidence) else twice  # rounding must not decide
            yield xi


def _log(xi: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    return xi.clamp_min(1e-12).log()


def variance_at_data(solved: Solved, prior: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """(1 - diag B^-1) / precision, the posterior variance of f at the training points; the prior's without a site."""
    precision = solved.sites.precision
    share = (1 - torch.cholesky_inverse(solved.factor).diagonal()).clamp_min(0)
    return torch.minimum(torch.where(precision > 1e-12, share / precision.clamp_min(1e-12), prior), prior)


@torch.no_grad()
def density_of_others(
    kernel: Kernel,
    likelihood: Likelihood,
    known: Rows,
    others: Rows,
    halt: Callable[[], bool] | None = None,
) -> float:
    """Mean log density of ``others`` for the exact GP that knows ``known``.

    The evidence of n rows is the sum of what 0, 1, ... n - 1 rows said of the next: it favours kernels that are good
    early. This is what n rows say, nearer to what more rows will. O(n^3 + n^2 h). When ``halt`` says so, sites that are
    not Gaussian stay as tight as they are.
    """
    (x, Y, weight), (x_new, Y_new, weight_new) = known, others
    with threads_worth(len(x)):
        if likelihood.fixed_sites:
            return _density_by_one_factor(kernel, likelihood, known, others)
        Gram, cross, total = kernel(x, x), kernel(x, x_new), 0.0
        xis = tighten_all(Gram, likelihood, Y, weight, halt)
        for y, xi, y_new in zip(Y.mT, xis.mT, Y_new.mT, strict=True):
            solved = solve(Gram, Sites.of(likelihood, y, xi, weight))
            half = torch.linalg.solve_triangular(solved.factor, solved.sites.root[:, None] * cross, upper=False)
            variance = (kernel.diag(x_new) - half.square().sum(0)).clamp_min(0)
            total += float(weight_new @ likelihood.log_density(y_new, cross.mT @ solved.alpha, variance))
    return total / float(weight_new.sum()) / Y.shape[1]


def _density_by_one_factor(kernel: Kernel, likelihood: Likelihood, known: Rows, others: Rows) -> float:
    """Outputs share their noise, and so the factor. The others come in parts, which take less than the factor does."""
    assert likelihood.noise_variance is not None
    B = kernel(known.x, known.x)
    B.diagonal().add_(likelihood.noise_variance / known.weight)
    factor, _ = cholesky(B)
    del B
    A, means, logs = torch.cholesky_solve(known.Y, factor), [], []
    for x, Y in zip(*(part.split(max(1, known.n // _PARTS)) for part in (others.x, others.Y)), strict=True):
        cross = kernel(known.x, x)
        means.append(cross.mT @ A)
        if not isinstance(likelihood, LabelsAsNumbers):
            half = torch.linalg.solve_triangular(factor, cross, upper=False)
            variance = (kernel.diag(x) - half.square().sum(0)).clamp_min(0)
            logs.append(likelihood.log_density(Y, means[-1], variance[:, None]).mean(1))
    if isinstance(likelihood, LabelsAsNumbers):
        return left_out.density_of_classes(torch.cat(means), others)
    return float(others.weight @ torch.cat(logs) / others.weight.sum())


@contextmanager
def threads_worth(n: int) -> Iterator[None]:
    """One thread for every 750 rows: on smaller matrices threads wait for each other (600 rows: twice as slow; 1,000
    rows: two are as fast as one on an idle machine, and much slower on a busy one)."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, n // 750)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Effort(NamedTuple):
    """A search ends after so many iterations, or when a step gains less than ``tolerance`` of the evidence of a row.

    When ``late``, asked after every round, says so, sites that are not Gaussian stay as tight as they are.
    """

    iterations: int = 100
    tolerance: float = 1e-9
    late: Callable[[], bool] | None = None


_THOROUGH = Effort()


def fit_hyperparameters(
    kernel: K,
    likelihood: L,
    rows: Rows,
    effort: Effort = _THOROUGH,
    *,
    prior: Prior | None = None,
    halt: Callable[[], bool] | None = None,
    least_noise: float = 0.0,
) -> tuple[K, L, float]:
    """Kernel and likelihood that maximise the (bound of the) log evidence summed over outputs, and that value.

    ``prior`` adds a log density of the parameters. The search ends as ``effort`` says, or when ``halt``, asked before
    every evaluation but the first, says so. ``least_noise`` is the least variance of Gaussian noise.

    L-BFGS in the log parameters. The sites are tightened at every evaluation and held fixed in its gradient, which is
    the full one at the tightest sites.
    """
    objective = _Objective(kernel, likelihood, rows, prior, effort.late)
    best: list[tuple[float, np.ndarray]] = []

    def watched(point: np.ndarray) -> tuple[float, np.ndarray]:
        if best and halt is not None and halt():
            raise _Halted
        value, slope = objective(point)
        if not best or value < best[0][0]:
            best[:] = [(value, point.copy())]
        return value, slope

    limits = objective.limits(least_noise)
    start = np.clip(objective.start, [low for low, _ in limits], [high for _, high in limits])
    options = {"maxiter": effort.iterations, "ftol": effort.tolerance}
    with threads_worth(rows.n), suppress(_Halted):
        start = _with_enough_noise(watched, start, limits, len(likelihood.parameters()))
        minimize(watched, start, jac=True, method="L-BFGS-B", bounds=limits, options=options)
    value, point = best[0]
    k, g = objective.unpack(torch.tensor(point, dtype=rows.x.dtype, device=rows.x.device))
    return cast(K, k), cast(L, g), -value * objective.size


def _with_enough_noise(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    limits: list[tuple[float, float]],
    noises: int,
) -> np.ndarray:
    """``start``, with ten times the noise as long as that is better: the noise of few rows may be far too small for
    more, slopes are huge there, and their first step ends where nothing but noise is left."""
    value = objective(start)[0]
    for _ in range(6 if noises else 0):
        more = start.copy()
        more[-noises:] = np.minimum(more[-noises:] + math.log(10), [high for _, high in limits[-noises:]])
        better = objective(more)[0]
        if not better < value:
            break
        start, value = more, better
    return start


class _Objective:
    """-(log evidence + log prior) of a row at a point of the log parameters, and its slope."""

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        rows: Rows,
        prior: Prior | None,
        late: Callable[[], bool] | None = None,
    ) -> None:
        self._kernel, self._likelihood, self._rows, self._prior = kernel, likelihood, rows, prior
        self._late = late
        self._own, self._noise = kernel.parameters(), likelihood.parameters()
        self._first = [*self._own.values(), *self._noise.values()]
        self._xis: list[Tensor] = []
        self.size = float(rows.weight.sum())  # not len(x): a row of weight 2 is two rows

    @property
    def start(self) -> np.ndarray:
        return torch.cat([value.detach().reshape(-1) for value in self._first]).double().cpu().numpy()

    def limits(self, least_noise: float) -> list[tuple[float, float]]:
        low, high = _LOG_NOISE_RANGE
        if least_noise > 0 and self._likelihood.fixed_sites:
            low = min(max(low, math.log(least_noise)), high)
        sizes = [sum(value.numel() for value in part.values()) for part in (self._own, self._noise)]
        return [_LOG_RANGE] * sizes[0] + [(low, high)] * sizes[1]

    def unpack(self, flat: Tensor) -> tuple[Kernel, Likelihood]:
        parts = flat.split([value.numel() for value in self._first])
        values = [part.reshape(value.shape) for part, value in zip(parts, self._first, strict=True)]
        own = dict(zip(self._own, values, strict=False))
        noise = dict(zip(self._noise, values[len(own) :], strict=True))
        return self._kernel.with_parameters(own), self._likelihood.with_parameters(noise)

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        flat = torch.tensor(point, dtype=self._rows.x.dtype, device=self._rows.x.device, requires_grad=True)
        kernel, likelihood = self.unpack(flat)
        try:
            total = self._evidence(gram(kernel, self._rows.x), likelihood)
        except NotPositiveDefinite:  # send the line search back
            return 1e10, np.zeros_like(point)
        loss = -(total if self._prior is None else total + self._prior(kernel, likelihood)) / self.size
        (gradient,) = torch.autograd.grad(loss, flat)
        return float(loss.detach()), gradient.double().cpu().numpy()

    def _evidence(self, Gram: Float[Tensor, "n n"], likelihood: Likelihood) -> Float[Tensor, ""]:
        if isinstance(likelihood, LabelsAsNumbers):  # no evidence, but what leads to it
            return left_out.log_probability(Gram, likelihood, self._rows)
        weight, columns = self._rows.weight, self._rows.Y.mT
        with torch.no_grad():  # the sites of the last point are a good guess for this one
            firsts, rounds = (self._xis, 4) if self._xis else ([None] * len(columns), _ROUNDS)
            self._xis = [
                tighten(Gram, likelihood, y, weight, xi, rounds, self._late)
                for y, xi in zip(columns, firsts, strict=True)
            ]
        sites = [Sites.of(likelihood, y, xi, weight) for y, xi in zip(columns, self._xis, strict=True)]
        return evidence_of(Gram, sites, likelihood.fixed_sites)


class _Halted(Exception):
    """Time is up in the middle of a search."""
