"""The engine where things go wrong: nothing to compute, wrong precision, huge numbers, long sums, no compiler."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from test_engine import Problem, error, features, kernel_matrix
from torch import Tensor

from qsgp.engine import KERNELS, Drawn, compiled, k_v, phi_v, phit_r, reference

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(compiled.library() is None, reason="no C compiler")


@pytest.mark.usefixtures("without_shape_checks")
def test_columns_that_compiled_code_would_misread_are_named() -> None:
    p = Problem(4, 2, 3, 1, CPU)
    with pytest.raises(ValueError, match=r"Expected V in torch.float32 on cpu as x is, got torch.float64"):
        phi_v(p.x, p.omega, p.V.double(), *p.kernel())
    with pytest.raises(ValueError, match=r"Expected R in torch.float32 .* got torch.float64"):
        phit_r(p.x, p.omega, p.R.double(), *p.kernel())
    with pytest.raises(ValueError, match=r"Expected z in torch.float32 .* got torch.float64"):
        k_v(p.x, p.omega.double(), p.V[:3], *p.kernel())
    with pytest.raises(ValueError, match=r"Expected V in .* got torch.float32 on meta"):
        phi_v(p.x, p.omega, p.V.to("meta"), *p.kernel())
    with pytest.raises(ValueError, match=r"Expected R as a matrix, got shape \(4,\)"):
        phit_r(p.x, p.omega, p.R[:, 0], *p.kernel())
    with pytest.raises(ValueError, match="Expected x as a floating-point tensor, got torch.int64"):
        phi_v(p.x.long(), p.omega, p.V, *p.kernel())
    with pytest.raises(ValueError, match="Expected frequencies without gradient"):
        phi_v(p.x, p.omega.requires_grad_(), p.V, *p.kernel())
    with pytest.raises(ValueError, match=r"Expected lengthscale of shape \(1,\), got \(\)"):
        phi_v(p.x, p.omega.detach(), p.V, p.lengthscale[0], p.variance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(0, 3, 4, 2), (5, 0, 4, 2), (5, 3, 0, 2), (5, 3, 4, 0), (0, 0, 0, 0)], ids=str)
def test_of_nothing_the_product_is_zero(
    size: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    """No rows, no inputs (all features 1 or 0), no features, no columns; gradients as well."""
    n, d, m, c = size
    x, z = torch.ones(n, d, dtype=dtype, device=device), torch.ones(m, d, dtype=dtype, device=device)
    ell, variance = (torch.ones(s, dtype=dtype, device=device, requires_grad=True) for s in ((d,), ()))
    for product, rows, out_rows in ((phi_v, 2 * m, n), (phit_r, n, 2 * m), (k_v, m, n)):
        V = torch.zeros(rows, c, dtype=dtype, device=device, requires_grad=True)
        out = product(x, z, V, ell, variance)
        assert out.shape == (out_rows, c) and torch.equal(out, torch.zeros_like(out))
        out.sum().backward()
        assert V.grad is not None and ell.grad is not None and ell.grad.isfinite().all()


def test_only_what_asks_for_a_gradient_gets_one(device: torch.device) -> None:
    p = Problem(6, 2, 5, 2, device)
    for asks in ((True, False, False), (False, True, False), (False, False, True), (False, False, False)):
        for product, columns in ((phi_v, p.V), (phit_r, p.R), (k_v, p.V[:5])):
            leaves = [leaf.clone().requires_grad_(ask) for leaf, ask in zip((columns, *p.kernel()), asks, strict=True)]
            out = product(p.x, p.omega, *leaves)
            assert out.requires_grad == any(asks)
            if any(asks):
                out.sum().backward()
            assert [leaf.grad is not None for leaf in leaves] == list(asks)


def test_strides_change_nothing(device: torch.device) -> None:
    p = Problem(40, 5, 100, 3, device)
    for product, columns in ((phi_v, p.V), (phit_r, p.R), (k_v, p.V[:100])):
        turned = [tensor.t().contiguous().t() for tensor in (p.x, p.omega, columns)]
        wanted = product(p.x, p.omega, columns, *p.kernel())
        torch.testing.assert_close(product(*turned, *p.kernel()), wanted, rtol=1e-5, atol=1e-5)


# One more and one less than the groups of rows, chunks of rows and inputs held at a time of features.c
@pytest.mark.parametrize("precision", ["default", "wide"])
@pytest.mark.parametrize(
    "size", [(33, 65, 257, 1), (1025, 65, 30, 3), (1030, 129, 300, 1), (31, 1500, 40, 17)], ids=str
)
def test_many_inputs_and_rows(size: tuple[int, int, int, int], precision: str) -> None:
    p = Problem(*size, CPU)
    Phi = p.phi()
    assert error(phi_v(p.x, p.omega, p.V, *p.kernel(), precision=precision), Phi @ p.V.double()) < 5e-6
    assert error(phit_r(p.x, p.omega, p.R, *p.kernel(), precision=precision), Phi.mT @ p.R.double()) < 5e-6


def test_deep_projections_do_not_depend_on_threads() -> None:
    p = Problem(301, 130, 600, 1, CPU)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append((phi_v(p.x, p.omega, p.V, *p.kernel()), phit_r(p.x, p.omega, p.R, *p.kernel())))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@needs_compiler
@pytest.mark.parametrize("columns", [1, 3])
def test_long_sums_do_not_gather_rounding(columns: int) -> None:
    """Equal signs are the worst case: one running sum was off by 5e-5 here."""
    p = Problem(200_000, 2, 8, columns, CPU)
    ones = torch.ones_like(p.R)
    assert error(phit_r(p.x, p.omega, ones, *p.kernel()), p.phi().mT @ ones.double()) < 2e-6


@pytest.mark.parametrize("without", [False, True])
def test_wide_projections_keep_angles_of_a_million(without: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if without:
        monkeypatch.setattr("qsgp.engine.cpu.library", lambda: None)
    p = Problem(40, 4, 300, 2, CPU)
    p.omega *= 1e6
    Phi = p.phi()
    assert error(phi_v(p.x, p.omega, p.V, *p.kernel(), precision="wide"), Phi @ p.V.double()) < 2e-6
    assert error(phit_r(p.x, p.omega, p.R, *p.kernel(), precision="wide"), Phi.mT @ p.R.double()) < 2e-6
    drawn = Drawn(seed=3, first=0, pairs=300, degrees=1)
    p.x *= 1024
    Phi = features(p.x.double(), drawn.numbers(4, CPU), p.lengthscale.double(), p.variance.double())
    assert error(phi_v(p.x, drawn, p.V, *p.kernel()), Phi @ p.V.double()) < 2e-6


def test_plain_torch_draws_frequencies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, count = Drawn(seed=1, first=0, pairs=4100), []
    original = Drawn.numbers

    def counted(self: Drawn, d: int, device: torch.device) -> Tensor:
        count.append(len(self))
        return original(self, d, device)

    monkeypatch.setattr(Drawn, "numbers", counted)
    reference.phi_v(torch.ones(1000, 2), drawn, torch.ones(8200, 1), torch.ones(2))
    assert sum(count) == 4100


@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lengthscale", [1e-2, 1e-4])
def test_near_duplicates_among_points_thousands_of_lengthscales_apart(name: str, lengthscale: float) -> None:
    """Scaling before the difference is taken was off by 1e-3."""
    p = Problem(60, 4, 60, 1, CPU)
    x = p.x + 30
    z, ell = x + 0.3 * lengthscale * p.omega, torch.full((4,), lengthscale)
    K = k_v(x, z, torch.eye(60), ell, p.variance, kernel=name)
    truth = kernel_matrix(x.double(), z.double(), ell.double(), p.variance.double(), name)
    assert (K.double() - truth).abs().max() < 1e-6


@pytest.mark.parametrize("name", KERNELS)
def test_infinitely_far_is_zero(name: str) -> None:
    x = torch.tensor([[1e16], [1e18], [1e20], [3e38]])
    K = k_v(x, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1), torch.ones(()), kernel=name)
    assert K.abs().max() < 1e-30


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-7)])
@pytest.mark.parametrize("gap", [1e-4, 1e-8, 1e-15])
def test_gradients_of_matern12_at_near_duplicates(
    gap: float, dtype: torch.dtype, tolerance: float, device: torch.device
) -> None:
    """Its slope is 1 / r: squares multiplied out were off by factors of millions."""
    p = Problem(30, 3, 30, 1, device)
    x, R = (100 * p.x).to(dtype), p.R[:30].to(dtype)
    z = x + gap * p.omega.to(dtype)
    ell, twin = p.lengthscale.to(dtype, copy=True).requires_grad_(), p.lengthscale.double().requires_grad_()
    k_v(x, z, R, ell, p.variance.to(dtype), kernel="matern12").backward(R)
    truth = kernel_matrix(x.double(), z.double(), twin, p.variance.double(), "matern12") @ R.double()
    truth.backward(R.double())
    assert ell.grad is not None and twin.grad is not None and error(ell.grad, twin.grad) < tolerance


@pytest.mark.parametrize("extent", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-6, 1e-2])
def test_close_pairs_of_float64_products_are_taken_by_differences(extent: float, gap: float) -> None:
    """As on a GPU. From products alone, duplicates were 1e-8 of their length apart."""
    generator = torch.Generator().manual_seed(0)
    X = extent * torch.randn(50, 3, dtype=torch.float64, generator=generator)
    Z = torch.cat((X[:20] + gap, extent * torch.randn(40, 3, dtype=torch.float64, generator=generator)))
    truth = (X[:, None] - Z[None]).square().sum(2).sqrt()
    products = (X.square().sum(1)[:, None] + Z.square().sum(1) - 2 * X @ Z.mT).clamp(min=0).sqrt()
    assert (reference.with_close(products, X, Z) - truth).abs().max() < 2e-12 * max(1.0, extent / 100)


@pytest.mark.parametrize("body", ["exit 1", 'for last; do :; done; echo junk > "$last"', "sleep 60"])
def test_a_compiler_that_fails_is_none(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses, one whose file cannot be loaded (as from a folder mounted noexec), one that hangs."""
    script = tmp_path / "cc"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setattr(compiled, "PATIENCE", 0.5)
    assert compiled.build() is None


