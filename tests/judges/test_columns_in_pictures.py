"""Pictures and the report speak of columns: of categories, dates and identifiers as the table has them."""

import copy
import re

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from matplotlib import pyplot

from judges.test_report import read
from qsgp import QSGPClassifier, QSGPRegressor, plots
from qsgp.evaluation import Encoded, Regression, relevance
from qsgp.plots.views import Circle, Values, column_relevance, typical_row, view_of, views
from qsgp.report import words
from qsgp.report.figures import draw

KINDS, STATES = ["flat", "house", "villa"], ["poor", "fair", "good"]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


def homes(n, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "size": rng.normal(100, 30, n).round(),
            "kind": rng.choice(KINDS, n, p=[0.5, 0.3, 0.2]),
            "state": pd.Categorical(rng.choice(STATES, n), STATES, ordered=True),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, n), unit="D"),
            "garden": rng.random(n) < 0.3,
            "income": np.exp(2.5 * rng.normal(size=n)),
            "agent": [f"agent {min(k, 59)}" for k in rng.permutation(n) % 70],
        }
    )
    month = table["sold"].dt.month
    price = table["size"] + 50 * (table["kind"] == "villa") + 10 * table["state"].cat.codes + 5 * np.cos(month)
    table["size"] = table["size"].where(rng.random(n) > 0.1)
    table["kind"] = table["kind"].where(rng.random(n) > 0.1)
    return table, pd.Series(price + rng.normal(0, 5, n), name="price")


@pytest.fixture(scope="module")
def model():
    """Hyperparameters as they start: what is drawn matters here, not how well it fits."""
    return QSGPRegressor(kernel="rbf", learn_hyperparameters=False, random_state=0).fit(*homes(200))


def test_a_view_for_each_column_and_each_part_of_a_date(model):
    titles = [view.title for view in views(model)]
    dates = ["sold", "sold: time of the year", "sold: day of the week"]
    assert titles == ["size", "kind", "state", *dates, "garden", "income", "agent"]
    assert view_of(model, "kind").labels == (*KINDS, "missing")
    assert view_of(model, "garden").labels == ("no", "yes")
    assert view_of(model, "income").bend and not view_of(model, "size").bend
    # an input by its own name, and numbers as ever
    assert view_of(model, "kind=flat").inputs == (model.input_names_.index("kind=flat"),)
    with pytest.raises(ValueError, match="one of .*'kind'.*got 'colour'"):
        view_of(model, "colour")


def test_what_a_view_reads_from_the_inputs_it_writes_back(model):
    table, _ = homes(80, seed=1)
    X = model.prepare_inputs(table)
    for view in views(model):
        x = view.along(X)
        known = ~np.isnan(x)
        np.testing.assert_allclose(view.inputs_at(x[known]), X[known][:, view.inputs], atol=1e-3, err_msg=view.title)


def test_what_a_view_reads_is_what_the_table_has(model):
    table, _ = homes(80, seed=1)
    X = model.prepare_inputs(table)
    np.testing.assert_allclose(view_of(model, "size").along(X), table["size"])
    np.testing.assert_allclose(view_of(model, "income").along(X), table["income"], rtol=1e-9)
    kind = view_of(model, "kind")
    assert [kind.labels[int(k)] for k in kind.along(X)] == table["kind"].fillna("missing").tolist()
    agent = view_of(model, "agent")
    assert [agent.labels[int(k)] for k in agent.along(X)] == table["agent"].tolist()
    np.testing.assert_array_equal(view_of(model, "sold: day of the week").along(X), table["sold"].dt.day_of_week)
    assert [words.one(view_of(model, "sold"), day) for day in view_of(model, "sold").along(X)] == [
        str(day.date()) for day in table["sold"]
    ]
    month = view_of(model, "sold: time of the year")
    names = [words.one(month, value) for value in month.along(X)]
    assert np.mean([a == b for a, b in zip(names, table["sold"].dt.month_name(), strict=True)]) > 0.9  # leap years


def test_a_typical_row_is_one_that_could_be(model):
    """Medians of the inputs of a category would be no category, those of sine and cosine no time."""
    table, _ = homes(200)
    X = model.prepare_inputs(table)
    row = typical_row(model, X)[None]
    for view in views(model):
        if isinstance(view, Values):
            value, count = np.unique(view.along(X), return_counts=True)
            assert view.along(row)[0] == value[count.argmax()]
        if isinstance(view, Circle):
            assert np.square(row[0, list(view.inputs)]).sum() == pytest.approx(1)
    assert view_of(model, "size").along(row)[0] == table["size"].median()


def test_relevance_has_one_bar_for_each_column(model):
    model = copy.copy(model)
    model.lengthscale_ = model.input_scale_ / np.arange(1, len(model.input_names_) + 1)
    ax, own = plots.input_relevance(model), relevance(model)
    of_kind = [own[j] for j, name in enumerate(model.input_names_) if name.startswith("kind")]
    assert sorted(text.get_text() for text in ax.get_yticklabels()) == sorted(model.columns_.names)
    assert column_relevance(model)["kind"] == max(of_kind)
    assert len(plots.input_relevance(model, columns=["kind", "size"]).patches) == 2


