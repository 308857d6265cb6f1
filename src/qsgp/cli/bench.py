"""`qsgp bench`: measurements that need the checkout."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

_SOURCE = Path(__file__).parents[2]
_SHARED = {"table", "battery_problems", "battery_verdict", "peer_models"}  # by the others


def bench(
    name: Annotated[str | None, typer.Argument(help="Without a name: which there are.")] = None,
    rest: Annotated[list[str] | None, typer.Argument(help="After --: options of the benchmark itself.")] = None,
    output: Annotated[Path | None, typer.Option("--json", help="A file for the rows as JSON.")] = None,
) -> None:
    """Run a benchmark of the checkout and print its table."""
    found = benchmarks()
    if not found:
        raise ValueError(
            "Expected the folder benchmarks beside the package or in the working folder, got none: it is not part of "
            "an installed qsgp. Clone the repository and run qsgp bench there."
        )
    if name is None:
        width = max(map(len, found)) + 2
        print("\n".join(f"{each:<{width}}{_first_line(script)}" for each, script in found.items()))
        return
    if name not in found:
        raise typer.BadParameter(f"Expected one of {', '.join(found)}, got {name!r}.")
    command = [sys.executable, str(found[name]), *([] if output is None else ["--json", str(output)]), *(rest or [])]
    # the script must find this very package, also where it runs from the source tree
    paths = [str(_SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
    raise typer.Exit(1 if ended.returncode else 0)


def benchmarks() -> dict[str, Path]:
    """Name -> script, of the checkout this package runs from or of the working folder."""
    for folder in (_SOURCE.parent / "benchmarks", Path("benchmarks")):
        scripts = sorted(script for script in folder.glob("*.py") if is_benchmark(script.stem))
        if scripts:
            return {script.stem: script for script in scripts}
    return {}


def is_benchmark(name: str) -> bool:
    """The results page measures nothing."""
    return name not in _SHARED and not name.startswith("results")


def _first_line(script: Path) -> str:
    text = script.read_text("utf-8").partition('"""')[2]
    return text.partition("\n")[0].strip().removesuffix('"""')
