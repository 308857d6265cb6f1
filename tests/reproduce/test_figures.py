"""Figures 1 to 3 at sizes that take seconds: what the paper says of them holds."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from qsgp.bases.fourier import FourierColumns
from qsgp.reproduce import figure_1, figure_2, figure_3
from qsgp.reproduce.experiment import Choice, Experiment, Row

TINY = figure_1.Setting(figure_1.ARM, m=2000, batch=100, repeats=80, points=100)


def drawn(experiment: Experiment, rows: Sequence[Row]) -> int:
    """How many lines the picture has; nothing is shown."""
    figures = pytest.importorskip("matplotlib.figure")
    figure: Any = figures.Figure()
    assert experiment.picture is not None
    experiment.picture(rows, figure)
    return sum(len(ax.lines) for ax in figure.axes)


# --- Figure 1 --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study() -> figure_1.Study:
    return figure_1.Study(TINY)


def test_kriging_leaves_less_variance_than_the_papers_control_variate_and_both_less_than_none(
    study: figure_1.Study,
) -> None:
    gram, kriging = study.variances("gram", 300), study.variances("kriging", 300)
    for theirs, ours in zip(gram, kriging, strict=True):
        assert ours < theirs / 2 < 0.25
    assert study.variances("none", 0) == (1.0, 1.0)


def test_more_support_points_leave_less_variance(study: figure_1.Study) -> None:
    assert study.variances("gram", 300)[0] < 0.7 * study.variances("gram", 100)[0]


def test_what_eq_3_should_leave_is_what_it_leaves(study: figure_1.Study) -> None:
    for rank in (100, 300):
        assert study.variances("gram", rank)[0] == pytest.approx(study.expected(rank), rel=0.3)


def test_rows_that_are_more_alike_leave_less_variance(study: figure_1.Study) -> None:
    longer = figure_1.Study(replace(TINY, change="lengthscales 1.1 times as long"))
    assert longer.alike > study.alike and longer.expected(300) < study.expected(300)
    assert longer.variances("gram", 300)[0] < study.variances("gram", 300)[0]


def test_control_variates_do_not_move_the_mean(study: figure_1.Study) -> None:
    """Averaged over draws, value and slope along mu are those of all rows and functions."""
    everything = torch.arange(TINY.m)
    f = study.features(study.x, everything) @ study.mu
    wanted = float(f.square().sum())
    support = study.support(50)
    Phi_p = study.features(support.U, everything)
    for kind in ("gram", "kriging"):
        values, slopes = [], []
        for t in range(100):
            mu = study.mu.clone().requires_grad_()
            g = figure_1.step_generator(0, t)
            batch = figure_1.draw(len(study.x), TINY.m, TINY.batch, TINY.batch, g)
            value = study.estimate(mu, batch, kind, support, Phi_p)
            (slope,) = torch.autograd.grad(value, mu)
            values.append(float(value.detach()))
            slopes.append(float(slope @ study.mu))
        for found, exact in ((torch.tensor(values), wanted), (torch.tensor(slopes), 2 * wanted)):
            error = float(found.std()) / len(found) ** 0.5
            assert abs(float(found.mean()) - exact) < 4 * error, kind


def test_random_phases_are_features_of_the_same_kernel(study: figure_1.Study) -> None:
    setting = replace(TINY, m=20_000)
    basis = figure_1.Fourier(study.kernel, setting.m)
    columns = figure_1.single(basis.columns(torch.arange(setting.m)), study.kernel, setting)
    assert isinstance(columns, FourierColumns) and len(columns.phase.unique()) > setting.m / 2
    Phi = basis.features(study.x[:20], columns)
    torch.testing.assert_close(Phi @ Phi.mT, study.kernel(study.x[:20], study.x[:20]), atol=0.1, rtol=0)


@pytest.mark.parametrize(
    "change", ["one lengthscale for all inputs", "draws with replacement", "first rows as support set"]
)
def test_one_thing_changed_is_still_measured(change: str) -> None:
    setting = replace(TINY, m=400, repeats=10, points=30, change=change)
    row = figure_1.measured(setting, "gram", 100)
    assert 0 < row["objective_variance"] < 2 and 0 < row["gradient_variance"] < 2


def test_the_variance_is_that_of_all_values_together() -> None:
    values = torch.randn(30, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    running = figure_1.Running()
    for value in values:
        running.add(value)
    assert running.variance() == pytest.approx(float(values.var(0).mean()))


def test_figure_1_says_and_draws_what_was_measured() -> None:
    rows = [
        {**case.key, "objective_variance": 2 / case.key["rank"], "gradient_variance": 3 / case.key["rank"]}
        for case in figure_1.cases(Choice())
    ]
    assert "Eq. (3) makes the variance of the objective 150.0 times smaller" in figure_1.summary(rows)
    assert "another support set 150.0" in figure_1.summary(rows)
    assert drawn(figure_1.FIGURE_1, rows) == 8  # two lines and two marks in each panel


@pytest.mark.skipif(
    not (Path(os.environ.get("QSGP_DATA", "")) / "kin40k.npz").is_file(), reason="needs kin40k in QSGP_DATA"
)
def test_kin40k_has_all_its_rows() -> None:
    x, y = figure_1.rows_of("kin40k")
    assert (x.shape, y.shape) == ((40_000, 8), (40_000,))


# --- Figure 2 --------------------------------------------------------------------------------------------------------

SHORT = replace(figure_2.SETTINGS, iterations=60, every=60)


@pytest.mark.parametrize("k", figure_2.COVARIANCES.values())
def test_far_from_the_data_augmentation_gives_the_prior_and_without_it_nothing_is_left(k: int) -> None:
    row = figure_2.measured(0, "cpu", k, SHORT)
    prior = float(figure_2.Sinc.of(0, "cpu").kernel.variance.sqrt())
    assert row["far_augmented"] == pytest.approx(prior, rel=1e-6)
    assert row["far_exact"] == pytest.approx(prior, rel=1e-6) and row["far_plain"] < 1e-3 * prior
    curves = row["curves"]
    assert all(more >= less for more, less in zip(curves["augmented"], curves["plain"], strict=True)), "Remark 1"


def test_a_full_covariance_comes_nearer_to_the_exact_gp_than_mean_field() -> None:
    """All points and functions in every step: what sampling adds is the affair of the figure."""
    settings = replace(figure_2.SETTINGS, n_tilde=20, m_tilde=20, iterations=150, every=150, control="none")
    mean_field, full = (figure_2.measured(0, "cpu", k, settings) for k in (0, figure_2.POINTS))
    assert full["distance_plain"] < 0.5 * mean_field["distance_plain"]
    assert full["distance_augmented"] > full["distance_plain"], "augmentation counts twice near the data"


def test_figure_2_says_and_draws_what_was_measured() -> None:
    row = figure_2.measured(0, "cpu", 0, replace(SHORT, iterations=5, every=5))
    rows = [{"covariance": name} | row for name in figure_2.COVARIANCES]
    assert f"mean field: far from the data the deviation is {row['far_plain']:.3f}" in figure_2.summary(rows)
    assert drawn(figure_2.FIGURE_2, rows) == 6 * 4


# --- Figure 3 --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sinc() -> figure_3.Sinc:
    return figure_3.Sinc.of(0, points=60)


def test_implicit_steps_are_sparse_where_the_papers_settings_are_not(sinc: figure_3.Sinc) -> None:
    implicit, printed = (
        figure_3.trained(sinc, replace(settings, n_tilde=25, m_tilde=30, iterations=80, every=80))
        for settings in (figure_3.IMPLICIT, figure_3.PRINTED)
    )
    assert implicit["vectors"] <= 20 < printed["vectors"]
    assert implicit["rmse"] < printed["rmse"] and implicit["bound"] > printed["bound"]


def test_the_exact_evidence_is_sparse_and_above_every_bound(sinc: figure_3.Sinc) -> None:
    row = figure_3.exact(sinc, rounds=400)
    assert 3 <= row["vectors"] <= 20 and row["rmse"] < 0.08
    few = replace(figure_3.IMPLICIT, n_tilde=25, m_tilde=30, iterations=20, every=20)
    assert row["bound"] > figure_3.trained(sinc, few)["bound"]
    assert len(row["curves"]["vectors"]) == row["vectors"]


def test_the_band_is_that_of_new_targets(sinc: figure_3.Sinc) -> None:
    """Some two thirds of the targets are within one deviation, noise included."""
    curves = {name: torch.tensor(values) for name, values in figure_3.exact(sinc, 400)["curves"].items()}
    at = (curves["points"][:, None] - curves["x"]).abs().argmin(1)
    inside = (curves["targets"] - curves["mean"][at]).abs() < curves["deviation"][at]
    assert 0.5 < float(inside.double().mean()) < 0.85


def test_figure_3_says_and_draws_what_was_measured(sinc: figure_3.Sinc) -> None:
    row = {"points": 60, "seed": 0} | figure_3.exact(sinc, rounds=50)
    rows = [{"training": name} | row for name in ("implicit steps", figure_3.EXACT)]
    assert f"implicit steps {row['vectors']} of 60" in figure_3.summary(rows)
    assert "fastrvm is not installed" in figure_3.summary(rows)
    assert drawn(figure_3.FIGURE_3, rows) == 6
