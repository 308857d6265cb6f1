"""One iteration: draw, estimate, differentiate, update. The only file that writes into a `State`.

Cost: O(n_tilde m_tilde (d + k) + n_bar m_tilde (d + k) + n_bar^2 n_tilde) whatever n and m are. No tensor of n or m
elements is made; the table is changed in place at the touched rows.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.paper import control_variates
from qsgp.paper.implicit import implicit_step
from qsgp.paper.log_determinant import level_sizes, look
from qsgp.paper.objective import Drawn, Estimate, SupportValues, loss, site_curvature
from qsgp.paper.optimisers import adagrad, adam, block_newton, decayed
from qsgp.paper.own_precision import set_own_precision
from qsgp.paper.problem import Problem
from qsgp.paper.sampling import Batch, draw, step_generator
from qsgp.paper.settings import Settings
from qsgp.paper.state import Rows, State


class Info(NamedTuple):
    """What only a human needs. ``terms`` are the sampled parts of -2 ELBO; tensors, so that nothing waits for them."""

    terms: dict[str, Tensor]

    def elbo(self) -> float:
        """The sampled ELBO (without log |S| when S is dense)."""
        return -0.5 * float(sum(float(term) for term in self.terms.values()))


def step(problem: Problem, state: State, settings: Settings) -> tuple[State, Info]:
    """State -> State, Info. The state given is updated in place and returned."""
    batch = batch_of(problem, settings, state.t, state.table.device)
    # A function drawn twice is one leaf: its gradient has to be summed before AdaGrad squares it.
    leaf, sums = state.gather(batch.touched)
    leaf.requires_grad_()
    theta = {name: value.detach() for name, value in state.theta.items()}
    moving = _moving(state, settings)
    for name in moving:
        theta[name].requires_grad_()
    estimate = loss(problem, state, batch, leaf, theta, settings)
    wanted = [leaf, estimate.drawn.V, *(theta[name] for name in moving)]
    of_rows, of_drawn, *of_theta = torch.autograd.grad(estimate.loss, wanted)

    with torch.no_grad():
        rate = decayed(settings.rate, state.t, settings.iterations, settings.final)
        new, sums = adagrad(leaf, sums, of_rows, rate)
        if settings.mean_update == "newton":
            o = state.outputs
            new[:, :o] = _newton_mean(leaf[:, :o], of_rows[:, :o], estimate, rate / settings.rate)
        if settings.mean_update == "implicit":
            at_i, V = batch.at[: len(batch.draws[0])], slice(0, state.outputs + state.k)
            new[:, V] = leaf[:, V]
            new[at_i, V] += implicit_step(estimate, of_drawn, state.k, rate)
        if problem.basis.learned_precision:
            new[:, -1] = leaf[:, -1]
            if state.t >= settings.frozen * settings.iterations:
                set_own_precision(state.named(new), batch.touched, problem)
        state.scatter(batch.touched, new, sums)
        if estimate.values is not None:
            _advance(problem, state, estimate.values, estimate.drawn, state.named(new))
        _move(state, settings, dict(zip(moving, of_theta, strict=True)))
    state.t += 1
    return state, Info({name: term.detach() for name, term in estimate.terms.items()})


def batch_of(problem: Problem, settings: Settings, t: int, device: torch.device | str) -> Batch:
    """What step ``t`` draws. Kriging under a site needs a third draw of functions (`objective.loss`)."""
    sets = 3 if problem.needs_support and settings.control == "kriging" else 2
    sizes = (problem.source.n, problem.basis.m, settings.n_tilde, settings.m_tilde)
    generator = step_generator(settings.seed, t, device)
    batch = draw(*sizes, generator, replacement=settings.replacement, sets=sets)
    if problem.earlier is None or not settings.determinant_rows:
        return batch
    levels = len(level_sizes(problem.earlier.shape[1]))
    return replace(batch, looked=look(problem.basis.m, settings.determinant_rows, levels, generator))


def _moving(state: State, settings: Settings) -> list[str]:
    """Hyperparameters that this step changes."""
    if not settings.learn_hyperparameters or state.t < settings.frozen * settings.iterations:
        return []
    return [name for name in state.theta if name.startswith(settings.learned)]


def _move(state: State, settings: Settings, gradients: dict[str, Tensor]) -> None:
    """A step of Adam for each hyperparameter."""
    rate = decayed(settings.hyper_rate, state.t, settings.iterations, settings.final)
    number = state.t - math.ceil(settings.frozen * settings.iterations) + 1
    for name, gradient in gradients.items():
        state.theta[name], state.moments[name] = adam(state.theta[name], state.moments[name], gradient, rate, number)


def _newton_mean(mu: Float[Tensor, "u o"], gradient: Tensor, estimate: Estimate, rate: float) -> Float[Tensor, "u o"]:
    """One damped Newton step for mu at the touched rows, from the block's own sampled Hessian."""
    drawn, batch = estimate.drawn, estimate.drawn.batch
    somewhere = torch.empty_like(batch.touched)
    somewhere[batch.at] = torch.arange(len(batch.at), device=batch.at.device)
    # The estimate counts a drawn row m / |drawn| times over, so that it is right on average; this block wants it once.
    own = gradient * (len(batch.drawn) / drawn.m) / batch.repeats[:, None]
    curvature = site_curvature(drawn, estimate.values)
    root = drawn.Phi[:, somewhere] * torch.sqrt(drawn.n / len(drawn.Phi) * curvature)[:, None]
    return block_newton(mu, own, drawn.s[somewhere], root, rate)


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
