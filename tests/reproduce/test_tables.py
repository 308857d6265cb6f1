"""Tables 2 and 3 at tiny sizes: what training ends at, the exact solutions beside it, rows, words and pictures."""

import math
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from qsgp.bases import Fourier, Inducing
from qsgp.cli.reproduce import measured
from qsgp.kernels import SquaredExponential
from qsgp.paper import dense
from qsgp.reproduce import exactly, regression, steps, svgp, table_2, table_3, unfinished
from qsgp.reproduce.exactly import Found
from qsgp.reproduce.experiment import Asked, Choice, Draws, Experiment, Row
from qsgp.reproduce.regression import ROBOT_ARM, Place, Sizes, Table
from qsgp.reproduce.steps import trained, unsampled

TINY = Sizes(120, 40, 30, 20, 5, rows=60, points=50, inducing=8, svgp_iterations=3, seconds=0.5)


def silent(words: str) -> None:
    pass


@pytest.fixture(scope="module")
def table() -> Table:
    """Smooth enough for 60 rows to know something, with noise enough for AdaGrad to arrive."""
    g = torch.Generator().manual_seed(0)
    x, x_new = (torch.randn(n, 2, generator=g) for n in (60, 40))
    y, y_new = (torch.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.3 * torch.randn(len(x), generator=g) for x in (x, x_new))
    kernel = SquaredExponential(torch.full((2,), 1.5), torch.tensor(1.0))
    return Table(x, y, x_new, y_new, 1.0, kernel, torch.tensor(0.1), 0.0)


def features(basis: Fourier, x: Tensor) -> Tensor:
    return basis.features(x, basis.columns(torch.arange(basis.m)))


def of_weights(table: Table, basis: Fourier) -> tuple[Tensor, Tensor]:
    """Mean and variance of f by the formula of the dense reference."""
    basis = replace(basis, kernel=exactly.doubled(basis.kernel))
    seen = table.seen.double()
    Phi, Phi_new = features(basis, seen.x), features(basis, seen.x_new)
    mu, Sigma = dense.posterior(seen.y, Phi, torch.eye(basis.m, dtype=torch.float64), seen.sigma2)
    return Phi_new @ mu, (Phi_new @ Sigma * Phi_new).sum(1)


# --- the settings ---------------------------------------------------------------------------------------------------


def test_the_printed_settings_are_those_of_the_paper() -> None:
    """Appendices I.1 and I.2, number by number."""
    sizes, settings = table_2.PRINTED, regression.settings_of(table_2.PRINTED, Choice())
    assert (sizes.m, sizes.m_tilde, sizes.n_tilde, sizes.rank, sizes.iterations) == (10**5, 10_000, 500, 500, 10**5)
    assert (sizes.points, sizes.inducing, sizes.rows) == (1000, 512, None)
    assert (settings.m_tilde, settings.n_tilde, settings.iterations) == (10_000, 500, 10**5)
    assert (settings.rate, settings.hyper_rate, settings.frozen * settings.iterations) == (0.1, 1e-5, 10**4)
    assert (settings.control, settings.covariance_update, settings.mean_update) == ("gram", "entry", "adagrad")
    inducing = table_3.PRINTED
    assert (inducing.m, inducing.m_tilde, inducing.n_tilde, inducing.rank) == (0, 3000, 3000, 200)
    assert not regression.settings_of(inducing, Choice()).learn_hyperparameters


def test_all_six_sets_and_every_split_asked_for_have_rows() -> None:
    keys = [case.key for case in table_2.cases(Choice(splits=(0, 3)))]
    assert {(key["data"], key["split"]) for key in keys} == {
        (data, split) for data in regression.SETS for split in (0, 3)
    }
    assert {key["k"] for key in keys if key["model"] == table_2.CHEVRON} == {100}


def test_without_data_robot_arm_rows_take_their_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QSGP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert {case.key["data"] for case in table_2.cases(Choice(fast=True))} == {ROBOT_ARM}
    (tmp_path / "qsgp").mkdir()
    for name in table_2.FEW:
        (tmp_path / "qsgp" / f"{name}.npz").touch()
    assert {case.key["data"] for case in table_2.cases(Choice(fast=True))} == set(table_2.FEW)


