"""The report: its numbers against another route, its text safe, its page whole, for every model and odd data."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")

import sklearn.metrics
from scipy.stats import norm
from scipy.stats import t as student

import qsgp
from golden.make import FOLDER
from qsgp import plots
from qsgp.evaluation import Classification, Regression
from qsgp.plots.views import View
from qsgp.report import words, write_report
from qsgp.report.figures import draw
from qsgp.report.page import number

VOID = {"meta", "link", "br", "hr", "img", "input", "path", "use", "rect", "circle", "line"}


class Page(HTMLParser):
    """Tags, ids, table rows and text of a page; complains when tags do not nest."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.ids, self.tables, self.text = [], [], [], {}, ""
        self._row, self._caption, self._in = [], "", None
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag in ("tr", "caption"):
            self._row = []
        if tag in ("th", "td", "caption"):
            self._in = tag
            self._row.append("")
        if tag == "data":
            self._row[-1] = float(attributes["value"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag
        if tag == "caption":
            self._caption = self._row[-1]
            self.tables[self._caption] = []
        elif tag == "tr":
            self.tables[self._caption].append(self._row)
        if tag in ("th", "td", "caption", "small"):
            self._in = None

    def handle_data(self, data):
        self.text += data
        if self._in and not self.open[-1:] == ["small"] and isinstance(self._row[-1], str):
            self._row[-1] += data

    def table(self, start):
        (found,) = [rows for caption, rows in self.tables.items() if caption.startswith(start)]
        return {row[0]: row[1:] for row in found[1:]}

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)

    def says(self, pattern):
        return re.search(pattern, self.text.replace("\u00a0", " "))


def numbers(n, d=3, seed=0, outputs=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = np.stack([np.sin(2 * X[:, 0]) + k * X[:, -1] for k in range(max(outputs, 1))], 1)
    Y = Y + 0.2 * rng.normal(size=Y.shape)
    return X, Y if outputs else Y[:, 0]


def labels(n, classes, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > np.linspace(-1, 1, classes - 1)[:, None]).sum(0)


def read(path):
    html = Path(path).read_text("utf-8")
    check_whole(html)
    return Page(html)


def check_whole(html):
    """What holds for every page: self-contained, small, ids once, figures and tables named."""
    assert len(html) < 2_000_000
    assert "http://" not in html and "https://" not in html and "@import" not in html
    assert not re.search(r"<script|<iframe|<object|<embed", html)
    page = Page(html)
    assert len(set(page.ids)) == len(page.ids)
    for tag, attributes in page.tags:
        for name in ("href", "src", "xlink:href", "action", "srcset"):
            if name in attributes:
                target = attributes[name]
                assert target == "data:," or target[0] == "#" and target[1:] in page.ids, (tag, target)
        for reference in re.findall(r"url\(([^)]*)\)", " ".join(str(value) for value in attributes.values())):
            assert reference[1:] in page.ids
        assert not any(name.startswith("on") for name in attributes)
        if tag == "svg":
            assert attributes["role"] == "img" and attributes["aria-label"]
    assert page.count("figure") == page.count("figcaption") == page.count("svg") > 0
    assert page.count("table") == page.count("caption") == len(page.tables)
    # colours come from the page, so that they can be seen in the dark: black would not be
    styles = " ".join(attributes.get("style", "") for _, attributes in page.tags)
    assert "var(--ink)" in styles and not re.search(r"#0103|#0102|#000000", styles)
    assert not re.search(r"\b(nan|inf)\b", page.text)


@pytest.fixture(scope="module")
def regressor():
    return qsgp.QSGPRegressor(kernel="rbf", random_state=0).fit(*numbers(150))


def test_the_scores_of_a_regressor_are_those_of_another_route(regressor, tmp_path):
    X, y = numbers(400, seed=1)
    path = regressor.report(X, y, tmp_path / "report.html")
    page = read(path)
    mean, deviation = regressor.predict(X, return_std=True)
    scores = page.table("Scores of 400 rows")
    lower, upper = regressor.predict_interval(X, 0.95)
    z = (y - mean) / deviation
    crps = (deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))).mean()
    assert scores["RMSE"][0] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert scores["MNLP"][0] == pytest.approx(-regressor.log_density(X, y).mean(), rel=1e-6)
    assert scores["CRPS"][0] == pytest.approx(crps, rel=1e-6)
    assert scores["coverage"][0] == pytest.approx(np.mean((lower <= y) & (y <= upper)))
    assert scores["RMSE"][-1] == pytest.approx(y.std())
    assert scores["MNLP"][-1] == pytest.approx(-norm.logpdf(y, y.mean(), y.std()).mean())
    assert page.table("Target")["y"] == pytest.approx([y.min(), np.median(y), y.max(), y.std()])
    inputs = page.table("Inputs")
    assert inputs["x1"][:4] == pytest.approx([X[:, 1].min(), np.median(X[:, 1]), X[:, 1].max(), X[:, 1].std()])
    assert page.says(r"closed form on 150 training rows")
    explained = 100 * (1 - np.mean((y - mean) ** 2) / y.var())
    assert page.says(rf"explain {explained:.1f} % of the variance")


