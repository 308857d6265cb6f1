"""The report in a real browser: Chromium, at the widths of a phone and of a desk, in light and in dark.

Run by `make test-browser`. Screenshots go to the folder named by QSGP_SCREENSHOTS, if it is set.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import qsgp

pytestmark = pytest.mark.browser
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
VIEWS = [(width, scheme) for width in (375, 1400) for scheme in ("light", "dark")]


def numbers(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 14)) * ([1e-3, 1e5] + 12 * [1.0])
    names = ["a rather long name of a column", "<script>alert(1)</script>", "$x$", *(f"input {j}" for j in range(11))]
    return pd.DataFrame(X, columns=names), pd.Series(np.sin(1e3 * X[:, 0]) + X[:, 1] / 2e5, name="a < b & c")


def labels(n, seed, names):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.array(names)[(X[:, 0] + 0.5 * rng.normal(size=n) > np.linspace(-1, 1, len(names) - 1)[:, None]).sum(0)]


def write_regressor(path):
    model = qsgp.QSGPRegressor(kernel="rbf", random_state=0).fit(*numbers(200, 0))
    # curves with long and negative numbers, whatever this fit has recorded
    model.history_ = [
        {"iteration": k, "seconds": 0.1 * k, "objective": -1e6 - 1e5 / k, "rmse": 1 / k} for k in (1, 2, 3)
    ]
    return model.report(*numbers(1800, 1), path)


def write_two_classes(path):
    names = ["an unexpectedly long name of a class", "no"]
    model = qsgp.QSGPClassifier(kernel="rbf", random_state=0).fit(*labels(120, 0, names))
    return model.report(*labels(300, 1, names), path)


def write_ten_classes(path):
    names = [f"class {k}" for k in range(10)]
    model = qsgp.QSGPClassifier(kernel="rbf", random_state=0).fit(*labels(200, 0, names))
    return model.report(*labels(300, 1, names), path)


def write_table(path):
    """Categories, dates, long tails, identifiers and gaps."""
    rng, n = np.random.default_rng(0), 400
    table = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(100, 30, n)),
            "a rather long name of a column": rng.choice(["flat", "a rather long kind of home", "$villa$", None], n),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, n), unit="D"),
            "garden": rng.random(n) < 0.3,
            "income": np.exp(2.5 * rng.normal(size=n)),
            "agent": [f"agent {k % 60}" for k in range(n)],
        }
    )
    price = pd.Series(np.log(table["income"]) + 0.1 * rng.normal(size=n), name="price")
    model = qsgp.QSGPRegressor(kernel="rbf", learn_hyperparameters=False, random_state=0).fit(table[:200], price[:200])
    return model.report(table[200:], price[200:], path)


REPORTS = {
    "regressor": write_regressor,
    "two_classes": write_two_classes,
    "ten_classes": write_ten_classes,
    "table": write_table,
}


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'qsgp[browser]'")
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the path: apt-get install chromium")
    with sync_api.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)  # with an empty folder for user data
        yield running
        running.close()


@pytest.fixture(scope="module", params=list(REPORTS))
def report(request, browser, tmp_path_factory) -> Path:
    return REPORTS[request.param](tmp_path_factory.mktemp("report") / f"{request.param}.html")


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def page(request, browser, report):
    """The report opened; requests and complaints of the browser lie in ``page.seen``."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.seen = []
    page.on("request", lambda asked: page.seen.append(asked.url))
    page.on("console", lambda message: page.seen.append(message.text))
    page.on("pageerror", lambda error: page.seen.append(str(error)))
    page.on("dialog", lambda dialog: (page.seen.append(dialog.message), dialog.dismiss()))
    # whatever is asked beyond the page itself is cut off, and noted above
    page.route("**/*", lambda route: route.continue_() if route.request.url == report.as_uri() else route.abort())
    page.goto(report.as_uri())
    yield page
    context.close()


def test_the_page_asks_for_nothing_and_complains_of_nothing(page, report):
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_timeout(200)
    assert [seen for seen in page.seen if not seen.startswith("data:")] == [report.as_uri()]
    if folder := os.environ.get("QSGP_SCREENSHOTS"):
        dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        name = f"{report.stem}_{page.viewport_size['width']}_{'dark' if dark else 'light'}.png"
        page.screenshot(path=str(Path(folder) / name), full_page=True)


