"""Steps over blocks of functions: draw, `block_gradient.gradient`, update, in place. On a GPU one replayed graph.

Cost O((n_tilde + n_bar) m_tilde (d + c)) whatever n and m are. The m_tilde functions i move, those of j predict;
scattered steps move both, for twice the products.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.paper.block_fused import Fused
from qsgp.paper.block_gradient import Given, Gradient, gradient
from qsgp.paper.blocks import Draw, fusible, replayed
from qsgp.paper.optimisers import adam
from qsgp.paper.pairs import Pairs
from qsgp.paper.problem import Problem
from qsgp.paper.sampling import step_generator
from qsgp.paper.settings import Settings
from qsgp.paper.sharing import SharedPairs
from qsgp.paper.state import State
from qsgp.paper.stepping import descended, moving

CHUNK = 128  # steps drawn at once


@dataclass
class BlockSteps:
    """One call is one step; it returns the sampled -2 ELBO, which nothing waits for."""

    given: Given
    state: State
    l: Int[Tensor, "chunk l"]
    start: Int[Tensor, "chunk two"]
    clock: Int[Tensor, ""]  # the number of the step, where a graph can read it
    value: Float[Tensor, ""]
    drawn: int = -1  # which chunk is in l and start
    fused: Fused | None = None  # while no hyperparameter moves
    replays: dict[tuple[str, ...], Callable[[], None]] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, state: State, settings: Settings) -> "BlockSteps":
        check_blocks(problem, settings)
        U, problem = problem.support.U, replace(problem, covariance=problem.own_covariance)
        inverse = torch.cholesky_inverse(problem.support.factor.double()).to(U)
        given = Given(problem, settings, _pairs(problem, settings), inverse)
        l = torch.zeros(CHUNK, settings.n_tilde, dtype=torch.long, device=U.device)
        clock = torch.tensor(state.t, device=U.device)
        fused = _fused(problem, state, settings) if fusible(U) and problem.shares is None else None
        return cls(given, state, l, l.new_zeros(CHUNK, 2), clock, U.new_zeros(()), fused=fused)

    def __call__(self) -> Float[Tensor, ""]:
        state, settings, device = self.state, self.given.settings, self.l.device
        chunk = state.t // CHUNK
        if chunk != self.drawn:
            sizes = (self.given.problem.source.n, self.given.pairs.m // 2)
            for held, new in zip((self.l, self.start), draws(*sizes, settings, chunk, device), strict=True):
                held.copy_(new)
            self.drawn = chunk
        names = tuple(moving(state, settings))
        alone = self.given.problem.shares is None  # a graph cannot wait for other ranks
        if self.l.is_cuda and alone and names not in self.replays:
            self.replays[names] = self._replay(names)
        self.replays.get(names, lambda: self.once(names))()
        state.t += 1
        return self.value.clone()

    def _replay(self, names: tuple[str, ...]) -> Callable[[], None]:
        """One graph, of fused kernels where they fit. What the device does not run is left out with a warning."""
        try:
            return self._recorded(names)
        except Exception as error:  # of Triton's compiler, of its kernels or of the recording: of any kind
            if self.fused is None or names:
                _warn("Steps are called one by one: the device does not record them", error)
                return partial(self.once, names)
            _warn("Kernels are not fused: the device does not run them", error)
        self.fused = None
        return self._replay(names)

    def _recorded(self, names: tuple[str, ...]) -> Callable[[], None]:
        """As one graph. It is recorded after some steps, which are taken back."""
        tensors = [self.clock] if self.fused is None else [self.clock, self.fused.view.t]
        tensors += [*(value for name, value in self.state.tensors().items() if name != "t")]
        before = [tensor.clone() for tensor in tensors]
        try:
            return replayed(partial(self.once, names), self.l.device)
        finally:
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)

    def once(self, names: tuple[str, ...]) -> None:
        """A step. Only tensors say which one it is."""
        here = (self.clock % CHUNK)[None]
        batch = Draw(self.l.index_select(0, here)[0], self.start.index_select(0, here)[0])
        if self.fused is not None and not names:
            self.value.copy_(self.fused.step(self.state, batch))
            self.clock += 1
            return
        found = gradient(self.given, self.state, batch, names)
        with torch.no_grad():
            self.value.copy_(found.value)
            self._move_rows(found)
            self._move_theta(found)
            self.clock += 1

    def _decay(self) -> Float[Tensor, ""]:
        settings = self.given.settings
        return torch.exp(math.log(settings.final) / max(settings.iterations, 1) * self.clock.double()).to(self.value)

    def _move_rows(self, found: Gradient) -> None:
        """AdaGrad at the rows i, and Proposition 3 for what is known at the support points."""
        state, (pair, index, V, log_c, arm) = self.state, found.rows
        leaf, sums = state.gather(index)
        new, sums = descended(state, self.given.settings, (leaf, sums), found.table, self._decay())
        state.scatter(index, None, new, sums)
        if state.a is None:
            return
        rows, chevron = state.named(new), self.given.problem.covariance
        after = torch.cat([rows.mu, chevron.dense_columns(index, rows.L, rows.log_c)], 1)
        known, U, o = self.given.pairs, self.given.problem.support.U, state.outputs
        change = known.phi_v(self.given.kernel, U, pair, after - V)
        if state.variance is not None:
            more = ((2 * state.a + change) * change)[:, o:].sum(1)
            grown = arm * torch.expm1(2 * (rows.log_c - log_c))
            state.variance += more + known.squares_v(self.given.kernel, U, pair, grown)
        state.a += change

    def _move_theta(self, found: Gradient) -> None:
        state, settings = self.state, self.given.settings
        number = self.clock.double() - math.ceil(settings.frozen * settings.iterations) + 1
        for name, slope in found.theta.items():
            rate = settings.hyper_rate * self._decay()
            value, moments = adam(state.theta[name], state.moments[name], slope, rate, number)
            state.theta[name].copy_(value)
            for held, new in zip(state.moments[name], moments, strict=True):
                held.copy_(new)


def _pairs(problem: Problem, settings: Settings) -> Pairs | SharedPairs:
    basis = problem.basis
    assert isinstance(basis, Fourier)
    if problem.shares is not None:
        return SharedPairs(basis, settings.m_tilde // 2, problem.shares)
    return Pairs.of(basis, problem.support.U, settings.m_tilde // 2)


def _fused(problem: Problem, state: State, settings: Settings) -> Fused | None:
    try:
        return Fused.of(problem, state, settings)
    except Exception as error:  # of Triton, of any kind
        _warn("Kernels are not fused: the device does not prepare them", error)
        return None


def _warn(words: str, error: Exception) -> None:
    said = str(error).partition("\n")[0]
    warnings.warn(f"{words} ({type(error).__name__}: {said}). Results are the same, only slower.", stacklevel=4)


def draws(
    n: int, pairs: int, settings: Settings, chunk: int, device: torch.device | str
) -> tuple[Int[Tensor, "chunk l"], Int[Tensor, "chunk two"]]:
    """Rows and starts of the blocks for CHUNK steps, a function of (seed, chunk).

    Without replacement rows are stratified: row (q n + v) / n_tilde rounded down, v uniform below n, q = 0, 1, ... Each
    row is as likely as any other and is drawn from one stratum, or from two neighbours when it lies on their border.
    """
    generator = step_generator(settings.seed, chunk, device)
    l = torch.randint(n, (CHUNK, settings.n_tilde), generator=generator, device=device)
    if not settings.replacement:
        l = (torch.arange(settings.n_tilde, device=device) * n + l) // settings.n_tilde
    return l, torch.randint(pairs, (CHUNK, 2), generator=generator, device=device)


def takes_blocks(problem: Problem, settings: Settings) -> bool:
    """`check_blocks` finds nothing."""
    try:
        check_blocks(problem, settings)
    except ValueError:
        return False
    return True


def check_blocks(problem: Problem, settings: Settings) -> None:
    """What blocks cannot do yet."""
    basis, remedy = problem.basis, "Use draws='scattered'."
    if not isinstance(basis, Fourier) or basis.orthogonal or settings.m_tilde % 2 or settings.m_tilde > basis.m:
        raise ValueError(
            f"draws='blocks' needs independent Fourier features and an even m_tilde <= m, got {type(basis).__name__} "
            f"with m = {basis.m} and m_tilde = {settings.m_tilde}: only exchangeable functions may be drawn as "
            f"neighbours. {remedy}"
        )
    if settings.mean_update != "adagrad" or settings.r_tilde is not None:
        raise ValueError(
            f"draws='blocks' trains by AdaGrad with all dense columns, got mean_update={settings.mean_update!r} and "
            f"r_tilde = {settings.r_tilde}. {remedy}"
        )
    if problem.needs_support and settings.bound != "Q":
        raise ValueError(
            f"draws='blocks' takes the quadratic bound of {type(problem.likelihood).__name__} sites, got "
            f"bound={settings.bound!r}. Use bound='Q', or draws='scattered'."
        )
