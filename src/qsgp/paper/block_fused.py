"""A mean-field step of Gaussian noise and kriging on an NVIDIA GPU: the fused kernels move mu, a few products log_c."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp import engine
from qsgp.bases import Fourier
from qsgp.paper.blocks import Blocks, BlockState, Draw
from qsgp.paper.optimisers import adagrad
from qsgp.paper.pairs import Pairs
from qsgp.paper.problem import Problem, initial_hyperparameters
from qsgp.paper.settings import Settings
from qsgp.paper.state import State

try:
    from qsgp.engine import cuda_step
except ImportError:  # no Triton: nothing is fused
    cuda_step = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Fused:
    """What the kernels read, and mu, its sums and a as they know them: views of the `State`."""

    blocks: Blocks
    view: BlockState
    settings: Settings
    pairs: Pairs

    @classmethod
    def of(cls, problem: Problem, state: State, settings: Settings) -> "Fused | None":
        """None where the kernels do not fit: dense columns, several outputs, weights, other sites, other controls."""
        basis, source, U = problem.basis, problem.source, problem.support.U
        if getattr(source, "moving", False):  # kernels read one tensor of all rows
            return None
        rows = torch.arange(source.n, device=U.device)
        sigma2, weighted = problem.likelihood.noise_variance, source.weights(rows[:1]) is not None
        first = initial_hyperparameters(basis, problem.likelihood)
        there = all(bool((state.theta[name] == value).all()) for name, value in first.items())
        if not problem.likelihood.fixed_sites or settings.control != "kriging" or weighted or not there:
            return None
        if state.k or state.outputs > 1 or state.table.stride(0) != 1 or state.sums.stride(0) != 1:
            return None
        if not isinstance(basis, Fourier) or basis.kernel.name not in engine.RADIAL:
            return None
        x, y = source.take(rows)
        assert state.a is not None and sigma2 is not None
        blocks = Blocks.build(
            x, y.reshape(len(y), 1), float(sigma2), basis, problem.support, settings.n_tilde, settings.m_tilde
        )
        view = BlockState(state.table[:, :1], state.sums[:, :1], state.a, state.a.new_tensor(float(state.t)))
        return (
            cls(blocks, view, settings, Pairs(blocks.omega, blocks.pairs, basis.m))
            if cuda_step.suits(blocks, 1)
            else None
        )

    def step(self, state: State, batch: Draw) -> Float[Tensor, ""]:
        """`block_training.BlockSteps.once` for fixed hyperparameters; returns the sampled -2 ELBO.

        With the residuals e_j = f_j - y and e_i of block i, L_mu is n / (n_tilde sigma2) e_i^T e_j and the prior.
        """
        blocks, view, kernel, scale = self.blocks, self.view, self.blocks.basis.kernel, self.blocks.scale
        (pair, i), zero = self.pairs.block(batch.start[0]), torch.zeros_like(batch.start)
        share = len(blocks.x) / (blocks.n_tilde * blocks.sigma2)
        other = cuda_step.residual(blocks, view, batch.l, batch.start.flip(0), kernel.name)  # n / (n_tilde sigma2) e_i
        r = cuda_step.residual(*self._spread(batch.start[1]), batch.l, zero, kernel.name)
        mu = view.V[i, 0]
        decay = -math.log(self.settings.final) / max(self.settings.iterations, 1)
        now = torch.exp(-decay * view.t)  # of this step: the kernels count it
        cuda_step.move(blocks, view, batch, r, self.settings.rate, decay)
        squares = self.pairs.squares_r(kernel, blocks.x[batch.l], pair, torch.full_like(r, share))
        log_c, sums = state.table[i, 1:], state.sums[i, 1:]
        arm = torch.exp(2 * log_c[:, 0])
        slope = scale * (arm * (squares + 1) - 1)
        new, sums = adagrad(log_c, sums, slope[:, None], self.settings.rate * now)
        state.table[:, 1:].index_copy_(0, i, new)
        state.sums[:, 1:].index_copy_(0, i, sums)
        own = mu.square().sum() + arm @ (squares + 1) - 2 * log_c.sum()
        noise = len(blocks.x) * math.log(2 * math.pi * blocks.sigma2) - blocks.basis.m
        return other @ r / share + scale * own + noise

    def _spread(self, start: Int[Tensor, ""]) -> tuple[Blocks, BlockState]:
        """The pairs j side by side, as if there were no others; their mu is m / m_tilde times as large."""
        pair, j = self.pairs.block(start, self.pairs.apart)
        V = self.blocks.scale * self.view.V[j]
        alone = replace(self.blocks, omega=self.blocks.omega[:, pair].contiguous())
        return alone, BlockState(V, V, self.view.a, self.view.t)