def test_every_figure_is_visible_and_nothing_scrolls_sideways(page):
    found = page.evaluate(
        """() => [...document.querySelectorAll('figure, figure svg, table, h1, h2, h3')].map(e => {
            const b = e.getBoundingClientRect();
            const framed = e.closest('.scroll') !== null;   // tables scroll in a frame of their own
            const folded = e.closest('details') !== null;
            return {tag: e.tagName, left: b.left, right: b.right, w: b.width, h: b.height, framed, folded};
        })"""
    )
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert sum(e["tag"] == "svg" for e in found) >= 7
    for e in found:
        if e["folded"]:
            continue
        assert e["w"] > 20 and e["h"] > 10
        assert e["left"] >= 0 and (e["framed"] or e["right"] <= width + 0.5), e


def test_letters_are_neither_cut_off_nor_crowded_nor_too_small(page):
    """Labels lie inside their picture, with one pixel for rounding, and can be read on a phone."""
    outside = page.evaluate(
        """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('text')].filter(t => {
                const b = t.getBoundingClientRect();
                return b.left < frame.left - 1 || b.right > frame.right + 1
                    || b.top < frame.top - 1 || b.bottom > frame.bottom + 1;
            }).map(t => svg.getAttribute('aria-label').slice(0, 40) + ': ' + t.textContent);
        })"""
    )
    assert outside == []
    crowded = page.evaluate(
        """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
            const labels = [...svg.querySelectorAll("[id*='-xtick'] text")]
                .filter(t => !/rotate\\(-?[1-9]/.test(t.outerHTML))  // of names at an angle only the boxes overlap
                .map(t => t.getBoundingClientRect());
            return labels.slice(1).filter((b, k) => b.left < labels[k].right + 2)
                .map(() => svg.getAttribute('aria-label').slice(0, 40));
        })"""
    )
    assert crowded == []
    heights = page.evaluate(
        """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
            const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return [...svg.querySelectorAll('text')].map(t => parseFloat(getComputedStyle(t).fontSize) * scale);
        })"""
    )
    assert len(heights) > 50 and min(heights) > 8


# WCAG 2: relative luminance, and the contrast of two colours; 4.5 is asked of text, 3 of lines that carry meaning
CONTRAST = """(selector) => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgb = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = c => { const [r, g, b] = c.map(v => { v /= 255;
        return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126*r + 0.7152*g + 0.0722*b; };
    const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
        if (c[3] === 255) return c.slice(0, 3); } return [255, 255, 255]; };
    return [...document.querySelectorAll(selector)].map(e => {
        const style = getComputedStyle(e);
        const paint = {path: style.stroke, text: style.fill}[e.tagName] ?? style.color;
        const [a, b] = [light(rgb(paint).slice(0, 3)), light(ground(e))].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
    });
}"""


def test_text_and_lines_stand_out_from_their_ground(page):
    text = page.evaluate(CONTRAST, "svg text, p, li, th, td, caption, h1, h2, h3, a, summary, small")
    assert len(text) > 100 and min(text) >= 4.5
    lines = page.evaluate(CONTRAST, "svg [id*='-line2d'] path[style*='stroke']")
    assert len(lines) > 20 and min(lines) >= 3


def test_the_scheme_changes_the_ground(page):
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    lightness = sum(map(int, ground[4:-1].split(","))) / 3
    assert lightness < 60 if dark else lightness > 220


def test_the_keyboard_reaches_everything(page):
    """Tab visits every link, fold and table in order, and each shows that it has the focus."""
    wanted = page.evaluate(
        """() => { window.all = [...document.querySelectorAll('a, summary, [tabindex="0"]')]
            .filter(e => e.checkVisibility()); return window.all.length; }"""
    )
    visited = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        at = page.evaluate("window.all.indexOf(document.activeElement)")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
        visited.append(at)
    assert visited == list(range(wanted))


def test_the_skip_link_comes_first_and_folds_open_by_keyboard(page):
    page.keyboard.press("Tab")
    box = page.evaluate(
        "(e => { const b = e.getBoundingClientRect(); return [b.left, b.top]; })(document.activeElement)"
    )
    assert min(box) >= 0 and page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    fold = page.locator("details").first
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    assert fold.evaluate("e => e.open") and fold.locator("table").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_print_shows_all_on_white(page):
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("details table").first.is_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
