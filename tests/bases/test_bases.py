"""Each basis against its dense twin: Phi S^-1 Phi^T is the prior covariance that the basis promises."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from qsgp.bases import Fourier, Grid, Inducing, KernelFunctions, Whitened
from qsgp.bases.grid import leading_products
from qsgp.engine import RADIAL
from qsgp.interfaces import Basis, DensePriorBasis, Kernel
from qsgp.kernels import (
    BY_NAME,
    Laplacian,
    Matern12,
    Matern32,
    Matern52,
    Separable,
    SquaredExponential,
    Sum,
    hyperparameters,
)

LENGTHSCALE, VARIANCE = [0.9, 1.4, 2.0], 1.7
GRIDS = [torch.linspace(-3, 3, size, dtype=torch.float64) for size in (5, 4, 3)]


def points(count: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def kernel_of(
    kind: Callable[[Tensor, Tensor], Kernel] = SquaredExponential, dtype: torch.dtype = torch.float64
) -> Kernel:
    return kind(*hyperparameters(LENGTHSCALE, VARIANCE, dtype=dtype))


def separable(kind: type[Kernel] = Matern32, dtype: torch.dtype = torch.float64) -> Separable:
    return Separable(*hyperparameters(LENGTHSCALE, VARIANCE, dtype=dtype), kind)


# A new basis is one line here.
BASES: dict[str, Callable[[torch.dtype], Basis]] = {
    "fourier": lambda dtype: Fourier(kernel_of(dtype=dtype), 60, seed=3),
    "fourier-matern": lambda dtype: Fourier(kernel_of(Matern32, dtype), 60, seed=3),
    "fourier-laplacian": lambda dtype: Fourier(kernel_of(Laplacian, dtype), 60, seed=3),
    "fourier-orthogonal": lambda dtype: Fourier(kernel_of(dtype=dtype), 60, seed=3, orthogonal=True),
    "inducing": lambda dtype: Inducing(kernel_of(Matern32, dtype), points(40, 1, dtype)),
    "inducing-sum": lambda dtype: Inducing(
        Sum((kernel_of(dtype=dtype), kernel_of(Matern12, dtype))), points(40, 1, dtype)
    ),
    "inducing-laplacian": lambda dtype: Inducing(kernel_of(Laplacian, dtype), points(40, 1, dtype)),
    "whitened": lambda dtype: Whitened.build(kernel_of(Matern32, dtype), points(40, 1, dtype)),
    "grid": lambda dtype: Grid.build(kernel_of(dtype=dtype), GRIDS, 45),
    "grid-matern": lambda dtype: Grid.build(separable(Matern32, dtype), GRIDS, 45),
    "grid-laplacian": lambda dtype: Grid.build(kernel_of(Laplacian, dtype), GRIDS, 45),
    "kernel-functions": lambda dtype: KernelFunctions(kernel_of(Matern32, dtype), points(40, 1, dtype)),
}
each_basis = pytest.mark.parametrize("name", BASES)


def build(name: str, dtype: torch.dtype = torch.float64) -> Basis:
    return BASES[name](dtype)


def all_features(basis: Basis, x: Tensor) -> Tensor:
    return basis.features(x, basis.columns(torch.arange(basis.m)))


def prior_precision(basis: Basis) -> Tensor:
    everything = torch.arange(basis.m)
    if basis.diagonal:
        return basis.precision_diag(everything).diag()
    return basis.precision(basis.columns(everything), basis.columns(everything))


def prior_covariance(basis: Basis, x: Tensor) -> Tensor:
    Phi = all_features(basis, x)
    if basis.diagonal:
        return Phi / basis.precision_diag(torch.arange(basis.m)) @ Phi.mT
    return Phi @ torch.linalg.solve(prior_precision(basis), Phi.mT)


@each_basis
def test_a_basis_has_what_a_step_asks_for(name: str) -> None:
    basis = build(name)
    assert isinstance(basis, Basis)
    assert isinstance(basis, DensePriorBasis) is not basis.diagonal
    assert (basis.learned_precision, basis.exchangeable) == (
        name == "kernel-functions",
        name in ("fourier", "fourier-matern", "fourier-laplacian"),
    )


@each_basis
def test_scattered_functions_are_columns_of_the_full_matrix(name: str) -> None:
    """In any order, with repeats, few or many at a time."""
    basis, x = build(name), points(7)
    Phi, S = all_features(basis, x), prior_precision(basis)
    generator = torch.Generator().manual_seed(0)
    for size in (1, 5, 200):
        i, j = (torch.randint(basis.m, (size,), generator=generator) for _ in range(2))
        assert torch.allclose(basis.features(x, basis.columns(i)), Phi[:, i], rtol=0, atol=1e-14)
        assert torch.allclose(basis.precision_diag(i), S.diagonal()[i], rtol=0, atol=1e-14)
        if not basis.diagonal:
            block = basis.precision(basis.columns(j), basis.columns(i))
            assert torch.allclose(block, S[j][:, i], rtol=0, atol=1e-14)


@each_basis
def test_float32_is_float64_rounded(name: str) -> None:
    x = points(9)
    single, double = build(name, torch.float32), build(name)
    Phi = all_features(single, x.float())
    assert Phi.dtype == prior_precision(single).dtype == torch.float32
    assert torch.allclose(Phi.double(), all_features(double, x), rtol=0, atol=3e-5)
    assert torch.allclose(prior_precision(single).double(), prior_precision(double), rtol=0, atol=3e-5)


@each_basis
def test_other_hyperparameters_are_a_replaced_kernel(name: str) -> None:
    """Same frequencies, centres and positions at the new kernel; gradients are finite differences."""
    basis, x = build(name), points(4)
    columns = basis.columns(torch.tensor([1, 0, 7, 31]))
    # a root keeps its lengthscale
    names = [key for key in basis.kernel.parameters() if name != "whitened" or "variance" in key]

    def features(*values: Tensor) -> Tensor:
        kernel = basis.kernel.with_parameters(dict(zip(names, values, strict=True)))
        return replace(basis, kernel=kernel).features(x, columns)  # type: ignore[type-var]

    leaves = [basis.kernel.parameters()[key].requires_grad_() for key in names]
    assert torch.allclose(features(*leaves), basis.features(x, columns), rtol=1e-13)
    assert torch.autograd.gradcheck(features, leaves, eps=1e-6, atol=1e-8, rtol=1e-6)


# Fourier features

# Orthogonal frequencies want a kernel of the Euclidean distance.
each_draw = pytest.mark.parametrize(
    ("kind", "orthogonal"), [*((kind, False) for kind in BY_NAME), *((kind, True) for kind in RADIAL)]
)


def test_fourier_functions_are_cosines_and_sines_of_the_scaled_frequencies() -> None:
    basis, x = build("fourier"), points(5)
    omega = basis.kernel.frequencies(3, torch.arange(30)) / torch.tensor(LENGTHSCALE, dtype=torch.float64)
    angle = x @ omega.mT
    expected = math.sqrt(VARIANCE / 30) * torch.stack([angle.cos(), angle.sin()], -1).flatten(1)
    assert torch.allclose(all_features(basis, x), expected, rtol=0, atol=1e-14)


@each_draw
def test_fourier_pairs_sum_exactly(kind: str, orthogonal: bool) -> None:
    """phi_2p^T phi_2p + phi_2p+1^T phi_2p+1 = n sigma_f^2 / (m / 2), the closed form behind c_rr."""
    n, m = 50, 20
    squares = all_features(Fourier(kernel_of(BY_NAME[kind]), m, 5, orthogonal), points(n)).square().sum(0)
    assert torch.allclose(squares.view(-1, 2).sum(1), torch.tensor(n * VARIANCE / (m / 2), dtype=torch.float64))


@each_draw
def test_fourier_covariance_converges_to_the_kernel(kind: str, orthogonal: bool) -> None:
    """Mean over seeds within 6 deviations of k; the error of one seed falls as m^-1/2."""
    kernel, x, seeds = kernel_of(BY_NAME[kind]), points(8), 150
    spread = []
    for m in (60, 960):
        made = torch.stack([prior_covariance(Fourier(kernel, m, seed, orthogonal), x) for seed in range(seeds)])
        errors = made - kernel(x, x)
        deviation = errors.std(0)
        assert (errors.mean(0).abs() <= 6 * deviation / seeds**0.5 + 1e-12).all()
        spread.append(errors.square().mean().sqrt().item())
    assert 3.3 < spread[0] / spread[1] < 4.8  # 4 = sqrt(960 / 60)


def test_fourier_functions_do_not_depend_on_m() -> None:
    few, many = Fourier(kernel_of(), 10, 1), Fourier(kernel_of(), 10**9, 1)
    index = torch.tensor([0, 3, 9])
    assert torch.equal(few.columns(index).omega, many.columns(index).omega)
    assert many.columns(torch.tensor([10**9 - 1])).omega.isfinite().all()


@pytest.mark.parametrize("kind", RADIAL)
def test_orthogonal_groups_keep_the_lengths_of_the_plain_draw(kind: str) -> None:
    kernel = kernel_of(BY_NAME[kind])
    plain, turned = Fourier(kernel, 60, 3), Fourier(kernel, 60, 3, orthogonal=True)
    cosines = torch.arange(0, 60, 2)
    before, after = (basis.columns(cosines).omega.view(10, 3, 3) for basis in (plain, turned))
    grams = after @ after.mT
    assert torch.allclose(grams, (before @ before.mT).diagonal(dim1=1, dim2=2).diag_embed(), rtol=1e-12, atol=1e-10)
    # The first of a group is left alone; a sign chosen by the factorisation would turn some of them round.
    assert torch.allclose(after[:, 0], before[:, 0], rtol=1e-12)


def test_orthogonal_frequencies_approximate_better() -> None:
    kernel, x = kernel_of(), points(20) * 0.7
    errors = {
        orthogonal: torch.stack(
            [prior_covariance(Fourier(kernel, 60, seed, orthogonal), x) - kernel(x, x) for seed in range(100)]
        )
        for orthogonal in (False, True)
    }
    assert errors[True].square().mean() < 0.8 * errors[False].square().mean()


@pytest.mark.parametrize(("m", "remedy"), [(7, "Use m = 8"), (0, "Use m = 2"), (-3, "Use m = 2")])
def test_fourier_refuses_an_odd_or_empty_basis(m: int, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        Fourier(kernel_of(), m)


# Inducing functions and the relevance vector machine


def test_inducing_functions_at_the_inputs_give_the_kernel_itself() -> None:
    for kernel in (kernel_of(Matern32), Sum((kernel_of(), kernel_of(Matern12)))):
        x = points(30)
        assert torch.allclose(prior_covariance(Inducing(kernel, x), x), kernel(x, x), rtol=0, atol=1e-11)


def test_inducing_functions_elsewhere_give_the_nystrom_approximation() -> None:
    basis, x = build("inducing"), points(10)
    K_xz, K_zz = basis.kernel(x, basis.Z), basis.kernel(basis.Z, basis.Z)
    assert torch.allclose(prior_covariance(basis, x), K_xz @ K_zz.inverse() @ K_xz.mT, rtol=0, atol=1e-11)


def test_kernel_functions_have_unit_height() -> None:
    basis = build("kernel-functions")
    assert torch.equal(all_features(basis, basis.Z).diagonal(), torch.ones(40, dtype=torch.float64))
    assert torch.allclose(all_features(basis, points(5)), basis.kernel(points(5), basis.Z) / VARIANCE, rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("kernel-functions", "log_variance"), ("whitened", "log_lengthscale")],
)
def test_a_parameter_without_effect_has_a_gradient_of_exactly_zero(name: str, parameter: str) -> None:
    """A step differentiates in every parameter, and Adam would turn rounding noise into a drift."""
    basis = build(name, torch.float32)
    leaf = basis.kernel.parameters()[parameter].requires_grad_()
    moved = replace(basis, kernel=basis.kernel.with_parameters({parameter: leaf}))  # type: ignore[type-var]
    Phi = all_features(moved, points(5, dtype=torch.float32))
    weights = torch.randn(Phi.shape, generator=torch.Generator().manual_seed(0))
    (slope,) = torch.autograd.grad((weights * Phi).sum(), leaf)
    assert torch.equal(slope, torch.zeros_like(leaf))


# Eigenfunctions on a grid


def nystrom_on_the_grid(kernel: Kernel, x: Tensor) -> Tensor:
    Z = torch.cartesian_prod(*GRIDS)
    return kernel(x, Z) @ torch.linalg.solve(kernel(Z, Z), kernel(Z, x))


def test_grid_with_all_eigenfunctions_is_nystrom_on_the_full_grid() -> None:
    kernel, x = kernel_of(), points(12)
    basis = Grid.build(kernel, GRIDS, math.prod(map(len, GRIDS)))
    assert torch.allclose(prior_covariance(basis, x), nystrom_on_the_grid(kernel, x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("m", [1, 10, 45])
def test_grid_keeps_the_leading_eigenpairs_of_the_full_grid(m: int) -> None:
    """The m functions span the best rank-m part: K_xZ Q_m diag(lambda_m)^-1 Q_m^T K_Zx from a dense eigensystem."""
    kernel, x = kernel_of(), points(12)
    Z = torch.cartesian_prod(*GRIDS)
    values, Q = torch.linalg.eigh(kernel(Z, Z))
    assert values[-m] > (1 + 1e-6) * values[-m - 1]  # a tie at the cut would leave the choice open
    projected = kernel(x, Z) @ Q[:, -m:]
    expected = projected / values[-m:] @ projected.mT
    assert torch.allclose(prior_covariance(Grid.build(kernel, GRIDS, m), x), expected, rtol=0, atol=1e-9)


def test_grid_approaches_the_kernel_and_moves_with_the_variance() -> None:
    kernel, x = kernel_of(), points(12) * 0.8
    fine = [torch.linspace(-3.5, 3.5, 15, dtype=torch.float64)] * 3
    errors = [(prior_covariance(Grid.build(kernel, fine, m), x) - kernel(x, x)).abs().max() for m in (20, 200, 1500)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2] and errors[2] < 1e-3
    basis = Grid.build(kernel, fine, 200)
    twice = replace(basis, kernel=replace(kernel, variance=2 * kernel.variance))  # type: ignore[type-var]
    assert torch.allclose(prior_covariance(twice, x), 2 * prior_covariance(basis, x), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grid_features_stay_in_range_on_an_ill_conditioned_grid(dtype: torch.dtype) -> None:
    """50 points per lengthscale: eigenvalues down to rounding, yet the prior variance never exceeds the kernel's."""
    grids = [torch.linspace(-1, 1, 50, dtype=dtype)] * 3
    x = points(20, dtype=dtype) * 0.5
    variance = all_features(Grid.build(kernel_of(dtype=dtype), grids, 400), x).square().sum(1)
    assert variance.isfinite().all() and variance.max() <= VARIANCE * (1 + 1e-4)


