"""Steps over contiguous blocks: unbiased by enumeration of every draw, running products kept, the optimum reached."""

import itertools
import weakref
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from qsgp.bases import Fourier
from qsgp.kernels import Matern32, SquaredExponential, hyperparameters
from qsgp.paper import blocks as B
from qsgp.paper.support import Support


def make(
    n=4,
    m=8,
    d=2,
    outputs=1,
    n_tilde=2,
    m_tilde=4,
    dtype=torch.float64,
    kernel=SquaredExponential,
    device="cpu",
    lengthscale=1.3,
):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator, dtype=dtype).to(device)
    Y = torch.sin(2 * x[:, :1]) + 0.1 * torch.randn(n, outputs, generator=generator, dtype=dtype).to(device)
    k = kernel(*hyperparameters(lengthscale, 1.7, d=d, dtype=dtype, device=device))
    basis, support = Fourier(k, m, seed=1), Support.build(k, x[: max(2, n // 4)])
    return B.Blocks.build(x, Y, 0.3, basis, support, n_tilde, m_tilde)


def random_state(blocks, columns):
    state = B.BlockState.zeros(blocks, columns)
    generator = torch.Generator().manual_seed(5)
    state.V.copy_(torch.randn(state.V.shape, generator=generator, dtype=state.V.dtype))
    state.a.copy_(features(blocks, blocks.U) @ state.V)
    return state


def features(blocks, x):
    return blocks.basis.features(x, blocks.basis.columns(torch.arange(blocks.basis.m, device=x.device)))


def full_gradient(blocks, V):
    """Half the gradient of |Y - Phi V|^2 / sigma2 + |V|^2, columns beyond the targets with target 0."""
    Phi, Y = features(blocks, blocks.x), torch.zeros(len(blocks.x), V.shape[1], dtype=V.dtype)
    Y[:, : blocks.Y.shape[1]] = blocks.Y
    return Phi.mT @ (Phi @ V - Y) / blocks.sigma2 + V


def mean_gradient(blocks, state, starts):
    draws = [
        B.Draw(torch.tensor(l), torch.tensor(start))
        for l in itertools.product(range(len(blocks.x)), repeat=blocks.n_tilde)
        for start in starts
    ]
    total = torch.zeros_like(state.V)
    for batch in draws:
        i, g = B.gradient(blocks, state, batch)
        total.index_add_(0, i, g / len(draws))
    return total


@pytest.mark.parametrize(("n_tilde", "m_tilde"), [(1, 2), (2, 4), (2, 6), (1, 8)])
@pytest.mark.parametrize("columns", [1, 3])
def test_the_gradient_is_unbiased_over_every_draw(n_tilde, m_tilde, columns):
    blocks = make(n_tilde=n_tilde, m_tilde=m_tilde)
    state = random_state(blocks, columns)
    pairs = range(blocks.basis.m // 2)
    found = mean_gradient(blocks, state, list(itertools.product(pairs, pairs)))
    torch.testing.assert_close(found, full_gradient(blocks, state.V), rtol=1e-10, atol=1e-10)


def test_equal_starts_or_no_wrap_around_would_be_biased():
    blocks = make()
    state = random_state(blocks, 1)
    wanted = full_gradient(blocks, state.V)
    pairs = range(blocks.basis.m // 2)
    same = mean_gradient(blocks, state, [(s, s) for s in pairs])
    assert (same - wanted).abs().max() > 0.1
    inside = range(blocks.basis.m // 2 - blocks.pairs + 1)
    cut = mean_gradient(blocks, state, list(itertools.product(inside, inside)))
    assert (cut - wanted).abs().max() > 0.1


def test_running_products_stay_those_of_the_table():
    blocks = make(n=40, m=60, n_tilde=10, m_tilde=14, outputs=2)
    state, generator = B.BlockState.zeros(blocks, 5), torch.Generator().manual_seed(0)
    for _ in range(50):
        B.step(blocks, state, B.draw(blocks, generator), rate=0.1)
    torch.testing.assert_close(state.a, features(blocks, blocks.U) @ state.V, rtol=1e-9, atol=1e-9)
    assert state.t == 50


@pytest.mark.slow
def test_training_comes_near_the_exact_solution():
    blocks = make(n=200, m=100, n_tilde=50, m_tilde=50)
    state, generator = B.BlockState.zeros(blocks, 1), torch.Generator().manual_seed(0)
    for _ in range(3000):
        B.step(blocks, state, B.draw(blocks, generator), rate=0.3, decay=1e-3)
    Phi = features(blocks, blocks.x)
    exact = torch.linalg.solve(Phi.mT @ Phi + blocks.sigma2 * torch.eye(100, dtype=Phi.dtype), Phi.mT @ blocks.Y)
    assert (Phi @ (state.V - exact)).norm() < 0.06 * (Phi @ exact).norm()


def test_what_cannot_be_is_refused(without_shape_checks):
    with pytest.raises(ValueError, match="even m_tilde, got orthogonal = False and m_tilde = 3"):
        make(m_tilde=3)
    with pytest.raises(ValueError, match="1 <= m_tilde <= m = 8, got m_tilde = 10"):
        make(m_tilde=10)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [SquaredExponential, Matern32])
@pytest.mark.parametrize(("d", "lengthscale"), [(1, 0.01), (8, 1.3), (13, 1.3)])
@pytest.mark.parametrize("columns", [1, 7])
def test_the_fused_step_is_the_plain_one(kernel, d, lengthscale, columns):
    """Only where float32 knows the answer. With long lengthscales in one dimension the support points are all but
    dependent, and the gradients of two correct float32 steps differ by percents; AdaGrad's first step, a sign, makes
    more of them, so its sums begin at 1."""
    fixed = {"dtype": torch.float32, "kernel": kernel, "device": "cuda", "lengthscale": lengthscale}
    blocks = make(500, 2000, d, n_tilde=100, m_tilde=300, **fixed)
    one, two = random_state(blocks, columns), random_state(blocks, columns)
    generator = torch.Generator("cuda").manual_seed(0)
    for state in (one, two):
        state.sums.fill_(1)
    for _ in range(5):
        batch = B.draw(blocks, generator)
        B.step(blocks, one, batch, 0.1, 0.01)
        B.cuda_step.step(blocks, two, batch, 0.1, 0.01, blocks.basis.kernel.name)
    for part in ("V", "sums", "a", "t"):
        wanted, found = getattr(one, part), getattr(two, part)
        assert (found - wanted).norm() < 2e-3 * wanted.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [1, 5])
def test_a_replayed_step_trains(columns):
    blocks = make(2000, 4000, 3, n_tilde=200, m_tilde=400, dtype=torch.float32, device="cuda")
    state = B.BlockState.zeros(blocks, columns)
    once = B.stepper(blocks, state, 0.1, 1e-3)
    draws = set()
    for _ in range(300):
        once()
        draws.add(int(state.V.ne(0).sum()))
    torch.testing.assert_close(state.a, features(blocks, blocks.U) @ state.V, rtol=1e-3, atol=1e-3)
    assert state.t == 303 and len(draws) > 5  # other rows in every replay
    assert (features(blocks, blocks.x) @ state.V[:, :1] - blocks.Y).std() < blocks.Y.std()


def test_a_replayed_step_keeps_alive_what_it_reads(monkeypatch):
    """A CUDA graph holds addresses, not tensors: without the step's own references they would be freed under it."""
    devices, replays = [], []
    monkeypatch.setattr(torch.cuda, "device", lambda device: devices.append(device) or nullcontext())
    stream = SimpleNamespace(wait_stream=lambda _: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: replays.append(1)))
    table = torch.zeros(3)
    watch, device = weakref.ref(table), torch.device("cuda", 1)
    replay = B.replayed(partial(table.add_, 1), device)
    assert table[0] == 4  # three steps to warm up, one recorded (and, without a GPU, made)
    del table
    assert watch() is not None
    replay()
    assert replays == [1] and devices == [device, device]
