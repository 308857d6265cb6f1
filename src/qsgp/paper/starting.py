"""The state before the first step: the one place that looks at all m basis functions."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.paper import control_variates, theorems
from qsgp.paper.chevron import Chevron
from qsgp.paper.optimisers import Moments
from qsgp.paper.problem import Problem, initial_hyperparameters
from qsgp.paper.settings import Settings, words_for
from qsgp.paper.state import State


def start(problem: Problem, settings: Settings) -> State:
    """A fresh state: mu = 0, L = 0, c_rr near Proposition 1, a and the variance by their definitions.

    All m functions are looked at, in blocks. mu = 0 makes a trivial, as the paper notes; phi_r^T phi_r
    is taken from a few support points, good enough for a value that training corrects.
    """
    basis, k = problem.basis, problem.covariance.k
    check_problem(problem, settings)
    theta = initial_hyperparameters(basis, problem.likelihood)
    U = problem.support.U
    outputs = problem.source.outputs
    width = outputs + k + (2 if basis.learned_precision else 1)
    by_column = settings.draws == "blocks" and U.is_cuda and not k  # as fused kernels read it (`block_fused`)
    table, sums = (_zeros(problem.held, size, by_column, U) for size in (width, sums_width(width, k, settings)))
    state = State(table, sums, outputs, k, theta, shares=problem.shares if settings.draws == "scattered" else None)
    state.moments = {name: Moments(torch.zeros_like(v), torch.zeros_like(v)) for name, v in theta.items()}
    blocks = torch.arange(problem.held, device=U.device).split(65_536)
    with torch.no_grad():
        few, one = U[:: max(1, len(U) // 64)], U.new_ones(1)  # all over the support set, which may be sorted
        sigma2 = 1 / (-2 * problem.likelihood.quadratic_bound(one, one).quadratic[0])
        for block in blocks:
            state.rows.log_c[block] = _first_log_c(problem, few, sigma2, problem.functions(block))
    if settings.control == "none" and not problem.needs_support:
        return state
    with torch.no_grad():
        first = torch.arange(k, device=U.device)
        Phi_pk = basis.features(U, basis.columns(first)) if k else U.new_zeros(len(U), 0)
        log_c = state.rows.log_c[:k] if problem.shares is None else _first_log_c(problem, few, sigma2, first)
        C_kk = Chevron(basis.m, k).dense_columns(first, U.new_zeros(k, k), log_c)
        state.a = torch.cat([U.new_zeros(len(U), outputs), Phi_pk @ C_kk], 1)
        if not basis.diagonal and settings.control != "none":
            B_k = control_variates.nystrom_factor(problem.support.factor, Phi_pk)
            state.a_prior = torch.cat([U.new_zeros(len(U), outputs), B_k @ C_kk], 1)
        if problem.needs_support:
            state.variance = state.a[:, outputs:].square().sum(1)
            arms = state.variance if problem.shares is None else torch.zeros_like(state.variance)
            for block in blocks:
                c2 = problem.own_covariance.diagonal_rows(block, U.dtype) * torch.exp(2 * state.rows.log_c[block])
                arms += basis.features(U, basis.columns(problem.functions(block))).square() @ c2
            if problem.shares is not None:
                state.variance += problem.shares.ranks.total(arms)
    return state


def _first_log_c(
    problem: Problem, few: Float[Tensor, "p d"], sigma2: Tensor, functions: Int[Tensor, " u"]
) -> Float[Tensor, " u"]:
    norm2 = problem.source.total * problem.basis.features(few, problem.basis.columns(functions)).square().mean(0)
    return theorems.optimal_diagonal(norm2, problem.basis.precision_diag(functions), sigma2).log()


def _zeros(m: int, width: int, by_column: bool, like: Tensor) -> Float[Tensor, "m w"]:
    """Stored row by row: a gather finds what belongs together. Or column by column."""
    return like.new_zeros(width, m).mT if by_column else like.new_zeros(m, width)


def sums_width(width: int, k: int, settings: Settings) -> int:
    """Columns of the optimiser's sums: one for each of the table's, or one for the whole row of L."""
    return width if settings.covariance_update == "entry" else width - k + min(k, 1)


def check_state(problem: Problem, settings: Settings, state: State) -> None:
    """A state given to `fit` was started for this problem, with the running products that these settings need."""
    theta = initial_hyperparameters(problem.basis, problem.likelihood)
    state.check(problem.held, problem.source.outputs, problem.covariance.k, theta, problem.basis.learned_precision)
    controlled = settings.control != "none"
    needed = {
        "a": controlled or problem.needs_support,
        "a_prior": controlled and not problem.basis.diagonal,
        "variance": problem.needs_support,
    }
    sums = sums_width(state.table.shape[1], state.k, settings)
    if state.sums.shape[1] != sums:
        raise ValueError(
            f"Expected a state with {sums} columns of sums, as covariance_update={settings.covariance_update!r} keeps, "
            f"got {state.sums.shape[1]}. Start it with the settings it goes on with."
        )
    n_bar = len(problem.support.U)
    for name, wanted in needed.items():
        held = getattr(state, name)
        if wanted and (held is None or len(held) != n_bar):
            raise ValueError(
                f"Expected a state with {name!r} at {n_bar} support points, as control={settings.control!r} needs, "
                f"got {'none' if held is None else len(held)}. Start it with the settings it goes on with."
            )


def check_problem(problem: Problem, settings: Settings) -> None:
    """The parts of a problem fit together."""
    basis, U = problem.basis, problem.support.U
    estimated = settings.determinant_rows and problem.earlier is not None
    if settings.learn_hyperparameters and not basis.diagonal and not estimated:
        raise ValueError(
            f"Empirical Bayes needs log |S|, and {type(basis).__name__} has a dense S. Have it estimated "
            "by Settings(determinant_rows=32) and Problem(..., earlier=nearest_earlier(basis)), keep the "
            "hyperparameters fixed (learn_hyperparameters=False) or use a Fourier, grid or RVM basis."
        )
    _check_learned(problem, settings)
    _check_mean_update(problem, settings)
    if settings.r_tilde is not None and problem.needs_support and settings.bound == "A":
        raise ValueError(
            f"bound='A' needs whole rows of C: with r_tilde = {settings.r_tilde} sampled columns it would be no bound. "
            "Use bound='B' or 'Q', or r_tilde=None."
        )
    if settings.r_tilde is not None and basis.learned_precision:
        raise ValueError(
            f"Own precisions are learned from whole rows of C, but r_tilde = {settings.r_tilde} columns are sampled. "
            "Use r_tilde=None with relevance vectors."
        )
    if problem.covariance.m != basis.m:
        raise ValueError(
            f"Expected a covariance over m = {basis.m} basis functions, got one over {problem.covariance.m}. "
            "Build it as Chevron(basis.m, k)."
        )
    if problem.source.d != problem.support.U.shape[1]:
        raise ValueError(
            f"Expected support points with d = {problem.source.d} inputs as in the source, "
            f"got {problem.support.U.shape[1]}. Take them from the source."
        )
    x, _ = problem.source.take(torch.zeros(1, dtype=torch.long, device=U.device))
    parts = {"x": x, "U": U, **initial_hyperparameters(basis, problem.likelihood)}
    if len({part.dtype for part in parts.values()}) > 1:
        listing = ", ".join(f"{name} {part.dtype}" for name, part in parts.items())
        raise ValueError(
            f"Expected one floating type for data, support points and hyperparameters, got {listing}. "
            "Convert the data, or build the kernel with hyperparameters(..., dtype=x.dtype)."
        )
    if problem.needs_support:  # Gaussian targets can be any number, and a source has looked that they are
        for block in torch.arange(problem.source.n, device=U.device).split(65_536):
            problem.likelihood.check_targets(problem.source.take(block)[1])


def _check_learned(problem: Problem, settings: Settings) -> None:
    if settings.learned is None or not settings.learn_hyperparameters:
        return
    known = set[str]().union(*map(words_for, initial_hyperparameters(problem.basis, problem.likelihood)))
    if unknown := [word for word in settings.learned if word not in known]:
        raise ValueError(
            f"Expected learned among {', '.join(map(repr, sorted(known)))}, got {unknown[0]!r}. Leave it out, or use "
            "learned=None for all hyperparameters."
        )


def _check_mean_update(problem: Problem, settings: Settings) -> None:
    if settings.mean_update != "adagrad" and not problem.basis.diagonal:
        raise ValueError(
            f"mean_update={settings.mean_update!r} needs a diagonal S, {type(problem.basis).__name__} has a dense one. "
            "Use mean_update='adagrad' or a Fourier, grid or RVM basis."
        )
    if settings.mean_update != "adagrad" and settings.control == "kriging" and problem.needs_support:
        raise ValueError(
            f"mean_update={settings.mean_update!r} cannot be used with control='kriging' for a non-Gaussian likelihood:"
            " the gradient of the control variate falls on other rows than the block. Use control='none' or "
            "mean_update='adagrad'."
        )
    if settings.mean_update == "implicit" and settings.r_tilde is not None:
        raise ValueError(
            f"mean_update='implicit' solves for whole rows of C, but r_tilde = {settings.r_tilde} columns are sampled. "
            "Use r_tilde=None, or mean_update='adagrad'."
        )
    if settings.mean_update == "implicit" and (settings.control == "gram" or settings.replacement):
        raise ValueError(
            "mean_update='implicit' needs draws without replacement and control='kriging' or 'none', got "
            f"replacement={settings.replacement} and control={settings.control!r}. Along differences between like "
            "functions the noise that control='gram' leaves is divided by their small curvature; use 'kriging'."
        )
