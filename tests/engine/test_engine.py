"""The engine against dense float64 expressions: edge sizes, large arguments, near duplicates, gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from qsgp import kernels
from qsgp.engine import BACKENDS, KERNELS, RADIAL, Drawn, compiled, cpu, drawn, k_v, phi_v, phit_r, reference

EPS = torch.finfo(torch.float32).eps
# rows, inputs, pairs, columns: single ones, and one more or less than blocks of 16, 32, 64, 128, 256
SIZES = [
    (1, 1, 1, 1),
    (3, 2, 1, 1),
    (1, 5, 300, 2),
    (5, 3, 257, 1),
    (129, 17, 63, 1),
    (130, 8, 513, 3),
    (64, 33, 40, 17),
]
SIZES += [(9, 70, 300, 1), (7, 784, 20, 3), (20, 4, 33, 256), (33, 4, 20, 129)]
DEGREES = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}


def features(x: Tensor, omega: Tensor, lengthscale: Tensor, variance: Tensor) -> Tensor:
    """Phi as the basis defines it, in the precision of its arguments."""
    t = torch.einsum("nd,pd->np", x / lengthscale, omega)
    return (variance / len(omega)).sqrt() * torch.stack((t.cos(), t.sin()), 2).reshape(len(x), -1)


def kernel_matrix(x: Tensor, z: Tensor, lengthscale: Tensor, variance: Tensor, name: str) -> Tensor:
    difference = (x[:, None] - z[None]) / lengthscale
    if name == "laplacian":
        return variance * torch.exp(-difference.abs().sum(2))
    r2 = difference.square().sum(2)
    if name == "rbf":
        return variance * torch.exp(-r2 / 2)
    s = {"matern12": 1.0, "matern32": 3**0.5, "matern52": 5**0.5}[name] * torch.where(r2 > 0, r2, 1e-300).sqrt()
    factor = {"matern12": torch.ones_like(s), "matern32": 1 + s, "matern52": 1 + s + s**2 / 3}[name]
    return variance * factor * torch.exp(-s)


def error(out: Tensor, truth: Tensor) -> float:
    return ((out.double() - truth).norm() / truth.norm()).item()


class Problem:
    """Standardised inputs, unit frequencies, columns for both products; all in float32, so that float64 is exact."""

    def __init__(self, n: int, d: int, pairs: int, columns: int, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(device)

        self.x, self.omega = draw(n, d), draw(pairs, d)
        self.V, self.R = draw(2 * pairs, columns), 100 * draw(n, columns)
        self.lengthscale = (math.sqrt(d) * (0.5 + torch.rand(d, generator=generator))).to(device)
        self.variance = torch.tensor(1.7, device=device)

    def phi(self) -> Tensor:
        return features(self.x.double(), self.omega.double(), self.lengthscale.double(), self.variance.double())

    def kernel(self) -> tuple[Tensor, Tensor]:
        return self.lengthscale, self.variance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_both_products_are_the_dense_ones(
    size: tuple[int, int, int, int], dtype: torch.dtype, tolerance: float, device: torch.device
) -> None:
    p = Problem(*size, device)
    Phi, V, R = p.phi(), p.V.to(dtype), p.R.to(dtype)
    kernel = (p.lengthscale.to(dtype), p.variance.to(dtype))
    out = phi_v(p.x.to(dtype), p.omega.to(dtype), V, *kernel)
    assert out.dtype == dtype and error(out, Phi @ V.double()) < tolerance
    assert error(phit_r(p.x.to(dtype), p.omega.to(dtype), R, *kernel), Phi.mT @ R.double()) < tolerance


@pytest.mark.parametrize("name", RADIAL)
def test_drawn_frequencies_are_those_of_the_kernel(name: str, device: torch.device) -> None:
    p = Problem(50, 6, 300, 2, device)
    kernel = kernels.BY_NAME[name](*p.kernel())
    table = Drawn(seed=2**63 + 11, first=2**40 + 3, pairs=300, degrees=DEGREES[name])
    omega = kernel.frequencies(table.seed, torch.arange(table.first, table.first + 300, device=device))
    assert torch.equal(table.numbers(6, device), omega)
    Phi = features(p.x.double(), omega, p.lengthscale.double(), p.variance.double())
    tolerance = 1e-4 if name == "matern12" else 1e-5
    assert error(phi_v(p.x, table, p.V, *p.kernel()), Phi @ p.V.double()) < tolerance
    assert error(phit_r(p.x, table, p.R, *p.kernel()), Phi.mT @ p.R.double()) < tolerance
    part = phi_v(p.x, table[100:250], p.V[200:500], *p.kernel(), total=600)
    assert error(part, Phi[:, 200:500] @ p.V[200:500].double()) < tolerance


@pytest.mark.parametrize("largest", [1e2, 1e3, 1e4])
def test_large_arguments_lose_no_more_than_their_rounding(largest: float, device: torch.device) -> None:
    p = Problem(60, 16, 400, 1, device)
    p.x *= largest / ((p.x / p.lengthscale) @ p.omega.mT).abs().max()
    Phi = p.phi()
    assert error(phi_v(p.x, p.omega, p.V, *p.kernel()), Phi @ p.V.double()) < 4 * EPS * largest
    assert error(phit_r(p.x, p.omega, p.R, *p.kernel()), Phi.mT @ p.R.double()) < 4 * EPS * largest


def test_cauchy_frequencies_reach_far_and_stay_exact(device: torch.device) -> None:
    p = Problem(40, 4, 100_000, 1, device)
    table = Drawn(seed=3, first=0, pairs=100_000, degrees=1)
    omega = table.numbers(4, device)
    assert (p.x.double() @ omega.mT).abs().max() > 1e5  # where float32 would know nothing
    Phi = features(p.x.double(), omega, p.lengthscale.double(), p.variance.double())
    assert error(phi_v(p.x, table, p.V, *p.kernel()), Phi @ p.V.double()) < 1e-4
    assert error(phit_r(p.x, table, p.R, *p.kernel()), Phi.mT @ p.R.double()) < 1e-4


@pytest.mark.parametrize("without", [False, True])
def test_frequencies_of_heavy_tails_stay_exact(
    without: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the Laplacian kernel come as a block in float64; float32 products and slopes take it as it is."""
    if without:
        monkeypatch.setattr(cpu, "library", lambda: None)
    p = Problem(40, 4, 30_000, 1, device)
    kernel = kernels.Laplacian(*p.kernel())
    omega = drawn(kernel, seed=3, first=5, pairs=30_000)
    assert isinstance(omega, Tensor) and omega.dtype == torch.float64
    assert torch.equal(omega, kernel.frequencies(3, torch.arange(5, 30_005, device=device)))
    assert (p.x.double() @ omega.mT).abs().max() > 1e5  # where float32 would know nothing
    twin = p.lengthscale.double().requires_grad_()
    Phi = features(p.x.double(), omega, twin, p.variance.double())
    lengthscale = p.lengthscale.clone().requires_grad_()
    out = phi_v(p.x, omega, p.V, lengthscale, p.variance)
    assert out.dtype == torch.float32 and error(out, Phi @ p.V.double()) < 5e-6
    assert error(phit_r(p.x, omega, p.R, *p.kernel()), Phi.mT @ p.R.double()) < 5e-6
    out.backward(p.R)
    (Phi @ p.V.double()).backward(p.R.double())
    assert error(lengthscale.grad, twin.grad) < 1e-5