@pytest.mark.parametrize("m", [1, 2, 17, 100, 599, 600])
@pytest.mark.parametrize("sizes", [(600,), (4, 5, 6, 5), (1, 300, 2), (2, 2, 150)])
def test_leading_products_equal_brute_force(sizes: tuple[int, ...], m: int) -> None:
    generator = torch.Generator().manual_seed(len(sizes))
    lists = [torch.rand(size, generator=generator, dtype=torch.float64).sort(descending=True).values for size in sizes]
    brute = sorted(
        (math.prod(float(v) for v in combination) for combination in itertools.product(*lists)), reverse=True
    )
    positions = leading_products(lists, m)
    found = torch.stack([values[at.long()] for values, at in zip(lists, positions.mT, strict=True)]).prod(0)
    assert torch.allclose(found, torch.tensor(brute[:m], dtype=torch.float64), rtol=1e-12)
    assert len(positions.unique(dim=0)) == m


def test_leading_products_of_a_grid_too_large_to_write_down() -> None:
    """10^20 products, equal factors: the ten largest kinds are counted by binomial coefficients."""
    halves = 0.5 ** torch.arange(10, dtype=torch.float64)
    positions = leading_products([halves] * 20, 30_000).long()
    depth = positions.sum(1)  # product = 0.5^depth
    assert torch.equal(depth, depth.sort().values)
    counts = torch.bincount(depth)
    whole = [math.comb(level + 19, 19) for level in range(len(counts) - 1)]
    assert counts[:-1].tolist() == whole and counts.sum() == 30_000
    assert len(positions.unique(dim=0)) == 30_000


