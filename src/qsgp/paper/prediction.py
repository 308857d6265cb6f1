"""Mean and variance of f at new inputs, streamed over blocks of basis functions: no tensor of m columns is made."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.checks import check_finite, check_rows, check_shape
from qsgp.interfaces import Basis, Degenerate, Kernel, Likelihood, Source, Streamed
from qsgp.paper import theorems
from qsgp.paper.chevron import Chevron
from qsgp.paper.problem import Problem, at_hyperparameters, initial_hyperparameters
from qsgp.paper.state import Rows, State

DRAWN_TOGETHER = 8192  # functions in a block of `stream_draws`: with another number the draws are others


@dataclass(frozen=True)
class Prediction:
    """Mean and variance of the latent f, and the likelihood that turns them into statements about y."""

    mean: Float[Tensor, "t *o"]
    variance: Float[Tensor, " t"]
    likelihood: Likelihood

    def moments(self) -> tuple[Float[Tensor, "t *o"], Float[Tensor, "t *o"]]:
        """Mean and variance of y, noise included."""
        return self.likelihood.moments(self.mean, self._spread())

    def log_density(self, y: Float[Tensor, "t *o"]) -> Float[Tensor, "t *o"]:
        """log Pr(y) row by row: what MNLP averages."""
        return self.likelihood.log_density(y, self.mean, self._spread())

    def _spread(self) -> Float[Tensor, "t *#o"]:
        """The variance beside the mean: outputs share it."""
        return self.variance if self.mean.ndim == 1 else self.variance[:, None].expand_as(self.mean)


@torch.no_grad()
def predict(
    problem: Problem,
    state: State,
    x: Float[Tensor, "t d"],
    *,
    block_features: int = 8192,
    block_rows: int = 8192,
    relevant: float | None = None,
) -> Prediction:
    """phi mu and phi Sigma phi^T at the learned hyperparameters. Memory O(block_rows (block_features + k)).

    ``relevant`` leaves out the functions whose own precision is not below it (RVM: 1e4). Cost O(t m (d + k)).
    What ranks share is brought together first, on each of them.
    """
    if problem.shares is not None:
        table = problem.shares.whole(state.table)
        problem, state = replace(problem, shares=None), replace(state, table=table, sums=table[:, :0], shares=None)
    check_shape("x", x, (len(x), problem.source.d), f"The model was trained on {problem.source.d} inputs.")
    check_finite("x", x, "Drop or fill the rows with missing values.")
    theta = initial_hyperparameters(problem.basis, problem.likelihood)
    state.check(problem.basis.m, problem.source.outputs, problem.covariance.k, theta, problem.basis.learned_precision)
    basis, likelihood = at_hyperparameters(problem, state.theta)
    index = None if relevant is None else relevance_vectors(state, relevant)
    parts = [
        stream(basis, problem.covariance, state.table, state.outputs, rows, block_features, index)
        for rows in x.split(block_rows)
    ]
    mean, variance = torch.cat([mean for mean, _ in parts]), torch.cat([v for _, v in parts])
    return Prediction(mean[:, 0] if state.outputs == 1 else mean, variance, likelihood)


def stream(
    basis: Basis,
    covariance: Chevron,
    table: Float[Tensor, "m w"],
    outputs: int,
    x: Float[Tensor, "t d"],
    block_features: int = 8192,
    index: Int[Tensor, " i"] | None = None,
) -> tuple[Float[Tensor, "t o"], Float[Tensor, " t"]]:
    """Mean of every output and their common variance, block by block; ``index`` restricts the functions."""
    if index is None and isinstance(basis, Streamed):
        every, rows = torch.arange(basis.m, device=x.device), Rows.of(table, outputs, covariance.k)
        own = covariance.diagonal_rows(every, x.dtype) * torch.exp(2 * rows.log_c)
        f = basis.phi_v(x, torch.cat([rows.mu, covariance.dense_columns(every, rows.L, rows.log_c)], 1))
        return f[:, :outputs], f[:, outputs:].square().sum(1) + basis.phi2_v(x, own)
    index = torch.arange(basis.m, device=x.device) if index is None else index
    # Sums in float64: in float32 they depend on how many rows are computed together, and large weights cancel.
    f = torch.zeros(len(x), outputs + covariance.k, dtype=torch.float64, device=x.device)  # phi [mu, C_dense]
    arms = f.new_zeros(len(x))
    for block in index.split(block_features):
        Phi = basis.features(x, basis.columns(block)).double()
        rows = Rows.of(table[block], outputs, covariance.k)
        f += Phi @ torch.cat([rows.mu, covariance.dense_columns(block, rows.L, rows.log_c)], 1).double()
        arms += Phi.square() @ (covariance.diagonal_rows(block, x.dtype) * torch.exp(2 * rows.log_c)).double()
    return f[:, :outputs].to(x), (f[:, outputs:].square().sum(1) + arms).to(x)


def stream_mean(
    basis: Basis,
    covariance: Chevron,
    table: Float[Tensor, "m w"],
    outputs: int,
    x: Float[Tensor, "t d"],
    block_features: int = 8192,
) -> Float[Tensor, "t o"]:
    """The mean that `stream` finds, without the variance."""
    if isinstance(basis, Streamed):
        return basis.phi_v(x, columns_of(table[:, : outputs + covariance.k], outputs))[:, :outputs]
    f = torch.zeros(len(x), outputs, dtype=torch.float64, device=x.device)
    for block in torch.arange(basis.m, device=x.device).split(block_features):
        f += basis.features(x, basis.columns(block)).double() @ table[block, :outputs].double()
    return f.to(x)


def columns_of(table: Float[Tensor, "m w"], outputs: int) -> Float[Tensor, "m o"]:
    """Those of the outputs; of a single one among others a second as well: the engine sums one column in another order
    than several, and a mean should be the same number whether a variance is asked for or not."""
    return table[:, : max(outputs, min(2, table.shape[1]))].contiguous()


def stream_draws(
    basis: Basis,
    covariance: Chevron,
    table: Float[Tensor, "m w"],
    outputs: int,
    x: Float[Tensor, "t d"],
    count: int,
    seed: int,
) -> Float[Tensor, "count t o"]:
    """phi (mu + C eps) for ``count`` draws of eps. Weights are drawn block by block from (seed, block), so draws at
    different x under one seed are draws of one function."""
    f = x.new_zeros(len(x), count, outputs)
    for number, block in enumerate(torch.arange(basis.m, device=x.device).split(DRAWN_TOGETHER)):
        shared, eps = normal_draws(covariance.k, len(block), count * outputs, seed, number)
        weights = drawn_weights(covariance, table[block], block, shared.to(x), eps.to(x))
        if isinstance(basis, Streamed):
            f += basis.phi_v(x, weights.flatten(1), number * DRAWN_TOGETHER).unflatten(1, (count, outputs))
        else:
            f += torch.einsum("tb,bco->tco", basis.features(x, basis.columns(block)), weights)
    return f.transpose(0, 1)


def normal_draws(
    k: int, length: int, columns: int, seed: int, number: int
) -> tuple[Float[Tensor, "k c"], Float[Tensor, "b c"]]:
    """eps of the dense columns, which all blocks have in common, and of the functions of block ``number``."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + number + 1) % 2**63)
    shared = torch.randn(k, columns, generator=torch.Generator().manual_seed(seed))
    return shared, torch.randn(length, columns, generator=generator)


