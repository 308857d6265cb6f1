"""matplotlib axes as inline SVG whose colours are those of the page, so that one picture serves light and dark."""

import io
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import AutoLocator, MaxNLocator

# Colours that nothing else uses stand for variables of the style sheet until the SVG is written.
_INK, _FRAME = "#010203", "#010204"
_SERIES = [f"#01030{k}" for k in range(10)]
_VARIABLES = {_INK: "var(--ink)", _FRAME: "var(--frame)"} | {c: f"var(--c{k})" for k, c in enumerate(_SERIES)}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "qsgp",
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "xtick.color": _FRAME,
    "ytick.color": _FRAME,
    "axes.edgecolor": _FRAME,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.prop_cycle": cycler(color=_SERIES),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
}
SIZE = (3.7, 2.8)  # inches, 266 points: 9-point letters are 11 pixels high on a phone 375 pixels wide


def draw(key: str, alt: str, picture: Callable[[Axes], Any], size: tuple[float, float] = SIZE) -> tuple[str, Axes]:
    """The SVG of what ``picture`` draws, with ``alt`` for those who do not see it, and the axes for what they say.

    ``key`` makes the ids of one page differ.
    """
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # letters that the drawing font lacks are drawn by the browser's
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        # series named C0, C1, ... are looked up when drawn: all of it happens inside the context
        figure = Figure(figsize=size, layout="constrained")
        ax = figure.add_subplot()
        picture(ax)
        _fix_ticks(ax)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), key, alt), ax


def _fix_ticks(ax: Axes) -> None:
    """Ticks that do not follow the size: the layout makes room for those it sees, and others would be cut off."""
    for axis in (ax.xaxis, ax.yaxis):
        if isinstance(axis.get_major_locator(), AutoLocator):
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _inline(svg: str, key: str, alt: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    opening, _, body = svg.partition(">")
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    # inside tags alone: a column may be called like an attribute or a colour
    body = re.sub(r"<[^>]*>", lambda tag: _tag(tag[0], key), body)
    body = re.sub(r"\n\s*", "\n", body)
    return f'<svg {box[0]} role="img" aria-label="{escape(alt)}">{body}'


def _tag(tag: str, key: str) -> str:
    """Own ids, letters of the page, hundredths of a point (half the size), and the page's colours."""
    tag = re.sub(r'\bid="', f'id="{key}-', tag.replace("xlink:href", "href"))
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", tag)
    tag = re.sub(r' (?:d|x|y|transform|points)="[^"]*"', lambda part: re.sub(r"(\.\d\d)\d+", r"\1", part[0]), tag)
    tag = re.sub(r"font: [^;\"]*?([0-9.]+px) [^;\"]*", r"font-size: \1", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, variable)
    return tag
