"""The README's example runs as printed and prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def only_block(language: str) -> str:
    """The researchers' example is the last of its kind."""
    return blocks(language)[-1]


def test_the_estimator_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    exec(compile(blocks("python")[0], "README.md", "exec"), namespace)
    inside = (namespace["y"][300:] > namespace["lower"]) & (namespace["y"][300:] < namespace["upper"])  # type: ignore[index,operator]
    assert 0.8 < inside.mean() < 0.98
    assert (tmp_path / "diabetes.qsgp").exists()


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def test_the_example_is_ten_lines() -> None:
    lines = [line for line in only_block("python").splitlines() if line.strip()]
    assert len([line for line in lines if not line.startswith(("import ", "from "))]) == 10
    assert max(map(len, lines)) <= 120


def test_the_example_prints_what_the_readme_shows() -> None:
    printed, namespace = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(compile(only_block("python"), "README.md", "exec"), namespace)
    rmse, noise, mnlp, coverage, level = numbers(printed.getvalue())
    # Rounding differs between machines and grows over the steps; a change that matters is larger than this.
    assert numbers(only_block("text")) == [
        pytest.approx(rmse, abs=0.02),
        noise,
        pytest.approx(mnlp, abs=0.05),
        pytest.approx(coverage, abs=2.0),
        level,
    ]
    y, test = namespace["y"], namespace["test"]
    constant = float((y[test] - y[namespace["train"]].mean()).square().mean().sqrt())
    assert f"RMSE of {constant:.2f}" in " ".join(README.split())
