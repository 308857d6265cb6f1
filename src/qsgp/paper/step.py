"""One iteration: draw, estimate, differentiate, update. The only file that writes into a `State`.

Cost: O(n_tilde m_tilde (d + k) + n_bar m_tilde (d + k) + n_bar^2 n_tilde) whatever n and m are. No tensor of n or m
elements is made; the table is changed in place at the touched rows.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_choice, check_positive
from qsgp.paper import control_variates
from qsgp.paper.objective import (
    Bound,
    Control,
    Drawn,
    SupportValues,
    constant_terms,
    gaussian_terms,
    prior_terms,
    site_curvature,
    site_terms,
)
from qsgp.paper.optimisers import adagrad, adam, block_newton, decayed
from qsgp.paper.problem import Problem, at_hyperparameters
from qsgp.paper.sampling import draw, step_generator
from qsgp.paper.state import Rows, State

MeanUpdate = Literal["adagrad", "newton"]


# A function this precise is switched off; larger numbers would only lose digits.
_LARGEST_PRECISION = 1e8


@dataclass(frozen=True)
class Settings:
    """How to train; the defaults of rate, hyper_rate and frozen are the paper's (Appendix I.1).

    ``control="gram"`` is for Gaussian noise; sites know kriging or none. ``mean_update="newton"`` solves for the block
    of mu that was drawn, a full step at first, decaying like the rates. With m_tilde < m it can diverge: it is safe
    only where kriging from many support points leaves the sampled gradient almost no noise.
    """

    n_tilde: int = 500
    m_tilde: int = 500
    iterations: int = 10_000
    rate: float = 0.1
    hyper_rate: float = 1e-5
    final: float = 0.01  # both rates decay exponentially to this part of themselves
    frozen: float = 0.1  # part of the iterations before hyperparameters move
    learn_hyperparameters: bool = False
    learned: str = ""  # only hyperparameters whose names begin so: "likelihood" leaves the kernel alone
    mean_update: MeanUpdate = "adagrad"
    control: Control = "gram"
    bound: Bound = "B"
    replacement: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("mean_update", self.mean_update, get_args(MeanUpdate))
        check_choice("control", self.control, get_args(Control))
        check_choice("bound", self.bound, get_args(Bound))
        check_positive("rate", self.rate, "Steps go down the gradient; the paper's rate is 0.1.")
        check_positive("final", self.final, "Rates decay to this part of themselves; use 1.0 for constant rates.")


class Info(NamedTuple):
    """What only a human needs. ``terms`` are the sampled parts of -2 ELBO; tensors, so that nothing waits for them."""

    terms: dict[str, Tensor]

    def elbo(self) -> float:
        """The sampled ELBO (without log |S| when S is dense)."""
        return -0.5 * float(sum(float(term) for term in self.terms.values()))


def step(problem: Problem, state: State, settings: Settings) -> tuple[State, Info]:
    """State -> State, Info. The state given is updated in place and returned."""
    n, m = problem.source.n, problem.basis.m
    table = state.table
    with_values = settings.control != "none" or problem.needs_support
    generator = step_generator(settings.seed, state.t, table.device)
    sets = 3 if problem.needs_support and settings.control == "kriging" else 2
    batch = draw(n, m, settings.n_tilde, settings.m_tilde, generator, replacement=settings.replacement, sets=sets)
    x, y = problem.source.take(batch.l)
    y, weight = y.reshape(len(y), -1), problem.source.weights(batch.l)
    learning = settings.learn_hyperparameters and state.t >= settings.frozen * settings.iterations

    # A function drawn twice is one leaf: its gradient has to be summed before AdaGrad squares it.
    gathered, sums = state.gather(batch.touched)
    leaf = gathered.requires_grad_()
    theta = {name: value.detach() for name, value in state.theta.items()}
    moving = [name for name in theta if learning and name.startswith(settings.learned)]
    for name in moving:
        theta[name].requires_grad_()
    basis, likelihood = at_hyperparameters(problem, theta)
    columns = problem.basis.columns(batch.drawn)
    values = support_values(problem, state, columns) if with_values else None
    drawn = Drawn.of(batch, state.named(leaf), problem.covariance, basis, columns, x)

    terms = prior_terms(drawn, values, m) | constant_terms(drawn, y, weight, likelihood, n, m)
    if likelihood.fixed_sites:
        assert likelihood.noise_variance is not None
        terms |= gaussian_terms(drawn, x, y, weight, likelihood.noise_variance, values, settings.control, n, m)
    else:
        assert values is not None
        terms |= site_terms(drawn, x, y, weight, likelihood, values, settings.control, settings.bound, n, m)
    loss = 0.5 * torch.stack(list(terms.values())).sum()
    gradients = torch.autograd.grad(loss, [leaf, *(theta[name] for name in moving)])

    with torch.no_grad():
        rate = decayed(settings.rate, state.t, settings.iterations, settings.final)
        new, sums = adagrad(leaf, sums, gradients[0], rate)
        if settings.mean_update == "newton":
            curvature = site_curvature(likelihood, x, y, values)
            curvature = curvature if weight is None else weight * curvature
            o = state.outputs
            new[:, :o] = _newton_mean(leaf[:, :o], gradients[0][:, :o], drawn, curvature, n, m, rate / settings.rate)
        if problem.basis.learned_precision:
            new[:, -1] = leaf[:, -1]
            if state.t >= settings.frozen * settings.iterations:
                _own_precision(state.named(new), batch.touched, problem)
        state.scatter(batch.touched, new, sums)
        if values is not None:
            _advance(problem, state, values, drawn, state.named(new))
        if moving:
            hyper_rate = decayed(settings.hyper_rate, state.t, settings.iterations, settings.final)
            first = math.ceil(settings.frozen * settings.iterations)
            for name, gradient in zip(moving, gradients[1:], strict=True):
                state.theta[name], state.moments[name] = adam(
                    state.theta[name], state.moments[name], gradient, hyper_rate, state.t - first + 1
                )
    state.t += 1
    return state, Info({name: term.detach() for name, term in terms.items()})


def _newton_mean(
    mu: Float[Tensor, "u o"], gradient: Tensor, drawn: Drawn, curvature: Tensor, n: int, m: int, rate: float
) -> Float[Tensor, "u o"]:
    """One damped Newton step for mu at the touched rows, from the block's own sampled Hessian."""
    batch = drawn.batch
    somewhere = torch.empty_like(batch.touched)
    somewhere[batch.at] = torch.arange(len(batch.at), device=batch.at.device)
    # The estimate counts a drawn row m / |drawn| times over, so that it is right on average; this block wants it once.
    own = gradient * (len(batch.drawn) / m) / batch.repeats[:, None]
    root = drawn.Phi[:, somewhere] * torch.sqrt(n / len(drawn.Phi) * curvature)[:, None]
    return block_newton(mu, own, drawn.s[somewhere], root, rate)