def test_the_surprises_are_the_rows_of_least_density(regressor, tmp_path):
    X, y = numbers(200, seed=2)
    y[123] = 40.0
    page = read(regressor.report(X, y, tmp_path / "report.html"))
    table = page.table("Rows with the largest surprise")
    expected = np.argsort(regressor.log_density(X, y))[:10]
    assert [int(row) for row in table] == expected.tolist()
    assert table["123"][0] == 40 and table["123"][4] == pytest.approx(-regressor.log_density(X, y).min(), rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_scores_of_a_classifier_are_those_of_scikit_learn(classes, tmp_path):
    model = qsgp.QSGPClassifier(kernel="rbf", random_state=0).fit(*labels(120, classes))
    X, y = labels(300, classes, seed=1)
    page = read(model.report(X, y, tmp_path / "report.html"))
    scores, p = page.table("Scores of 300 rows"), model.predict_proba(X)
    area = sklearn.metrics.roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr")
    assert scores["accuracy"][0] == pytest.approx(sklearn.metrics.accuracy_score(y, model.predict(X)))
    assert scores["log loss"][0] == pytest.approx(sklearn.metrics.log_loss(y, p))
    assert scores["ROC AUC"][0] == pytest.approx(area)
    share = np.bincount(y) / len(y)
    assert scores["accuracy"][-1] == pytest.approx(share.max())
    assert scores["log loss"][-1] == pytest.approx(-(share * np.log(share)).sum())
    assert [row[0] for row in page.table("Classes of y").values()] == np.bincount(y).tolist()
    assert page.says("Reliability diagram") and page.says("Confusion matrix") and page.says("ROC curve")
    assert not page.says("Residuals|PIT")


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.qsgp")))
def test_every_kind_of_model_from_a_file_has_a_report(name, tmp_path):
    model = qsgp.load(FOLDER / name)
    rng = np.random.default_rng(0)
    X = model._scaling.x_mean + model._scaling.x_scale * rng.normal(size=(60, model.n_features_in_))
    X = pd.DataFrame(X, columns=model.feature_names_in_) if hasattr(model, "feature_names_in_") else X
    y = rng.permutation(model.predict(X))
    page = read(model.report(X, y, tmp_path / "report.html"))
    assert page.says(f"The model: {type(model).__name__}")
    assert page.says(r"Posterior: (exact, solved|the (exact )?mean|weights of|\d+ kernel functions)")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["QSRVMRegressor", "QSRVMClassifier"])
