"""The examples of the command line's page and of the README, typed into a shell."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from programs import ENVIRONMENT, write_houses

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
PAGE, README = (ROOT / "docs" / "cli.md").read_text(), (ROOT / "README.md").read_text()
# the name on the page, whether or not it is installed
TYPED = f'set -eu\nqsgp() {{ "{sys.executable}" -m qsgp "$@"; }}\n'


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def typed(lines: str, folder: Path) -> None:
    done = subprocess.run(["bash", "-c", TYPED + lines], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example in blocks(PAGE, "python"):
        exec(compile(example, "cli.md", "exec"), {})
    lines = "".join(blocks(PAGE, "sh"))
    assert {re.match(r"qsgp (\w+)", line)[1] for line in lines.splitlines()} >= {  # type: ignore[index]
        "fit",
        "predict",
        "evaluate",
        "report",
        "info",
        "bench",
    }
    typed(lines, tmp_path)
    assert {"houses.qsgp", "prices.parquet", "kinds.csv", "scores.json", "report.html"} <= {
        path.name for path in tmp_path.iterdir()
    }


@pytest.mark.documents
def test_the_lines_of_the_readme_run(tmp_path: Path) -> None:
    write_houses(tmp_path)
    (lines,) = blocks(README, "sh")
    typed(lines, tmp_path)
    assert (tmp_path / "prices.csv").read_text().startswith("id,mean,deviation,lower,upper\n")
