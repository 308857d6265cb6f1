"""The list of `make quick` names tests that exist: with one that does not, none would run."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LISTED = [line for line in (TESTS / "quick.txt").read_text().split("\n") if line.startswith("tests/")]


@pytest.mark.parametrize("line", LISTED)
def test_a_listed_test_exists(line: str) -> None:
    path, _, name = line.partition("::")
    file = TESTS.parent / path
    assert file.exists()
    if name and file.is_file():
        found = {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0].split("::")[-1] in found