def test_grid_says_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="product over its inputs, got Matern32.*Separable"):
        Grid.build(kernel_of(Matern32), GRIDS, 4)
    with pytest.raises(ValueError, match="m <= 60.*got m = 61"):
        Grid.build(kernel_of(), GRIDS, 61)
    with pytest.raises(ValueError, match="one grid per input"):
        Grid.build(kernel_of(), GRIDS[:2], 4)


@pytest.mark.parametrize("m", [7, 45, 60])
@pytest.mark.parametrize("kind", [SquaredExponential, Matern12, Matern52])
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.7])
def test_a_grid_at_other_lengthscales_is_the_projection_on_its_span(scale: float, kind: type[Kernel], m: int) -> None:
    """K_xZ B (B^T K_ZZ B)^-1 B^T K_Zx from the dense grid, B the leading eigenvectors of the start; never above k."""
    start, x = separable(kind), points(12)
    Z = torch.cartesian_prod(*GRIDS)
    values, Q = torch.linalg.eigh(start(Z, Z))
    assert m == 60 or values[-m] > (1 + 1e-6) * values[-m - 1]
    B = Q[:, -m:]
    kernel = replace(start, lengthscale=start.lengthscale * torch.tensor([scale, 1 / scale, scale]))
    basis = replace(Grid.build(start, GRIDS, m), kernel=kernel)
    across = kernel(x, Z) @ B
    expected = across @ torch.linalg.solve(B.mT @ kernel(Z, Z) @ B, across.mT)
    assert torch.allclose(prior_covariance(basis, x), expected, rtol=0, atol=1e-9)
    assert torch.linalg.eigvalsh(kernel(x, x) - prior_covariance(basis, x)).min() > -1e-9
    torch.testing.assert_close(basis.missing(x), (kernel(x, x) - expected).diagonal(), rtol=0, atol=1e-9)


