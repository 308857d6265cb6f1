"""Each kernel against its textbook formula, its gradient and its own spectral draw."""

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from qsgp.engine import l1
from qsgp.interfaces import Kernel, SpectralKernel
from qsgp.kernels import BY_NAME, Laplacian, Matern12, Product, SquaredExponential, Sum, Tied, hyperparameters

LENGTHSCALE, VARIANCE = [0.7, 1.3, 2.1], 1.9
DEGREES = {"matern12": 1, "matern32": 3, "matern52": 5}  # 2 nu; the squared exponential is the limit

each_name = pytest.mark.parametrize("name", BY_NAME)


def build(name: str, dtype: torch.dtype = torch.float64) -> SpectralKernel:
    kernel = BY_NAME[name](*hyperparameters(LENGTHSCALE, VARIANCE, dtype=dtype))
    assert isinstance(kernel, SpectralKernel)
    return kernel


# A new composite kernel is one line here; a new stationary one is enrolled by BY_NAME.
KERNELS = {name: lambda name=name: build(name) for name in BY_NAME} | {
    "sum": lambda: Sum((build("rbf"), build("matern12"))),
    "product": lambda: Product((build("matern32"), Sum((build("rbf"), build("matern52"))))),
    "tied": lambda: Tied.of(build("matern52")),
}
each_kernel = pytest.mark.parametrize("kernel", [make() for make in KERNELS.values()], ids=list(KERNELS))


def points(count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def correlation(name: str, r: np.ndarray) -> np.ndarray:
    """rho(r) from the Bessel form of the Matern family (Rasmussen & Williams, Eq. 4.14)."""
    if name == "rbf":
        return np.exp(-0.5 * r**2)
    if name == "laplacian":
        return np.exp(-r)
    nu = DEGREES[name] / 2
    s = np.sqrt(2 * nu) * np.where(r > 0, r, 1)
    return np.where(r > 0, 2 ** (1 - nu) / special.gamma(nu) * s**nu * special.kv(nu, s), 1)


def distance(name: str, scaled: np.ndarray) -> np.ndarray:
    return np.abs(scaled).sum(-1) if name == "laplacian" else np.sqrt((scaled**2).sum(-1))


def textbook(name: str, x: Tensor, z: Tensor) -> np.ndarray:
    scaled = (x.double()[:, None].numpy() - z.double()[None].numpy()) / np.array(LENGTHSCALE)
    return VARIANCE * correlation(name, distance(name, scaled))


@each_name
def test_value_is_the_textbook_formula(name: str) -> None:
    x, z = points(20), points(30, seed=1)
    assert np.allclose(build(name)(x, z).numpy(), textbook(name, x, z), rtol=1e-12, atol=0)


@each_name
@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-9, 1e-6, 1e-3])
def test_near_duplicates_far_from_the_origin_are_accurate(name: str, gap: float) -> None:
    x = points(10) + 64
    z = x + gap  # the gap that was stored, rounding included, is what `textbook` reads
    assert np.allclose(build(name)(x, z).diagonal().numpy(), textbook(name, x, z).diagonal(), rtol=0, atol=1e-13)


@each_name
def test_float32_is_float64_rounded(name: str) -> None:
    """Most of all on the diagonal, where |x|^2 + |z|^2 - 2 x^T z would leave sqrt(eps) |x| of a distance of 0."""
    x, z = points(40, dtype=torch.float32) + 3, points(50, seed=1, dtype=torch.float32) + 3
    z[:40] = x
    value = build(name, torch.float32)(x, z)
    assert value.dtype == torch.float32
    assert np.allclose(value.numpy(), textbook(name, x, z), rtol=0, atol=5e-6)
    assert np.allclose(value.diagonal().numpy(), VARIANCE, rtol=5e-7)


@each_kernel
def test_symmetric_positive_definite_with_the_diagonal_told(kernel: Kernel) -> None:
    x = points(40)
    K = kernel(x, x)
    assert torch.allclose(K, K.mT, rtol=0, atol=1e-14)
    assert torch.linalg.eigvalsh(K).min() > 0
    assert torch.allclose(kernel.diag(x), K.diagonal(), rtol=1e-14)


