"""The page on the architecture: its rooms are those of the layer test, its walk that of the code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_layers import GROUND, MAY_IMPORT, is_module

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALK = PAGE.split("<!-- walk: begin -->")[1].split("<!-- walk: end -->")[0]


def test_the_rooms_are_those_of_the_layer_test_in_their_order() -> None:
    table = PAGE.split("## The rooms")[1].split("## The walk")[0]
    (ground,) = re.findall(r"^\| the ground \|(.*)$", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", ground)) == GROUND
    rooms = [room for room in MAY_IMPORT if room not in GROUND and room != "__main__"]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == rooms


def test_the_walk_names_every_call_and_only_modules_that_exist() -> None:
    titles = re.findall(r"^\*\*(.*?)\*\*:", WALK, re.MULTILINE)
    assert len(titles) == 7
    modules = set(re.findall(r"`([a-z_.]+)`", re.sub(r"\*\*.*?\*\*", "", WALK)))
    missing = sorted(module for module in modules if not is_module(module))
    assert len(modules) > 30
    assert not missing, f"{missing} are gone: run python docs/walk.py --write."


def test_files_and_folders_named_on_the_page_exist() -> None:
    named = set(re.findall(r"`((?:[\w*]+/)+(?:\w+\.py)?|\w+\.py)`", PAGE)) - {"training/road_NAME.py"}
    places = (ROOT, ROOT / "src" / "qsgp", ROOT / "tests" / "documents")
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert len(named) > 15
    assert not missing


@pytest.mark.documents
def test_the_short_walks_are_those_of_the_page() -> None:
    """Where this fails the code goes another way now: run `python docs/walk.py --write`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "walk.py", "--check"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
