"""The gallery's scripts: enough of them, alike in form, without downloads. `make docs` runs them."""

import ast
import re
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