@each_kernel
def test_gradient_is_the_finite_difference(kernel: Kernel) -> None:
    x, z = points(4), points(5, seed=1)
    z[0], z[1] = x[0], x[1] + 1e-5  # a duplicate and a near duplicate
    names = list(kernel.parameters())

    def value(*parameters: Tensor) -> Tensor:
        return kernel.with_parameters(dict(zip(names, parameters, strict=True)))(x, z)

    leaves = [parameter.clone().requires_grad_() for parameter in kernel.parameters().values()]
    assert torch.autograd.gradcheck(value, leaves, eps=1e-6, atol=1e-8, rtol=1e-6)


@each_name
def test_gradient_in_the_inputs_is_the_finite_difference(name: str) -> None:
    x, z = points(4).requires_grad_(), points(5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(build(name), (x, z), eps=1e-6, atol=1e-8, rtol=1e-6)


@each_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_at_duplicates_is_finite(name: str, dtype: torch.dtype) -> None:
    x = points(6, dtype=dtype).repeat(2, 1)
    parameters = {key: value.requires_grad_() for key, value in build(name, dtype).parameters().items()}
    K = build(name, dtype).with_parameters(parameters)(x, x)
    slopes = torch.autograd.grad(K.diagonal().sum(), list(parameters.values()))
    assert torch.equal(slopes[0], torch.zeros_like(slopes[0]))  # k(x, x) knows no lengthscale
    assert torch.allclose(slopes[1], torch.tensor(12 * VARIANCE, dtype=dtype))


@each_name
@pytest.mark.parametrize("gap", [1e-7, 1e-5, 1e-3])
def test_float32_gradient_survives_near_duplicates(name: str, gap: float) -> None:
    """dr/dx = (x - z) / r is a quotient of rounding errors there; a lengthscale must not see them."""
    x = points(30, dtype=torch.float32)
    z = x + gap * points(30, seed=1, dtype=torch.float32)
    slopes = []
    for dtype in (torch.float32, torch.float64):
        parameters = {key: value.requires_grad_() for key, value in build(name, dtype).parameters().items()}
        total = build(name, dtype).with_parameters(parameters)(x.to(dtype), z.to(dtype)).mean()
        slopes.append(torch.autograd.grad(total, parameters["log_lengthscale"])[0].double())
    assert torch.allclose(slopes[0], slopes[1], rtol=1e-3)


@pytest.mark.parametrize("kind", [Matern12, Laplacian])
@pytest.mark.parametrize("compiler", [True, False])
def test_gradient_memory_does_not_grow_with_d(kind: type, compiler: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No a x b x d tensor, in either direction: 400 x 400 x 200 numbers would be 256 MB."""
    if not compiler:
        monkeypatch.setattr("qsgp.engine.l1.library", lambda: None)
    x = torch.randn(400, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = kind(*hyperparameters(10.0, d=200, dtype=torch.float64))
    parameters = {key: value.requires_grad_() for key, value in kernel.parameters().items()}
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        kernel.with_parameters(parameters)(x, x).sum().backward()
    assert max(event.cpu_memory_usage for event in profile.events()) < 8 * 400 * 400 * 20


@each_name
def test_features_of_the_spectral_draw_converge_to_the_kernel(name: str) -> None:
    """E cos(w^T t) = rho(t) with variance (1 + rho(2 t)) / 2 - rho(t)^2: bias and rate, each within 5 deviations."""
    t = points(20) * torch.linspace(0.1, 3, 20, dtype=torch.float64)[:, None]
    r = distance(name, t.numpy())
    rho = torch.from_numpy(correlation(name, r))
    variance = (1 + torch.from_numpy(correlation(name, 2 * r))) / 2 - rho.square()
    seeds, draws = 10, 16_000
    omega = torch.stack([build(name).frequencies(seed, torch.arange(draws)) for seed in range(seeds)])
    errors = (omega @ t.mT).cos() - rho  # seed, draw, pair of points
    assert (errors.mean((0, 1)).abs() <= 5 * (variance / (seeds * draws)).sqrt()).all()
    for count in (100, 1600):  # error ~ count^-1/2, with the right constant
        means = errors.view(-1, count, len(t)).mean(1)
        assert ((means.square().mean(0) / (variance / count) - 1).abs() < 6 * (2 / len(means)) ** 0.5).all()


@each_name
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_coordinate_has_the_spectral_density(name: str, seed: int) -> None:
    omega = build(name).frequencies(seed, torch.arange(20_000))
    degrees = DEGREES | {"laplacian": 1}
    cdf = stats.t(degrees[name]).cdf if name in degrees else stats.norm.cdf
    assert min(stats.kstest(column.numpy(), cdf).pvalue for column in omega.mT) > 1e-6


# float32 bits of frequencies 0, 12345 and 2^35 + 7 of seed 7, made from the big-integer twin of the normal table
GOLDEN = {
    "rbf": [
        ["3998dd8c", "be9c14e7", "3fe4f600"],
        ["3f8420bf", "3f96566b", "be322c59"],
        ["bf31d99d", "bfb74fce", "3ffe0d45"],
    ],
    "matern12": [
        ["398f2646", "be92294d", "3fd66894"],
        ["41a1fca2", "41b84fc5", "c05a700d"],
        ["bf4ef7c8", "bfd552e4", "4013d2a1"],
    ],
    "matern32": [
        ["39a5eabc", "bea96864", "3ff8826a"],
        ["3fb3a77e", "3fcc69f7", "be724315"],
        ["bf4e58cb", "bfd4af05", "40136113"],
    ],
    "matern52": [
        ["399ab75f", "be9df8b3", "3fe7bbb2"],
        ["3fca612c", "3fe6456e", "be887416"],
        ["bf6defbd", "bff53e4f", "4029f104"],
    ],
    "laplacian": [
        ["398f2646", "bf0b60ca", "3fdb0811"],
        ["41a1fca2", "3f6c6389", "c06bd893"],
        ["bf4ef7c8", "bfc33725", "4022d9ad"],
    ],
}


@each_name
def test_frequencies_keep_their_golden_values(name: str, device: torch.device) -> None:
    kernel = BY_NAME[name](*hyperparameters(LENGTHSCALE, VARIANCE, dtype=torch.float32, device=device))
    omega = kernel.frequencies(7, torch.tensor([0, 12345, 2**35 + 7], device=device))
    assert omega.dtype == torch.float64
    bits = omega.float().cpu().view(torch.int32).tolist()
    assert [[f"{word & 0xFFFFFFFF:08x}" for word in row] for row in bits] == GOLDEN[name]


@each_kernel
def test_parameters_there_and_back(kernel: Kernel) -> None:
    x, z = points(4), points(5, seed=1)
    assert torch.allclose(kernel.with_parameters(kernel.parameters())(x, z), kernel(x, z), rtol=1e-14)
    moved = {name: value + 0.3 for name, value in kernel.parameters().items()}
    for name, value in kernel.with_parameters(moved).parameters().items():
        assert torch.allclose(value, moved[name], rtol=1e-14)


def test_parameters_left_out_keep_their_values() -> None:
    kernel = build("rbf").with_parameters({"log_variance": torch.tensor(0.0, dtype=torch.float64)})
    assert kernel.variance == 1 and kernel.lengthscale.tolist() == LENGTHSCALE


def test_composites_add_and_multiply_and_prefix_their_parameters() -> None:
    x, z = points(4), points(5, seed=1)
    first, second = build("rbf"), build("matern12")
    assert torch.equal(Sum((first, second))(x, z), first(x, z) + second(x, z))
    assert torch.equal(Product((first, second))(x, z), first(x, z) * second(x, z))
    nested = Product((first, Sum((first, second))))
    own = ["log_lengthscale", "log_variance"]
    assert list(nested.parameters()) == [f"{prefix}.{name}" for prefix in ("0", "1.0", "1.1") for name in own]
    changed = nested.with_parameters({"1.1.log_variance": torch.tensor(0.5, dtype=torch.float64)})
    assert changed.parameters()["1.1.log_variance"] == 0.5
    assert torch.allclose(changed.parameters()["1.0.log_variance"], first.variance.log())


@pytest.mark.parametrize("kind", [SquaredExponential, Laplacian])
def test_a_kernel_is_the_product_of_its_factors(kind: type) -> None:
    kernel, x, z = build(kind.name), points(4), points(5, seed=1)
    assert isinstance(kernel, kind)
    parts = [kernel.factor(i)(x[:, i : i + 1], z[:, i : i + 1]) for i in range(3)]
    assert torch.allclose(kernel.variance * parts[0] * parts[1] * parts[2], kernel(x, z), rtol=1e-13)


def test_numbers_and_lists_become_tensors() -> None:
    lengthscale, variance = hyperparameters(2.0, 3.0, d=4)
    assert lengthscale.tolist() == [2.0] * 4 and variance.item() == 3.0 and lengthscale.dtype == torch.float32
    lengthscale, variance = hyperparameters(torch.ones(2, dtype=torch.float64))
    assert lengthscale.dtype == variance.dtype == torch.float64
    assert hyperparameters([1.0, 2.0], dtype=torch.float64)[0].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="Give a list, or d as well"):
        hyperparameters(2.0)
    with pytest.raises(ValueError, match="one lengthscale per input"):
        hyperparameters([1.0, 2.0], d=3)


@each_name
@pytest.mark.parametrize(
    ("lengthscale", "variance", "message"),
    [
        ([1.0, 0.0], 1.0, "lengthscale > 0, got 0.0.*not its logarithm"),
        ([1.0, 2.0], -1.0, "variance > 0, got -1.0.*not its logarithm"),
        ([float("nan")], 1.0, "lengthscale > 0, got nan"),
    ],
)
def test_hyperparameters_must_be_positive(name: str, lengthscale: list[float], variance: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BY_NAME[name](torch.tensor(lengthscale), torch.tensor(variance))


def test_inputs_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match="give it inputs of 3 columns"):
        build("rbf")(torch.zeros(4, 1, dtype=torch.float64), torch.zeros(5, 1, dtype=torch.float64))


def test_parameters_of_another_name_or_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="'noise'"):
        build("rbf").with_parameters({"noise": torch.tensor(0.0)})
    with pytest.raises(ValueError, match=r"log_lengthscale of shape \(3,\), got \(1,\)"):
        build("rbf").with_parameters({"log_lengthscale": torch.zeros(1)})
    with pytest.raises(ValueError, match="'2.log_variance'"):
        Sum((build("rbf"), build("rbf"))).with_parameters({"2.log_variance": torch.tensor(0.0)})


@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.parametrize("size", [(1, 1, 1), (5, 17, 3), (67, 300, 16), (130, 33, 5), (4, 520, 2)], ids=str)
def test_absolute_differences_and_their_sums(
    size: tuple[int, int, int], compiler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more and one less than the groups of rows and points of l1.c; the same for any number of threads."""
    if not compiler:
        monkeypatch.setattr("qsgp.engine.l1.library", lambda: None)
    n, m, d = size
    generator = torch.Generator().manual_seed(0)
    X, Z, W = (torch.randn(*s, dtype=torch.float64, generator=generator) for s in ((n, d), (m, d), (m, n)))
    found, W = [], W.mT
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append((l1.distances(X, Z), l1.weighted(W, X, Z)))
    finally:
        torch.set_num_threads(before)
    differences = (X[:, None] - Z[None]).abs()
    assert torch.allclose(found[0][0], differences.sum(2), rtol=1e-13, atol=0)
    assert torch.allclose(found[0][1], (W[:, :, None] * differences).sum((0, 1)), rtol=1e-11, atol=1e-11)
    assert not compiler or all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_the_slope_at_equal_inputs_is_flat() -> None:
    """Along a line through a point the kernel has an edge there: neither side counts."""
    x = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    z = torch.tensor([[0.0, 1.0, -1.0]], dtype=torch.float64)
    (slope,) = torch.autograd.grad(build("laplacian")(x, z).sum(), x)
    assert slope[0, 0] == 0 and slope[0, 1] > 0 > slope[0, 2]


def test_distances_far_from_the_origin_keep_their_digits():
    """Inputs near 300 with lengthscale 0.05: only differences matter, to what float32 inputs can say."""
    x = 300 + 0.01 * torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    single = Matern12(*hyperparameters([0.05] * 3, 1.0))
    double = Matern12(*hyperparameters([0.05] * 3, 1.0, dtype=torch.float64))
    torch.testing.assert_close(single(x, x).double(), double(x.double(), x.double()), atol=1e-5, rtol=0)
