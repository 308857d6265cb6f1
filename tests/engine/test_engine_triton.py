"""The Triton kernels without a GPU: through Triton's interpreter, switched on before Triton is imported."""

import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from test_engine import KERNELS, RADIAL, Problem, error, features, kernel_matrix, least_eigenvalue_of_the_error

triton = pytest.importorskip("triton", reason="Triton is not installed")

from qsgp.bases import Fourier  # noqa: E402
from qsgp.data.arrays import Arrays  # noqa: E402
from qsgp.engine import Drawn, cuda, cuda_device, cuda_step, reference, triton_math, triton_tiles  # noqa: E402
from qsgp.kernels import BY_NAME  # noqa: E402
from qsgp.likelihoods import Gaussian  # noqa: E402
from qsgp.paper import Chevron, Settings, start  # noqa: E402
from qsgp.paper import Problem as Training  # noqa: E402
from qsgp.paper import blocks as B  # noqa: E402
from qsgp.paper.block_fused import Fused  # noqa: E402
from qsgp.paper.block_training import BlockSteps  # noqa: E402
from qsgp.paper.support import Support  # noqa: E402

INTERPRETED = triton.knobs.runtime.interpret
interpreted = pytest.mark.skipif(not INTERPRETED, reason="run by test_the_kernels_under_the_interpreter")
SIZES = [(1, 1, 1, 1), (70, 3, 50, 1), (5, 17, 130, 1), (33, 70, 40, 1), (40, 5, 37, 3), (20, 4, 33, 129)]


@pytest.mark.slow
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
@pytest.mark.parametrize("transpose", [False, True])
def test_frequencies_of_heavy_tails(transpose: bool) -> None:
    """Kept in float64: their angles are projected in float64 as well."""
    p = Problem(20, 6, 70, 1, torch.device("cpu"))
    omega = 1e6 * p.omega.double()
    Phi = features(p.x.double(), omega, p.lengthscale.double(), p.variance.double())
    product, factor = (cuda.phit_r, p.R) if transpose else (cuda.phi_v, p.V)
    out = (p.variance / 70).sqrt() * product(p.x, omega, factor, p.lengthscale, "wide")
    assert error(out, (Phi.mT if transpose else Phi) @ factor.double()) < 1e-5


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


@interpreted
def test_no_direction_of_many_rows_is_lost_from_distances() -> None:
    ell = torch.ones(2)
    found = least_eigenvalue_of_the_error(lambda x, V: cuda.k_v(x, x, V, ell, "rbf", "default"), 300, ell.device)
    assert found > -3.8e-9


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
@pytest.mark.parametrize("name", RADIAL)
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


@interpreted
def test_what_is_not_a_number_stays_so() -> None:
    """Neither launch took such rows, and what nobody wrote was handed back."""
    p = Problem(40, 3, 20, 1, torch.device("cpu"))
    z, V = p.omega, p.V[:20]
    z[3] = torch.nan
    for name in ("rbf", "laplacian"):
        assert cuda.k_v(p.x, z, V, p.lengthscale, name, "default").isnan().all()


