"""Missing inputs told by the others: against the formula of the normal law, in files and exports, and in intervals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import qsgp
from qsgp import QSGPRegressor
from qsgp.data.filling import MOST_INPUTS, Filling, learn_filling
from qsgp.files import FileError, read_model, write_model

FAST: dict[str, Any] = {"kernel": "rbf", "random_state": 0, "target_map": "none"}


def related(n: int, seed: int, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Four inputs of one source, of which a fifth of the values is missing, and what the first two are for."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 1)) + 0.3 * rng.normal(size=(n, 4))
    y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)
    return np.where(rng.random(X.shape) < share, np.nan, X), y


def test_what_is_missing_has_the_mean_and_the_variance_of_the_normal_law() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    covariance = root @ root.T + 0.1 * np.eye(5)
    z = np.where(rng.random((60, 5)) < 0.4, np.nan, rng.normal(size=(60, 5)))
    z[0] = np.nan
    inputs, left = Filling(np.linalg.inv(covariance))(z)
    for row, found, variance in zip(z, inputs, left, strict=True):
        gap = np.isnan(row)
        cross = covariance[np.ix_(gap, ~gap)] @ np.linalg.inv(covariance[np.ix_(~gap, ~gap)])
        np.testing.assert_allclose(found[gap], cross @ row[~gap], atol=1e-9)
        spread = covariance[np.ix_(gap, gap)] - cross @ covariance[np.ix_(~gap, gap)]
        np.testing.assert_allclose(variance[gap], np.diag(spread), rtol=1e-8)
        np.testing.assert_array_equal(found[~gap], row[~gap])
        assert (variance[~gap] == 0).all()


def test_correlations_are_found_among_gaps() -> None:
    rng = np.random.default_rng(1)
    covariance = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    z = rng.multivariate_normal(np.zeros(3), covariance, 3000)
    found = learn_filling(np.where(rng.random(z.shape) < 0.3, np.nan, z))
    assert found is not None
    np.testing.assert_allclose(np.linalg.inv(found.precision), covariance, atol=0.1)


def test_nothing_is_learned_where_there_is_nothing_to_learn() -> None:
    rng = np.random.default_rng(2)
    alone = np.where(rng.random((2000, 6)) < 0.2, np.nan, rng.normal(size=(2000, 6)))
    assert learn_filling(alone) is None  # inputs that say nothing of each other
    z = related(500, 3)[0]
    assert learn_filling(z) is not None
    assert learn_filling(z, apart=(0, 1, 2, 3)) is None
    assert learn_filling(np.nan_to_num(z)) is None and learn_filling(z[:20]) is None
    assert learn_filling(np.tile(z, (1, MOST_INPUTS))) is None
    empty = np.c_[z, np.full(500, np.nan), np.ones(500)]
    found = learn_filling(empty)
    assert found is not None and np.isfinite(found(empty).inputs).all()


@pytest.fixture(scope="module")
def model() -> QSGPRegressor:
    return QSGPRegressor(**FAST).fit(*related(300, 4))


def error(model: QSGPRegressor, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def test_predictions_are_better_than_with_the_mean(model: QSGPRegressor) -> None:
    X, y = related(300, 4)
    middle = np.nanmean(X, 0)
    imputed = QSGPRegressor(**FAST).fit(np.where(np.isnan(X), middle, X), y)
    X, y = related(1500, 5)
    assert model._scaling.precision is not None and imputed._scaling.precision is None
    assert error(model, X, y) < 0.8 * error(imputed, np.where(np.isnan(X), middle, X), y)


def test_intervals_hold_in_rows_with_many_gaps_and_with_none(model: QSGPRegressor) -> None:
    X, y = related(6000, 6)
    lower, upper = model.predict_interval(X, 0.9)
    inside, gaps = (lower <= y) & (y <= upper), np.isnan(X).sum(1)
    assert 0.87 < inside.mean() < 0.97
    assert inside[gaps == 0].mean() > 0.85 and inside[gaps >= 2].mean() > 0.8
    width = upper - lower
    assert width[gaps == 4].min() > 1.5 * width[gaps == 0].mean()
    told = np.array([[0.5, 0.5, 0.5, 0.5], [np.nan, 0.5, 0.5, 0.5], [np.nan, np.nan, np.nan, 0.5]])
    deviation = model.predict(told, return_std=True)[1]
    assert deviation[0] < deviation[1] < deviation[2]


def with_few_known() -> np.ndarray:
    X = related(40, 7, share=0.4)[0]
    X[0] = np.nan
    return X


def test_it_travels_in_files(model: QSGPRegressor, tmp_path: Path) -> None:
    X = with_few_known()
    model.save(tmp_path / "m.qsgp")
    found, wanted = (each.predict(X, return_std=True) for each in (qsgp.load(tmp_path / "m.qsgp"), model))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    about, tensors = read_model(tmp_path / "m.qsgp")
    for wrong in (-tensors["scaling.precision"], tensors["scaling.precision"][:2]):
        write_model(tmp_path / "f.qsgp", about, tensors | {"scaling.precision": wrong})
        with pytest.raises(FileError, match="Save the model anew"):
            qsgp.load(tmp_path / "f.qsgp")


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("ending", ["pt2", pytest.param("onnx", marks=pytest.mark.slow)])
def test_it_travels_in_exports(model: QSGPRegressor, ending: str, tmp_path: Path) -> None:
    X, path = with_few_known(), tmp_path / f"m.{ending}"
    model.export(path)
    if ending == "pt2":
        served = [part.detach().numpy() for part in torch.export.load(path).module()(torch.from_numpy(X))]
    else:
        served = pytest.importorskip("onnxruntime").InferenceSession(path).run(None, {"x": X})
    for part, own in zip(served, model.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(part[:, 0], own, rtol=1e-5)  # ONNX Runtime rounds otherwise