def test_inputs_of_any_scale(device: torch.device) -> None:
    """Lengthscale and inputs grown alike change nothing, though both leave the range of half precision."""
    p = Problem(40, 3, 200, 2, device)
    truth = p.phi() @ p.V.double()
    for scale in (2.0**-40, 2.0**40):
        assert error(phi_v(p.x * scale, p.omega, p.V, p.lengthscale * scale, p.variance), truth) < 1e-5
        assert error(phi_v(p.x * scale, p.omega / scale, p.V, *p.kernel()), truth) < 1e-5
        assert error(phi_v(p.x, p.omega, p.V * scale, *p.kernel()), truth * scale) < 1e-5


@pytest.mark.gpu
def test_the_fast_precision_is_that_of_tf32() -> None:
    p = Problem(200, 16, 1000, 3, torch.device("cuda"))
    truth = p.phi() @ p.V.double()
    assert 1e-5 < error(phi_v(p.x, p.omega, p.V, *p.kernel(), precision="fast"), truth) < 2e-3


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("columns", [3, 20])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_feature_gradients_are_those_of_the_dense_expression(
    transpose: bool, columns: int, dtype: torch.dtype, tolerance: float, device: torch.device
) -> None:
    """Of few columns by another product, of many by all angles."""
    p = Problem(90, 5, 70, columns, device)
    product, factor = (phit_r, p.R) if transpose else (phi_v, p.V)
    leaves = [value.to(dtype, copy=True).requires_grad_() for value in (factor, p.lengthscale, p.variance)]
    out = product(p.x.to(dtype), p.omega.to(dtype), *leaves)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(device)
    out.backward(weights.to(dtype))
    twins = [value.double().requires_grad_() for value in (factor, p.lengthscale, p.variance)]
    Phi = features(p.x.double(), p.omega.double(), twins[1], twins[2])
    ((Phi.mT if transpose else Phi) @ twins[0]).backward(weights.double())
    for leaf, twin in zip(leaves, twins, strict=True):
        assert error(leaf.grad, twin.grad) < tolerance