def test_a_grid_of_like_eigenvalues_and_many_points_has_a_finite_gradient() -> None:
    """Two points far apart have equal eigenvalues, whose vectors have no derivative; 60 points nearly equal ones."""
    grids = [torch.tensor([-50.0, 50.0]).double(), torch.linspace(-1, 1, 60).double()]
    first = SquaredExponential(*hyperparameters([1.0, 2.0], 1.0, dtype=torch.float64))
    basis, x = Grid.build(first, grids, 20, fewer=True), points(6)[:, :2]
    for scale in (0.3, 1.0, 3.0):
        leaf = (scale * first.lengthscale).requires_grad_()
        variance = all_features(replace(basis, kernel=replace(first, lengthscale=leaf)), x).square().sum(1)
        assert variance.max() <= 1 + 1e-6
        (slope,) = torch.autograd.grad(variance.sum(), leaf)
        assert slope.isfinite().all() and slope.abs().max() < 100


@pytest.mark.parametrize("kind", BY_NAME)
def test_a_separable_kernel_is_the_product_of_its_factors_and_draws_its_own_frequencies(kind: str) -> None:
    kernel, x = separable(BY_NAME[kind]), points(8)
    r = (x[:, None] - x[None]).abs() / kernel.lengthscale
    torch.testing.assert_close(kernel(x, x), VARIANCE * BY_NAME[kind].profile(r).prod(2))
    made = torch.stack([prior_covariance(Fourier(kernel, 960, seed), x) for seed in range(60)])
    assert ((made.mean(0) - kernel(x, x)).abs() <= 6 * made.std(0) / 60**0.5 + 1e-12).all()


