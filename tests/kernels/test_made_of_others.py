"""Kernels of linear combinations of the inputs, and sums of kernels: every way to them gives the same numbers."""

from typing import Any

import pytest
import torch

from qsgp.bases import Fourier, Inducing, KernelFunctions, Whitened
from qsgp.interfaces import SpectralKernel
from qsgp.kernels import Laplacian, Mapped, Matern12, Matern32, SpectralSum, SquaredExponential, gram, hyperparameters
from qsgp.kernels.relevance import effective_lengthscales, has_map, metric
from qsgp.likelihoods import Gaussian
from qsgp.posteriors.parts import kernel_and_likelihood, kernel_shapes, tensors_of

D = 3
MAP = torch.tensor([[0.8, -0.3], [0.2, 1.1], [-0.5, 0.4]], dtype=torch.float64)


def of(kind: Any, lengthscale: list[float], variance: float) -> Any:
    return kind(*hyperparameters(lengthscale, variance, dtype=torch.float64))


def mapped() -> Mapped:
    return Mapped(of(Matern32, [0.9, 1.4], 1.5), MAP)


KERNELS = {
    "mapped": mapped,
    "mapped rough": lambda: Mapped(of(Matern12, [0.9, 1.4], 1.5), MAP),
    "sum": lambda: SpectralSum((of(SquaredExponential, [1.0, 2.0, 0.7], 0.5), of(Laplacian, [3.0, 2.0, 4.0], 0.8))),
    "sum with a map": lambda: SpectralSum((mapped(), of(Laplacian, [3.0, 2.0, 4.0], 0.8))),
}
each_kernel = pytest.mark.parametrize("kernel", [make() for make in KERNELS.values()], ids=KERNELS)


def rows(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_hand(kernel: Any, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """One pair of rows at a time."""
    if isinstance(kernel, SpectralSum):
        return torch.stack([by_hand(term, x, z) for term in kernel.kernels]).sum(0)
    if isinstance(kernel, Mapped):
        return by_hand(kernel.kernel, x @ kernel.map, z @ kernel.map)
    scaled = (x[:, None] - z) / kernel.lengthscale
    r = scaled.abs().sum(2) if isinstance(kernel, Laplacian) else scaled.square().sum(2).sqrt()
    return kernel.variance * kernel.profile(r)


@each_kernel
def test_values_and_products(kernel: Any) -> None:
    x, z, V = rows(7), rows(5, 1), torch.randn(5, 2, dtype=torch.float64)
    expected = by_hand(kernel, x, z)
    torch.testing.assert_close(kernel(x, z), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(kernel.product(x, z, V), expected @ V, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(kernel.diag(x), by_hand(kernel, x, x).diagonal())
    narrow = kernel.with_parameters({name: value.float() for name, value in kernel.parameters().items()})
    found = narrow.product(x.float(), z.float(), V.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected @ V, rtol=1e-5, atol=1e-5)


@each_kernel
def test_features_converge_to_the_kernel(kernel: Any) -> None:
    assert isinstance(kernel, SpectralKernel)
    x, basis = rows(6), Fourier(kernel, 100_000)
    Phi = basis.features(x, basis.columns(torch.arange(basis.m)))
    assert (Phi @ Phi.mT - kernel(x, x)).abs().max() < 0.03 * kernel.variance
    V = torch.randn(basis.m, 1, dtype=torch.float64)
    torch.testing.assert_close(basis.phi_v(x, V), Phi @ V, rtol=1e-8, atol=1e-8)
    few = kernel.frequencies(3, torch.arange(10))
    torch.testing.assert_close(kernel.frequencies(3, torch.tensor([7, 2])), few[[7, 2]], rtol=0, atol=0)


@each_kernel
def test_gradients_of_the_evidence_matrix_are_those_of_the_formula(kernel: Any) -> None:
    x, weights = rows(8), rows(8, 2) @ rows(8, 3).mT

    def slope(value: Any) -> tuple[torch.Tensor, ...]:
        own = {name: part.detach().clone().requires_grad_() for name, part in kernel.parameters().items()}
        return torch.autograd.grad((weights * value(kernel.with_parameters(own))).sum(), list(own.values()))

    x = x + 0 * x
    for found, expected in zip(slope(lambda k: gram(k, x)), slope(lambda k: _smooth(k, x)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def _smooth(kernel: Any, x: torch.Tensor) -> torch.Tensor:
    """`by_hand` without the slope at distance zero, which autograd cannot take."""
    n = len(x)
    off = ~torch.eye(n, dtype=torch.bool)
    pairs = off.nonzero()
    values = torch.stack([by_hand(kernel, x[a : a + 1], x[b : b + 1])[0, 0] for a, b in pairs.tolist()])
    K = torch.zeros(n, n, dtype=x.dtype).index_put((pairs[:, 0], pairs[:, 1]), values)
    return K + torch.diag(kernel.diag(x))


@each_kernel
def test_the_kernel_of_unit_variance(kernel: Any) -> None:
    x = rows(4)
    torch.testing.assert_close(kernel.unit()(x, x), kernel(x, x) / kernel.variance)
    columns = torch.arange(4)
    functions = KernelFunctions(kernel, x)
    torch.testing.assert_close(functions.features(x, functions.columns(columns)), kernel(x, x) / kernel.variance)
    white = Whitened.build(kernel, x)
    Phi = white.features(x, white.columns(columns))
    torch.testing.assert_close(Phi @ Phi.mT, kernel(x, x), rtol=1e-6, atol=1e-6)
    assert Inducing(kernel, x).missing(x).max() < 1e-6


@each_kernel
def test_it_is_stored_and_read_again(kernel: Any) -> None:
    likelihood = Gaussian(torch.tensor(0.1, dtype=torch.float64))
    header = {"kernel": kernel.name, "likelihood": "gaussian"}
    tensors = tensors_of(kernel, likelihood)
    again, _ = kernel_and_likelihood(header, tensors)
    x = rows(5)
    assert type(again) is type(kernel)
    torch.testing.assert_close(again(x, x), kernel(x, x), rtol=0, atol=0)
    own = {name.removeprefix("kernel."): value for name, value in tensors.items() if name.startswith("kernel.")}
    shapes = kernel_shapes(kernel.name, own, D)
    assert {name: tuple(value.shape) for name, value in own.items()} == shapes


def test_what_it_says_of_single_inputs() -> None:
    plain = of(Matern32, [0.5, 2.0, 4.0], 1.0)
    torch.testing.assert_close(effective_lengthscales(plain), plain.lengthscale)
    torch.testing.assert_close(metric(plain), torch.diag(1 / plain.lengthscale))
    turned = mapped()
    torch.testing.assert_close(metric(turned), MAP / turned.kernel.lengthscale)
    x = rows(2)
    r = ((x[0] - x[1]) @ metric(turned)).norm()
    torch.testing.assert_close(turned(x[:1], x[1:])[0, 0], turned.variance * Matern32.profile(r))
    assert has_map(turned) and has_map(SpectralSum((plain, turned))) and not has_map(plain)
    both = SpectralSum((plain, turned))
    assert metric(both).shape == (D, 5)
    each = [effective_lengthscales(term) for term in both.kernels]
    between = effective_lengthscales(both)
    assert (between >= torch.minimum(*each) - 1e-12).all() and (between <= torch.maximum(*each) + 1e-12).all()


def test_a_map_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a column for each lengthscale"):
        Mapped(of(Matern32, [1.0, 1.0, 1.0], 1.0), MAP)
