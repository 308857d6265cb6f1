"""The walk of one row through the package: which modules a call touches, each once, in the order of the first touch.

`python docs/walk.py` prints it, `--write` puts it between the marks in docs/architecture.md, and `--check` compares the
short walks with those of the page.
"""

import argparse
import contextlib
import io
import sys
import tempfile
import textwrap
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import qsgp
from qsgp.cli.main import app
from qsgp.datasets import make_robot_arm

PACKAGE = Path(qsgp.__file__).parent
PAGE = Path(__file__).parent / "architecture.md"
BEGIN, END = "<!-- walk: begin -->\n", "<!-- walk: end -->\n"


def module_of(file: str) -> str | None:
    """`.../qsgp/models/estimator.py` -> `models.estimator`; None for a file of another package."""
    path = Path(file)
    if not path.is_relative_to(PACKAGE):
        return None
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Walk:
    """Records the first function called in each module, in every thread, as long as it is entered."""

    def __init__(self) -> None:
        self.touched: dict[str, str] = {}  # function by module
        self._known: set[str] = set()  # files

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or file in self._known or frame.f_code.co_name.startswith("<"):
            return
        self._known.add(file)
        module = module_of(file)
        if module:
            self.touched[module] = frame.f_code.co_name

    def __enter__(self) -> "Walk":
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def walked(call: Callable[[], Any]) -> dict[str, str]:
    with Walk() as walk, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        call()
    return walk.touched


def short_walks(folder: Path) -> dict[str, dict[str, str]]:
    """Those of a second: few rows, prediction, files."""
    X, y = make_robot_arm(500, noise=0.3)
    model, file = qsgp.QSGPRegressor(random_state=0), folder / "arm.qsgp"
    return {
        "`fit`, n = 500": walked(lambda: model.fit(X, y)),
        "`predict`, with `return_std=True`": walked(lambda: model.predict(X[:10], return_std=True)),
        "`save`": walked(lambda: model.save(file)),
        "`load`": walked(lambda: qsgp.load(file)),
    }


def long_walks(folder: Path) -> dict[str, dict[str, str]]:
    X, y = make_robot_arm(50_000, noise=0.3)
    rows = np.column_stack([X[:500], y[:500]])
    names = [*(f"joint{k}" for k in range(X.shape[1])), "distance"]
    table = folder / "arm.csv"
    np.savetxt(table, rows, delimiter=",", header=",".join(names), comments="")
    command = ["fit", str(table), "--target", "distance", "--output", str(folder / "model.qsgp"), "--quiet"]
    regressor = qsgp.QSGPRegressor
    return {
        "`fit`, n = 50,000": walked(lambda: regressor(random_state=0, max_time=40).fit(X, y)),
        "`fit`, `n_features=500`": walked(lambda: regressor(random_state=0, n_features=500).fit(X[:5_000], y[:5_000])),
        "`qsgp fit`": walked(lambda: app(command, standalone_mode=False)),
    }


def told(walks: dict[str, dict[str, str]]) -> str:
    paragraphs = []
    for title, touched in walks.items():
        chain = " → ".join(f"`{module}`" for module in touched)
        lines = textwrap.wrap(f"**{title}**: {chain}", 118, break_long_words=False, break_on_hyphens=False)
        paragraphs.append("\n".join(lines) + "\n")
    return "\n".join(paragraphs)


def whole(folder: Path) -> str:
    long, short = long_walks(folder), short_walks(folder)
    first, last = "`fit`, n = 500", "`qsgp fit`"
    command = long.pop(last)
    return told({first: short.pop(first), **long, **short, last: command})


def stale(folder: Path, page: str) -> list[str]:
    """The short walks that the page tells otherwise."""
    return [title for title, touched in short_walks(folder).items() if told({title: touched}) not in page]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="rewrite the marked part of docs/architecture.md")
    parser.add_argument("--check", action="store_true", help="fail if the short walks are not those of the page")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.check:
            changed = stale(Path(folder), PAGE.read_text())
            sys.exit(f"{', '.join(changed)} changed: run python docs/walk.py --write." if changed else 0)
        text = whole(Path(folder))
    if asked.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")
    else:
        print(text)


if __name__ == "__main__":
    main()