def test_bases_refuse_kernels_without_what_they_need() -> None:
    kernel = Sum((kernel_of(), kernel_of(Matern12)))
    # The run-time type check of the tests, where it is installed, refuses it first.
    with pytest.raises((ValueError, TypeCheckError), match="Sum"):
        Fourier(kernel, 4)
    with pytest.raises(ValueError, match="Euclidean distance for orthogonal frequencies, got 'laplacian'"):
        Fourier(kernel_of(Laplacian), 4, orthogonal=True)
    with pytest.raises(ValueError, match="one variance to divide by, got Sum"):
        KernelFunctions(kernel, points(4))


@each_basis
def test_every_device_gives_the_same_features(name: str, device: torch.device) -> None:
    basis = build(name, torch.float32)
    moved = {key: on(value, device) for key, value in vars(basis).items() if key not in ("m", "seed", "orthogonal")}
    there = replace(basis, **moved)  # type: ignore[type-var]
    x, index = points(6, dtype=torch.float32), torch.tensor([3, 0, 31])
    Phi = there.features(x.to(device), there.columns(index.to(device)))
    assert Phi.device.type == device.type
    assert torch.allclose(Phi.cpu(), basis.features(x, basis.columns(index)), rtol=0, atol=1e-5)
    assert there.precision_diag(index.to(device)).device.type == device.type


