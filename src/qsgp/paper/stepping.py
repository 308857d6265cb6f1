"""One iteration: draw, estimate, differentiate, update. The only file that writes into a `State`.

Cost: O(n_tilde m_tilde (d + k) + n_bar m_tilde (d + k) + n_bar^2 n_tilde) whatever n and m are, with r_tilde in place
of k where dense columns are sampled. No tensor of n or m elements is made; the table is changed in place at the
touched rows.
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
from qsgp.paper.optimisers import adagrad, adagrad_rows, adam, block_newton, decayed
from qsgp.paper.own_precision import set_own_precision
from qsgp.paper.problem import Problem
from qsgp.paper.sampling import Batch, draw, sample, step_generator
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
    leaf, sums = state.gather(batch.touched, batch.dense)
    leaf.requires_grad_()
    theta = {name: value.detach() for name, value in state.theta.items()}
    names = moving(state, settings)
    for name in names:
        theta[name].requires_grad_()
    estimate = loss(problem, state, batch, leaf, theta, settings)
    wanted = [leaf, estimate.drawn.V, *(theta[name] for name in names)]
    of_rows, of_drawn, *of_theta = torch.autograd.grad(estimate.loss, wanted)

    with torch.no_grad():
        new, sums = descended(state, settings, (leaf, sums), of_rows, _decay(state, settings))
        if settings.mean_update == "newton":
            o = state.outputs
            new[:, :o] = _newton_mean(leaf[:, :o], of_rows[:, :o], estimate, _decay(state, settings))
        if settings.mean_update == "implicit":
            at_i, V = batch.at[: len(batch.draws[0])], slice(0, state.outputs + state.k)
            new[:, V] = leaf[:, V]
            new[at_i, V] += implicit_step(estimate, of_drawn, state.k, settings.rate * _decay(state, settings))
        if problem.basis.learned_precision:
            new[:, -1] = leaf[:, -1]
            if state.t >= settings.frozen * settings.iterations:
                set_own_precision(state.named(new), batch.touched, problem)
        state.scatter(batch.touched, batch.dense, new, sums)
        if estimate.values is not None:
            _advance(problem, state, estimate.values, estimate.drawn, state.named(new, batch.dense))
        _move(state, settings, dict(zip(names, of_theta, strict=True)))
    state.t += 1
    return state, Info({name: term.detach() for name, term in estimate.terms.items()})


def batch_of(problem: Problem, settings: Settings, t: int, device: torch.device | str) -> Batch:
    """What step ``t`` draws. Kriging under a site needs a third draw of functions (`objective.loss`); Theorem 2 draws
    dense columns too, always without replacement: each is one leaf."""
    sets = 3 if problem.needs_support and settings.control == "kriging" else 2
    sizes = (problem.source.n, problem.basis.m, settings.n_tilde, settings.m_tilde)
    generator, k = step_generator(settings.seed, t, device), problem.covariance.k
    batch = draw(*sizes, generator, replacement=settings.replacement, sets=sets)
    if settings.r_tilde is not None and settings.r_tilde < k:
        batch = replace(batch, dense=sample(k, settings.r_tilde, generator))
    if problem.earlier is not None and settings.determinant_rows:
        levels = len(level_sizes(problem.earlier.shape[1]))
        batch = replace(batch, looked=look(problem.basis.m, settings.determinant_rows, levels, generator))
    return batch


def _decay(state: State, settings: Settings) -> float:
    return decayed(1.0, state.t, settings.iterations, settings.final)


def descended(
    state: State,
    settings: Settings,
    rows: tuple[Float[Tensor, "u w"], Float[Tensor, "u v"]],
    gradient: Float[Tensor, "u w"],
    decay: float | Tensor,
) -> tuple[Float[Tensor, "u w"], Float[Tensor, "u v"]]:
    """AdaGrad at touched rows of table and sums: one rate for all, or one for L in the unit of the c_rr of each row.

    Entries of C are as small as the deviations of the weights. Steps of one rate, right for mu, leave noise in all of
    them that the data would have to take out again.
    """
    (leaf, sums), o = rows, state.outputs
    if sums.shape[1] == leaf.shape[1]:
        return adagrad(leaf, sums, gradient, settings.rate * decay)
    k = leaf.shape[1] - sums.shape[1] + 1
    mu, L, rest = leaf.tensor_split((o, o + k), 1)
    of_mu, of_L, of_rest = gradient.tensor_split((o, o + k), 1)
    mu, sums_mu = adagrad(mu, sums[:, :o], of_mu, settings.rate * decay)
    own = settings.covariance_rate * decay * torch.exp(rest[:, 0])
    L, sums_L = adagrad_rows(L, sums[:, o : o + 1], of_L, own)
    rest, sums_rest = adagrad(rest, sums[:, o + 1 :], of_rest, settings.rate * decay)
    return torch.cat([mu, L, rest], 1), torch.cat([sums_mu, sums_L, sums_rest], 1)


def moving(state: State, settings: Settings) -> list[str]:
    """Hyperparameters that this step changes."""
    if not settings.learn_hyperparameters or state.t < settings.frozen * settings.iterations:
        return []
    return [name for name in state.theta if settings.learns(name)]


def _move(state: State, settings: Settings, gradients: dict[str, Tensor]) -> None:
    """A step of Adam for each hyperparameter."""
    rate = decayed(settings.hyper_rate, state.t, settings.iterations, settings.final)
    number = state.t - math.ceil(settings.frozen * settings.iterations) + 1
    for name, gradient in gradients.items():
        state.theta[name], state.moments[name] = adam(state.theta[name], state.moments[name], gradient, rate, number)


def _newton_mean(mu: Float[Tensor, "u o"], gradient: Tensor, estimate: Estimate, rate: float) -> Float[Tensor, "u o"]:
    """One damped Newton step for mu at the touched rows, from the block's own sampled Hessian."""
    drawn, batch = estimate.drawn, estimate.drawn.batch
    somewhere = batch.somewhere()
    # The estimate counts a drawn row m / |drawn| times over, so that it is right on average; this block wants it once.
    own = gradient * (len(batch.drawn) / drawn.m) / batch.repeats[:, None]
    curvature = site_curvature(drawn, estimate.values)
    root = drawn.Phi[:, somewhere] * torch.sqrt(drawn.n / len(drawn.Phi) * curvature)[:, None]
    return block_newton(mu, own, drawn.s[somewhere], root, rate)