def test_gradients_of_drawn_cauchy_frequencies(device: torch.device) -> None:
    p = Problem(30, 3, 400, 1, device)
    table = Drawn(seed=5, first=7, pairs=400, degrees=1)
    V, lengthscale = p.V.clone().requires_grad_(), p.lengthscale.clone().requires_grad_()
    phi_v(p.x, table, V, lengthscale, p.variance).square().sum().backward()
    V2, lengthscale2 = p.V.double().requires_grad_(), p.lengthscale.double().requires_grad_()
    Phi = features(p.x.double(), table.numbers(3, device), lengthscale2, p.variance.double())
    (Phi @ V2).square().sum().backward()
    assert error(V.grad, V2.grad) < 1e-4 and error(lengthscale.grad, lengthscale2.grad) < 1e-4


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "size", [(1, 1, 1, 1), (130, 16, 65, 1), (65, 3, 129, 2), (30, 70, 50, 20), (9, 2, 40, 200)], ids=str
)
def test_kernel_products_are_the_dense_ones(size: tuple[int, int, int, int], name: str, device: torch.device) -> None:
    n, d, m, columns = size
    p = Problem(n, d, m, columns, device)
    z, V = p.omega, p.V[:m]
    truth = kernel_matrix(p.x.double(), z.double(), p.lengthscale.double(), p.variance.double(), name) @ V.double()
    assert error(k_v(p.x, z, V, *p.kernel(), kernel=name), truth) < 1e-5
    double = k_v(p.x.double(), z.double(), V.double(), p.lengthscale.double(), p.variance.double(), kernel=name)
    assert error(double, truth) < 1e-13


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lengthscale", [4.0, 0.05])
@pytest.mark.parametrize("gap", [0.0, 1e-5, 1e-3])
def test_near_duplicates_keep_their_distance(name: str, lengthscale: float, gap: float, device: torch.device) -> None:
    """Inputs far from zero, points that differ in the last digits: every kernel value by itself is right."""
    p = Problem(70, 16, 70, 1, device)
    x = p.x + 30
    z = x + gap * p.omega
    ell = torch.full((16,), lengthscale, device=device)
    K = k_v(x, z, torch.eye(70, device=device), ell, p.variance, kernel=name)
    truth = kernel_matrix(x.double(), z.double(), ell.double(), p.variance.double(), name)
    assert (K.double() - truth).abs().max() < 1e-5 * truth.max()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_kernel_gradients_are_those_of_the_dense_expression(
    name: str, dtype: torch.dtype, tolerance: float, device: torch.device
) -> None:
    p = Problem(40, 4, 25, 2, device)
    z, V = torch.cat((p.omega[:20], p.x[:5])), p.V[:25]  # five duplicates
    leaves = [value.to(dtype, copy=True).requires_grad_() for value in (V, p.lengthscale, p.variance)]
    out = k_v(p.x.to(dtype), z.to(dtype), *leaves, kernel=name)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(device)
    out.backward(weights.to(dtype))
    twins = [value.double().requires_grad_() for value in (V, p.lengthscale, p.variance)]
    (kernel_matrix(p.x.double(), z.double(), twins[1], twins[2], name) @ twins[0]).backward(weights.double())
    for leaf, twin in zip(leaves, twins, strict=True):
        assert error(leaf.grad, twin.grad) < tolerance


