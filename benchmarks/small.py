"""Small tables nobody tuned for: `QSGPRegressor()` as it comes against scikit-learn's exact GaussianProcessRegressor.

The peer has an ARD Matern-3/2 kernel, a signal variance and a white kernel, its own optimiser, no restarts. Inputs and
target are standardised on the training rows; RMSE and MNLP are of the standardised target on the rows of the split.

    QSGP_DATA=... python benchmarks/small.py --json small.json
"""

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from qsgp import QSGPRegressor, datasets
from table import arguments, show

# Chosen before the first look: three of 1,000 rows and more, two below.
SETS = ["wine", "concrete", "solar", "energy", "housing"]


def peer(d: int) -> GaussianProcessRegressor:
    kernel = ConstantKernel() * Matern(np.ones(d), nu=1.5) + WhiteKernel()
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)


def row(name: str, split: int, model_name: str) -> dict:
    data = datasets.load(name, split)
    (x, y), (x_new, y_new) = standardised(data)
    model = peer(x.shape[1]) if model_name == "sklearn" else QSGPRegressor(random_state=0)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # length scales of useless inputs reach their bound
        model.fit(x, y)
    fitted = time.perf_counter()
    mean, deviation = model.predict(x_new, return_std=True)
    predicted = time.perf_counter()
    surprise = (y_new - mean) / deviation
    return {
        "data": name,
        "split": split,
        "n": len(x),
        "model": model_name,
        "rmse": float(np.sqrt(np.mean((y_new - mean) ** 2))),
        "mnlp": float(np.mean(0.5 * surprise**2 + np.log(deviation) + 0.5 * np.log(2 * np.pi))),
        "coverage95": float(np.mean(np.abs(surprise) < 1.959964)),
        "fit_s": fitted - began,
        "predict_s": predicted - fitted,
        "device": "cpu",
    }


def standardised(data: datasets.Dataset) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    x_scale, y_scale = data.x_train.std(0), data.y_train.std()
    x_scale[x_scale == 0] = 1
    x_mean, y_mean = data.x_train.mean(0), data.y_train.mean()

    def one(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return ((x - x_mean) / x_scale).astype(np.float64), ((y - y_mean) / y_scale).astype(np.float64)

    return one(data.x_train, data.y_train), one(data.x_test, data.y_test)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=SETS, help="names of data sets")
    parser.add_argument("--splits", nargs="+", type=int, default=[0])
    parser.add_argument("--models", nargs="+", default=["qsgp", "sklearn"])
    chosen = parser.parse_args()
    rows = [row(n, split, model) for n in chosen.data for split in chosen.splits for model in chosen.models]
    show(rows, chosen.json, "small tables, defaults")


if __name__ == "__main__":
    main()
