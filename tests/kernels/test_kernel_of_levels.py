"""Effects of levels beside a kernel of the numbers, against matrices written down."""

import pytest
import torch

from qsgp.kernels import Mapped, Matern32, SquaredExponential, WithLevels, gram, hyperparameters
from qsgp.kernels.levels import looked_up
from qsgp.kernels.relevance import effective_lengthscales, has_map, metric


def problem(n=40, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    codes = torch.stack(
        [torch.randint(-1, 6, (n,), generator=generator), torch.randint(0, 30, (n,), generator=generator)], 1
    )
    x = torch.cat([torch.randn(n, 2, generator=generator, dtype=dtype), codes.to(dtype)], 1).to(device)
    smooth = Matern32(*hyperparameters([1.0, 2.0], 1.5, dtype=dtype, device=device))
    return WithLevels(smooth, torch.tensor([0.7, 0.2], dtype=dtype, device=device)), x


def dense(kernel, x, z):
    K = kernel.smooth(x[:, :2].contiguous(), z[:, :2].contiguous()).clone()
    for a in range(len(x)):
        for b in range(len(z)):
            for j in range(2):
                if x[a, 2 + j] == z[b, 2 + j] >= 0:
                    K[a, b] += kernel.effects[j]
    return K


def test_values_and_products_are_those_of_the_dense_matrix(device):
    kernel, x = problem(device=device)
    z = x[:17]
    torch.testing.assert_close(kernel(x, z), dense(kernel, x, z))
    V = torch.randn(17, 3, dtype=x.dtype, generator=torch.Generator().manual_seed(1)).to(device)
    torch.testing.assert_close(kernel.product(x, z, V), dense(kernel, x, z) @ V)
    torch.testing.assert_close(gram(kernel, x), dense(kernel, x, x))


def test_a_level_that_is_not_known_equals_nothing_and_has_the_prior_variance():
    kernel, x = problem()
    new = x[:1].clone()
    for code in (-1.0, 1e5):  # no level, and one that no row has
        new[0, 2:] = code
        torch.testing.assert_close(kernel(new, x), kernel.smooth(new[:, :2], x[:, :2].contiguous()))
        torch.testing.assert_close(kernel.product(new, x, torch.ones(40, 1).double()), kernel(new, x).sum(1, True))
    torch.testing.assert_close(kernel.diag(new), torch.tensor([1.5 + 0.9]).double())


def test_products_take_no_matrix_of_rows_and_levels():
    """Written down, one of 50,000 rows and as many levels would take 20 GB."""
    n = 50_000
    x = torch.stack([torch.zeros(n), torch.arange(n).float()], 1)
    kernel = WithLevels(SquaredExponential(*hyperparameters([1.0], 1e-6)), torch.tensor([2.0]))
    V = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(looked_up(kernel.tables(x, V), kernel.codes(x)), 2 * V)


def test_parameters_travel_and_have_gradients():
    kernel, x = problem()
    moved = kernel.with_parameters({name: value + 0.1 for name, value in kernel.parameters().items()})
    torch.testing.assert_close(moved.effects, kernel.effects * torch.tensor(0.1).exp())
    torch.testing.assert_close(moved.smooth.variance, kernel.smooth.variance * torch.tensor(0.1).exp())
    torch.testing.assert_close(kernel.unit()(x, x), kernel(x, x) / kernel.variance)

    def total(logs):
        return gram(kernel.with_parameters({"log_effects": logs}), x).square().sum()

    assert torch.autograd.gradcheck(total, (kernel.effects.log().requires_grad_(),))


def test_what_is_told_of_the_inputs():
    kernel, _ = problem()
    expected = torch.tensor([1.0, 2.0, (1.5 / 0.7) ** 0.5, (1.5 / 0.2) ** 0.5]).double()
    torch.testing.assert_close(effective_lengthscales(kernel), expected)
    assert metric(kernel).shape == (4, 4) and not has_map(kernel)
    assert has_map(WithLevels(Mapped(kernel.smooth, torch.eye(2).double()), kernel.effects))


def test_there_are_no_frequencies():
    kernel, _ = problem()
    with pytest.raises(ValueError, match="no frequencies"):
        kernel.frequencies(0, torch.arange(2))