def planted(folder: Path, body: str = ": > {folder}/ran") -> Path:
    script = folder / "cc"
    script.write_text("#!/bin/sh\n" + body.format(folder=folder) + "\n")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("path", [".", "", ".:/nowhere", "here:.", "/nowhere::"])
def test_no_compiler_is_taken_from_the_working_folder(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(tmp_path)
    (tmp_path / "here").mkdir()
    planted(tmp_path / "here", f": > {tmp_path}/ran")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    for named in (None, "cc", "./cc", "here/cc"):
        monkeypatch.delenv("CC", raising=False) if named is None else monkeypatch.setenv("CC", named)
        assert compiled.build() is None
    assert not (tmp_path / "ran").exists()


def test_a_compiler_finds_its_own_tools_at_absolute_places_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compilers look for `as` and `ld` along PATH too."""
    monkeypatch.setenv("CC", str(planted(tmp_path, 'echo "$PATH" > {folder}/path; pwd > {folder}/folder')))
    monkeypatch.setenv("PATH", ".:/usr/bin::/bin:here")
    assert compiled.build() is None
    assert (tmp_path / "path").read_text() == "/usr/bin:/bin\n"
    assert Path((tmp_path / "folder").read_text().strip()) != Path.cwd()


def test_a_hanging_compiler_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what it has started: a pipe that such a process keeps open would be waited for."""
    assert compiled.PATIENCE <= 10
    monkeypatch.setenv("CC", str(planted(tmp_path, "sleep 30 &\necho $! > {folder}/helper\nsleep 30")))
    monkeypatch.setattr(compiled, "PATIENCE", 0.5)
    began = time.monotonic()
    assert compiled.build() is None
    assert time.monotonic() - began < 10
    helper = int((tmp_path / "helper").read_text())
    while is_alive(helper):
        assert time.monotonic() - began < 20, "it was to end with its compiler"
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    """Not ended, nor waiting to be buried."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True).stdout
    return found.strip()[:1] not in ("", "Z")


def test_threads_that_ask_at_once_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(compiled, "build", lambda: (time.sleep(0.1), calls.append(1))[1])
    compiled._built.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: compiled.library(), range(4)))
    finally:
        compiled._built.cache_clear()
    assert len(calls) == 1


def test_products_in_threads() -> None:
    p = Problem(300, 5, 700, 3, CPU)
    wanted = phi_v(p.x, p.omega, p.V, *p.kernel())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: phi_v(p.x, p.omega, p.V, *p.kernel()), range(16)))
    assert all(torch.equal(out, wanted) for out in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_small_products_survive_a_fork() -> None:
    """Torch's own threads do not: a product too small for them must not start any."""
    source = """if True:
        import os, threading, time, torch
        from qsgp.engine import compiled, phi_v
        numbers = (torch.ones(500, 6), torch.ones(300, 6), torch.ones(600, 3), torch.ones(6), torch.ones(()))
        torch.set_num_threads(2)
        wanted = phi_v(*numbers)
        held = threading.Thread(target=lambda: (compiled._lock.acquire(), time.sleep(1), compiled._lock.release()))
        held.start()
        if os.fork() == 0:
            os._exit(0 if torch.equal(phi_v(*numbers), wanted) else 1)
        assert os.wait()[1] == 0
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", source], check=True, timeout=100)


def test_points_are_not_prepared_for_every_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of many inputs: two rows at a time against all points would prepare each point twenty times."""
    p, prepared, plain = Problem(40, 300, 500, 2, CPU), [], reference.distances
    monkeypatch.setattr(reference, "BLOCK", 1024)
    monkeypatch.setattr(reference, "distances", lambda x, z, *rest: (prepared.append(len(z)), plain(x, z, *rest))[1])
    V = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    truth = (
        kernel_matrix(p.x.double(), p.omega.double(), p.lengthscale.double(), p.variance.double(), "rbf") @ V.double()
    )
    assert error(k_v(p.x, p.omega, V, *p.kernel()), truth) < 1e-5
    assert sum(prepared) <= 2 * 500
