"""The engine at sizes nobody chose: dense float64 twins, and <R, Phi V> = <Phi^T R, V>."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import Problem, error, kernel_matrix

from qsgp.engine import KERNELS, k_v, phi_v, phit_r

SIZES = st.tuples(
    st.integers(1, 300), st.integers(1, 90), st.integers(1, 600), st.integers(1, 40), st.integers(0, 2**31)
)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@given(size=SIZES)
@settings(max_examples=25)
def test_products_of_any_size(device: str, size: tuple[int, int, int, int, int]) -> None:
    n, d, pairs, columns, seed = size
    p = Problem(n, d, pairs, columns, torch.device(device), seed)
    Phi = p.phi()
    forward, backward = phi_v(p.x, p.omega, p.V, *p.kernel()), phit_r(p.x, p.omega, p.R, *p.kernel())
    assert error(forward, Phi @ p.V.double()) < 1e-5
    assert error(backward, Phi.mT @ p.R.double()) < 1e-5
    gap = (forward.double() * p.R).sum() - (backward.double() * p.V).sum()
    assert gap.abs() < 1e-5 * (forward.double().norm() * p.R.double().norm())


@pytest.mark.parametrize("device", DEVICES)
@given(size=SIZES, name=st.sampled_from(list(KERNELS)))
@settings(max_examples=25)
def test_kernel_products_of_any_size(device: str, size: tuple[int, int, int, int, int], name: str) -> None:
    n, d, m, columns, seed = size
    p = Problem(n, d, m, columns, torch.device(device), seed)
    V = p.V[:m]
    truth = kernel_matrix(p.x.double(), p.omega.double(), *(value.double() for value in p.kernel()), name) @ V.double()
    assert error(k_v(p.x, p.omega, V, *p.kernel(), kernel=name), truth) < 1e-5
