"""The documentation: `make docs` builds it, warnings being errors. Nothing here needs the network."""

import os
import re
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

project = "qsgp"
author = "The qsgp developers"
copyright = author
release = version = installed("qsgp")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "gallery/**/*.py", "gallery/**/*.ipynb", "gallery/**/*.md5", "gallery/**/*.json"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True  # as a list, like the parameters
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r".*")]  # annotations name types of torch, numpy and jaxtyping: they link nowhere

html_theme = "pydata_sphinx_theme"
html_title = "qsgp"
html_theme_options = {
    "show_prev_next": False,
    "header_links_before_dropdown": 9,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
html_show_sourcelink = False

# scripts named plot_table_* read tables of QSGP_DATA: without these they are shown, but not run
has_tables = (Path(os.environ.get("QSGP_DATA", "")) / "tables").is_dir()

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_" if has_tables else r"plot_(?!table_)",
    "abort_on_example_error": True,
    "min_reported_time": 1,
    "show_memory": False,
    "write_computation_times": False,  # its page would load scripts from elsewhere
    "download_all_examples": False,
    "remove_config_comments": True,
    "within_subsection_order": "FileNameSortKey",
}


def lead_to_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links that lead to files of the checkout on a code host lead to their pages here."""
    up = "../" * docname.count("/")
    text = re.sub(r"\]\((?:\.\./)+examples/([\w/]+)\.py\)", rf"]({up}gallery/\1.rst)", source[0])
    source[0] = re.sub(r"\]\((?:\.\./)+examples\)", rf"]({up}gallery/index.rst)", text)


def plain(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain prose: |x|, v_ and 2 * n mean themselves, not markup. Quoted names stay as they are."""
    found: list[str] = []
    for line in lines:
        parts = re.split(r"(``[^`]*``|`[^`]*`)", line)
        parts[::2] = [re.sub(r"((?<!\\)[|*]|(?<!\\)_(?=\W|$)|^\()", r"\\\1", part) for part in parts[::2]]
        if found and found[-1].strip() and depth(line) != depth(found[-1]):
            found.append("")  # a formula set off by blanks is a paragraph of its own
        found.append("".join(parts))
    lines[:] = found


def depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def setup(app: Sphinx) -> None:
    app.connect("source-read", lead_to_pages)
    app.connect("autodoc-process-docstring", plain)