@interpreted
@pytest.mark.parametrize("columns", [1, 3])
def test_a_block_step_with_other_strides(columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    kernel = BY_NAME["rbf"](torch.ones(1).expand(3), torch.tensor(1.7))
    x, Y = torch.randn(3, 37, generator=generator).t(), torch.randn(37, 2, generator=generator)[:, 1:]
    support = Support.build(kernel, x[::3])
    plain, states = [], []
    for inputs, targets in ((x, Y), (x.contiguous(), Y.contiguous())):
        blocks = B.Blocks.build(inputs, targets, 0.3, Fourier(kernel, 90, seed=3), support, 9, 26)
        batch = B.draw(blocks, torch.Generator().manual_seed(1))
        states.append(B.BlockState.zeros(blocks, columns))
        plain.append(B.BlockState.zeros(blocks, columns))
        cuda_step.step(blocks, states[-1], batch, 0.1, 0.01, "rbf")
        B.step(blocks, plain[-1], batch, 0.1, 0.01)
    for state in (states[0], states[1]):
        torch.testing.assert_close(state.V, plain[0].V, rtol=1e-3, atol=1e-3)


@interpreted
def test_a_fused_training_step() -> None:
    """Mean and diagonal of mean field, value included, against the step of the engine's products."""
    generator = torch.Generator().manual_seed(0)
    kernel = BY_NAME["matern32"](torch.tensor([1.3, 0.8, 2.0]), torch.tensor(1.7))
    x, y = torch.randn(37, 3, generator=generator), torch.randn(37, generator=generator)
    problem = Training(
        Arrays(x, y),
        Fourier(kernel, 90, seed=3),
        Gaussian(torch.tensor(0.3)),
        Chevron(90),
        Support.build(kernel, x[:11]),
    )
    settings = Settings(9, 26, iterations=30, control="kriging", draws="blocks")
    plain, fused = start(problem, settings), start(problem, settings)
    fused.table, fused.sums = (part.mT.contiguous().mT for part in (fused.table, fused.sums))
    one, two = BlockSteps.of(problem, plain, settings), BlockSteps.of(problem, fused, settings)
    assert one.fused is None
    two.fused = Fused.of(problem, fused, settings)
    assert two.fused is not None
    for _ in range(4):
        torch.testing.assert_close(one(), two(), rtol=1e-3, atol=1e-3)
    for name, value in plain.tensors().items():
        torch.testing.assert_close(fused.tensors()[name], value, rtol=1e-3, atol=1e-3)
    assert two.fused.view.t == 4 and (fused.rows.mu[:, 0] != 0).any()


def test_the_fused_step_takes_no_kernel_of_absolute_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel values are Euclidean ones. Frequencies stay float64, and the plain step takes them so."""
    generator, no = torch.Generator().manual_seed(0), lambda *_: pytest.fail("the fused step was asked")
    kernel = BY_NAME["laplacian"](torch.tensor([1.3, 0.8, 2.0]), torch.tensor(1.7))
    x, y = torch.randn(37, 3, generator=generator), torch.randn(37, generator=generator)
    basis, support = Fourier(kernel, 90, seed=3), Support.build(kernel, x[:11])
    problem = Training(Arrays(x, y), basis, Gaussian(torch.tensor(0.3)), Chevron(90), support)
    settings = Settings(9, 26, iterations=30, control="kriging", draws="blocks")
    assert Fused.of(problem, start(problem, settings), settings) is None
    monkeypatch.setattr(B, "fusible", lambda _: True)
    monkeypatch.setattr(cuda_step, "step", no)
    blocks = B.Blocks.build(x, y[:, None], 0.3, basis, support, 9, 26)
    assert blocks.known is None and blocks.omega.dtype == torch.float64
    state = B.BlockState.zeros(blocks, 1)
    B.stepper(blocks, state, 0.1)()
    assert state.V.abs().max() > 0 and state.V.dtype == torch.float32
    (pair, i), V = B.rows_of(blocks, torch.tensor(5)), torch.ones(26, 1)
    wanted = basis.features(x, basis.columns(i)) @ V
    torch.testing.assert_close(B.phi_v(blocks, x, pair, V), wanted, rtol=1e-5, atol=1e-5)


def test_products_run_on_the_device_of_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches on the current device; and where its tiles do not fit, or it cannot run, torch computes."""
    p, entered = Problem(5, 2, 3, 1, torch.device("cpu")), []
    monkeypatch.setattr(torch.cuda, "device_of", lambda x: entered.append(x) or nullcontext())

    def too_large(*_: object) -> torch.Tensor:
        raise cuda.OutOfResources(300_000, 100_000, "shared memory")

    rest = (p.omega, p.V, p.lengthscale, "default")
    assert torch.equal(cuda._guarded(too_large, reference.phi_v)(p.x, *rest), reference.phi_v(p.x, *rest))
    assert entered == [p.x]
    monkeypatch.setattr(cuda, "usable", lambda _: False)
    assert torch.equal(cuda.phit_r(p.x, p.omega, p.R, *rest[2:]), reference.phit_r(p.x, p.omega, p.R, *rest[2:]))


def test_which_devices_can_run_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    usable, device = cuda_device.usable.__wrapped__, torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(cuda_device, "split", lambda *_: None)
    monkeypatch.setattr(torch, "zeros", lambda *_, device: None)
    monkeypatch.setattr(torch, "ones", lambda *_, device: None)
    for capability, wanted in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        assert usable(device) == wanted

    def no_compiler(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(cuda_device, "split", no_compiler)
    with pytest.warns(UserWarning, match="Expected Triton to compile for cuda:1, got RuntimeError"):
        assert not usable(device)
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert not usable(device)


@pytest.mark.parametrize("d", [1, 64, 784, 65_536, 1_000_000])
def test_addresses_inside_a_block_fit_32_bits(d: int) -> None:
    D = -(-d // 64) * 64
    rows = triton_tiles.block_rows(4 * D, 1)
    assert rows * 2 * D < 2**31 and triton_tiles.block_rows(24 * d, 1) * d < 2**31
    assert d > 1000 or rows >= triton_tiles.LEAST_ROWS


def test_steps_too_large_for_fused_kernels_are_left_to_the_plain_one() -> None:
    def suits(total: int = 1000, d: int = 8, pairs: int = 100, n_tilde: int = 50, columns: int = 1) -> bool:
        omega, U = torch.empty(d, total, device="meta"), torch.empty(30, d, device="meta")
        return cuda_step.suits(SimpleNamespace(omega=omega, U=U, pairs=pairs, n_tilde=n_tilde), columns)

    assert suits() and suits(columns=101) and suits(total=200_000_000)
    assert not suits(d=65) and not suits(columns=129) and not suits(total=300_000_000)
    assert not suits(total=10**8, pairs=10**8, d=4) and not suits(n_tilde=10**8)
