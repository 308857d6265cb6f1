"""A map of the target is taken where rows not learned from are predicted better with it, and nowhere else."""

import pytest
import torch

from qsgp.data.rows import Rows
from qsgp.training.options import Options
from qsgp.training.target_map import learned

AUTO = Options(target_map="auto", noise="auto")


def rows(kind: str, seed: int = 0, n: int = 400) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator).double()
    f = (2 * x[:, 0]).sin() + x[:, 1] + 0.3 * torch.randn(n, generator=generator).double()
    targets = {
        "plain": f,
        "prices": f.exp(),
        "negative prices": -f.exp(),
        "both": torch.stack([f, f.exp()], 1),
        "levels": f.round(),
        "mostly zero": torch.where(f > 0.5, f.exp(), 0.0),
        "constant": torch.full_like(f, 2.0),
        "one far off": torch.cat([f[:-1], f.new_tensor([1e9])]),
    }
    y = targets[kind].reshape(n, -1)
    return Rows(x, (y - y.mean(0)) / y.std(0).clamp_min(1e-12), torch.ones(n).double())


def test_prices_are_mapped_as_by_a_logarithm() -> None:
    given = rows("prices")
    found = learned(given, AUTO)
    assert found is not None
    t, logs = found(given.Y)[:, 0], (given.Y[:, 0] - given.Y.min() + 0.05).log()
    assert float(torch.corrcoef(torch.stack([t, logs]))[0, 1]) > 0.97


@pytest.mark.parametrize("kind", ["plain", "levels", "mostly zero", "constant"])
def test_what_no_map_helps_stays_as_it_is(kind: str) -> None:
    assert learned(rows(kind), AUTO) is None


def test_each_output_has_its_own_map() -> None:
    found = learned(rows("both"), AUTO)
    assert found is not None
    assert found.plain.tolist() == [True, False]


@pytest.mark.parametrize("kind", ["plain", "negative prices", "one far off"])
def test_a_map_that_is_asked_for_is_taken(kind: str) -> None:
    given = rows(kind)
    found = learned(given, Options(target_map="sinh-arcsinh"))
    assert found is not None
    t = found(given.Y)
    assert torch.isfinite(t).all() and not found.plain.any()
    torch.testing.assert_close(found.inverse(t), given.Y, rtol=1e-6, atol=1e-9)