def test_a_relevance_vector_machine_shows_its_training(kind, tmp_path):
    X, y = numbers(150) if kind.endswith("Regressor") else labels(150, 2)
    model = getattr(qsgp, kind)(kernel="rbf", n_features=40, max_iter=60, random_state=0).fit(X, y)
    page = read(model.report(X, y, tmp_path / "report.html"))
    assert page.says(rf"{len(model.relevance_)} kernel functions at training rows are left")
    assert page.says(rf"{model.n_iter_} iterations; the last record was made after [\d.]+ seconds")
    assert any(attributes.get("aria-label", "").endswith("over the time of training") for _, attributes in page.tags)


def test_headings_stand_over_their_numbers(regressor, tmp_path):
    html = Path(regressor.report(*numbers(60, seed=1), tmp_path / "report.html")).read_text()
    for name in ("model", "constant", "median", "surprise"):
        assert f'<th scope="col" class="number">{name}</th>' in html
    assert '<th scope="col">score</th>' in html and '<th scope="col">row</th>' in html


def test_a_single_record_of_training_is_told_and_not_drawn(tmp_path):
    model = qsgp.QSGPRegressor(kernel="rbf", random_state=0).fit(*numbers(60))
    model.history_ = [{"iteration": 1, "seconds": 2.0, "rmse": 0.25}]
    page = read(model.report(*numbers(60, seed=1), tmp_path / "report.html"))
    assert page.says("One record: rmse 0.2500") and not page.says("level at the end")
    assert not any(attributes.get("aria-label", "").endswith("time of training") for _, attributes in page.tags)


@pytest.mark.parametrize("largest", [1.93, 0.97, 4.9])
def test_no_letter_of_a_picture_with_long_names_is_cut_off(largest):
    """Names take half of the width: ticks chosen for the width before would not fit the one after."""

    def bars(ax):
        ax.barh(range(4), [largest, 0.1, 0.1, 0.1])
        ax.set_yticks(range(4), ["a rather long name of it"] * 4)

    ax = draw("bars", "bars", bars, (3.7, 1.64))[1]
    first = ax.get_position().x1
    ax.figure.draw_without_rendering()  # what the layout would do with the ticks that were drawn
    assert ax.get_position().x1 == pytest.approx(first, abs=0.008)


def test_several_outputs_have_scores_each_and_pictures_of_one(tmp_path):
    model = qsgp.QSGPRegressor(kernel="rbf", random_state=0).fit(*numbers(100, outputs=2))
    X, Y = numbers(80, outputs=2, seed=1)
    frame = pd.DataFrame(Y, columns=["height", "width"])
    page = read(model.report(X, frame, tmp_path / "report.html", output=1))
    scores = page.table("Scores")
    error = np.sqrt(np.mean((Y - model.predict(X)) ** 2, 0))
    assert [scores[f"RMSE of {name}"][0] for name in frame.columns] == pytest.approx(error.tolist())
    assert page.says("width: report of a QSGPRegressor") and page.says("Pictures are those of width")
    with pytest.raises(ValueError, match="output < 2"):
        model.report(X, Y, tmp_path / "other.html", output=2)
    assert not (tmp_path / "other.html").exists()


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "$\\frac{a}$ & <b>",
    'id="x" #010203',
    "a\n\tb\x00日本",
]


def test_strings_from_the_data_are_escaped(tmp_path):
    X, y = numbers(60, d=5)
    table = pd.DataFrame(X, columns=HOSTILE)
    model = qsgp.QSGPRegressor(kernel="rbf", random_state=0).fit(table, y)
    path = model.report(table, pd.Series(y, name="</title><script>x()</script>"), tmp_path / "report.html")
    page = read(path)
    assert page.count("script") == page.count("img") == page.count("b") == 0
    assert set(HOSTILE[:4]) < set(page.table("Inputs"))
    assert page.text.count(HOSTILE[3]) > 3  # in pictures too
    names = np.array(["</svg><script>", "<i>ok</i>"])
    X, codes = labels(60, 2)
    classifier = qsgp.QSGPClassifier(kernel="rbf", random_state=0).fit(X, names[codes])
    page = read(classifier.report(X, names[codes], tmp_path / "classes.html"))
    assert page.count("script") == page.count("i") == 0
    assert "<i>ok</i>" in page.table("Classes of y")