def test_features_have_the_kernel_as_their_product(device: torch.device) -> None:
    """Two routes to K V: kernel values, and a million features."""
    p = Problem(100, 3, 2, 1, device)
    table = Drawn(seed=1, first=0, pairs=200_000, degrees=3)
    through_features = phi_v(p.x, table, phit_r(p.x, table, p.R, *p.kernel()), *p.kernel())
    assert error(through_features, k_v(p.x, p.x, p.R, *p.kernel(), kernel="matern32").double()) < 0.02
    cauchy = drawn(kernels.Laplacian(*p.kernel()), seed=1, first=0, pairs=200_000)
    through_features = phi_v(p.x, cauchy, phit_r(p.x, cauchy, p.R, *p.kernel()), *p.kernel())
    assert error(through_features, k_v(p.x, p.x, p.R, *p.kernel(), kernel="laplacian").double()) < 0.02


def test_cpu_results_do_not_depend_on_threads() -> None:
    p = Problem(301, 5, 1000, 1, torch.device("cpu"))
    before = torch.get_num_threads()
    one = phi_v(p.x, p.omega, p.V, *p.kernel()), phit_r(p.x, p.omega, p.R, *p.kernel())
    try:
        torch.set_num_threads(3)
        three = phi_v(p.x, p.omega, p.V, *p.kernel()), phit_r(p.x, p.omega, p.R, *p.kernel())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, three, strict=True))


def test_without_a_compiler_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Problem(40, 5, 100, 2, torch.device("cpu"))
    monkeypatch.setenv("PATH", "")
    assert compiled.build() is None
    monkeypatch.setattr(cpu, "library", lambda: None)
    assert error(phi_v(p.x, p.omega, p.V, *p.kernel()), p.phi() @ p.V.double()) < 1e-5
    assert error(phit_r(p.x, p.omega, p.R, *p.kernel()), p.phi().mT @ p.R.double()) < 1e-5


def test_an_unknown_device_takes_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Problem(4, 2, 3, 1, torch.device("cpu"))
    monkeypatch.delitem(BACKENDS, "cpu")
    expected = (p.variance / 3).sqrt() * reference.phi_v(p.x, p.omega, p.V, p.lengthscale)
    assert torch.equal(phi_v(p.x, p.omega, p.V, *p.kernel()), expected)


@pytest.mark.usefixtures("without_shape_checks")
def test_mistakes_are_named() -> None:
    p = Problem(4, 2, 3, 1, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"Expected V of shape \(6, 1\), got \(5, 1\)"):
        phi_v(p.x, p.omega, p.V[:5], *p.kernel())
    with pytest.raises(ValueError, match="x has 4, R has 3"):
        phit_r(p.x, p.omega, p.R[:3], *p.kernel())
    with pytest.raises(ValueError, match=r"Expected frequencies of shape \(3, 2\), got \(3, 1\)"):
        phi_v(p.x, p.omega[:, :1], p.V, *p.kernel())
    with pytest.raises(ValueError, match="Expected kernel among"):
        k_v(p.x, p.x, p.R, *p.kernel(), kernel="periodic")
    with pytest.raises(ValueError, match="Expected precision among"):
        phi_v(p.x, p.omega, p.V, *p.kernel(), precision="half")
    with pytest.raises(ValueError, match="detach the inputs"):
        phi_v(p.x.requires_grad_(), p.omega, p.V, *p.kernel())


def least_eigenvalue_of_the_error(product: Callable[[Tensor, Tensor], Tensor], n: int, device: torch.device) -> float:
    """Of (computed - K) / n, where K itself has nothing: what K + noise must be larger than to stay positive definite.

    Noise of rounding makes this fall with n: -3e-9 at 300 rows and -2e-9 at 2,400. Products of low halves left out of
    distances (-7e-9 at 300, -1e-8 at 900) or rounded sums of lengths (-5e-9, -6e-9) are functions of two rows as K is,
    and it would not fall.
    """
    x = 3 * torch.rand(n, 2, generator=torch.Generator().manual_seed(0)).to(device)
    K = torch.exp(-0.5 * torch.cdist(x.double(), x.double()).square())
    computed = product(x, torch.eye(n, device=device)).double()
    none = torch.linalg.eigh(K)[1][:, :-100]  # 100 functions have all eigenvalues of this kernel above 1e-9
    left = none.mT @ (computed - K) @ none
    return float(torch.linalg.eigvalsh((left + left.mT) / 2)[0]) / n
