"""The gallery's scripts: enough of them, alike in form, without downloads. `make docs` runs them."""

import ast
import os
import re
import runpy
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").rglob("*.py"))
each_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)


def test_the_gallery_is_complete() -> None:
    names = {path.stem for path in SCRIPTS}
    assert len(names) == len(SCRIPTS) >= 10
    assert all(name.startswith("plot_") for name in names)  # what the gallery runs
    assert len([name for name in names if name.startswith("plot_figure_")]) == 3


@each_script
def test_a_script_has_a_title_and_a_picture(path: Path) -> None:
    source = path.read_text()
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, underline, *text = docstring.splitlines()
    assert underline == "=" * len(title)
    assert any(line.strip() for line in text)
    assert "plt.show()" in source


@each_script
def test_a_script_downloads_nothing(path: Path) -> None:
    fetching = re.findall(r"fetch_\w+|datasets\.load\(|urllib|requests|openml|https?://", path.read_text())
    assert not fetching, f"{path.name} uses {fetching}; take generated data or a set that comes with scikit-learn."


@each_script
def test_a_script_names_its_random_numbers(path: Path) -> None:
    """A page that changes with every build cannot be trusted: generators and estimators get a seed."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    for call in calls:
        name = ast.unparse(call.func)
        if name in {"np.random.default_rng", "torch.manual_seed"}:
            assert call.args, f"{path.name}: {name}() has no seed."
        if re.fullmatch(r"QS(GP|RVM)\w+", name):
            keywords = {keyword.arg for keyword in call.keywords}
            assert "random_state" in keywords, f"{path.name}: {name} has no random_state."


def test_scripts_that_need_tables_are_known_by_their_name() -> None:
    """`docs/conf.py` runs them where QSGP_DATA has the tables, and only shows them elsewhere."""
    reading = {path.stem for path in SCRIPTS if "QSGP_DATA" in path.read_text()}
    assert reading == {path.stem for path in SCRIPTS if path.stem.startswith("plot_table_")}
    assert reading >= {"plot_table_diamonds", "plot_table_movies", "plot_table_insteval"}
    (pattern,) = re.findall(
        r'"filename_pattern": r"plot_" if has_tables else r"(.+?)"', (ROOT / "docs/conf.py").read_text()
    )
    assert {path.stem for path in SCRIPTS if not re.search(pattern, str(path))} == reading


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plot_table_diamonds", "plot_table_movies", "plot_table_insteval"])
def test_a_script_that_needs_a_table_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    if not Path(os.environ.get("QSGP_DATA", ""), "tables").is_dir():
        pytest.skip("needs the folder tables in QSGP_DATA")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
