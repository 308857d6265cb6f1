"""What the documents say is true: links lead somewhere, the tests and commands they name exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest

from qsgp import QSGPRegressor, bases, kernels, likelihoods
from qsgp.engine import FORMULAS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)])
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def functions(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
    broken = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert not broken, f"{path.name} links to {broken}, which do not exist beside it."


@each_document
def test_named_tests_exist(path: Path) -> None:
    named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", path.read_text())
    missing = [f"{file}::{name}" for file, name in named if name not in functions(ROOT / file)]
    assert not missing, f"{path.name} names {missing}; write the test or correct the name."


@each_document
def test_named_commands_exist(path: Path) -> None:
    named = set(re.findall(r"`make ([\w-]+)`|^make ([\w-]+)", path.read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = {word for pair in named for word in pair if word} - targets
    assert not missing, f"{path.name} names {sorted(missing)}, which the Makefile does not have."


PAGES = sorted((ROOT / "docs" / "estimators").glob("*.md"))
EXAMPLES = {
    path: found
    for path in DOCUMENTS
    # the README, the researchers' page and that of the command line have tests of their own
    if path.parent != ROOT and path.name not in ("cli.md", "researchers.md")
    if (found := re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL))
}


@pytest.fixture
def registries() -> Iterator[None]:
    """What a page registers is gone after it."""
    known = [(registry, dict(registry)) for registry in (kernels.BY_NAME, likelihoods.BY_NAME, bases.BY_NAME, FORMULAS)]
    yield
    for registry, before in known:
        registry.clear()
        registry.update(before)


@pytest.mark.documents
@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.relative_to(ROOT / "docs").with_suffix("").as_posix())
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom: a block may use what an earlier one has made."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for example in EXAMPLES[page]:
        exec(compile(example, page.name, "exec"), names)


def test_pages_with_examples_are_found() -> None:
    assert {"start.md", "uncertainty.md", "extending.md", "regressor.md", "report.md"} <= {p.name for p in EXAMPLES}
    assert {path.stem for path in PAGES} <= {path.stem for path in EXAMPLES}


def test_every_estimator_has_a_page_and_every_keyword_a_line() -> None:
    assert {page.stem for page in PAGES} == {"README", "regressor", "classifier", "rvm_regressor", "rvm_classifier"}
    overview = (ROOT / "docs" / "estimators" / "README.md").read_text()
    missing = [name for name in QSGPRegressor().get_params() if f"`{name}`" not in overview]
    assert not missing


def test_every_note_on_the_paper_names_its_test() -> None:
    """A bold statement without a test is only an opinion."""
    body = (ROOT / "docs" / "paper_notes.md").read_text().split("Not tests but worth knowing")[0]
    paragraphs = re.split(r"\n\n(?=\*\*)", body)[1:]
    untested = [paragraph.splitlines()[0] for paragraph in paragraphs if "tests/" not in paragraph]
    assert len(paragraphs) > 20
    assert not untested