def test_a_slice_of_a_category_is_predicted_at_each_of_its_values(model):
    table, _ = homes(200)
    ax = plots.slice_plot(model, table, column="kind")
    assert [text.get_text() for text in ax.get_xticklabels()] == [*KINDS, "missing"]
    row = Encoded(np.tile(typical_row(model, model.prepare_inputs(table)), (4, 1)))
    places = [model.input_names_.index(name) for name in (*(f"kind={kind}" for kind in KINDS), "kind is missing")]
    row.array[:, places] = np.eye(4)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.predict(row))
    lower, upper = model.predict_interval(row)
    ends = np.array([part.vertices[:, 1] for part in ax.collections[0].get_paths()])
    np.testing.assert_allclose(ends, np.stack([lower, upper], 1), rtol=1e-6)


def test_a_slice_along_a_bent_number_has_its_own_unit(model):
    table, _ = homes(200)
    line = plots.slice_plot(model, table, column="income").lines[0]
    low, high = table["income"].quantile([0.004, 0.996])
    assert low <= line.get_xdata().min() and line.get_xdata().max() <= high
    ax = plots.column_histogram(model, table, column="income")
    ax.figure.draw_without_rendering()
    names = [text.get_text() for text in ax.get_xticklabels()]
    assert set(names) <= {"0", "1", "10", "100", "1,000", "10,000"} and len(names) > 2
    boxes = [text.get_window_extent() for text in ax.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in zip(boxes[:-1], boxes[1:], strict=True))


def test_histograms_count_the_rows(model):
    table, price = homes(200)
    bars = [bar.get_height() for bar in plots.column_histogram(model, table, column="kind").patches]
    assert bars == [(table["kind"].fillna("missing") == kind).sum() for kind in (*KINDS, "missing")]
    for column in ("size", "income", "sold", "sold: day of the week"):
        (steps,) = plots.column_histogram(model, table, column=column).patches
        assert steps.get_data().values.sum() == table[column.split(":")[0]].notna().sum(), column
    week = plots.column_histogram(model, table, column="sold: day of the week").patches[0].get_data().values
    assert week.tolist() == table["sold"].dt.day_of_week.value_counts().sort_index().tolist()
    of = Regression.of(price, np.zeros(200), np.ones(200))
    steps = plots.target_histogram(of).patches[0].get_data()
    np.testing.assert_array_equal(steps.values, np.histogram(price, steps.edges)[0])


def test_residuals_of_a_category_have_a_mean_for_each_value(model):
    table, price = homes(200)
    ax = plots.residuals(model, table, price, column="kind")
    means = next(line for line in ax.lines if line.get_color() == "C2")
    left = (price - model.predict(table)).groupby(table["kind"].fillna("missing")).mean()
    np.testing.assert_allclose(means.get_ydata(), left[[*KINDS, "missing"]])


def test_a_trend_by_value_is_found_and_chance_is_none():
    rng = np.random.default_rng(0)
    code, noise = rng.integers(0, 300, 3000).astype(float), rng.normal(size=3000)
    parts = Values("a", "a", (0,), names=tuple(map(str, range(300))), coded=True).parts(code)
    assert words.trend_left(parts, noise) == 0
    assert words.trend_left(parts, noise + rng.normal(size=300)[code.astype(int)]) == pytest.approx(0.5, abs=0.06)


def test_an_identifier_draws_its_most_frequent_levels(model):
    table, price = homes(200)
    often = table["agent"].value_counts()
    ax = plots.slice_plot(model, table, column="agent")
    shown = [text.get_text() for text in ax.get_xticklabels()]
    assert len(shown) == 12 and often[shown].min() >= often.iloc[12]
    assert len(plots.residuals(model, table, price, column="agent").get_xticks()) == 12


def test_the_axis_of_dates_has_few_ticks_for_any_span(model):
    view = view_of(model, "sold")
    for days in (0.02, 1, 40, 500, 1080, 4000, 40_000):
        x = 18_000 + np.linspace(0, days, 50)

        def line(ax, x=x):
            ax.plot(x, x)
            view.label(ax, x)

        _, ax = draw("dates", "dates", line)  # warnings are errors
        assert 1 <= len(ax.get_xticks()) <= 9


def test_a_report_speaks_of_columns(model, tmp_path):
    page = read(model.report(*homes(120, seed=1), tmp_path / "report.html"))
    inputs = page.table("Inputs")
    assert list(inputs) == ["size", "kind", "state", "sold", "garden", "income", "agent"]
    assert re.fullmatch(r"\d+ missing", inputs["size"][-1])
    assert re.fullmatch(r"4 values, most often flat \([\d.]+.%\)", inputs["kind"][-1])
    assert re.fullmatch(r"2020-\d\d-\d\d", inputs["sold"][0])
    assert page.says("120 rows of 7 inputs")
    headings = re.findall(r"Slice along ([\w: ]+?)The prediction", page.text.replace("\n", ""))
    assert not any("=" in title or "sine" in title or "is missing" in title for title in headings)
    assert not page.says(r"kind=|cosine of")
    assert page.says(r"Missing in [\d.]+ % of the rows") and page.says(r"Where it is missing it is")


def test_a_report_of_classes_speaks_of_columns(tmp_path):
    table, price = homes(150)
    table = table[["size", "kind"]]
    labels = np.where(price > price.median(), "dear", "cheap")
    model = QSGPClassifier(kernel="rbf", random_state=0).fit(table[:80], labels[:80])
    page = read(model.report(table[80:], labels[80:], tmp_path / "report.html"))
    assert list(page.table("Inputs")) == ["size", "kind"] and not page.says("kind=")
    ax = plots.slice_plot(model, table, column="kind")
    assert all(0 <= y <= 1 for y in ax.lines[0].get_ydata()) and ax.get_ylabel() == "probability of dear"
