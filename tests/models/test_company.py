"""A row has the same prediction alone, beside far rows and in any order; and the mean costs no variance."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from qsgp import QSGPClassifier, QSGPRegressor, engine
from qsgp.bases import Fourier, Grid, Inducing, KernelFunctions
from qsgp.engine import cpu
from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.paper.chevron import Chevron
from qsgp.posteriors.posteriors import ClosedForm, Features, FourierWeights, KernelFunctionsAtRows, Posterior
from qsgp.posteriors.spread import Spread
from qsgp.solvers.pathwise import prior_draws

KINDS = ["closed form", "rows", "fourier weights", "fourier", "inducing", "relevance", "grid"]
NOISE = 1e-3  # little: weights are large and cancel, and so do the parts of the variance


def posterior(kind: str, dtype: torch.dtype, name: str = "rbf", outputs: int = 1) -> Posterior:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    n, d, m, s = 300, 3, 120, 6
    x = draw(n, d)
    Y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:] + NOISE**0.5 * draw(n, outputs)
    kernel, double = (BY_NAME[name](*hyperparameters(1.5, 1.2, d=d, dtype=t)) for t in (dtype, torch.float64))
    likelihood, K = Gaussian(torch.tensor(NOISE, dtype=dtype)), double(x, x)
    if kind == "closed form":
        return ClosedForm.build(kernel, likelihood, x.to(dtype), Y.to(dtype), torch.ones(n, dtype=dtype))
    spread = Spread.build(kernel, x[:100].to(dtype), torch.tensor(NOISE / 3, dtype=dtype), torch.tensor([[0.8, 20.0]]))
    if kind == "rows":
        known = torch.cat([Y, prior_draws(double, x, s, 0) + NOISE**0.5 * draw(n, s)], 1)
        A = torch.linalg.solve(K + NOISE * torch.eye(n), known).to(dtype)
        return KernelFunctionsAtRows(kernel, likelihood, x.to(dtype), A, outputs, 0, spread)
    fourier, table = Fourier(kernel, m, seed=1), draw(m, outputs + s).to(dtype)
    if kind == "fourier weights":
        return FourierWeights(fourier, likelihood, table, outputs, spread)
    table[:, outputs:] *= 0.1
    if kind in ("inducing", "relevance"):
        table[:, :outputs] = torch.linalg.solve(K[:m, :m] + NOISE * torch.eye(m), Y[:m]).to(dtype)
    basis = {
        "fourier": lambda: fourier,
        "inducing": lambda: Inducing(kernel, x[:m].to(dtype)),
        "relevance": lambda: KernelFunctions(kernel, x[:m].to(dtype)),
        "grid": lambda: Grid.build(
            BY_NAME["rbf"](kernel.lengthscale, kernel.variance), [torch.linspace(-3, 3, 6)] * d, m
        ),
    }[kind]()
    return Features(basis, likelihood, Chevron(m, s - 1), table, outputs)


def companies(x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Tables that hold the rows of x, and where they are."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
    yield x[order], order.argsort()
    for far in (1e3, 1e6):
        others = torch.tensor([far, -far, far], dtype=x.dtype).expand(40, -1)
        yield torch.cat([others, x, others]), torch.arange(40, 40 + len(x))


@pytest.mark.parametrize("name", ["rbf", "matern12"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_prediction_in_any_company(kind: str, dtype: torch.dtype, name: str) -> None:
    if kind == "closed form" and dtype == torch.float32:
        pytest.skip("the closed form is float64 whatever dtype says")
    found = posterior(kind, dtype, name)
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    alone = [found.latent(row[None]) for row in x]
    mean, deviation = torch.cat([m for m, _ in alone]), torch.cat([v for _, v in alone]).sqrt()
    for table, at in companies(x):
        m, v = found.latent(table)
        assert ((m[at] - mean).abs() / mean.abs().max()).max() < 1e-6
        assert (v[at].sqrt() / deviation - 1).abs().max() < 1e-6


def test_rows_of_other_sizes_are_computed_apart_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It scales the numbers of a call by the largest one; results come back in the order of the rows."""
    X, y = table()
    model = QSGPRegressor(learn_hyperparameters=False, random_state=0).fit(X, y)
    X = np.concatenate([X[:2], np.full((1, 3), 1e3), X[2:4], np.full((2, 3), 1e6)])
    wanted, draws, calls, whole = model.predict(X, return_std=True), model.sample_y(X, 2), [], ClosedForm.latent
    monkeypatch.setattr(ClosedForm, "latent", lambda self, x: calls.append(len(x)) or whole(self, x))
    monkeypatch.setattr(QSGPRegressor, "_device", "cuda")
    monkeypatch.setattr(QSGPRegressor, "_single", True)
    monkeypatch.setattr("qsgp.memory.budget", lambda *_: 10**9)
    np.testing.assert_allclose(model.predict(X, return_std=True), wanted, rtol=1e-10)
    np.testing.assert_allclose(model.sample_y(X, 2), draws, rtol=1e-10)
    assert calls == [4, 1, 2]