@pytest.mark.parametrize(
    ("rows", "d", "constant"), [(10, 1, False), (10, 3, False), (1, 2, False), (40, 200, False), (30, 2, True)]
)
def test_odd_tables_have_a_report(rows, d, constant, tmp_path):
    X, y = numbers(40, d=d)
    X[:, 0] = 5.0 if d == 3 else X[:, 0]
    y = np.full_like(y, 3.0) if constant else y
    model = qsgp.QSGPRegressor(kernel="rbf", random_state=0).fit(X, y)
    page = read(model.report(X[:rows], y[:rows], tmp_path / "report.html"))
    assert page.says(rf"{rows} rows of {d} input")
    if d == 3:
        assert page.says("Constant over these rows: x0") and page.table("Inputs")["x0"][-1] == "constant"
    if d == 200:
        assert page.says("The 12 most relevant of 200 inputs") and page.count("details") == 2
    if constant:
        assert page.says("The target is constant")


def test_ten_classes_and_rows_of_one_class_have_a_report(tmp_path):
    X, y = labels(150, 10)
    model = qsgp.QSGPClassifier(kernel="rbf", random_state=0).fit(X, y)
    page = read(model.report(X, y, tmp_path / "report.html"))
    assert len(page.table("Classes of y")) == 10
    page = read(model.report(X[y == 3], y[y == 3], tmp_path / "one.html"))
    assert np.isnan(page.table("Scores")["ROC AUC"][0]) and page.says("The rows hold one class only")
    with pytest.raises(ValueError, match="Expected labels among"):
        model.report(X, y + 1, tmp_path / "unknown.html")


def test_a_recalibrated_model_has_a_report_also_from_few_rows(tmp_path):
    model = qsgp.QSGPRegressor(kernel="rbf", random_state=0).fit(*numbers(100))
    model.calibrate(*numbers(10, seed=1))  # too few for 95 %
    page = read(model.report(*numbers(200, seed=2), tmp_path / "report.html"))
    assert page.says("Predictions were recalibrated")


def test_a_page_of_many_rows_stays_small(regressor, tmp_path):
    X, y = numbers(20_000, seed=3)
    path = regressor.report(X, y, tmp_path / "report.html")
    assert read(path).says("1,500 of 20,000 rows are drawn")
    assert path.stat().st_size < 700_000


def test_the_page_is_the_same_each_time(regressor, tmp_path):
    X, y = numbers(100, seed=1)
    pages = [regressor.report(X, y, tmp_path / f"{k}.html").read_text("utf-8") for k in range(2)]
    assert pages[0] == pages[1]


