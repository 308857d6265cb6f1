"""HTML from plain values: every text that may come from data passes through `escape`."""

import math
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Any

from qsgp.files import versions

_CSS = resources.files("qsgp.report").joinpath("style.css").read_text("utf-8")
_SHOWN_ROWS = 15  # longer tables are folded away


@dataclass(frozen=True)
class Section:
    """One heading of the page; ``body`` is HTML."""

    key: str
    title: str
    body: list[str] = field(default_factory=list)


def page(title: str, sections: list[Section]) -> str:
    links = "".join(f'<li><a href="#{s.key}">{escape(s.title)}</a></li>' for s in sections)
    body = "".join(
        f'<section aria-labelledby="{s.key}"><h2 id="{s.key}">{escape(s.title)}</h2>{"".join(s.body)}</section>'
        for s in sections
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # nothing is fetched, whatever a column is called; the empty icon keeps browsers from asking for one
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:"><meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head><body>"
        '<a class="skip" href="#content">Skip to the content</a>'
        f'<header><h1>{escape(title)}</h1></header><nav aria-label="Contents"><ul>{links}</ul></nav>'
        f'<main id="content" tabindex="-1">{body}</main>'
        f"<footer><p>Written by qsgp {escape(versions()['qsgp'])}.</p></footer></body></html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f"<p{mark}>{_told(text)}</p>"


def bullets(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_told(line)}</li>" for line in lines) + "</ul>"


def figure(title: str, svg: str, says: str, how: str = "") -> str:
    """``svg`` is HTML already; ``says`` is what this picture shows, ``how`` how to read any of its kind."""
    told = paragraph(says, "says") + (paragraph(how, "how") if how else "")
    return f"<figure><h3>{escape(title)}</h3>{svg}<figcaption>{told}</figcaption></figure>"


def gallery(figures: list[str], kind: str = "") -> str:
    """Side by side as far as the window allows; ``pairs`` at most two."""
    return f'<div class="gallery {kind}">{"".join(figures)}</div>'


def table(caption: str, head: list[str], rows: list[list[Any]], *, fold: bool = True) -> str:
    """Wide tables scroll by themselves, also by keyboard; long ones are folded. Numbers keep all their digits."""
    top = "".join(map(_heading, head, ["", *rows[0][1:]] if rows else head))
    body = "".join(f"<tr>{_first(row[0])}{''.join(map(_cell, row[1:]))}</tr>" for row in rows)
    html = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    if not fold or len(rows) <= _SHOWN_ROWS:
        return html
    return f"<details><summary>{escape(caption)}</summary>{html}</details>"


def _heading(name: str, below: Any) -> str:
    """Over numbers to the right, as they stand."""
    kind = ' class="number"' if _is_number(below) else ""
    return f'<th scope="col"{kind}>{escape(name)}</th>'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _first(value: Any) -> str:
    """A name, or a name and what it means."""
    name, meaning = value if isinstance(value, tuple) else (value, "")
    note = f"<small>{_told(meaning)}</small>" if meaning else ""
    return f'<th scope="row">{escape(_text(name))}{note}</th>'


def _told(text: str) -> str:
    """Escaped, and numbers kept beside their unit."""
    return escape(text).replace(" %", "\u00a0%")


def _cell(value: Any) -> str:
    if _is_number(value):
        return f'<td class="number"><data value="{value}">{number(value)}</data></td>'
    return f"<td>{escape(_text(value))}</td>"


def _text(value: Any) -> str:
    text = number(value) if _is_number(value) else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def number(value: int | float) -> str:
    """Four digits, thousands apart, and a dash for what is not known."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        shown = f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0}f}"
    else:
        shown = f"{value:.3e}"
    return shown.replace("-", "\u2212")


def percent(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"
