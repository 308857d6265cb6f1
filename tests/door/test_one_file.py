"""A kernel and a likelihood in one file outside the library: fitted, stored, judged and used through the estimators."""

import importlib.util
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch

from busy import waiting
from qsgp import QSGPClassifier, QSGPRegressor, kernels, likelihoods, load
from qsgp.engine import FORMULAS, drawn, k_v, phi_v
from qsgp.files import FileError
from qsgp.kernels import hyperparameters

KERNEL = '''
    """A scale mixture of squared exponentials, lengthscale^-2 gamma distributed."""

    from dataclasses import dataclass
    from typing import ClassVar

    import torch
    from qsgp.engine.counter_rng import normals
    from qsgp.kernels import register, stationary


    @register
    @dataclass(frozen=True)
    class RationalQuadratic:
        """k(x, z) = variance * (1 + r^2 / 2)^-1."""

        lengthscale: torch.Tensor
        variance: torch.Tensor

        name: ClassVar[str] = "rational_quadratic"
        words: ClassVar[str] = "rational quadratic: smooth functions of several lengthscales"
        degrees: ClassVar[None] = None

        __call__ = stationary.value
        diag = stationary.diag
        parameters = stationary.parameters
        with_parameters = stationary.with_parameters

        @staticmethod
        def profile(r):
            return 1 / (1 + 0.5 * r.square())

        def frequencies(self, seed, index):
            """Normal, times the root of an exponential number, which is half of the squares of two normal ones."""
            d = len(self.lengthscale)
            z = normals(seed, index, d + 2)
            return z[:, :d] * z[:, d:].square().mean(1, keepdim=True).sqrt()
'''

LIKELIHOOD = '''
    import math
    from dataclasses import dataclass
    from typing import ClassVar

    import torch
    from qsgp.interfaces import Quadratic
    from qsgp.likelihoods import register
    from qsgp.likelihoods.levels import normal_quantile
    from qsgp.likelihoods.quadrature import gaussian_nodes


    @register
    @dataclass(frozen=True)
    class Probit:
        """log g(f) = log Phi(y f), Phi the normal distribution function."""

        name: ClassVar[str] = "probit"
        words: ClassVar[str] = "probit"
        labels: ClassVar[bool] = True
        fixed_sites: ClassVar[bool] = False
        noise_variance: ClassVar[None] = None

        def parameters(self):
            return {}

        def with_parameters(self, parameters):
            return self

        def check_targets(self, y):
            if not ((y == 1) | (y == -1)).all():
                raise ValueError("Expected labels -1 and +1, got others. Pass 2 * (y == positive) - 1.")

        def log_site(self, y, f):
            return torch.special.log_ndtr(y * f)

        def expected_log_site(self, y, mean, deviation):
            f, log_w = gaussian_nodes(y * mean, deviation, 64)
            return (torch.special.log_ndtr(f) * log_w.exp()).sum(-1)

        def quadratic_bound(self, y, xi):
            """Touches at y f = xi with that slope and curvature -1, the steepest there is."""
            value = torch.special.log_ndtr(xi)
            slope = torch.exp(-0.5 * xi**2 - value) / math.sqrt(2 * math.pi)
            return Quadratic(value - slope * xi - 0.5 * xi**2, y * (slope + xi), torch.full_like(xi, -0.5))

        def optimal_xi(self, y, mean, second_moment):
            return (y * mean).detach()

        def log_density(self, y, mean, variance):
            return torch.special.log_ndtr(y * mean / (1 + variance).sqrt())

        def moments(self, mean, variance):
            p = self.log_density(torch.ones_like(mean), mean, variance).exp()
            return p, p * (1 - p)

        def quantile(self, q, mean, variance):
            return torch.special.ndtr(mean + variance.sqrt() * normal_quantile(q, mean))
'''


def imported(path: Path, source: str) -> ModuleType:
    path.write_text(textwrap.dedent(source))
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def rational_quadratic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users run it
    yield imported(tmp_path / "my_kernel.py", KERNEL).RationalQuadratic
    del kernels.BY_NAME["rational_quadratic"], FORMULAS["rational_quadratic"]


@pytest.fixture
def probit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    yield imported(tmp_path / "my_likelihood.py", LIKELIHOOD).Probit
    del likelihoods.BY_NAME["probit"]