def test_an_older_page_stays_when_writing_fails(regressor, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    X, y = numbers(30, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            regressor.report(X, y, path)
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="Make the folder"):
        regressor.report(X, y, tmp_path / "nowhere" / "report.html")
    with pytest.raises(ValueError, match="Check y"):
        regressor.report(X, y[:-1], path)


def test_rows_may_come_from_a_file_and_the_target_by_name(regressor, tmp_path):
    X, y = numbers(50, seed=1)
    np.savez(tmp_path / "rows.npz", X=X)
    page = read(write_report(regressor, tmp_path / "rows.npz", y, tmp_path / "report.html", target="load in kN"))
    assert page.says("load in kN: report of a QSGPRegressor") and page.says("50 rows of 3 inputs")


def normal_errors(n, scale=1.0, shift=0.0):
    """Targets whose errors have ``scale`` times the predicted deviation, as even as they can be."""
    z = norm.ppf((np.arange(n) + 0.5) / n)
    return Regression.of(scale * z + shift, np.zeros(n), np.ones(n))


@pytest.mark.parametrize(
    ("scale", "shift", "coverage", "pit"),
    [
        (1.0, 0.0, "keep their word: 95 % intervals hold 95.0 %", "Flat within chance"),
        (1.5, 0.0, "too narrow: 95 % intervals hold 80.9 %", "full ends: the laws are too narrow"),
        (0.5, 0.0, "too wide: 95 % intervals hold 100.0 %", "mpty ends: the laws are too wide"),
        (1.0, 1.0, "too narrow: 95 % intervals hold 83.0 %", "too low on the whole"),
        (1.0, -1.0, "too narrow: 95 % intervals hold 83.0 %", "too high on the whole"),
    ],
)
def test_the_sentences_follow_from_the_numbers(scale, shift, coverage, pit):
    found = normal_errors(2000, scale, shift)
    said = words.coverage(found).replace("\u00a0", " ")
    assert coverage in said and ("model.calibrate" in said) == (scale != 1 or shift != 0)
    assert pit.lower() in words.pit(found).lower()
    assert "model.calibrate" not in words.coverage(found, 500)


def test_a_law_of_the_wrong_shape_is_told():
    """Errors of a t law with 3 degrees, scaled so that 95 % intervals are right: narrower ones hold too many."""
    z = student.ppf((np.arange(2000) + 0.5) / 2000, 3) * norm.ppf(0.975) / student.ppf(0.975, 3)
    said = words.coverage(Regression.of(z, np.zeros(2000), np.ones(2000)))
    assert "the 50 % ones are too wide" in said and "heavier tails" in said


def test_few_rows_accuse_nobody():
    assert "keep their word" in words.coverage(normal_errors(10, 1.3))
    assert "Flat" in words.pit(normal_errors(10, 1.3))


def test_a_trend_in_the_residuals_is_told():
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=2000), rng.normal(size=2000)
    parts = View("a", "a", (0,)).parts(x)
    assert words.trend_left(parts, noise) == 0
    # a line of slope s explains s^2 / (s^2 + 1) of the variance
    assert words.trend_left(parts, x + noise) == pytest.approx(0.5, abs=0.06)
    assert "along a (50.0" in words.trends({"a": 0.5, "b": 0.0})
    assert "no input alone" in words.trends({"b": 0.01})


