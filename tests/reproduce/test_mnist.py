"""Odd against even digits at tiny sizes, on the digits that scikit-learn brings."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from qsgp.bases import Fourier
from qsgp.cli.reproduce import measured
from qsgp.data.arrays import Arrays
from qsgp.kernels import SquaredExponential
from qsgp.likelihoods import Logistic
from qsgp.paper import Chevron, Problem, Settings, Support, dense, objective, start
from qsgp.paper.stepping import batch_of
from qsgp.reproduce import mnist
from qsgp.reproduce.experiment import Choice
from qsgp.reproduce.mnist import MNIST, SMALL, Digits, Sizes

TINY = Sizes((100,), 20, 20, 5, 10, rows=200, points=40, seconds=0.5)


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QSGP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))


def test_the_printed_sizes_are_those_of_the_paper() -> None:
    """Section 4: 101 quadrature points, m of a million and of ten, 20,000 functions and 100 rows a step."""
    assert mnist.SITE.points == 101
    assert (mnist.PRINTED.m, mnist.PRINTED.m_tilde, mnist.PRINTED.n_tilde) == ((10**6, 10**7), 20_000, 100)
    assert mnist.PRINTED.rows is None
    keys = [case.key for case in MNIST.cases(Choice())]
    steps = [key for key in keys if "m_tilde" in key]
    assert {(key["m"], key["model"]) for key in steps} == {
        (m, f"QSGP-0, bound {bound}") for m in (10**6, 10**7) for bound in ("printed", "B", "Q", "A")
    }
    assert {key["data"] for key in keys} == {"mnist"}


def test_every_row_is_measured_once(without_data: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mnist, "FAST", TINY)
    rows = measured(MNIST, Choice(fast=True), tmp_path, quiet=True)
    assert {row["data"] for row in rows} == {SMALL}
    assert len(rows) == 7
    for row in rows:
        assert 0 <= row["accuracy"] <= 1 and math.isfinite(row["mnlp"]) and row["n"] == TINY.rows, row
    assert measured(MNIST, Choice(fast=True), tmp_path, quiet=True) == rows
    said = mnist.summary(rows)
    assert all(f"{row['mnlp']:.3f}" in said for row in rows if "bound" not in row["model"])


def test_labels_are_odd_and_even(without_data: None) -> None:
    found = mnist.digits_of(SMALL, 50, 20, 0, "cpu")
    assert set(found.y.tolist()) == {-1.0, 1.0} and found.x.min() >= 0 and found.x.max() == 1
    assert found.kernel.lengthscale.unique().numel() == 1  # one for all pixels


@pytest.fixture(scope="module")
def digits() -> Digits:
    """A line that a logistic site learns at once."""
    g = torch.Generator().manual_seed(0)
    x, x_new = (torch.randn(n, 2, generator=g) for n in (80, 60))
    kernel = SquaredExponential(torch.full((2,), 2.0), torch.tensor(4.0))
    return Digits(x, x[:, 0].sign(), x_new, x_new[:, 0].sign(), kernel, 0.0)


def test_the_solved_model_knows_the_labels(digits: Digits) -> None:
    found = mnist._solved(100, replace(TINY, support=40), Choice(), digits)
    assert found["accuracy"] > 0.9 and found["mnlp"] < 0.35


def test_more_steps_of_a_bound_that_holds_are_better(digits: Digits) -> None:
    few, many = (
        mnist._by_steps("B", replace(TINY, m_tilde=100, n_tilde=80, iterations=count), Choice(), digits)
        for count in (1, 60)
    )
    assert many["mnlp"] < few["mnlp"] - 0.1 and many["accuracy"] > 0.85


def test_scores_are_those_of_a_hand_computation(digits: Digits) -> None:
    mean = digits.y_new.clone()
    mean[:15] *= -1
    row = mnist.scores(digits, mean, torch.full((60,), 0.5).log())
    assert row == {"accuracy": 0.75, "mnlp": pytest.approx(math.log(2))}


def test_training_with_the_printed_bound_takes_theorem_3_as_printed(digits: Digits) -> None:
    """At all rows and functions the term of the data is -2 times Eq. (5) as printed."""
    site, basis = Logistic(21), Fourier(digits.kernel, 20)
    problem = Problem(Arrays(digits.x, digits.y), basis, site, Chevron(20), Support.build(digits.kernel, digits.x[:10]))
    settings = Settings(n_tilde=80, m_tilde=20, control="none", bound="printed")
    state = start(problem, settings)
    state.table[:, 0] = torch.randn(20, generator=torch.Generator().manual_seed(1))
    batch = batch_of(problem, settings, 0, "cpu")
    touched, _ = state.gather(batch.touched)
    terms = objective.loss(problem, state, batch, touched, state.theta, settings).terms

    Phi: Tensor = basis.features(digits.x, basis.columns(torch.arange(20)))
    C = torch.diag(state.rows.log_c.exp())
    printed = dense.printed_expectation(site, digits.y, Phi, state.rows.mu[:, 0], C)
    mended = dense.expected_log_likelihood(site, digits.y, Phi, state.rows.mu[:, 0], C)
    torch.testing.assert_close(terms["fit"], -2 * printed, rtol=1e-4, atol=1e-3)
    assert (printed - mended).abs() > 0.1
