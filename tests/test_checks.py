"""Every message says what was expected, what came and what to do; what is right passes in silence."""

import pytest
import torch

from qsgp.checks import check_finite, check_positive, check_rows, check_sample_size, check_shape


def test_check_rows() -> None:
    assert check_rows(x=torch.ones(3, 2), y=torch.ones(3)) == 3
    with pytest.raises(ValueError, match=r"same number of rows in x, y; x has 3, y has 4\. Draw them"):
        check_rows(x=torch.ones(3, 2), y=torch.ones(4))


def test_check_shape() -> None:
    check_shape("mu", torch.ones(3), (3,), "")
    with pytest.raises(ValueError, match=r"Expected mu of shape \(3,\), got \(3, 1\)\. Flatten it\."):
        check_shape("mu", torch.ones(3, 1), (3,), "Flatten it.")


@pytest.mark.parametrize("size", [1, 5, 10])
def test_check_sample_size_passes(size: int) -> None:
    check_sample_size("m_tilde", size, "m", 10)


@pytest.mark.parametrize("size", [-1, 0, 11])
def test_check_sample_size_refuses(size: int) -> None:
    with pytest.raises(ValueError, match=rf"1 <= m_tilde <= m = 10, got m_tilde = {size}\. Use m_tilde = m"):
        check_sample_size("m_tilde", size, "m", 10)


@pytest.mark.parametrize("value", [1e-30, torch.tensor(2.0), torch.tensor([1.0, 3.0])])
def test_check_positive_passes(value: float | torch.Tensor) -> None:
    check_positive("sigma2", value, "")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0"),
        (-1.5, "-1.5"),
        (float("nan"), "nan"),
        (torch.tensor(-2.0), "-2.0"),
        (torch.tensor([1.0, float("nan")]), "nan"),
        (torch.tensor([1.0, 0.0], requires_grad=True), "0.0"),
    ],
)
def test_check_positive_refuses(value: float | torch.Tensor, shown: str) -> None:
    with pytest.raises(ValueError, match=rf"Expected sigma2 > 0, got {shown}\. Pass a variance\."):
        check_positive("sigma2", value, "Pass a variance.")


def test_check_finite() -> None:
    check_finite("y", torch.tensor([1.0, -3.0]), "")
    bad = torch.tensor([[1.0, 2.0], [float("inf"), float("nan")]])
    with pytest.raises(ValueError, match=r"finite numbers in x, got inf at \[1, 0\] \(2 such entries in all\)\. Drop"):
        check_finite("x", bad, "Drop the row.")


@pytest.mark.gpu
def test_check_positive_leaves_cuda_tensors_unread() -> None:
    check_positive("sigma2", torch.tensor(-1.0, device="cuda"), "")
