"""Exported models give the predictions of `predict`, without qsgp."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons

import qsgp
from qsgp import QSGPClassifier, QSGPRegressor, QSRVMRegressor
from qsgp.posteriors.export import OPSET

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

# torch's exporter itself uses what Python and torch call deprecated
# (shape checks read sizes, which a traced program must leave open)
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.usefixtures("without_shape_checks"),
]


def wave(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2)) * [1, 100] + [0, 1e4]
    return X, 10 + 5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


TABLE = {"n_features": 40, "max_iter": 20, "random_state": 0}
MODELS = {
    "closed form": QSGPRegressor(random_state=0, kernel="matern32"),
    "matern12": QSGPRegressor(random_state=0, kernel="matern12", learn_hyperparameters=False),
    "laplacian": QSGPRegressor(random_state=0, kernel="laplacian"),
    "laplacian, fourier": QSGPRegressor(basis="fourier", kernel="laplacian", **TABLE),
    "laplacian, inducing": QSGPRegressor(basis="inducing", kernel="laplacian", **TABLE),
    "laplace, linear mean": QSGPRegressor(random_state=0, likelihood="laplace", mean="linear", kernel="rbf"),
    "fourier": QSGPRegressor(basis="fourier", **TABLE),
    "chevron": QSGPRegressor(basis="fourier", covariance="chevron", **TABLE),
    "inducing": QSGPRegressor(basis="inducing", kernel="matern52", **TABLE),
    "relevance vectors": QSRVMRegressor(max_iter=50, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_regression(name, tmp_path):
    """1e-5 of the deviation of y in float32 tables, 1e-6 in the closed form."""
    model = MODELS[name].fit(*wave(60))
    model.export(tmp_path / "model.onnx")
    assert onnx.load(tmp_path / "model.onnx").opset_import[0].version == OPSET
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    model.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for rows in (1, 5, 100):
        X = wave(rows, seed=rows)[0]
        mean, deviation = model.predict(X, return_std=True)
        served = session.run(["mean_of_y", "std_of_y"], {"x": X})
        torched = [part.numpy() for part in program(torch.tensor(X))]
        for got in (served, torched):
            assert got[0].shape == got[1].shape == (rows, 1)
            np.testing.assert_allclose(got[0][:, 0], mean, atol=1e-5 * deviation.max(), rtol=1e-5)
            np.testing.assert_allclose(got[1][:, 0], deviation, rtol=1e-4)


def test_an_exported_table_has_the_priors_deviation_too(tmp_path):
    X, y = wave(60)
    far = np.array([[1e3, 0.0], [0.0, 1e6]])
    model = QSGPRegressor(basis="inducing", n_features=20, random_state=0, learn_hyperparameters=False).fit(X, y)
    model.export(tmp_path / "m.pt2")
    rows = np.concatenate([X[:5], far])
    mean, deviation = (
        part.numpy()[:, 0] for part in torch.export.load(tmp_path / "m.pt2").module()(torch.tensor(rows))
    )
    wanted = model.predict(rows, return_std=True)
    np.testing.assert_allclose(mean, wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(deviation, wanted[1], rtol=1e-4)
    assert deviation[-1] > 0.9 * np.sqrt(model.signal_variance_)


@pytest.mark.slow
def test_kernel_functions_at_rows(tmp_path):
    X, y = wave(3200)
    model = QSGPRegressor(random_state=0, learn_hyperparameters=False).fit(X, y)
    far = X[:50] * [1, 0] + [0, 1.3e4]  # where the variance is not that of the noise alone
    deviations = []
    for trust in (1.0, 0.25):
        model._trained = replace(model._trained, spread=replace(model._trained.spread, trust=trust))
        deviations.append(model.predict(far, return_std=True)[1])
    model.export(tmp_path / "model.onnx")
    got = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": far})
    mean, deviation = model.predict(far, return_std=True)
    assert (deviations[1] < 0.9 * deviations[0]).all()
    np.testing.assert_allclose(got[0][:, 0], mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got[1][:, 0], deviation, rtol=1e-3)
    model.save(tmp_path / "model.qsgp")
    np.testing.assert_allclose(qsgp.load(tmp_path / "model.qsgp").predict(far, return_std=True)[1], deviation)


def test_weights_and_draws(tmp_path):
    X, y = wave(300)
    model = QSGPRegressor(random_state=0, kernel="rbf", optimizer="preconditioned", n_features=200).fit(X, y)
    model.export(tmp_path / "model.onnx")
    got = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": X[:50]})
    mean, deviation = model.predict(X[:50], return_std=True)
    np.testing.assert_allclose(got[0][:, 0], mean, atol=1e-4 * deviation.max(), rtol=1e-4)
    np.testing.assert_allclose(got[1][:, 0], deviation, rtol=1e-3)


@pytest.mark.slow
def test_classes_of_many_rows_each_with_a_variance(tmp_path):
    X, y = wave(3200)
    y = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    model = QSGPClassifier(random_state=0, kernel="rbf", learn_hyperparameters=False).fit(X, y)
    model.export(tmp_path / "model.onnx")
    (got,) = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": X[:50]})
    np.testing.assert_allclose(got, model.predict_proba(X[:50]), atol=1e-4)


def test_several_outputs(tmp_path):
    X, y = wave(50)
    model = QSGPRegressor(random_state=0, learn_hyperparameters=False).fit(X, np.stack([y, -y, 2 * X[:, 1]], 1))
    model.export(tmp_path / "model.onnx")
    got = runtime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": X})
    mean, deviation = model.predict(X, return_std=True)
    np.testing.assert_allclose(got[0], mean, rtol=1e-5)
    np.testing.assert_allclose(got[1], deviation, rtol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_classification(classes, tmp_path):
    X, y = make_moons(60, noise=0.2, random_state=0)
    y = y if classes == 2 else np.digitize(X[:, 0], [0, 1])
    model = QSGPClassifier(random_state=0, learn_hyperparameters=False).fit(X, y)
    model.export(tmp_path / "model.onnx")
    (got,) = runtime.InferenceSession(tmp_path / "model.onnx").run(["probabilities"], {"x": X})
    np.testing.assert_allclose(got, model.predict_proba(X), atol=1e-5)


def test_what_cannot_be_exported_says_so(tmp_path):
    X, y = wave(40)
    model = QSGPRegressor(basis="grid", **TABLE).fit(X, y)
    with pytest.raises(ValueError, match="got basis='grid'"):
        model.export(tmp_path / "model.onnx")
    plain = QSGPRegressor(learn_hyperparameters=False).fit(X, y)
    with pytest.raises(ValueError, match=r"ending in .onnx .* got model.pkl"):
        plain.export(tmp_path / "model.pkl")
    with pytest.raises(FileNotFoundError, match="got no folder"):
        plain.export(tmp_path / "nowhere" / "model.onnx")
    assert not list(tmp_path.iterdir())