def test_overconfident_groups_are_told():
    n = 1000
    deviation = np.repeat([0.5, 1.0], n // 2)
    z = np.tile(np.random.default_rng(0).permutation(norm.ppf((np.arange(n // 2) + 0.5) / (n // 2))), 2)
    level = Regression.of(z * deviation, np.zeros(n), deviation)
    assert "No group is below" in words.deciles(level)
    wrong = Regression.of(z, np.zeros(n), deviation)  # the sure half is not as sure as it says
    assert re.search(r"Group [1-5] is overconfident", words.deciles(wrong))


@pytest.mark.parametrize(("p", "expected"), [(0.9, "keep their word"), (0.99, "too bold"), (0.7, "too timid")])
def test_probabilities_are_judged_by_how_often_they_were_right(p, expected):
    label = (np.arange(1000) % 10 > 0).astype(np.int64)  # 90 % ones
    found = Classification(label, np.tile([1 - p, p], (1000, 1)), np.array([0, 1]))
    assert expected in words.reliability(found)
    assert "takes 0 for 1 (100 rows)" in words.confusion(found)


def test_numbers_are_short():
    assert [number(v) for v in (0.0, 12, 1234567, 0.12345678, 1234.5678, -2.5)] == [
        "0",
        "12",
        "1,234,567",
        "0.1235",
        "1,235",
        "\u22122.500",
    ]
    assert number(1.5e-9) == "1.500e\u22129" or number(1.5e-9) == "1.500e\u221209"
    assert number(float("nan")) == "–"


# --- words that must not say more than the numbers ------------------------------------------------------------------


def from_pit(pit):
    """Targets that fell at these places of their predicted laws."""
    return Regression.of(norm.ppf(pit), np.zeros(len(pit)), np.ones(len(pit)))


def test_a_bar_that_leaves_the_band_is_not_called_chance():
    """One bar of twenty higher by 3.8 deviations, its neighbour lower: mean and ends are as they should be."""
    n, bins = 8000, 20
    counts = np.full(bins, n // bins)
    extra = round(3.8 * np.sqrt(n / bins * (1 - 1 / bins)))
    counts[9] += extra
    counts[10] -= extra
    pit = np.concatenate([(k + (np.arange(c) + 0.5) / c) / bins for k, c in enumerate(counts)])
    said = words.pit(from_pit(pit))
    assert "Flat" not in said and "2 of 20 bars leave the band" in said


@pytest.mark.parametrize("n", [30, 300, 5000])
def test_calibrated_models_are_flat_and_their_bars_inside_the_drawn_band(n):
    """In 99 of 100 pictures; and the words say what the band shows."""
    rng = np.random.default_rng(n)
    outside = 0
    for _ in range(300):
        found = from_pit(rng.uniform(size=n))
        bars = found.pit_bars()
        outside += bool(bars.outside.any())
        assert bars.count.sum() == n and (not bars.outside.any() or "Flat" not in words.pit(found))
    assert outside <= 9, "3 are expected"
    patches = plots.pit_histogram(found).patches
    low, high = patches[0].get_y(), patches[0].get_y() + patches[0].get_height()
    heights = np.array([bar.get_height() for bar in patches[1:]])
    np.testing.assert_array_equal((heights < low - 1e-9) | (heights > high + 1e-9), bars.outside)


def test_intervals_keep_their_word_at_every_level_or_it_is_told():
    """50 % intervals that hold 54 % of 5,000 rows are 5.7 deviations off; the 95 % ones are right."""
    n = 5000
    central = np.concatenate([np.linspace(0, 0.5, 2700), np.linspace(0.501, 0.95, 2050), np.linspace(0.951, 1, 250)])
    said = words.coverage(from_pit((1 + central.clip(0, 0.9999)) / 2))
    assert "the 50 % ones are too wide" in said and "54.0" in said and n == len(central)


def test_a_small_error_beyond_chance_is_called_slight():
    inside = np.linspace(0, 1, 100_000) ** 1.02  # 95.1 % and 50.7 % for the two levels
    said = words.coverage(from_pit((1 + inside.clip(0, 0.9999)) / 2))
    assert "slightly too wide" in said and "intervals keep their word" not in said.replace("95 % intervals keep", "")


def test_recalibration_by_few_rows_has_a_chance_of_its_own():
    """Intervals by 40 scores hold 90 % of 2,000 rows in one of eight models: chance, though not for 2,000 scores."""
    n = 2000
    central = np.concatenate(
        [np.linspace(0, 0.48, n // 2), np.linspace(0.5, 0.95, 4 * n // 10), np.full(n // 10, 0.99)]
    )
    found = from_pit((1 + central) / 2)
    assert "keep their word" in words.coverage(found, 40)
    assert "too narrow" in words.coverage(found, 2000) and "too narrow" in words.coverage(found)


@pytest.mark.parametrize(("scale", "worse"), [(1.0, False), (0.05, True)])
def test_densities_worse_than_a_constants_are_told(scale, worse, tmp_path):
    """Noise of an unknown deviation: a model that believes in a twentieth of it is worse than no model."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 1)), rng.normal(size=200)
    model = qsgp.QSGPRegressor(kernel="rbf").fit(X, X[:, 0] + 0.1 * y)
    page = read(model.report(X, X[:, 0] + 0.1 * y / scale, tmp_path / "report.html"))
    assert bool(page.says("densities are worse than without a model")) == worse
    assert bool(page.says("mean and deviation of the training targets")) == worse


def test_probabilities_wrong_in_both_directions_are_told():
    """Right on average: half of the rows are given too much, half too little."""
    p = np.repeat([0.65, 0.95], 500)
    label = np.concatenate([np.arange(500) % 20 >= 1, np.arange(500) % 20 >= 7]).astype(np.int64)
    found = Classification(label, np.column_stack([1 - p, p]), np.array([0, 1]))
    assert "not everywhere" in words.reliability(found)


def loud_and_quiet(n, seed):
    """Noise of another size in each shop, which the inputs do not tell."""
    rng = np.random.default_rng(seed)
    X, shop = rng.normal(size=(n, 2)), rng.choice(["<b>loud</b>", "quiet"], n)
    return pd.DataFrame(X, columns=["a", "b"]).assign(shop=shop), np.sin(X[:, 0]) + np.where(
        shop == "quiet", 0.1, 1.0
    ) * rng.normal(size=n)


def test_each_group_has_its_errors_and_its_coverage(tmp_path):
    X, y = loud_and_quiet(200, 0)
    model = qsgp.QSGPRegressor(kernel="rbf", random_state=0, noise="equal", target_map="none").fit(X[["a", "b"]], y)
    X, y = loud_and_quiet(600, 1)
    page = read(model.report(X, y, tmp_path / "plain.html", groups="shop"))
    found, (low, high) = page.table("The model in each shop"), model.predict_interval(X)
    for shop, own in found.items():
        at = X["shop"].to_numpy() == shop
        held = np.mean((low <= y)[at] & (y <= high)[at])
        assert own[0] == at.sum() and own[1] == pytest.approx(np.sqrt(np.mean((model.predict(X) - y)[at] ** 2)))
        assert own[3] == f"{100 * held:.1f} %"
    assert found["<b>loud</b>"][4] == "too narrow" and found["quiet"][4] == "too wide"
    assert page.says("do not keep their word in 2 of 2 groups: <b>loud</b> .too narrow") and page.count("b") == 0
    assert page.says(r"Calibrate by groups on rows that were not used in fit")

    model.calibrate(*loud_and_quiet(900, 2), groups="shop")
    page = read(model.report(X, y, tmp_path / "calibrated.html", groups="shop"))
    assert page.says("No group shows by more than chance") and page.says("interval that calibrate has found for it")
    held = {shop: float(own[3].removesuffix(" %")) for shop, own in page.table("The model in each shop").items()}
    low, high = model.predict_interval(X, 0.95, groups="shop")
    inside = pd.Series((low <= y) & (y <= high)).groupby(X["shop"]).mean()
    assert held == pytest.approx((100 * inside).round(1).to_dict(), abs=0.6)
    other = read(model.report(X.assign(town="x"), y, tmp_path / "town.html", groups="town"))
    assert other.says("was calibrated by shop: intervals are here those of all rows")


def test_groups_of_a_classifier_have_accuracies(tmp_path):
    model = qsgp.QSGPClassifier(kernel="rbf", random_state=0).fit(*labels(120, 2))
    X, y = labels(400, 2, seed=1)
    groups = np.arange(400) % 2
    y = np.where(groups == 1, 1 - y, y)  # in the second all is the other way round
    page = read(model.report(X, y, tmp_path / "report.html", groups=groups))
    found = page.table("The model in each group")
    assert found["1"][2] == f"{100 * np.mean((model.predict(X) == y)[groups == 1]):.1f} %"
    assert found["1"][4] == "too bold" and page.says(
        r"probabilities do not keep their word in 1 of 2 groups: 1 \(too bold"
    )
    with pytest.raises(ValueError, match="one group for each of the 400 rows of X, got 399"):
        model.report(X, y, tmp_path / "wrong.html", groups=groups[:399])
