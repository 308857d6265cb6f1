"""Small tables: shared or separate lengthscales, honest intervals, rounded targets, and the clock."""

import time

import numpy as np
import pytest
import torch

from qsgp import QSGPClassifier, QSGPRegressor
from qsgp.data.rows import Rows
from qsgp.hyperparameters import small_tables
from qsgp.hyperparameters.small_tables import (
    Found,
    Shrinking,
    Watch,
    left_out,
    predicted,
    rounding,
    surely_better,
    widened,
)
from qsgp.kernels import Laplacian, Matern12, Matern32, Matern52, SquaredExponential, Tied, gram, hyperparameters
from qsgp.likelihoods import Gaussian, Logistic
from qsgp.solvers import closed_form
from qsgp.solvers.closed_form import Sites, solve

KERNELS = [SquaredExponential, Matern32, Matern52]


def rows_of(n, d, f, noise=0.1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = f(x) + noise * torch.randn(n, generator=generator, dtype=torch.float64)
    return Rows(x, (y - y.mean())[:, None] / y.std(), torch.ones(n, dtype=torch.float64))


def kernel_of(kind, lengthscale=1.5, d=3, variance=1.3):
    return kind(*hyperparameters(lengthscale, variance, d=d, dtype=torch.float64))


@pytest.mark.parametrize("kind", [*KERNELS, Matern12, Laplacian])
def test_the_quick_gram_matrix_and_its_slope(kind):
    x = rows_of(40, 3, lambda x: x[:, 0])[0]
    x[1], x[2] = x[0], x[0] + 1e-7
    weight = torch.randn(40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for matrix in (gram, lambda kernel, x: kernel(x, x)):
        parameters = {name: value.requires_grad_() for name, value in kernel_of(kind).parameters().items()}
        K = matrix(kernel_of(kind).with_parameters(parameters), x)
        found.append((K.detach(), *torch.autograd.grad((K * weight).sum(), list(parameters.values()))))
    for quick, plain in zip(*found, strict=True):
        torch.testing.assert_close(quick, plain, rtol=1e-9, atol=1e-9)


def test_the_gram_matrix_of_common_lengthscales():
    x = rows_of(20, 3, lambda x: x[:, 0])[0]
    tied = Tied.of(kernel_of(Matern32, [1.0, 2.0, 3.0]))
    torch.testing.assert_close(gram(tied, x), tied(x, x))


def test_the_prior_is_strong_near_equal_lengthscales_and_weak_far_from_them():
    """A Student t: what the first step away from equality costs is far more than what the last one does."""
    prior = Shrinking(torch.ones(10, dtype=torch.float64))
    noise = Gaussian(torch.tensor(0.1, dtype=torch.float64))

    def density(apart):
        log_lengthscale = torch.zeros(10, dtype=torch.float64)
        log_lengthscale[0], log_lengthscale[1] = apart, -apart
        kernel = kernel_of(SquaredExponential, 1.0, d=10)
        return float(prior(kernel.with_parameters({"log_lengthscale": log_lengthscale}), noise))

    values = [density(apart) for apart in (0.0, 1.0, 2.0, 3.0)]
    falls = [before - after for before, after in zip(values, values[1:], strict=False)]
    assert falls[0] > 1.5 * falls[1] and falls[1] > falls[2] > 0
    tied = Tied(kernel_of(SquaredExponential, 1.0, d=10), prior.proportions, torch.zeros((), dtype=torch.float64))
    assert float(prior(tied, noise)) == pytest.approx(values[0])  # so that both can be compared


def test_few_rows_keep_lengthscales_together_and_many_let_them_part():
    def apart(n):
        x, y, _ = rows_of(n, 6, lambda x: torch.sin(2 * x[:, 0]) + 0.3 * x[:, 1], noise=0.3)
        model = QSGPRegressor(kernel="rbf", random_state=0).fit(x.numpy(), y[:, 0].numpy())
        return float(np.log(model.lengthscale_ / x.std(0).numpy()).std())

    assert apart(12) < 0.3 and apart(300) > 0.6


def test_a_weak_signal_in_many_inputs_has_intervals_that_keep_their_word():
    """40 rows of 20 inputs: a lengthscale for each found patterns in noise (coverage 0.75)."""
    inside = []
    for seed in range(2):
        x, y, _ = rows_of(240, 20, lambda x: x[:, 0] + 0.5 * x[:, 1], noise=1.0, seed=seed)
        model = QSGPRegressor(kernel="rbf", random_state=0).fit(x[:40].numpy(), y[:40, 0].numpy())
        mean, deviation = model.predict(x[40:].numpy(), return_std=True)
        inside.append(np.mean(np.abs(y[40:, 0].numpy() - mean) < 1.96 * deviation))
    assert np.mean(inside) > 0.91


def found_with(variance, rows, kind=SquaredExponential):
    kernel = kernel_of(kind, 1.0, d=rows[0].shape[1], variance=1.0)
    noise = Gaussian(torch.tensor(variance, dtype=torch.float64))
    return Found(kernel, noise, Shrinking(torch.ones(rows[0].shape[1], dtype=torch.float64)))


def test_errors_of_rows_left_out_widen_the_intervals(monkeypatch):
    """Noise learned as a tenth of the true variance: the factor is about ten, and predictions stay."""
    monkeypatch.setattr(small_tables, "searched", lambda starts, *_: starts)  # keep the wrong hyperparameters
    rows = rows_of(200, 1, lambda x: torch.sin(x[:, 0]), noise=0.3)
    right = found_with(float(0.09 / (rows[1].std() ** 2 * 0.54)), rows)
    wrong = found_with(0.01, rows)
    kernel, sites = widened([wrong], rows, Watch())
    assert float(sites.noise_variance) > 0.05
    ratio = kernel.variance / wrong.kernel.variance
    torch.testing.assert_close(ratio, sites.noise_variance / wrong.likelihood.noise_variance)
    assert left_out(right, rows, Watch())[0] < 1.3
    new = torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None], torch.zeros(5, 1, dtype=torch.float64)
    before = predicted(wrong.kernel, wrong.likelihood, rows, *new)
    after = predicted(kernel, sites, rows, *new)
    torch.testing.assert_close(before[0], after[0])
    torch.testing.assert_close(before[1] * ratio, after[1])


def test_one_row_far_off_does_not_widen_all_intervals(monkeypatch):
    monkeypatch.setattr(small_tables, "searched", lambda starts, *_: starts)
    rows = rows_of(100, 1, lambda x: torch.sin(x[:, 0]), noise=0.1)
    fair = found_with(0.05, rows)
    before = left_out(fair, rows, Watch())[0]
    rows[0][7], rows[1][7] = 50.0, 100.0  # where it has no neighbours
    assert left_out(fair, rows, Watch())[0] < before + 1.1 * small_tables.MOST_OF_ONE


def test_a_row_of_weight_two_is_the_row_twice():
    x, y, weight = rows_of(60, 2, lambda x: torch.sin(x[:, 0]), noise=0.2)
    weight[:20] = 2.0
    twice = torch.cat([torch.arange(60), torch.arange(20)])
    deviations = []
    for inputs, targets, weights in ((x, y, weight), (x[twice], y[twice], torch.ones(80))):
        model = QSGPRegressor(kernel="rbf", random_state=0)
        model.fit(inputs.numpy(), targets[:, 0].numpy(), sample_weight=weights.numpy())
        deviations.append(model.predict(x.numpy() + 0.1, return_std=True)[1])
    np.testing.assert_allclose(*deviations, rtol=0.01)


def test_the_simpler_model_wins_unless_the_other_is_surely_better():
    generator = torch.Generator().manual_seed(0)
    density, one = torch.randn(50, generator=generator, dtype=torch.float64), torch.ones(50, dtype=torch.float64)
    noise = 0.5 * torch.randn(50, generator=generator, dtype=torch.float64)
    noise -= noise.mean()
    assert surely_better(density + noise + 0.2, density, one)
    assert not surely_better(density + noise + 0.02, density, one)
    assert not surely_better(density + noise - 0.2, density, one)


def test_rounded_targets_have_the_noise_of_rounding():
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(200, 1, generator=generator, dtype=torch.float64)
    whole = (10 * y).round() / 7.0  # in any unit
    assert rounding(whole) == pytest.approx(1 / 49 / 12)
    assert rounding(y) == 0.0  # all different
    assert rounding(torch.cat([y, y])) == 0.0  # repeated, but on no grid
    assert rounding(y.sign()) == 0.0  # two levels are values of their own
    assert rounding(torch.cat([whole, y], 1)) == 0.0  # outputs share their noise


def test_noise_of_rounded_targets_has_a_floor():
    x = torch.linspace(-2, 2, 60, dtype=torch.float64)[:, None]
    y = (6 * torch.sin(2 * x)).round()
    model = QSGPRegressor(kernel="rbf", random_state=0).fit(x.numpy(), y[:, 0].numpy())
    assert model.noise_variance_ >= 0.999 / 12


def test_what_a_search_cannot_end_it_does_not_begin():
    """The last evaluation of 300 rows took 0.5 s: one of 1,300 takes 13.5."""
    left = [10.0]
    watch = Watch(lambda: False, lambda: left[0])
    clock = iter([0.0, 0.5])
    monotonic, time.monotonic = time.monotonic, lambda: next(clock)
    try:
        over = watch.over(300)
        assert not over() and not over()
    finally:
        time.monotonic = monotonic
    assert watch.allows(300) and watch.allows(300, 19) and not watch.allows(300, 21)
    assert not watch.allows(1300) and Watch().allows(10**6)
    left[0] = 14.0
    assert watch.allows(1300)


def test_sites_of_labels_that_are_easy_to_tell_settle_in_few_rounds():
    """Plain rounds took 270 to the same evidence."""
    x = rows_of(80, 2, lambda x: x[:, 0])[0]
    y, one = x[:, 0].sign(), torch.ones(80, dtype=torch.float64)
    Gram = kernel_of(SquaredExponential, 3.0, d=2, variance=200.0)(x, x)

    def evidence(xi):
        return float(solve(Gram, Sites.of(Logistic(), y, xi, one)).evidence)

    rounds = list(closed_form._tightened(Gram, Logistic(), y, one, closed_form._first_xi(Gram, Logistic(), y)))
    assert len(rounds) < 60
    plain = rounds[0]
    for _ in range(len(rounds)):
        plain = next(closed_form._tightened(Gram, Logistic(), y, one, plain))
    assert evidence(rounds[-1]) > evidence(plain) + 1e-3
    values = [evidence(xi) for xi in rounds]
    assert all(after > before - 1e-9 for before, after in zip(values, values[1:], strict=False))


def test_outputs_take_turns_when_time_is_short():
    x = rows_of(30, 2, lambda x: x[:, 0])[0]
    Y, one = torch.stack([x[:, 0].sign(), x[:, 1].sign()], 1), torch.ones(30, dtype=torch.float64)
    Gram = kernel_of(SquaredExponential, 1.0, d=2)(x, x)
    asked = iter([False] * 4 + [True])
    found = closed_form.tighten_all(Gram, Logistic(), Y, one, lambda: next(asked))
    each = [closed_form.tighten(Gram, Logistic(), y, one, rounds=2) for y in Y.mT]
    torch.testing.assert_close(found, torch.stack(each, 1))


def test_many_classes_keep_their_time():
    """Ten classes of 64 inputs; 35 s it took, of 5."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(10, 64))
    labels = generator.integers(10, size=700)
    X = centres[labels] + 1.5 * generator.normal(size=(700, 64))
    began = time.process_time()
    model = QSGPClassifier(max_time=2.0, random_state=0).fit(X[:600], labels[:600])
    assert time.process_time() - began < 5.0
    assert model.score(X[600:], labels[600:]) > 0.9
    assert np.ptp(model.lengthscale_ / X[:600].std(0)) < 1e-9 or np.ptp(model.lengthscale_) < 1e-9  # they share one
