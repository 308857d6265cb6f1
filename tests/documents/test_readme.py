"""The examples of the README and of the researchers' page run as printed, and print what the pages say."""

import contextlib
import io
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "guide" / "researchers.md").read_text()


def only_block(text: str, language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(block)


def test_the_estimator_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    exec(compile(only_block(README, "python"), "README.md", "exec"), namespace)
    inside = (namespace["y"][300:] > namespace["lower"]) & (namespace["y"][300:] < namespace["upper"])  # type: ignore[index,operator]
    assert 0.8 < inside.mean() < 0.98
    assert (tmp_path / "diabetes.qsgp").exists()


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def test_the_extra_all_holds_what_users_may_want() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    members = set(everything.removeprefix("qsgp[").removesuffix("]").split(","))
    assert members == {"cli", "data", "export", "plots"} <= set(extras)
    assert 'pip install ".[all]"' in README


def test_the_two_commands_stand_in_the_readme() -> None:
    """They are what a stranger types first, and what CI runs."""
    assert "```\nmake demo\nmake test\n```" in README


def test_the_researchers_example_is_ten_lines() -> None:
    lines = [line for line in only_block(PAGE, "python").splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("import ", "from "))]) == 10
    assert max(map(len, lines)) <= 120


def test_the_researchers_example_prints_what_its_page_shows() -> None:
    printed, namespace = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(compile(only_block(PAGE, "python"), "researchers.md", "exec"), namespace)
    rmse, noise, mnlp, coverage, level = numbers(printed.getvalue())
    # Rounding differs between machines and grows over the steps; a change that matters is larger than this.
    assert numbers(only_block(PAGE, "text")) == [
        pytest.approx(rmse, abs=0.02),
        noise,
        pytest.approx(mnlp, abs=0.05),
        pytest.approx(coverage, abs=2.0),
        level,
    ]
    y, test = namespace["y"], namespace["test"]
    constant = float((y[test] - y[namespace["train"]].mean()).square().mean().sqrt())
    assert f"RMSE of {constant:.2f}" in " ".join(PAGE.split())