def test_rows_are_standardised_and_no_test_row_is_learned_from() -> None:
    found = regression.table_of(Place(ROBOT_ARM, 1, 80, 40, 0, "cpu"))
    assert (len(found.x), len(found.x_new)) == (80, 40)
    assert found.y.mean().abs() < 1e-5 and (found.y.std(correction=0) - 1).abs() < 1e-5
    assert found.x.mean(0).abs().max() < 1e-5
    distances = torch.cdist(found.x, found.x_new)
    assert distances.min() > 1e-3


# --- training and the solutions ---------------------------------------------------------------------------------------


def test_steps_end_at_the_solved_model(table: Table) -> None:
    """With all rows and functions in every step, time enough and a rate that does not decay."""
    basis = Fourier(table.kernel, 40)
    solved = exactly.fourier(basis, table.seen, 100).mean
    ends = []
    for iterations in (10, 3000):
        settings = replace(regression.settings_of(Sizes(40, 40, 60, 20, iterations), Choice()), final=1.0)
        mu = unsampled(features(basis, table.x), False, table.y, table.sigma2, settings, silent)
        ends.append(regression.distance(table, features(basis, table.x_new) @ mu, solved))
    assert ends[1] < 0.01 < 0.1 < ends[0], ends


def test_steps_without_sampling_are_those_of_full_batches(table: Table) -> None:
    basis = Fourier(table.kernel, 40)
    problem = regression.problem_of(table, basis, 0, 20, 0)
    settings = replace(regression.settings_of(Sizes(40, 40, 60, 20, 20), Choice()), control="none")
    state = trained(problem, settings, Choice()).state
    mu = unsampled(features(basis, table.x), False, table.y, table.sigma2, settings, silent)
    torch.testing.assert_close(mu, state.rows.mu[:, 0], rtol=1e-3, atol=1e-4)


