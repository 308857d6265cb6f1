"""The Triton kernels without a GPU: through Triton's interpreter, switched on before Triton is imported."""

import os
import subprocess
import sys

import pytest
import torch

from test_engine import KERNELS, Problem, error, features, kernel_matrix

triton = pytest.importorskip("triton", reason="Triton is not installed")

from qsgp import blocks as B  # noqa: E402
from qsgp.bases import Fourier  # noqa: E402
from qsgp.engine import Drawn, cuda, cuda_step, triton_math  # noqa: E402
from qsgp.kernels import BY_NAME  # noqa: E402
from qsgp.support import Support  # noqa: E402

INTERPRETED = triton.knobs.runtime.interpret
interpreted = pytest.mark.skipif(not INTERPRETED, reason="run by test_the_kernels_under_the_interpreter")
SIZES = [(1, 1, 1, 1), (70, 3, 50, 1), (5, 17, 130, 1), (33, 70, 40, 1), (40, 5, 37, 3), (20, 4, 33, 129)]


@pytest.mark.skipif(INTERPRETED, reason="is running")
def test_the_kernels_under_the_interpreter() -> None:
    # Without conftest: run-time shape checks wrap every function, and the interpreter cannot see through the wrapper.
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *options, __file__]
    child = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stdout[-3000:] + child.stderr[-1000:]


@interpreted
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("precision", "tolerance"), [("default", 1e-5), ("fast", 5e-3), ("wide", 1e-5)])
def test_products(size: tuple[int, int, int, int], precision: str, tolerance: float) -> None:
    p = Problem(*size, torch.device("cpu"))
    scale = (p.variance / len(p.omega)).sqrt()
    out = scale * cuda.phi_v(p.x, p.omega, p.V, p.lengthscale, precision)
    assert error(out, p.phi() @ p.V.double()) < tolerance
    out = scale * cuda.phit_r(p.x, p.omega, p.R, p.lengthscale, precision)
    assert error(out, p.phi().mT @ p.R.double()) < tolerance


@interpreted
@pytest.mark.parametrize("degrees", [0, 1, 3, 5])
def test_frequencies_drawn_inside(degrees: int) -> None:
    p = Problem(20, 6, 70, 1, torch.device("cpu"))
    drawn = Drawn(seed=2**63 + 11, first=2**40 + 3, pairs=70, degrees=degrees)
    Phi = features(p.x.double(), drawn.numbers(6, p.x.device), p.lengthscale.double(), p.variance.double())
    out = (p.variance / 70).sqrt() * cuda.phi_v(p.x, drawn, p.V, p.lengthscale, "wide" if degrees == 1 else "default")
    assert error(out, Phi @ p.V.double()) < 1e-5


@interpreted
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize(("lengthscale", "gap"), [(4.0, 1.0), (4.0, 1e-4), (0.05, 1e-4)])
def test_kernel_products(name: str, columns: int, lengthscale: float, gap: float) -> None:
    p = Problem(40, 9, 40, columns, torch.device("cpu"))
    x, V, ell = p.x + 5, p.V[:40], torch.full((9,), lengthscale)
    z = x + gap * p.omega
    truth = kernel_matrix(x.double(), z.double(), ell.double(), torch.tensor(1.0).double(), name) @ V.double()
    assert error(cuda.k_v(x, z, V, ell, name, "default"), truth) < 1e-5
    assert error(cuda.k_v(x, z, V, ell, name, "fast"), truth) < 5e-3


if INTERPRETED:
    import triton.language as tl

    @triton.jit
    def evaluate(t, s, c, n: tl.constexpr):
        at = tl.arange(0, n)
        sine, cosine = triton_math.sincos_polynomial(tl.load(t + at))
        tl.store(s + at, sine)
        tl.store(c + at, cosine)


@interpreted
@pytest.mark.parametrize("largest", [3.0, 100.0, 1e4])
def test_the_sine_of_plain_triton(largest: float) -> None:
    t = torch.linspace(-largest, largest, 4096)
    s, c = torch.empty_like(t), torch.empty_like(t)
    evaluate[(1,)](t, s, c, 4096)
    bound = 1e-6 + torch.finfo(torch.float32).eps * largest
    assert (s.double() - t.double().sin()).abs().max() < bound
    assert (c.double() - t.double().cos()).abs().max() < bound


@interpreted
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("columns", [1, 3])
def test_a_block_step(name: str, columns: int) -> None:
    """The fused kernels against the plain step, same draws."""
    kernel = BY_NAME[name](torch.tensor([1.3, 0.8, 2.0]), torch.tensor(1.7))
    generator = torch.Generator().manual_seed(0)
    x, Y = torch.randn(37, 3, generator=generator), torch.randn(37, 1, generator=generator)
    basis = Fourier(kernel, 90, seed=3)
    blocks = B.Blocks.build(x, Y, 0.3, basis, Support.build(kernel, x[:11]), 9, 26)
    states = [B.BlockState.zeros(blocks, columns) for _ in range(2)]
    for _ in range(4):
        batch = B.draw(blocks, generator)
        B.step(blocks, states[0], batch, 0.1, 0.01)
        cuda_step.step(blocks, states[1], batch, 0.1, 0.01, name)
    for part in ("V", "sums", "a", "t"):
        torch.testing.assert_close(getattr(states[0], part), getattr(states[1], part), rtol=1e-3, atol=1e-3)
