"""A source hands out the rows it was asked for, and refuses data no step could use."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from qsgp.data.arrays import Arrays
from qsgp.interfaces import Source

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def rows(n: int = 7, d: int = 3, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Arrays:
    x = torch.arange(n * d, dtype=dtype, device=device).reshape(n, d)
    return Arrays(x, -x[:, 0])


@DTYPES
def test_take_keeps_order_and_repeats(dtype: torch.dtype, device: torch.device) -> None:
    source: Source = rows(dtype=dtype, device=device)
    x, y = source.take(torch.tensor([4, 0, 4, 6], device=device))
    assert (source.n, source.d) == (7, 3)
    assert x.dtype == dtype
    assert x.device.type == device.type
    np.testing.assert_array_equal(x.cpu(), np.arange(21.0).reshape(7, 3)[[4, 0, 4, 6]])
    np.testing.assert_array_equal(y.cpu(), [-12.0, 0.0, -12.0, -18.0])


def test_take_of_nothing_is_empty() -> None:
    x, y = rows().take(torch.tensor([], dtype=torch.int64))
    assert x.shape == (0, 3)
    assert y.shape == (0,)


def test_a_source_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        rows().x = torch.ones(7, 3)  # type: ignore[misc]


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("shape", [(5,), (5, 2, 2), (0, 2), (5, 0)])
def test_inputs_are_a_table(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"Expected x of shape \(n, d\).*one data point in each row"):
        Arrays(torch.ones(shape), torch.ones(5))


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("shape", [(4,), (4, 2), ()])
def test_one_target_per_row(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"Expected y of shape \(5,.*\), got .*one target for each of the 5 rows"):
        Arrays(torch.ones(5, 2), torch.ones(shape))


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(("x_dtype", "y_dtype"), [("int64", "int64"), ("float64", "float32"), ("float32", "int64")])
def test_one_floating_type(x_dtype: str, y_dtype: str) -> None:
    with pytest.raises(ValueError, match=rf"one floating type.*x torch.{x_dtype}.*y torch.{y_dtype}.*Convert"):
        Arrays(torch.ones(5, 2, dtype=getattr(torch, x_dtype)), torch.ones(5, dtype=getattr(torch, y_dtype)))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_missing_inputs_are_named_by_column(bad: float) -> None:
    x = torch.zeros(6, 4)
    x[2, 1] = x[5, 1] = x[0, 3] = bad
    with pytest.raises(ValueError, match=r"column 1 has 2, column 3 has 1\. Drop those rows or columns"):
        Arrays(x, torch.zeros(6))


def test_infinities_that_cancel_are_seen() -> None:
    x = torch.zeros(4, 1)
    x[0], x[1] = float("inf"), -float("inf")
    with pytest.raises(ValueError, match="column 0 has 2"):
        Arrays(x, torch.zeros(4))


def test_large_finite_inputs_pass_although_their_sum_overflows() -> None:
    assert Arrays(torch.full((4, 1), 3e38), torch.zeros(4)).n == 4


def test_missing_targets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"finite numbers in y, got nan at \[3\].*Drop the rows without a target"):
        Arrays(torch.zeros(5, 1), torch.tensor([0.0, 1.0, 2.0, float("nan"), 4.0]))