def test_steps_without_sampling_know_a_dense_prior(table: Table) -> None:
    basis = Inducing(table.kernel, table.x)
    problem = regression.problem_of(table, basis, 0, 20, 0)
    settings = replace(regression.settings_of(Sizes(60, 60, 60, 20, 10), Choice()), control="none", rate=0.01)
    state = trained(problem, settings, Choice()).state
    mu = unsampled(table.kernel(table.x, table.x), True, table.y, table.sigma2, settings, silent)
    torch.testing.assert_close(mu, state.rows.mu[:, 0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("m", [40, 200])  # fewer functions than rows, and more
def test_solutions_by_weights_by_rows_and_by_gradients_are_the_dense_one(table: Table, m: int) -> None:
    basis = Fourier(table.kernel, m)
    mean, variance = of_weights(table, basis)
    found = exactly.fourier(basis, table.seen, 1000)
    assert found.variance is not None
    torch.testing.assert_close(found.mean, mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance, variance, rtol=1e-5, atol=1e-6)
    descended = exactly.fourier(basis, table.seen, 10)
    assert descended.variance is None
    assert regression.distance(table, descended.mean, mean) < 5e-3


def test_the_exact_gp_is_that_of_the_background_section(table: Table) -> None:
    seen = table.seen.double()
    mean, variance = dense.gaussian_process(exactly.doubled(table.kernel), seen.x, seen.y, seen.sigma2, seen.x_new)
    found = exactly.gaussian_process(table.kernel, table.seen)
    assert found.variance is not None
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.variance, variance)


def test_the_best_mean_field_is_the_optimum_of_the_covariance_loss(table: Table) -> None:
    """Its variance is that of the diagonal C at which L_Sigma has no slope."""
    basis, seen = Fourier(exactly.doubled(table.kernel), 40), table.seen.double()
    Phi = features(basis, seen.x)
    log_c = torch.zeros(40, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([log_c], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = dense.covariance_loss(Phi, torch.eye(40, dtype=torch.float64), torch.diag(log_c.exp()), seen.sigma2)
        value.backward()
        return value

    optimiser.step(loss)
    best = features(basis, seen.x_new).square() @ (2 * log_c.detach()).exp()
    torch.testing.assert_close(exactly.mean_field_variance(basis, table.seen), best, rtol=1e-4, atol=1e-6)


def test_far_away_the_augmented_variance_is_the_priors(table: Table) -> None:
    far = replace(table, x_new=table.x_new + 100)
    plain = exactly.mean_field_variance(Inducing(far.kernel, far.x), far.seen)
    found = table_3.augmented(far, Found(torch.zeros_like(plain), plain))
    assert plain.max() < 1e-6
    torch.testing.assert_close(found.variance, torch.ones_like(plain))


# --- SVGP -------------------------------------------------------------------------------------------------------------


def test_svgp_with_every_row_and_the_best_q_is_the_exact_gp(table: Table) -> None:
    kernel, seen = exactly.doubled(table.kernel), table.seen.double()
    model = svgp.Svgp.start(kernel, seen.sigma2, seen.x)
    n = len(seen.x)
    K = kernel(seen.x, seen.x) + svgp.JITTER * torch.eye(n, dtype=torch.float64)
    L = torch.linalg.cholesky(K)
    Sigma = torch.linalg.inv(torch.eye(n, dtype=torch.float64) + L.mT @ L / seen.sigma2)
    root = torch.linalg.cholesky(Sigma)
    with torch.no_grad():
        model.mean.copy_(Sigma @ L.mT @ seen.y / seen.sigma2)
        model.raw.copy_(root.tril(-1) + torch.diag(root.diagonal().log()))
        elbo = model.elbo(seen.x, seen.y, n)
        evidence = dense.log_marginal_likelihood(K, seen.y, seen.sigma2)
    assert evidence - 0.1 < elbo < evidence  # the jitter is missing in the cross-covariances
    mean, variance = model.predict(seen.x_new)
    exact = exactly.gaussian_process(kernel, table.seen)
    assert exact.variance is not None
    torch.testing.assert_close(mean, exact.mean, atol=1e-3, rtol=0)
    torch.testing.assert_close(variance, exact.variance + seen.sigma2, atol=1e-3, rtol=0)


def test_svgp_learns(table: Table) -> None:
    model = svgp.Svgp.start(table.kernel, table.sigma2, table.x[:10])
    before = float(model.elbo(table.x, table.y, 60).detach())
    svgp.fit(model, table.x, table.y, 100, lambda done: None)
    after = float(model.elbo(table.x, table.y, 60).detach())
    mean, variance = model.predict(table.x_new)
    assert after > before + 10
    assert regression.scores(table, mean, variance)["rmse"] < 0.75 * float(table.y_new.std())


# --- rows, words, pictures --------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("QSGP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(table_2, "FAST", TINY)
    monkeypatch.setattr(table_3, "FAST", replace(TINY, m=0))


@pytest.mark.parametrize("experiment", [table_2.TABLE_2, table_3.TABLE_3], ids=["table-2", "table-3"])
def test_every_row_is_measured_once(experiment: Experiment, tiny: None, tmp_path: Path) -> None:
    choice = Choice(fast=True)
    rows = measured(experiment, choice, tmp_path, quiet=True)
    assert len(rows) == len(list(experiment.cases(choice)))
    for row in rows:
        assert math.isfinite(row["rmse"]) and math.isfinite(row["mnlp"]) and 0 <= row["coverage95"] <= 1, row
        assert row["seconds"] >= 0 and row["n"] == TINY.rows
    assert measured(experiment, choice, tmp_path, quiet=True) == rows  # seconds and all
    other = measured(experiment, Choice(fast=True, seed=1), tmp_path, quiet=True)
    assert [row["seed"] for row in other] == [1] * len(rows)


def test_what_does_not_fit_says_why(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly, "ON_A_CPU", 10)
    place = Place(ROBOT_ARM, 0, 60, 30, 0, "cpu")
    (*_, exact) = regression.beside(place, TINY, Choice())
    assert "60 rows" in exact.measure()["note"]


def test_a_run_that_diverges_is_a_row() -> None:
    def measure(table: Table) -> Row:
        raise FloatingPointError("Training diverged: the sampled ELBO is nan.")

    case = regression.case_of(Place(ROBOT_ARM, 0, 60, 30, 0, "cpu"), "any", {}, measure)
    assert case.measure() == {"note": "Training diverged: the sampled ELBO is nan."}


def test_a_run_that_is_interrupted_is_no_row(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "OFTEN", 0.0)
    problem = regression.problem_of(table, Fourier(table.kernel, 40), 0, 20, 0)
    told: list[str] = []

    def interrupt(words: str) -> None:
        told.append(words)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trained(problem, regression.settings_of(Sizes(40, 20, 30, 20, 20), Choice()), Choice(say=interrupt))
    assert 1 <= len(told) < 20 and "of 20 steps" in told[0]


@pytest.mark.parametrize("draws", ["scattered", "blocks"])
def test_a_run_that_is_killed_goes_on_in_the_midst_of_its_row(
    table: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, draws: Draws
) -> None:
    """It ends where an undisturbed one would, and its seconds are those of both parts."""
    monkeypatch.setattr(steps, "OFTEN", -1.0)
    monkeypatch.setattr(unfinished, "OFTEN", -1.0)  # every step is written down
    problem = regression.problem_of(table, Fourier(table.kernel, 40), 3, 20, 0)
    sizes, folder, told = Sizes(40, 20, 30, 20, 20), tmp_path / "unfinished", list[str]()

    def kill(words: str) -> None:
        told.append(words)
        if len(told) == 13:
            raise RuntimeError("killed")

    choice = Choice(asked=Asked(draws=draws), unfinished=folder)
    settings = regression.settings_of(sizes, choice)
    with pytest.raises(RuntimeError, match="killed"):
        trained(problem, settings, replace(choice, say=kill))
    (file,) = folder.iterdir()
    assert (kept := torch.load(file, weights_only=True))["tensors"]["t"] == 12
    other = regression.settings_of(sizes, replace(choice, seed=1))
    assert unfinished.Unfinished.of(folder, problem, other).path != file, "another seed is another run"
    told.clear()
    resumed = trained(problem, settings, replace(choice, say=told.append))
    assert "goes on after 12 of 20 steps" in told[0] and not folder.exists()
    assert resumed.seconds > kept["seconds"] > 0 and len(resumed.history) == 20
    whole = trained(problem, settings, Choice())
    assert all(torch.equal(resumed.state.tensors()[name], value) for name, value in whole.state.tensors().items())


def row(model: str, **others: object) -> Row:
    scores = {"rmse": 0.25, "mnlp": 0.5, "seconds": 1.0}
    return {"data": "pol", "split": 0, "model": model, **scores, **others}


@pytest.mark.parametrize(("alone", "blamed"), [(0.29, "optimiser"), (0.02, "noise")])
def test_the_summary_of_table_2_is_made_of_its_rows(alone: float, blamed: str) -> None:
    rows = [row(table_2.PLAIN, from_solved=0.3125), row(table_2.WITHOUT, from_solved=alone), row(table_2.SOLVED)]
    said = table_2.summary(rows)
    assert "0.312" in said and f"{alone:.3g}" in said and blamed in said and "pol, split 0" in said
    assert "of SVGP: not measured" in said


def test_the_summary_of_table_3_takes_the_rate_that_ends_nearer() -> None:
    diverged = {"data": "pol", "split": 0, "model": table_3.PLAIN, "rate": 0.1, "note": "diverged"}
    rows = [diverged, row(table_3.PLAIN, rate=0.01, from_solved=0.4), row(table_3.WITHOUT, rate=0.01, from_solved=0.3)]
    said = table_3.summary(rows)
    assert "diverges at a rate of 0.1" in said and "0.4 of the target" in said and "rate of 0.01" in said


def test_the_picture_has_a_dot_for_every_score() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    rows = [row(table_2.PLAIN), row(table_2.SOLVED, mnlp=None), {**row(table_2.PLAIN), "split": 1}]
    regression.picture(rows, figure)
    dots = [[len(line.get_xdata()) for line in axes.lines] for axes in figure.axes]
    assert dots == [[2, 1], [2]]