def on(value: object, device: torch.device) -> object:
    """`value` with every tensor in it on the device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(on(part, device) for part in value)
    if isinstance(value, type):
        return value
    return replace(value, **{key: on(part, device) for key, part in vars(value).items()})  # type: ignore[type-var]


@each_draw
def test_products_that_store_no_feature_equal_those_that_do(kind, orthogonal, device):
    """Phi V, a block of it, and sum phi^2 w, against the features themselves; in float32 to 1e-5 (Cauchy: 1e-4)."""
    make = BY_NAME[kind]
    kernel = make(*hyperparameters([0.7, 1.5, 2.0], 1.7, device=device))
    basis = Fourier(kernel, 60, seed=5, orthogonal=orthogonal)
    generator = torch.Generator().manual_seed(0)
    x, V = torch.randn(11, 3, generator=generator).to(device), torch.randn(60, 4, generator=generator).to(device)
    w = torch.rand(60, generator=generator).to(device)
    truth = make(*hyperparameters([0.7, 1.5, 2.0], 1.7, device=device, dtype=torch.float64))
    double = Fourier(truth, 60, seed=5, orthogonal=orthogonal)
    Phi = double.features(x.double(), double.columns(torch.arange(60, device=device)))
    atol = 1e-4 if make is Matern12 else 1e-5
    torch.testing.assert_close(basis.phi_v(x, V).double(), Phi @ V.double(), atol=atol, rtol=atol)
    part = basis.phi_v(x, V[20:50], first=20).double()
    torch.testing.assert_close(part, Phi[:, 20:50] @ V[20:50].double(), atol=atol, rtol=atol)
    torch.testing.assert_close(basis.phi2_v(x, w).double(), Phi.square() @ w.double(), atol=atol, rtol=atol)