def drawn_weights(
    covariance: Chevron,
    table: Float[Tensor, "b w"],
    index: Int[Tensor, " b"],
    shared: Float[Tensor, "k c"],
    eps: Float[Tensor, "b c"],
) -> Float[Tensor, "b count o"]:
    """mu + C eps at the rows ``index``, of which ``table`` holds [mu | L | log_c]."""
    outputs = table.shape[1] - covariance.k - 1
    rows = Rows.of(table, outputs, covariance.k)
    own = covariance.diagonal_rows(index, table.dtype) * torch.exp(rows.log_c)
    weights = covariance.dense_columns(index, rows.L, rows.log_c) @ shared + own[:, None] * eps
    return weights.reshape(len(index), eps.shape[1] // outputs, outputs) + rows.mu[:, None]


def missing_draws(
    basis: Degenerate,
    prior: Fourier,
    x: Float[Tensor, "t d"],
    weights: Float[Tensor, "p c"],
    block_features: int = 2048,
) -> Float[Tensor, "t c"]:
    """Draws of the part of the kernel's prior that ``basis`` lacks: a function of the prior, Fourier features times
    standard normal ``weights``, less what the functions hold of it."""
    assert isinstance(basis, Basis)
    f, held = prior.phi_v(x, weights), basis.projected(prior, weights)
    for block in torch.arange(basis.m, device=x.device).split(block_features):
        f -= basis.features(x, basis.columns(block)) @ held[block]
    return f


@torch.no_grad()
def augment(
    prediction: Prediction,
    kernel: Kernel,
    source: Source,
    x: Float[Tensor, "t d"],
    sigma2: Float[Tensor, ""],
    block_rows: int = 8192,
) -> Prediction:
    """Proposition 4: a basis function k(., x_*) at every test point, for inducing bases with any m. Cost O(t n)."""
    check_rows(prediction=prediction.mean, x=x)
    norm2 = x.new_zeros(len(x))
    for block in torch.arange(source.n, device=x.device).split(block_rows):
        norm2 += kernel(source.take(block)[0], x).square().sum(0)
    added = theorems.augmentation(norm2, kernel.diag(x), sigma2)
    return replace(prediction, variance=prediction.variance + added)


def relevance_vectors(state: State, threshold: float = 1e4) -> Tensor:
    """Indices of the functions whose learned precision stayed below ``threshold`` (Appendix I.3)."""
    log_s = state.rows.log_s
    if log_s is None:
        raise ValueError(
            "Expected a basis with one learned precision for each function, got one without. "
            "Train a KernelFunctions basis to find relevance vectors."
        )
    return torch.nonzero(log_s.exp() < threshold)[:, 0]
