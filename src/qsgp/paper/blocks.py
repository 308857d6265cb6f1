"""A training step over contiguous blocks of Fourier features: no gather of scattered rows, nothing waits for the host.

I.i.d. frequencies are exchangeable, so a block of neighbouring pairs, its start uniform and wrapping around the end, is
as good a sample as scattered ones. Two independent blocks i and j: the prediction of block j, with the kriging control
variate, gives the residuals; block i takes the step. Columns beyond the targets have target 0: with unit prior they are
the quadratic part of the dense columns of C (Theorem 2). Cost O(n_tilde m_tilde (d + c)) whatever n and m are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp import engine
from qsgp.bases import Fourier
from qsgp.checks import check_positive, check_sample_size
from qsgp.likelihoods.pointwise import Site
from qsgp.paper.support import Support

try:
    from qsgp.engine import cuda_device, cuda_step
except ImportError:  # no Triton
    cuda_device = cuda_step = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Blocks:
    """What a step reads. Frequencies are kept, column by column: a block of them is a slice wherever it starts."""

    x: Float[Tensor, "n d"]
    Y: Float[Tensor, "n o"]
    sigma2: float
    basis: Fourier
    omega: Float[Tensor, "d pairs"]
    U: Float[Tensor, "p d"]
    inverse: Float[Tensor, "p p"]  # of K(U, U) + jitter
    n_tilde: int
    pairs: int  # of a block: m_tilde / 2
    variance: float  # of the kernel; read once, since a graph must not wait for the host
    known: Any = None  # what fused steps look up once
    site: Site | None = None  # None: Gaussian with variance sigma2
    precision: str = "default"  # of the products

    @classmethod
    def build(
        cls,
        x: Tensor,
        Y: Tensor,
        noise: float | Site,
        basis: Fourier,
        support: Support,
        n_tilde: int,
        m_tilde: int,
    ) -> "Blocks":
        """``noise`` is the variance of Gaussian noise, or another site. `dataclasses.replace` sets the precision."""
        site = noise if isinstance(noise, Site) else None
        sigma2 = 1 / noise.steepest if isinstance(noise, Site) else float(noise)
        check_positive("sigma2", sigma2, "Give the noise variance.")
        check_sample_size("m_tilde", m_tilde, "m", basis.m)
        if basis.orthogonal or m_tilde % 2:
            raise ValueError(
                f"Expected independent frequencies and an even m_tilde, got orthogonal = {basis.orthogonal} and "
                f"m_tilde = {m_tilde}. Pairs of cosine and sine stay together; orthogonal ones are not exchangeable."
            )
        x, Y, U = x.contiguous(), Y.contiguous(), support.U.contiguous()  # as kernels address them
        omega = x.new_empty(x.shape[1], basis.m // 2, dtype=engine.kept_dtype(basis.kernel, x.dtype))
        for part in torch.arange(basis.m // 2, device=x.device).split(1 << 18):
            omega[:, part] = basis.kernel.frequencies(basis.seed, part).mT.to(omega)
        inverse = torch.cholesky_inverse(support.factor.double()).to(x)
        variance = float(basis.kernel.variance)
        known = None
        if fusible(x) and site is None and basis.kernel.name in engine.RADIAL:
            known = cuda_step.Known.of(x, omega, U, basis.kernel.lengthscale)
        sizes = (n_tilde, m_tilde // 2, variance, known)
        return cls(x, Y, sigma2, basis, omega, U, inverse, *sizes, site)

    @property
    def scale(self) -> float:
        """m / m_tilde."""
        return self.omega.shape[1] / self.pairs


@dataclass
class BlockState:
    """What a step changes. ``a`` = Phi_p V always (Proposition 3); ``t`` lives on the device."""

    V: Float[Tensor, "m c"]
    sums: Float[Tensor, "m c"]
    a: Float[Tensor, "p c"]
    t: Float[Tensor, ""]

    @classmethod
    def zeros(cls, blocks: Blocks, columns: int) -> "BlockState":
        V = blocks.x.new_zeros(blocks.basis.m, columns)
        return cls(V, torch.zeros_like(V), V.new_zeros(len(blocks.U), columns), V.new_zeros(()))


class Draw(NamedTuple):
    """Rows with replacement, and where the two blocks start (in pairs)."""

    l: Int[Tensor, " l"]
    start: Int[Tensor, " two"]


def draw(blocks: Blocks, generator: torch.Generator | None = None) -> Draw:
    device, pairs = blocks.x.device, blocks.omega.shape[1]
    l = torch.randint(len(blocks.x), (blocks.n_tilde,), device=device, generator=generator)
    return Draw(l, torch.randint(pairs, (2,), device=device, generator=generator))


def rows_of(blocks: Blocks, start: Int[Tensor, ""]) -> tuple[Int[Tensor, " q"], Int[Tensor, " i"]]:
    """Pairs of the block from ``start`` on, and their functions: cosine and sine of each."""
    pair = (start + torch.arange(blocks.pairs, device=start.device)) % blocks.omega.shape[1]
    return pair, torch.stack((2 * pair, 2 * pair + 1), 1).flatten()


def residual(blocks: Blocks, state: BlockState, batch: Draw) -> Float[Tensor, "l c"]:
    """(n / n_tilde) times the slope of the sites at the kriged prediction of block j; Gaussian: (f_j - Y_l) / sigma2.

    f_j = (m / m_tilde) Phi_lj V_j - k(l, p) (K_pp + eps)^-1 [(m / m_tilde) Phi_pj V_j - a].
    """
    kernel = blocks.basis.kernel
    pair_j, j = rows_of(blocks, batch.start[1])
    x_l, Y_l = blocks.x[batch.l], blocks.Y[batch.l]
    f = blocks.scale * phi_v(blocks, torch.cat([x_l, blocks.U]), pair_j, state.V[j])
    error = blocks.inverse @ (f[len(x_l) :] - state.a)
    f = f[: len(x_l)] - kernel.product(x_l, blocks.U, error)
    if blocks.site is not None:
        return len(blocks.x) / blocks.n_tilde * blocks.site.slope(Y_l, f)
    f[:, : Y_l.shape[1]] -= Y_l
    return f * (len(blocks.x) / (blocks.n_tilde * blocks.sigma2))


def gradient(blocks: Blocks, state: BlockState, batch: Draw) -> tuple[Int[Tensor, " i"], Float[Tensor, "i c"]]:
    """Theorem 1: rows i and their part of an unbiased estimate of half the gradient of |Y - Phi V|^2 / sigma2 + |V|^2.

    (m / m_tilde) [Phi_li^T `residual` + V_i]. No gradient flows through a. With sites it is unbiased for
    Phi^T E_j slope + V: their slope at a noisy prediction, averaged over its noise.
    """
    pair_i, i = rows_of(blocks, batch.start[0])
    return i, blocks.scale * (phit_r(blocks, blocks.x[batch.l], pair_i, residual(blocks, state, batch)) + state.V[i])


def phi_v(blocks: Blocks, x: Tensor, pair: Int[Tensor, " q"], V: Tensor) -> Float[Tensor, "t c"]:
    kernel, omega = blocks.basis.kernel, blocks.omega[:, pair].mT
    fixed = (kernel.lengthscale, kernel.variance)
    return engine.phi_v(x, omega, V, *fixed, total=blocks.basis.m, precision=blocks.precision)


def phit_r(blocks: Blocks, x: Tensor, pair: Int[Tensor, " q"], R: Tensor) -> Float[Tensor, "i c"]:
    kernel, omega = blocks.basis.kernel, blocks.omega[:, pair].mT
    fixed = (kernel.lengthscale, kernel.variance)
    return engine.phit_r(x, omega, R, *fixed, total=blocks.basis.m, precision=blocks.precision)


def step(blocks: Blocks, state: BlockState, batch: Draw, rate: float, decay: float = 0.0) -> None:
    """One AdaGrad step of block i, in place; the rate falls like exp(-decay t)."""
    i, g = gradient(blocks, state, batch)
    sums = state.sums[i] + g.square()
    change = -rate * torch.exp(-decay * state.t) * g / (sums.sqrt() + 1e-10)
    state.sums.index_copy_(0, i, sums)
    state.V.index_add_(0, i, change)
    state.a += phi_v(blocks, blocks.U, rows_of(blocks, batch.start[0])[0], change)
    state.t += 1


def stepper(blocks: Blocks, state: BlockState, rate: float, decay: float = 0.0) -> Callable[[], None]:
    """Draw and step as one call; on a GPU one replayed graph of fused kernels."""
    check_positive("rate", rate, "Steps go down the gradient; the paper's rate is 0.1.")
    known = blocks.basis.kernel.name in engine.RADIAL
    fused = fusible(blocks.x) and blocks.site is None and known and cuda_step.suits(blocks, state.V.shape[1])

    def once() -> None:
        batch = draw(blocks)
        if fused:
            cuda_step.step(blocks, state, batch, rate, decay, blocks.basis.kernel.name)
        else:
            step(blocks, state, batch, rate, decay)

    return replayed(once, blocks.x.device) if blocks.x.is_cuda else once


def fusible(x: Tensor) -> bool:
    """Float32 on a GPU that runs Triton, and few enough inputs for a kernel to hold."""
    if cuda_step is None or not x.is_cuda or x.dtype != torch.float32 or x.shape[1] > cuda_step.MOST_INPUTS:
        return False
    return cuda_device.usable(x.device)


def replayed(once: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """``once`` as a CUDA graph on ``device``. Three calls are made to warm up: they are steps like any other."""
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream()):  # come back to it on errors
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                once()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            once()
    return partial(_replay, graph, once, device)


def _replay(graph: Any, once: Callable[[], None], device: torch.device) -> None:
    """``once`` is held, not called: the graph reads and writes its tensors by address and keeps none of them alive."""
    with torch.cuda.device(device):
        graph.replay()
