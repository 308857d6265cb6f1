"""Table 1: the steps that are timed are those of the methods they are named after, and the exponents are slopes."""

from collections.abc import Iterator

import pytest
import torch

from qsgp.reproduce import table_1
from qsgp.reproduce.experiment import Choice
from qsgp.reproduce.table_1 import exact_loss, kernel_of, leaves, made, svgp_loss, vfe_loss, whitened


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Identities hold to rounding, and without jitter."""
    monkeypatch.setattr(table_1, "JITTER", 1e-10)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double")
def test_the_evidence_is_the_density_of_the_targets() -> None:
    (x, y), theta = made(30, "cpu"), leaves("cpu")
    K = kernel_of(theta)(x, x) + theta[2].exp() * torch.eye(30)
    law = torch.distributions.MultivariateNormal(torch.zeros(30), K)
    torch.testing.assert_close(exact_loss(theta, x, y), -law.log_prob(y))


@pytest.mark.usefixtures("double")
def test_with_inducing_points_at_the_data_vfe_is_the_exact_gp() -> None:
    (x, y), theta = made(40, "cpu"), leaves("cpu")
    exact, vfe = exact_loss(theta, x, y), vfe_loss(theta, x, x, y)
    torch.testing.assert_close(vfe, exact, rtol=1e-5, atol=1e-5)
    assert (vfe_loss(theta, x[:10], x, y) > exact).item(), "a bound from below on the evidence"


@pytest.mark.usefixtures("double")
def test_at_the_best_q_svgp_is_vfe_and_at_any_other_looser() -> None:
    (x, y), theta = made(60, "cpu"), leaves("cpu")
    Z, sigma2 = x[:15], theta[2].exp()
    A = whitened(kernel_of(theta), Z, x)
    Sigma = torch.linalg.inv(torch.eye(15) + A @ A.mT / sigma2)
    mu, R = Sigma @ A @ y / sigma2, torch.linalg.cholesky(Sigma)
    best = vfe_loss(theta, Z, x, y)
    torch.testing.assert_close(svgp_loss(theta, Z, mu, R, x, y, len(x)), best)
    assert (svgp_loss(theta, Z, 0.9 * mu, R, x, y, len(x)) > best).item()
    halves = [svgp_loss(theta, Z, mu, R, x[part], y[part], len(x)) for part in (slice(30), slice(30, 60))]
    torch.testing.assert_close((halves[0] + halves[1]) / 2, best)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.7])
def test_the_exponent_is_that_of_a_power(power: float) -> None:
    assert table_1.exponent({size: 3 * size**power for size in (10, 100, 1000)}) == pytest.approx(power, abs=1e-9)


def test_memory_is_the_peak_and_not_the_sum() -> None:
    def run() -> None:
        for _ in range(5):
            torch.ones(1000, 1000)

    assert table_1.working_memory(run, "cpu") == 4_000_000


@pytest.mark.parametrize(("method", "wanted"), [("exact GP", 2.0), ("SVGP", 2.0), ("QSGP", 0.0)])
def test_memory_grows_as_the_paper_says(method: str, wanted: float) -> None:
    make = table_1.METHODS[method][0]
    sizes = {size: make(size, size, "cpu") for size in ((500, 1000) if method != "QSGP" else (1000, 4000))}
    memory = {size: table_1.working_memory(run, "cpu") for size, run in sizes.items()}
    assert table_1.exponent(memory) == pytest.approx(wanted, abs=0.5)


def test_sizes_are_timed_in_turns_and_medians_taken() -> None:
    order: list[int] = []
    steps = {size: (lambda size=size: order.append(size)) for size in (1, 2)}
    seconds = table_1.timed(steps, "cpu", enough=0.0)
    assert order == [1, 2] * 4 and set(seconds) == {1, 2}
    assert all(value > 0 for value in seconds.values())


def test_table_1_says_and_draws_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(table_1, "FAST_SIZES", {("exact GP", "n"): ([50, 100], 0), ("QSGP", "m"): ([600, 1200], 600)})
    rows = [
        {"method": method, "grows": grows} | table_1.measured(method, grows, "cpu", True)
        for method, grows in table_1.FAST_SIZES
    ]
    said = table_1.summary(rows)
    assert "the paper says O(n^3) and O(n^2)" in said and "QSGP: time grows as m^" in said
    assert [row["curves"]["size"] for row in rows] == [[50, 100], [600, 1200]]
    figure = figures.Figure()
    table_1.picture(rows, figure)
    assert [len(ax.lines) for ax in figure.axes] == [1, 1]


def test_fast_and_whole_measure_the_same_things() -> None:
    assert set(table_1.FAST_SIZES) == set(table_1.SIZES)
    fast, whole = ([case.key for case in table_1.cases(Choice(fast=fast))] for fast in (True, False))
    assert len(fast) == len(whole) and not [key for key in fast if key in whole]
