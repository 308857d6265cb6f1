"""The wheel: built from the checkout, installed where nothing of it is, it runs the examples of the README and for
researchers.

Its requirements come from the environment of the tests, through a .pth file, so that nothing is downloaded.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, ROOT, cwd=folder)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "qsgp").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    package = {name for name in names if name.startswith("qsgp/")}
    assert package == source
    assert {name.split("/")[0] for name in names} == {"qsgp", f"qsgp-{PROJECT['version']}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_wheel_runs_the_readme(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=tmp_path).strip())
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-deps", "--no-index", wheel, cwd=tmp_path)
    # as a plain directory: .pth files of the checkout's own environment, which lead to src/, are not read again
    (site / "requirements.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    where = run(python, "-c", "import qsgp; print(qsgp.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(home), f"imported {where}, not the wheel"

    pages = [(ROOT / page).read_text() for page in ("README.md", "docs/guide/researchers.md")]
    examples = re.findall(r"^```python\n(.*?)^```$", "\n".join(pages), re.MULTILINE | re.DOTALL)
    (tmp_path / "readme.py").write_text("\n".join(examples))
    assert "RMSE" in run(python, "readme.py", cwd=tmp_path)
    assert (tmp_path / "diabetes.qsgp").is_file()
    assert "fit" in run(home / "bin" / "qsgp", "--help", cwd=tmp_path)


def test_the_citation_is_that_of_the_project() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"version: {PROJECT['version']}" in text
    assert f"license: {PROJECT['license']}" in text
    assert "Quadruply Stochastic Gaussian Processes" in text
    assert "arXiv:2006.03015" in text
