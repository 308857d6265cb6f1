"""A model with a million features, trained and saved on one device, read and used on the CPU in a fresh process.

python benchmarks/files.py --json files.json
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from qsgp import QSGPRegressor
from qsgp.datasets import make_robot_arm
from table import arguments, show

KERNELS = ["rbf", "matern32", "matern52", "matern12"]

FRESH = """
import sys
sys.path[:0] = [sys.argv[1]]
import numpy as np, qsgp
model = qsgp.load(sys.argv[2])
mean, std = model.predict(np.load(sys.argv[3]), return_std=True)
np.savez(sys.argv[4], mean=mean, std=std)
"""


def row(kernel: str, m: int, iterations: int, rows: int) -> dict:
    X, y = make_robot_arm(20_000 + rows, noise=0.1)
    # A batch of all features would be ordinary training; a part of them is what makes m = 1e6 possible.
    model = QSGPRegressor(
        kernel=kernel, basis="fourier", n_features=m, batch_features=20_000, max_iter=iterations, random_state=0
    ).fit(X[rows:], y[rows:])
    mean, std = model.predict(X[:rows], return_std=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save(folder / "model.qsgp")
        np.save(folder / "X.npy", X[:rows])
        source = str(Path(__file__).parent.parent / "src")
        command = [sys.executable, "-c", FRESH, source, *(str(folder / n) for n in ("model.qsgp", "X.npy", "out.npz"))]
        subprocess.run(command, check=True)
        found = np.load(folder / "out.npz")
        size = (folder / "model.qsgp").stat().st_size
    weights = model._posterior.table.nbytes
    return {
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "kernel": kernel,
        "m": m,
        "mean_rel_difference": float(np.linalg.norm(found["mean"] - mean) / np.linalg.norm(mean)),
        "std_rel_difference": float(np.abs(found["std"] / std - 1).max()),
        "file_over_weights": size / weights,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--m", type=int, default=1_000_000)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--rows", type=int, default=300)
    chosen = parser.parse_args()
    rows = [row(kernel, chosen.m, chosen.iterations, chosen.rows) for kernel in KERNELS]
    show(rows, chosen.json, "files between devices", seed=0)


if __name__ == "__main__":
    main()
