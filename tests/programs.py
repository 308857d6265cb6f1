"""The real program `qsgp`, as a person would start it, and tables to feed it with."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).parent.parent / "src"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-m", "qsgp"]


def qsgp(*arguments: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, **more
    )


def write_houses(folder: Path) -> None:
    """train.csv, test.csv and new.csv: prices that depend on size, age and kind, noise of deviation 1."""
    rng = np.random.default_rng(0)
    n = 300
    size, age, kind = rng.uniform(-3, 3, n), rng.uniform(-3, 3, n), rng.choice(["house", "flat", "villa"], n)
    price = 100 + 20 * np.sin(size) + 5 * age + 10 * (kind == "villa") + rng.normal(size=n)
    for name, rows in {"train": range(150), "test": range(150, 230), "new": range(230, 300)}.items():
        lines = ["id,size,age,kind,price,sold"]
        for i in rows:
            sold = "yes" if price[i] > 105 else "no"
            lines.append(f"{i:05d},{size[i]:.4f},{age[i]:.4f},{kind[i]},{price[i]:.3f},{sold}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