def table(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2


ROADS: dict[str, tuple[int, dict[str, Any]]] = {
    "closed form": (300, {}),
    "rows": (4000, {"max_time": 8}),
    "features": (1500, {"n_features": 200, "max_time": 6}),
    "solved features": (1500, {"n_features": 200, "optimizer": "preconditioned", "max_time": 6}),
}


def on_road(road: str) -> tuple[int, dict[str, Any]]:
    """Rows and keywords; a busy machine has more of the clock."""
    n, keywords = ROADS[road]
    return n, keywords | ({"max_time": keywords["max_time"] * waiting()} if "max_time" in keywords else {})


@pytest.mark.filterwarnings("ignore:Training has not converged")  # how far steps come is the machine's affair
@pytest.mark.parametrize("road", ROADS)
def test_a_kernel_of_ones_own(rational_quadratic: type, tmp_path: Path, road: str) -> None:
    n, keywords = on_road(road)
    X, f = table(n + 200)
    y = f + 0.1 * np.random.default_rng(1).normal(size=len(f))
    model = QSGPRegressor(kernel="rational_quadratic", random_state=0, **keywords).fit(X[:n], y[:n])
    assert model.kernel_ == "rational_quadratic"
    mean, deviation = model.predict(X[n:], return_std=True)
    assert np.sqrt(np.mean((mean - f[n:]) ** 2)) < 0.1
    assert 0.08 < np.median(deviation) < 0.2
    assert model.sample_y(X[n:], 3).shape == (200, 3)

    model.save(tmp_path / "model.qsgp")
    loaded = load(tmp_path / "model.qsgp")
    np.testing.assert_allclose(loaded.predict(X[n:]), mean, rtol=1e-6, atol=1e-8)
    page = model.report(X[n:], y[n:], tmp_path / "report.html").read_text()
    assert "rational quadratic: smooth functions of several lengthscales" in page


@pytest.mark.filterwarnings("ignore:Training has not converged")  # how far steps come is the machine's affair
@pytest.mark.parametrize("road", ["closed form", pytest.param("rows", marks=pytest.mark.slow), "features"])
def test_a_likelihood_of_ones_own(probit: type, tmp_path: Path, road: str) -> None:
    n, keywords = on_road(road)
    X, f = table(n + 200)
    y = np.where(f > np.median(f), "up", "down")
    model = QSGPClassifier(likelihood="probit", random_state=0, **keywords).fit(X[:n], y[:n])
    p = model.predict_proba(X[n:])
    assert model.score(X[n:], y[n:]) > 0.9
    np.testing.assert_allclose(p.sum(1), 1)

    model.save(tmp_path / "model.qsgp")
    loaded = load(tmp_path / "model.qsgp")
    np.testing.assert_allclose(loaded.predict_proba(X[n:]), p, rtol=1e-6, atol=1e-8)
    assert "the probit likelihood" in model.report(X[n:], y[n:], tmp_path / "report.html").read_text()


def test_a_likelihood_serves_one_kind_of_estimator(probit: type) -> None:
    X, y = table(30)
    with pytest.raises(ValueError, match=r"likelihood among 'auto', 'gaussian', 'laplace', got 'probit'"):
        QSGPRegressor(likelihood="probit").fit(X, y)
    with pytest.raises(ValueError, match=r"likelihood among 'auto', 'logistic', 'probit', got 'gaussian'"):
        QSGPClassifier(likelihood="gaussian").fit(X, y > 0)


def test_a_file_names_the_kernel_that_is_not_there(rational_quadratic: type, tmp_path: Path) -> None:
    X, y = table(40)
    QSGPRegressor(kernel="rational_quadratic").fit(X, y).save(tmp_path / "model.qsgp")
    known = kernels.BY_NAME.pop("rational_quadratic")
    try:
        with pytest.raises(FileError, match=r"Expected a kernel among rbf, .*, got 'rational_quadratic' in the file"):
            load(tmp_path / "model.qsgp")
    finally:
        kernels.BY_NAME["rational_quadratic"] = known
    assert load(tmp_path / "model.qsgp").kernel_ == "rational_quadratic"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_and_their_gradients_come_from_the_profile(rational_quadratic: type, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, z, V = torch.randn(40, 2).to(dtype), torch.randn(30, 2).to(dtype), torch.randn(30, 2).to(dtype)
    ell = torch.tensor([0.7, 1.4], dtype=dtype, requires_grad=True)
    variance = torch.tensor(1.3, dtype=dtype)
    plain = rational_quadratic(ell, variance)(x, z) @ V
    product = k_v(x, z, V, ell, variance, kernel="rational_quadratic")
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(product, plain, rtol=tolerance, atol=tolerance)
    found, expected = (torch.autograd.grad(each.square().sum(), ell)[0] for each in (product, plain))
    torch.testing.assert_close(found, expected, rtol=10 * tolerance, atol=tolerance)


def test_frequencies_of_another_law_reach_the_engine(rational_quadratic: type) -> None:
    kernel = rational_quadratic(*hyperparameters([0.7, 1.4], 1.3, dtype=torch.float64))
    x = torch.randn(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pairs = 100_000
    weights = torch.ones(2 * pairs, 1, dtype=torch.float64)
    frequencies = drawn(kernel, 0, 0, pairs)
    assert torch.equal(frequencies, kernel.frequencies(0, torch.arange(pairs)))
    assert phi_v(x, frequencies, weights, kernel.lengthscale, kernel.variance).shape == (8, 1)
    angle = (x / kernel.lengthscale) @ frequencies.mT
    Phi = torch.cat([angle.cos(), angle.sin()], 1) * (kernel.variance / pairs).sqrt()
    torch.testing.assert_close(Phi @ Phi.mT, kernel(x, x), rtol=0, atol=0.02)


def test_two_kernels_cannot_share_a_name_and_none_can_lack_a_part() -> None:
    class Mine(kernels.Matern12):
        name = "rbf"

    with pytest.raises(ValueError, match="'rbf', the name of SquaredExponential"):
        kernels.register(Mine)
    with pytest.raises(TypeError, match="without name, words"):
        kernels.register(dict)
    with pytest.raises(TypeError, match="without name, words"):
        likelihoods.register(dict)
