"""Shared by all tests: shapes checked at run time, one thread, one fixture for devices."""

import importlib.util
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

# Test problems are small: more threads only wait for each other, minutes of it when the cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jaxtyping
import pytest
import torch


def available(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


# Must stand before the first import of qsgp. A host with a GPU may lack beartype: the tests then run unchecked. Checks
# double the time of whole fits, whose calls the tests of the rooms have checked: `make test` leaves them out there.
if available("beartype") and os.environ.get("QSGP_SHAPES") != "off":
    jaxtyping.install_import_hook("qsgp", "shapes.checked")

torch.set_num_threads(1)

if available("hypothesis"):
    from hypothesis import settings

    # Timings on a shared machine say nothing about the code; a failure must come back on the next run.
    settings.register_profile("qsgp", deadline=None, derandomize=True, max_examples=50)
    settings.load_profile("qsgp")

# A host with a GPU may lack packages that only some files need: these are left out, not failed.
_absent = [
    package for package in ("hypothesis", "pandas", "polars", "pyarrow", "onnxruntime") if not available(package)
]
collect_ignore = [
    str(path.relative_to(Path(__file__).parent))
    for path in Path(__file__).parent.rglob("test_*.py")
    if any(re.search(rf"^(import|from) {package}\b", path.read_text(), re.MULTILINE) for package in _absent)
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Every test that takes `device` runs on the CPU and, where there is one, on a CUDA device."""
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _shapes_of_the_first_calls() -> Iterator[None]:
    """Training loops are ten times as slow with checks, which say the same in every step: a test is checked for a
    quarter of a second, a short one to its end."""
    timer = threading.Timer(0.25, jaxtyping.config.update, ["jaxtyping_disable", True])
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()
    timer.join()
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def without_shape_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users run it: bad shapes reach the library's own messages, which the import hook would forestall."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
