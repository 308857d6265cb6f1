"""Every picture shows the numbers that another route gives, on the axes it was handed."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import sklearn.metrics
from matplotlib import pyplot
from scipy.stats import norm
from sklearn.calibration import calibration_curve as sklearn_reliability

from qsgp import QSGPClassifier, QSGPRegressor, plots
from qsgp.evaluation import area, binned, groups, relevance


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


def numbers(n, d=3, seed=0, outputs=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1)
    Y = np.stack([np.sin(X[:, 0]) + k * X[:, 1] / 2 for k in range(max(outputs, 1))], 1)
    Y = Y + 0.3 * rng.normal(size=Y.shape)
    return X, Y if outputs else Y[:, 0]


def labels(n, classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (X[:, 0] + 0.7 * rng.normal(size=n) > np.linspace(-0.7, 0.7, classes - 1)[:, None]).sum(0)


@pytest.fixture(scope="module")
def regressor():
    return QSGPRegressor(random_state=0).fit(*numbers(120))


@pytest.fixture(scope="module")
def two_outputs():
    return QSGPRegressor(random_state=0).fit(*numbers(100, outputs=2))


@pytest.fixture(scope="module")
def two_classes():
    return QSGPClassifier(random_state=0).fit(*labels(120, 2))


@pytest.fixture(scope="module")
def three_classes():
    return QSGPClassifier(random_state=0).fit(*labels(120, 3))


REGRESSION = [
    plots.predicted_against_observed,
    plots.pit_histogram,
    plots.calibration_curve,
    plots.coverage_by_deciles,
]
CLASSES = [plots.reliability_diagram, plots.confusion_matrix, plots.roc_curves]


@pytest.mark.parametrize("picture", REGRESSION + [plots.residuals])
def test_a_regression_picture_returns_the_axes_it_was_given(picture, regressor):
    X, y = numbers(60, seed=1)
    ax = pyplot.subplots()[1]
    assert picture(regressor, X, y, ax=ax) is ax and ax.has_data()
    assert picture(regressor, X, y) is not ax
    with pytest.raises(ValueError, match="one output|targets for every row"):
        picture(regressor, X, np.stack([y, y], 1))


@pytest.mark.parametrize("picture", CLASSES)
def test_a_class_picture_returns_the_axes_it_was_given(picture, two_classes, regressor):
    X, y = labels(60, 2, seed=1)
    ax = pyplot.subplots()[1]
    assert picture(two_classes, X, y, ax=ax) is ax and ax.has_data()
    with pytest.raises(ValueError, match="got a regressor"):
        picture(regressor, *numbers(20))


def test_wrong_calls_say_what_to_do(regressor, two_classes):
    with pytest.raises(ValueError, match="got a classifier"):
        plots.pit_histogram(two_classes, *labels(30, 2))
    with pytest.raises(ValueError, match="Pass them"):
        plots.pit_histogram(regressor)
    with pytest.raises(ValueError, match="output < 1"):
        plots.pit_histogram(regressor, *numbers(30), output=1)
    with pytest.raises(ValueError, match="Expected column"):
        plots.slice_plot(regressor, numbers(30)[0], column="nothing")
    with pytest.raises(ValueError, match="closed form"):
        plots.training_curve(regressor)
    with pytest.raises(ValueError, match="Check y"):
        plots.evaluate(regressor, numbers(30)[0], np.zeros(29))


def test_an_evaluation_of_arrays_is_that_of_a_normal_law():
    rng = np.random.default_rng(0)
    y, mean, deviation = rng.normal(size=50), rng.normal(size=50), rng.uniform(0.5, 2, 50)
    found = plots.Regression.of(y, mean, deviation)
    np.testing.assert_allclose(found.pit, norm.cdf(y, mean, deviation), atol=1e-12)
    np.testing.assert_allclose(found.log_density, norm.logpdf(y, mean, deviation), atol=1e-12)
    with pytest.raises(ValueError, match="one length"):
        plots.Regression.of(y, mean[:, None], deviation)


@pytest.mark.parametrize("likelihood", ["gaussian", "laplace"])
def test_an_evaluation_is_what_the_model_says(likelihood):
    X, y = numbers(80, d=2)
    model = QSGPRegressor(likelihood=likelihood, kernel="rbf", random_state=0).fit(X, y)
    X, y = numbers(60, d=2, seed=1)
    found = plots.evaluate(model, X, y)
    np.testing.assert_allclose(found.log_density, model.log_density(X, y), rtol=1e-6, atol=1e-8)
    for level in (0.1, 0.5, 0.9):
        np.testing.assert_array_equal(found.pit < level, y < model.predict_quantiles(X, level))
    lower, upper = model.predict_interval(X)
    np.testing.assert_array_equal(found.inside, (lower <= y) & (y <= upper))
    # CRPS by its definition, E|y - y'| - E|y' - y''| / 2, with the law as 500 equally likely quantiles
    law = model.predict_quantiles(X, (np.arange(500) + 0.5) / 500)
    spread = (np.sort(law, 0) * (2 * np.arange(500) - 499)[:, None]).sum(0) / 500**2
    wanted = np.abs(law - y).mean(0) - spread
    np.testing.assert_allclose(found.crps, wanted, rtol=0.05)
    assert found.scores()["CRPS"] == pytest.approx(wanted.mean(), rel=5e-3)


def test_a_recalibrated_model_is_judged_by_its_own_intervals():
    X, y = numbers(80)
    model = QSGPRegressor(kernel="rbf", random_state=0).fit(X, y)
    model.calibrate(*numbers(199, seed=1))
    X, y = numbers(300, seed=2)
    found = plots.evaluate(model, X, y)
    for level in (0.3, 0.5, 0.95):
        lower, upper = model.predict_interval(X, level)
        assert np.mean(found.central <= level) == pytest.approx(np.mean((lower <= y) & (y <= upper)), abs=1 / 200)


def test_predicted_against_observed_draws_the_predictions(regressor):
    X, y = numbers(60, seed=1)
    line = plots.predicted_against_observed(regressor, X, y).lines[-1]
    np.testing.assert_allclose(line.get_xdata(), regressor.predict(X))
    np.testing.assert_allclose(line.get_ydata(), y)


def test_many_rows_are_drawn_as_1500_of_them():
    y = np.arange(4000.0)
    line = plots.predicted_against_observed(plots.Regression.of(y, y, np.ones(4000))).lines[-1]
    assert len(set(line.get_xdata())) == 1500
    assert set(line.get_xdata()) <= set(y)


def test_pit_histogram_counts_where_targets_fell(regressor):
    X, y = numbers(400, seed=1)
    heights = [bar.get_height() for bar in plots.pit_histogram(regressor, X, y).patches if bar.get_width() < 0.5]
    pit = norm.cdf(y, *regressor.predict(X, return_std=True))
    np.testing.assert_allclose(heights, np.histogram(pit, 10, (0, 1), density=True)[0], atol=1e-9)


def test_calibration_curve_counts_targets_inside_their_intervals(regressor):
    X, y = numbers(200, seed=1)
    line = plots.calibration_curve(regressor, X, y).lines[-1]
    for level, observed in zip(line.get_xdata(), line.get_ydata(), strict=True):
        lower, upper = regressor.predict_interval(X, level)
        assert observed == pytest.approx(np.mean((lower <= y) & (y <= upper)), abs=1e-9)


def test_coverage_by_deciles_splits_the_rows_by_deviation(regressor):
    X, y = numbers(200, seed=1)
    line = next(line for line in plots.coverage_by_deciles(regressor, X, y).lines if line.get_marker() == "o")
    mean, deviation = regressor.predict(X, return_std=True)
    order = np.argsort(deviation)
    expected = (np.abs(y - mean) < 1.959964 * deviation)[order].reshape(10, 20).mean(1)
    np.testing.assert_allclose(line.get_ydata(), expected)


def test_the_bars_of_few_rows_are_drawn_to_their_ends():
    few = plots.Regression.of(np.zeros(20), np.zeros(20), np.ones(20))
    ax = plots.coverage_by_deciles(few)
    lowest = min(path.vertices[:, 1].min() for bars in ax.collections for path in bars.get_paths())
    assert ax.get_ylim()[0] < lowest < 0.75


@pytest.mark.parametrize(("n", "expected"), [(1, 1), (19, 1), (20, 2), (105, 10), (10_000, 10)])
def test_groups_hold_every_row_once(n, expected):
    values = np.zeros(n)  # ties do not matter
    parts = groups(values)
    assert len(parts) == expected
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))


def test_residuals_stand_over_their_input(regressor):
    X, y = numbers(60, seed=1)
    by_number = plots.residuals(regressor, X, y, column=1).lines[0]
    np.testing.assert_allclose(by_number.get_xdata(), X[:, 1])
    np.testing.assert_allclose(by_number.get_ydata(), y - regressor.predict(X))
    found = plots.evaluate(regressor, X, y)
    ax = plots.residuals(found, X[:, 2], column="$ <b>")
    np.testing.assert_allclose(ax.lines[0].get_xdata(), X[:, 2])
    assert ax.get_xlabel() == "$ <b>"


def test_relevance_is_the_reciprocal_lengthscale_of_standardised_inputs(regressor):
    X, _ = numbers(120)
    expected = X.std(0) / regressor.lengthscale_
    np.testing.assert_allclose(relevance(regressor), expected)
    ax = plots.input_relevance(regressor)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], np.sort(expected))
    assert ax.get_yticklabels()[-1].get_text() == f"x{expected.argmax()}"
    assert len(plots.input_relevance(regressor, columns=[2, 1]).patches) == 2
    assert len(plots.input_relevance(regressor, most=1).patches) == 1


def test_a_slice_follows_one_input_with_the_others_at_their_medians(regressor):
    X, _ = numbers(101, seed=1)
    ax = plots.slice_plot(regressor, X, column=1)
    line = ax.lines[0].get_xdata()
    grid = np.stack([np.full_like(line, np.median(X[:, 0])), line, np.full_like(line, np.median(X[:, 2]))], 1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), regressor.predict(grid), rtol=1e-6)
    band = ax.collections[0].get_paths()[0].vertices
    lower, upper = regressor.predict_interval(grid)
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((lower.min(), upper.max()), rel=1e-6)


@pytest.mark.parametrize("output", [0, 1])
def test_one_of_several_outputs_is_drawn(two_outputs, output):
    X, Y = numbers(50, seed=1, outputs=2)
    line = plots.predicted_against_observed(two_outputs, X, Y, output=output).lines[-1]
    np.testing.assert_allclose(line.get_xdata(), two_outputs.predict(X)[:, output])
    curve = plots.slice_plot(two_outputs, X, output=output).lines[0]
    grid = np.tile(np.median(X, 0), (len(curve.get_xdata()), 1))
    grid[:, 0] = curve.get_xdata()
    np.testing.assert_allclose(curve.get_ydata(), two_outputs.predict(grid)[:, output], rtol=1e-6)


def test_class_slices_show_probabilities(two_classes, three_classes):
    X = labels(50, 2)[0]
    ax = plots.slice_plot(two_classes, X)
    assert len(ax.lines) == 1 and len(ax.collections) == 1
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert 0 <= band.min() < band.max() <= 1
    three = plots.slice_plot(three_classes, X)
    total = sum(np.asarray(line.get_ydata()) for line in three.lines)
    np.testing.assert_allclose(total, 1)
    three.figure.canvas.draw()
    names = three.get_legend().get_window_extent().transformed(three.transData.inverted())
    assert names.y0 > 1, "a name may hide a curve"


def test_the_reliability_diagram_agrees_with_scikit_learn(two_classes):
    X, y = labels(300, 2, seed=1)
    line = next(line for line in plots.reliability_diagram(two_classes, X, y).lines if line.get_marker() == "o")
    share, mean = sklearn_reliability(y, two_classes.predict_proba(X)[:, 1], n_bins=10)
    np.testing.assert_allclose(line.get_xdata(), mean)
    np.testing.assert_allclose(line.get_ydata(), share)


def test_bins_count_every_row_also_at_the_ends():
    table = binned(np.array([0.0, 0.05, 1.0]), np.array([False, True, True]))
    np.testing.assert_allclose(table, [[0.025, 0.5, 2], [1, 1, 1]])


@pytest.mark.parametrize("classes", [2, 3])
def test_the_confusion_matrix_agrees_with_scikit_learn(classes, two_classes, three_classes):
    model = two_classes if classes == 2 else three_classes
    X, y = labels(200, classes, seed=1)
    shown = {text.get_position(): int(text.get_text()) for text in plots.confusion_matrix(model, X, y).texts}
    expected = sklearn.metrics.confusion_matrix(y, model.predict(X))
    assert shown == {(j, i): expected[i, j] for i in range(classes) for j in range(classes)}


def test_roc_curves_agree_with_scikit_learn(three_classes):
    X, y = labels(200, 3, seed=1)
    p = three_classes.predict_proba(X)
    curves = plots.roc_curves(three_classes, X, y).lines[1:]
    assert len(curves) == 3
    for c, curve in enumerate(curves):
        expected = sklearn.metrics.roc_auc_score(y == c, p[:, c])
        assert curve.get_label() == f"{c} ({expected:.3f})"
        drawn = sklearn.metrics.auc(np.asarray(curve.get_xdata()), np.asarray(curve.get_ydata()))
        assert drawn == pytest.approx(expected, abs=0.003)


def test_the_area_counts_ties_half_and_needs_both_classes():
    rng = np.random.default_rng(0)
    positive, score = rng.random(300) < 0.3, rng.integers(0, 8, 300) / 8
    assert area(positive, score) == pytest.approx(sklearn.metrics.roc_auc_score(positive, score))
    assert np.isnan(area(np.ones(5, bool), np.linspace(0, 1, 5)))


def test_rows_of_one_class_draw_without_a_curve(two_classes):
    X, y = labels(50, 2, seed=1)
    one = y == 1
    assert len(plots.roc_curves(two_classes, X[one], y[one]).lines) == 1


def test_training_curves_draw_every_number_that_was_recorded():
    history = [
        {"iteration": 1.0, "seconds": 0.5, "rmse": 3.0, "note": "text"},
        {"iteration": 2.0, "seconds": 1.5, "rmse": 2.0, "objective": float("nan")},
        {"iteration": 3.0, "seconds": 2.5, "objective": -4.0},
    ]
    assert plots.training_entries(history) == ["rmse", "objective"]
    line = plots.training_curve(history).lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0.5, 1.5], [3.0, 2.0])
    line = plots.training_curve(history, "objective").lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([2.5], [-4.0])


def test_every_phase_has_its_own_line():
    history = [{"phase": name, "iteration": k, "rmse": 1.0 + k} for name in ("mean", "refinement") for k in (1, 2)]
    ax = plots.training_curve(history)
    assert [list(line.get_ydata()) for line in ax.lines] == [[2, 3], [2, 3]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mean", "refinement"]


def test_a_curve_over_decades_gets_a_logarithmic_axis():
    history = [{"iteration": k, "residual": 10.0**-k} for k in range(4)]
    ax = plots.training_curve(history)
    assert (ax.get_yscale(), ax.get_xlabel()) == ("log", "iteration")


def test_the_largest_surprises_have_the_least_density(regressor, three_classes):
    X, y = numbers(60, seed=1)
    y[17] += 30
    table = plots.largest_surprises(plots.evaluate(regressor, X, y), 5)
    density = regressor.log_density(X, y)
    assert [record["row"] for record in table] == np.argsort(density)[:5].tolist()
    assert table[0]["row"] == 17 and table[0]["surprise"] == pytest.approx(-density[17], rel=1e-6)
    X, y = labels(60, 3, seed=1)
    table = plots.largest_surprises(plots.evaluate(three_classes, X, y), 3)
    p = three_classes.predict_proba(X)[np.arange(60), y]
    assert [record["row"] for record in table] == np.argsort(p)[:3].tolist()
    assert table[0]["probability of the observed"] == pytest.approx(p.min())


def test_names_from_data_are_drawn_as_they_are():
    """Dollars would be mathematics, and an underscore in front would hide a legend."""
    found = plots.Classification(np.array([0, 1, 2, 0]), np.full((4, 3), 1 / 3), np.array(["$a", "_b", "c$^"]))
    for picture in CLASSES:
        ax = picture(found)
        ax.figure.canvas.draw()
    assert [text.get_text().split(" ")[0] for text in plots.roc_curves(found).get_legend().get_texts()] == [
        "$a",
        "b",
        "c$^",
    ]


def run(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)


def test_qsgp_is_imported_without_matplotlib():
    done = run("import sys, qsgp; print('matplotlib' in sys.modules, 'qsgp.report' in sys.modules)")
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_without_matplotlib_the_error_names_the_extra():
    done = run("import sys; sys.modules['matplotlib'] = None; import qsgp.plots")
    assert done.returncode == 1
    assert "pip install 'qsgp[plots]'" in done.stderr
