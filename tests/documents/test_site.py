"""The built documentation: every link and picture inside it leads somewhere. Built by `make docs`, else skipped."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
pytestmark = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="not built: run make docs")


class Page(HTMLParser):
    """Anchors of a page and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        if tag == "a" and (href := given.get("href")):
            self.links.append(href)
        if tag in ("img", "script") and (src := given.get("src")):
            self.loaded.append(src)
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload") and (href := given.get("href")):
            self.loaded.append(href)


def pages() -> dict[Path, Page]:
    return {path.resolve(): Page(path.read_text()) for path in SITE.rglob("*.html") if "_static" not in path.parts}


def broken(site: dict[Path, Page]) -> list[str]:
    """Links within the site to files or anchors that are not there."""
    found = []
    for path, page in site.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists():
                found.append(f"{path.name}: {link}")
            elif anchor and target in site and anchor not in site[target].anchors:
                found.append(f"{path.name}: {link}, no such anchor")
    return found


def test_links_within_the_site_lead_somewhere() -> None:
    site = pages()
    assert len(site) > 30
    assert sum(len(page.links) for page in site.values()) > 1000
    assert not broken(site)


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    there = (tmp_path / "there.html").resolve()
    text = '<h1 id="top">x</h1><a href="there.html#top"></a><a href="#gone"></a><img src="lost.png"><a href="a:b"></a>'
    there.write_text(text)
    assert broken({there: Page(text)}) == ["there.html: #gone, no such anchor", "there.html: lost.png"]


def test_pages_load_nothing_from_elsewhere() -> None:
    foreign = {src for page in pages().values() for src in page.loaded if urlsplit(src).netloc}
    assert not foreign, f"The site must be readable without a network, but loads {sorted(foreign)}."


def test_every_example_has_a_page_with_a_picture() -> None:
    scripts = [path.stem for path in (SITE.parent.parent.parent / "examples").rglob("plot_*.py")]
    built = {path.stem: page for path, page in pages().items()}
    without = [name for name in scripts if not any("sphx_glr" in src for src in built[name].loaded)]
    assert not without
