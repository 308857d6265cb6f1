"""The results page: every file of docs/results as tables, sentences and pictures.

Nothing is measured here and nothing is read but these files, so that a figure of the page is always one of a file.
Runs whose rows name data, model and scores are compared; those of the battery are counted; any other file is shown row
by row, so that a new file needs nothing here.

    python benchmarks/results.py
"""

import json
from pathlib import Path

from results_kinds import Run, sections
from results_pictures import draw
from results_words import Row

DOCS = Path(__file__).resolve().parents[1] / "docs"
INTRODUCTION = """# Results

<!-- Made by `make results` from the files in docs/results. Change those, not this page. -->

Every figure on this page is computed from the files in `docs/results`, one file a run; `make results` makes the page
anew. What the runs show, how choices were made and which test rows had been looked at before is told in
[measurements](measurements.md).

- RMSE, MNLP, CRPS, log loss and the interval score are errors: less is better. MNLP is the mean negative log density of
  the test targets. 95 % coverage is the share of the test targets inside the 95 % interval: 0.95 is best.
- Inputs and targets of regression tables are standardised on the training rows.
- Figures are means over the splits or seeds, with the standard deviation over them behind ±. One split has no spread.
- **Bold** figures are the best among models with the same data and the same seconds.
- Files of one machine, one version and the same data stand together.
- A commit followed by + had uncommitted changes. Files from before a field was kept say that it is not recorded.
"""


def read(folder: Path) -> list[Run]:
    """Every file of the folder, by name."""
    return [run_of(path) for path in sorted(folder.glob("*.json"))]


def run_of(path: Path) -> Run:
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"Expected JSON in {path}, got something else. Mend the file or take it away.") from error
    content = content if isinstance(content, dict) else {"rows": content}
    rows: list[Row] = [row if isinstance(row, dict) else {"value": row} for row in content.pop("rows", None) or []]
    return Run(path.stem, rows, content)


def page(runs: list[Run]) -> str:
    lines = [INTRODUCTION]
    for section in sections(runs):
        lines += [f"## {section.title}", "", *([section.words, ""] if section.words else [])]
        for part in section.parts:
            lines += [f"### {part.title}", "", *part.lines()]
    return "\n".join(lines).rstrip() + "\n"


def write(docs: Path = DOCS) -> None:
    """The page and its pictures; pictures of files that are gone go too."""
    runs = read(docs / "results")
    drawn = {part.picture: part.races for section in sections(runs) for part in section.parts if part.picture}
    for old in (docs / "images" / "results").glob("*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, races in drawn.items():
        draw(docs / "images" / "results" / name, races)
    (docs / "results.md").write_text(page(runs), "utf-8")


if __name__ == "__main__":
    write()
