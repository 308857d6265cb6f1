import pytest
import torch

from qsgp.kernels import SquaredExponential
from qsgp.paper.support import Support


def kernel(dtype=torch.float64):
    return SquaredExponential(torch.ones(2, dtype=dtype), torch.tensor(2.0, dtype=dtype))


def test_weights_are_those_of_kriging():
    g = torch.Generator().manual_seed(0)
    U, x = torch.randn(6, 2, generator=g, dtype=torch.float64), torch.randn(9, 2, generator=g, dtype=torch.float64)
    k = kernel()
    support = Support.build(k, U, jitter=1e-2)
    wanted = k(x, U) @ torch.linalg.inv(k(U, U) + 2e-2 * torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(support.weights(x), wanted)


def test_duplicates_in_float32_get_a_factor():
    U = torch.zeros(20, 2)
    assert torch.isfinite(Support.build(kernel(torch.float32), U, jitter=1e-9).factor).all()


def test_non_finite_support_points_are_named():
    with pytest.raises(ValueError, match="20 support points.*non-finite"):
        Support.build(kernel(), torch.full((20, 2), torch.nan, dtype=torch.float64))