@pytest.mark.gpu
def test_a_far_row_changes_no_other_on_a_gpu() -> None:
    X, y = table(3200)
    model = QSGPRegressor(device="cuda", max_time=5, random_state=0).fit(X, y)
    mean, deviation = model.predict(X[:50], return_std=True)
    for far in (1e3, 1e6):
        m, s = model.predict(np.concatenate([X[:50], np.full((1, 3), far)]), return_std=True)
        assert np.abs(m[:50] - mean).max() < 1e-5 * np.abs(mean).max()
        assert np.abs(s[:50] / deviation - 1).max() < 1e-4


@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.parametrize("kernel", engine.KERNELS)
def test_a_row_has_the_same_products_in_any_company(
    kernel: str, compiler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit with the C files; the matrix products of plain torch round in an order of their own."""
    if not compiler:
        monkeypatch.setattr(cpu, "library", lambda: None)
    generator = torch.Generator().manual_seed(0)
    x, z, V = (torch.randn(*shape, generator=generator) for shape in ((10, 3), (900, 3), (900, 1)))
    ell, one = torch.full((3,), 1.5), torch.ones(())
    drawn = engine.drawn(BY_NAME[kernel](ell, one), seed=1, first=0, pairs=450)

    def products(rows: Tensor) -> tuple[Tensor, Tensor]:
        return engine.k_v(rows, z, V, ell, one, kernel=kernel), engine.phi_v(rows, drawn, V, ell, one)

    alone = [torch.cat(parts) for parts in zip(*(products(row[None]) for row in x), strict=True)]
    for table, at in companies(x):
        for found, wanted in zip(products(table), alone, strict=True):
            if compiler:
                assert torch.equal(found[at], wanted)
            else:
                assert (found[at] - wanted).abs().max() < 5e-6 * wanted.abs().max()


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_alone_is_that_of_the_posterior(kind: str, outputs: int) -> None:
    """Asking for a deviation does not change a mean, bit for bit in the precision that is the default."""
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = posterior(kind, torch.float64 if kind == "closed form" else torch.float32, outputs=outputs)
    assert torch.equal(found.mean(x), found.latent(x)[0])
    found = posterior(kind, torch.float64, outputs=outputs)
    torch.testing.assert_close(found.mean(x), found.latent(x)[0], rtol=1e-10, atol=1e-10)


def table(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def refuse(monkeypatch: pytest.MonkeyPatch, model: QSGPRegressor | QSGPClassifier) -> None:
    def latent(self: Posterior, x: Tensor) -> None:
        raise AssertionError("a variance was computed")

    monkeypatch.setattr(type(model._posterior), "latent", latent)


@pytest.mark.parametrize("keywords", [{}, {"likelihood": "laplace"}, {"n_features": 40, "max_iter": 5}], ids=str)
def test_predict_computes_no_variance_that_nobody_asked_for(
    keywords: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = table()
    model = QSGPRegressor(learn_hyperparameters=False, random_state=0, **keywords).fit(X, y)
    wanted, _ = model.predict(X, return_std=True)
    refuse(monkeypatch, model)
    assert np.array_equal(model.predict(X), wanted)


@pytest.mark.parametrize("keywords", [{}, {"n_features": 40, "max_iter": 5}], ids=str)
def test_labels_of_two_classes_need_no_variance(keywords: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    model = QSGPClassifier(learn_hyperparameters=False, random_state=0, **keywords).fit(X, y > 0)
    X = np.concatenate([X, np.full((1, 3), 1e6)])
    for _ in range(2):
        wanted = model.classes_[model.predict_proba(X).argmax(1)]
        with monkeypatch.context() as patch:
            refuse(patch, model)
            assert np.array_equal(model.predict(X), wanted)
        model.calibrate(X[:80], y > 0.5)


def test_labels_of_several_classes_are_the_most_probable_ones() -> None:
    """Each class of the closed form has a variance of its own, which may turn the order of means round."""
    X, y = table()
    model = QSGPClassifier(learn_hyperparameters=False, random_state=0).fit(X, np.digitize(y, [-0.5, 0.5]))
    X = np.random.default_rng(1).normal(size=(500, 3)) * 2
    assert np.array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(1)])


def test_outputs_with_the_same_noise_share_one_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    found, calls, solve = posterior("closed form", torch.float64, outputs=3), [], torch.linalg.solve_triangular
    monkeypatch.setattr(torch.linalg, "solve_triangular", lambda *a, **k: calls.append(1) or solve(*a, **k))
    _, variance = found.latent(torch.zeros(2, 3, dtype=torch.float64))
    assert len(calls) == 1 and variance.shape == (2, 3)