def _own_precision(rows: Rows, touched: Tensor, problem: Problem) -> None:
    """Empirical Bayes for own precisions: ``rows.log_s``, and with it ``rows.log_c``, are set to the ELBO's maximum.

    With w = mu^2 + what dense columns add to Sigma_ii, a dense row has s = 1 / w. A diagonal one has c = (q + s)^-1/2
    as in Proposition 1, where q, the data's say, is what c and s imply so far; both together are best at
    s = (sqrt(q^2 + 4 q / w) - q) / 2, where alternating between them would arrive after many steps of at most q.
    """
    assert rows.log_s is not None
    arm = problem.covariance.diagonal_rows(touched, rows.mu.dtype) > 0
    dense = problem.covariance.dense_columns(touched, rows.L, rows.log_c)
    w = (rows.mu.square().mean(1) + dense.square().sum(1)).clamp_min(1e-30)
    data_and_prior = torch.exp(-2 * rows.log_c)
    q = (data_and_prior - rows.log_s.exp()).clamp_min(1e-9 * data_and_prior)
    together = 2 * q / w / (q + torch.sqrt(q.square() + 4 * q / w))  # the root without cancellation
    s = torch.where(arm, together, 1 / w).clamp_max(_LARGEST_PRECISION)
    rows.log_s.copy_(s.log())
    rows.log_c.copy_(torch.where(arm, -0.5 * torch.log(q + s), rows.log_c))


def support_values(problem: Problem, state: State, columns: object) -> SupportValues:
    """The drawn functions at the support points, with the initial kernel: Appendix F.3."""
    assert state.a is not None
    with torch.no_grad():
        Phi_p = problem.basis.features(problem.support.U, columns)
        B = None
        if state.a_prior is not None:
            B = control_variates.nystrom_factor(problem.support.factor, Phi_p)
    return SupportValues(problem.support, Phi_p, state.a, state.spread, B, state.a_prior)


def _advance(problem: Problem, state: State, values: SupportValues, drawn: Drawn, new: Rows) -> None:
    """Proposition 3 for a, for the Nystrom product and for the variance of the diagonal columns."""
    batch, chevron = drawn.batch, problem.covariance
    share = batch.share(drawn.V.dtype)
    log_c = new.log_c[batch.at]
    V = torch.cat([new.mu[batch.at], chevron.dense_columns(batch.drawn, new.L[batch.at], log_c)], 1)
    change = V - drawn.V
    state.a = control_variates.advance(values.a, values.Phi_p, change, share)
    if values.B is not None and state.a_prior is not None:
        state.a_prior = control_variates.advance(state.a_prior, values.B, change, share)
    if state.spread is not None:
        grown = drawn.arm * (torch.exp(2 * log_c) - drawn.c.square())
        state.spread = state.spread + values.Phi_p.square() @ (share * grown)
