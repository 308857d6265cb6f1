"""Random problems in float32: nothing that is not a number comes out, and never a negative variance.

Two kinds in turn: whole fits through the estimators' table path (basis, covariance, likelihood, scales, duplicates,
outliers, sizes down to one row, second portions, all at random), and random tables of weights with extreme entries
put straight into `posteriors.Features`. A few hundred in the normal run; 10,000 with ``-m bench``.
"""

import math

import numpy as np
import pytest
import torch

from qsgp import QSGPClassifier, QSGPRegressor, QSRVMClassifier, QSRVMRegressor
from qsgp.bases import Fourier, Inducing, KernelFunctions
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.likelihoods import Gaussian
from qsgp.paper.chevron import Chevron
from qsgp.posteriors.posteriors import Features

# Shapes are checked by the other tests; checking them again in 10,000 fits would take most of the time.
pytestmark = [
    pytest.mark.usefixtures("without_shape_checks"),
    pytest.mark.filterwarnings("ignore:A few targets decide the scale"),  # so they do
]


def random_inputs(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """A cloud, then any of: rows given several times, a constant column, whole numbers, outliers, a common offset."""
    X = rng.normal(size=(n, d))
    if rng.random() < 0.3:
        X = X[rng.integers(0, max(1, n // 3), n)]
    if rng.random() < 0.2:
        X[:, rng.integers(d)] = rng.normal()
    if rng.random() < 0.2:
        X = np.round(X)
    if rng.random() < 0.2:
        X[rng.integers(n)] *= 10 ** rng.uniform(0, 8)
    if rng.random() < 0.2:
        X += 10 ** rng.uniform(0, 6)
    return X * 10 ** rng.uniform(-30, 30, size=d if rng.random() < 0.5 else 1)


def random_targets(rng: np.random.Generator, X: np.ndarray, classes: int) -> np.ndarray:
    n = len(X)
    if classes:
        return np.r_[np.arange(classes), rng.integers(0, classes, n)][:n]
    draw = rng.random()
    y = rng.normal(size=n) if draw < 0.5 else rng.standard_cauchy(n) if draw < 0.8 else np.full(n, rng.normal())
    if rng.random() < 0.3:
        y[rng.integers(n)] *= 10 ** rng.uniform(0, 10)
    y = y * 10 ** rng.uniform(-30, 30)
    return np.stack([y, rng.normal(size=n)], 1) if rng.random() < 0.2 else y


def random_fit(seed: int) -> tuple[object, np.ndarray]:
    """A fitted estimator and rows to predict: its own, others of their kind, and some far away."""
    rng = np.random.default_rng(seed)
    classes = int(rng.choice([0, 0, 2, 3]))
    n, d = int(rng.integers(max(1, classes), 60)), int(rng.integers(1, 4))
    X = random_inputs(rng, n, d)
    y = random_targets(rng, X, classes)
    relevance = rng.random() < 0.2
    settings = {
        "kernel": str(rng.choice(["rbf", "matern12", "matern32", "matern52", "laplacian"])),
        "n_features": 2 * int(rng.integers(1, 17)),
        "max_iter": int(rng.integers(1, 13)),
        "learn_hyperparameters": bool(rng.random() < 0.15),
        "optimizer": str(rng.choice(["auto", "adagrad"])),
        "random_state": int(rng.integers(2**31)),
    }
    if not relevance:
        settings |= {
            "basis": str(rng.choice(["fourier", "inducing"])),
            "covariance": str(rng.choice(["meanfield", "chevron", "full"])),
            "dense_columns": 1,
            "mean": str(rng.choice(["constant", "constant" if classes else "linear"])),
        }
    if not classes:
        settings["likelihood"] = str(rng.choice(["gaussian", "laplace"]))
    if rng.random() < 0.3:
        settings |= {"batch_points": int(rng.integers(1, n + 1)), "support_points": int(rng.integers(1, n + 1))}
    cls = [[QSGPRegressor, QSRVMRegressor], [QSGPClassifier, QSRVMClassifier]][classes > 0][relevance]
    weight = rng.choice([0.5, 1, 3], n) if rng.random() < 0.2 else None
    model = cls(**settings).fit(X, y, weight)
    if settings.get("basis") == "fourier" and rng.random() < 0.3:
        model.partial_fit(X, y)  # a second portion, over the table as it stands
    far = X.mean(0) + X.std(0) * rng.normal(size=(3, d)) * 10 ** rng.uniform(0, 20, size=(3, 1))
    return model, np.concatenate([X, X[:1] + X.std(0) * rng.normal(size=(3, d)), far])


def check_fit(seed: int) -> None:
    model, X_new = random_fit(seed)
    latent, variance = model._latent(X_new)
    assert torch.isfinite(latent).all() and torch.isfinite(variance).all() and (variance >= 0).all()
    if hasattr(model, "predict_proba"):
        proba = model.predict_proba(X_new)
        assert np.isfinite(proba).all() and (proba >= 0).all() and np.allclose(proba.sum(1), 1)
    else:
        mean, deviation = model.predict(X_new, return_std=True)
        assert np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()
        assert np.isfinite(model.sample_y(X_new, 2)).all()


def check_posterior(seed: int) -> None:
    """A table no training would make: log C from e^-100 to e^40, weights up to 1e15, dense columns of any size."""
    g = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(shape, generator=g)

    def below(high: int) -> int:
        return int(torch.randint(high, (1,), generator=g))

    m, d, t, outputs = 2 * (1 + below(16)), 1 + below(4), 1 + below(20), 1 + below(3)
    lengthscale, variance = torch.exp(uniform(-8, 8, d)), torch.exp(uniform(-12, 9, 1))[0]
    kernel = list(KERNELS.values())[below(len(KERNELS))](lengthscale, variance)
    Z = torch.randn(m, d, generator=g) * 10 ** uniform(-3, 3, 1)
    basis = [lambda: Fourier(kernel, m, seed), lambda: Inducing(kernel, Z), lambda: KernelFunctions(kernel, Z)]
    k = [0, 1 + below(m), m][below(3)]
    mu = torch.randn(m, outputs, generator=g) * 10 ** uniform(-15, 15, 1)
    L = torch.randn(m, k, generator=g) * 10 ** uniform(-15, 15, 1)
    centre = float(uniform(-100, 20, 1))
    log_c = centre + uniform(0, min(20.0, 40 - centre), m)
    table = torch.cat([mu, L, log_c[:, None]], 1)
    made = basis[below(3)]()
    sites = Gaussian(torch.exp(uniform(-11, 5, 1))[0])
    posterior = Features(made, sites, Chevron(made.m, k), table, outputs)
    x = torch.randn(t, d, generator=g, dtype=torch.float64) * 10 ** float(uniform(-3, 6, 1))
    x[0] = Z[0].double()
    mean, spread = posterior.latent(x)
    assert mean.dtype == torch.float32 and torch.isfinite(mean).all()
    assert not torch.isnan(spread).any() and (spread >= 0).all()
    expected, deviation2 = sites.moments(mean.double(), spread.double())
    assert torch.isfinite(expected).all() and (deviation2 > 0).all()


def check(seed: int) -> None:
    (check_posterior if seed % 4 == 3 else check_fit)(seed)


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_hundreds_of_random_problems(start):
    for seed in range(start, start + 50):
        check(seed)


@pytest.mark.slow
@pytest.mark.bench
@pytest.mark.parametrize("start", range(1000, 11_000, 1000))
def test_ten_thousand_random_problems(start):
    """7,500 fits and 2,500 tables; every failure is named before the first is raised."""
    failed = {}
    for seed in range(start, start + 1000):
        try:
            check(seed)
        except Exception as error:  # any error of any kind counts
            failed[seed] = repr(error)
    assert not failed, failed


@pytest.mark.parametrize("spoil", [lambda variance: -variance, lambda variance: variance * math.nan])
def test_the_checks_see_a_wrong_variance(spoil, monkeypatch):
    latent = Features.latent
    check_fit(0)
    monkeypatch.setattr(Features, "latent", lambda self, x: (latent(self, x)[0], spoil(latent(self, x)[1])))
    with pytest.raises(AssertionError):
        check_fit(0)