def _advance(problem: Problem, state: State, values: SupportValues, drawn: Drawn, new: Rows) -> None:
    """Proposition 3 for a, for the Nystrom product and for the variance at the support points."""
    batch, chevron, o = drawn.batch, problem.covariance, state.outputs
    share = batch.share(drawn.V.dtype)
    log_c = new.log_c[batch.at]
    V = torch.cat([new.mu[batch.at], chevron.dense_columns(batch.drawn, new.L[batch.at], log_c, batch.dense)], 1)
    change, grown = V - drawn.V, torch.exp(log_c) - drawn.c
    a = control_variates.advance(values.a, values.Phi_p, change, share)
    a_prior = None
    if values.B is not None and values.a_prior is not None:
        a_prior = control_variates.advance(values.a_prior, values.B, change, share)
    more = (a[:, o:].square() - values.a[:, o:].square()).sum(1)
    if batch.dense is None:
        state.a, state.a_prior = a, a_prior
    else:
        _put(state, batch.dense, a, a_prior)
        more = more + _advance_diagonals(state, values, batch, grown)
    if state.variance is not None:
        arms = drawn.arm * grown * (2 * drawn.c + grown)  # the change of c^2
        state.variance = state.variance + more + values.Phi_p.square() @ (share * arms)


def _put(state: State, dense: Tensor, a: Float[Tensor, "p c"], a_prior: Float[Tensor, "p c"] | None) -> None:
    """Columns of the products back to where they came from, in place: the others are as many as C has."""
    assert state.a is not None
    columns = state.columns(dense)[: a.shape[1]]
    state.a.index_copy_(1, columns, a)
    if state.a_prior is not None and a_prior is not None:
        state.a_prior.index_copy_(1, columns, a_prior)


def _advance_diagonals(
    state: State, values: SupportValues, batch: Batch, grown: Float[Tensor, " drawn"]
) -> Float[Tensor, " p"]:
    """A c_rr whose dense column was not drawn moves that column of a too. Returns what this adds to the variance."""
    assert state.a is not None and batch.dense is not None
    alone = (batch.touched < state.k) & ~torch.isin(batch.touched, batch.dense)
    at, columns = batch.somewhere()[alone], state.outputs + batch.touched[alone]
    before = state.a[:, columns]
    after = before + values.Phi_p[:, at] * grown[at]
    state.a.index_copy_(1, columns, after)
    if values.B is not None and state.a_prior is not None:
        state.a_prior.index_add_(1, columns, values.B[:, at] * grown[at])
    return (after.square() - before.square()).sum(1)
