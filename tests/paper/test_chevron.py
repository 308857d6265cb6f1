import pytest
import torch

from qsgp.paper.chevron import Chevron


@pytest.mark.parametrize("k", [0, 2, 5])
def test_chevron_pattern(k):
    """Lower triangle in the first k columns, diagonal elsewhere, positive on the diagonal."""
    g = torch.Generator().manual_seed(0)
    L, log_c = torch.randn(5, k, generator=g), torch.randn(5, generator=g)
    C = Chevron(5, k).to_dense(L, log_c)
    wanted = torch.diag(log_c.exp())
    wanted[:, :k] += torch.tril(torch.nn.functional.pad(L, (0, 5 - k)), -1)[:, :k]
    torch.testing.assert_close(C, wanted)


def test_rows_and_columns_are_those_of_the_whole():
    g = torch.Generator().manual_seed(0)
    chevron, L, log_c = Chevron(6, 3), torch.randn(6, 3, generator=g), torch.randn(6, generator=g)
    C = chevron.to_dense(L, log_c)
    rows, r = torch.tensor([4, 0, 2, 4]), torch.tensor([2, 0])
    torch.testing.assert_close(chevron.dense_columns(rows, L[rows], log_c[rows]), C[rows, :3])
    torch.testing.assert_close(chevron.dense_columns(rows, L[rows][:, r], log_c[rows], r), C[rows][:, r])
    assert chevron.diagonal_rows(rows, torch.float32).tolist() == [1.0, 0.0, 0.0, 1.0]


def test_more_dense_columns_than_functions_are_refused():
    with pytest.raises(ValueError, match="dense_columns <= m = 4, got 5"):
        Chevron(4, 5)
