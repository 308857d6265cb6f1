"""Section 4, MNIST: odd against even digits, a logistic site, 10^6 and 10^7 Fourier features, mean field."""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch
from jaxtyping import Float
from sklearn.datasets import load_digits
from torch import Tensor

from qsgp import datasets
from qsgp.bases import Fourier
from qsgp.data.arrays import Arrays
from qsgp.data.rows import Rows
from qsgp.kernels import SquaredExponential, Tied, hyperparameters
from qsgp.likelihoods import Logistic
from qsgp.likelihoods import pointwise as sites
from qsgp.models.classifier import QSGPClassifier
from qsgp.models.regressor import QSGPRegressor
from qsgp.paper import Chevron, Problem, Settings, Support, predict
from qsgp.paper.problem import at_hyperparameters
from qsgp.paper.settings import Bound
from qsgp.reproduce.experiment import Asked, Case, Choice, Experiment, Row
from qsgp.reproduce.steps import trained, uninterrupted
from qsgp.solvers import feature_newton
from qsgp.solvers.closed_form import Effort, fit_hyperparameters
from qsgp.solvers.feature_dual import Descent
from qsgp.solvers.support_variance import SupportVariance

SITE = Logistic(101)  # quadrature points
BOUNDS: tuple[Bound, ...] = ("printed", "B", "Q", "A")
NEWTON_S = 300.0  # after which the search for the most probable weights ends where it is
SMALL = "digits of scikit-learn"  # where MNIST is not at hand


@dataclass(frozen=True)
class Sizes:
    """The paper says neither how many steps it takes nor how many support points: those of its regressions are taken.

    ``support`` points tell the bounds a variance; there is no control variate.
    """

    m: tuple[int, ...] = (1_000_000, 10_000_000)
    m_tilde: int = 20_000
    n_tilde: int = 100
    iterations: int = 100_000
    support: int = 500
    rows: int | None = None  # None: all
    points: int = 1000  # rows that hyperparameters are learned from
    seconds: float = 60.0  # of the library's defaults


PRINTED = Sizes()
FAST = Sizes((4000,), 200, 100, 300, 100, rows=3000, points=300, seconds=10.0)

PAPER = (
    "Hold-out accuracy 97.85 % by the median and mean negative log probability 0.068 with m = 10^6, in 11.1 minutes on "
    "a Quadro M5000; 0.063 with m = 10^7. SVGP (Hensman et al., 2015): 97.8 % and 0.069."
)


@dataclass(frozen=True)
class Digits:
    """Pixels between 0 and 1, labels -1 (even) and +1 (odd), and the kernel that all rows of the table start from."""

    x: Float[Tensor, "n d"]
    y: Float[Tensor, " n"]
    x_new: Float[Tensor, "t d"]
    y_new: Float[Tensor, " t"]
    kernel: SquaredExponential
    learned_s: float


@lru_cache(maxsize=1)
def digits_of(data: str, rows: int | None, points: int, seed: int, device: str) -> Digits:
    x, digit, x_new, digit_new = _numbers(data)
    some = np.random.default_rng(seed).permutation(len(x))[:rows]
    first = slice(None if rows is None else rows)
    tables = (x[some], 2.0 * (digit[some] % 2) - 1, x_new[first], 2.0 * (digit_new[first] % 2) - 1)
    x_t, y_t, x_new_t, y_new_t = (torch.tensor(part, dtype=torch.float32, device=device) for part in tables)
    began = time.perf_counter()
    kernel = _learned(x_t[:points], y_t[:points])
    return Digits(x_t, y_t, x_new_t, y_new_t, kernel, time.perf_counter() - began)


def _numbers(data: str) -> tuple[np.ndarray, ...]:
    """Training images and their digits, and those to test with."""
    if data == "mnist":
        found = datasets.load("mnist")
        return found.x_train, found.y_train.astype(int), found.x_test, found.y_test.astype(int)
    x, digit = load_digits(return_X_y=True)
    return x[:1300] / 16, digit[:1300], x[1300:] / 16, digit[1300:]


def _learned(x: Float[Tensor, "p d"], y: Float[Tensor, " p"]) -> SquaredExponential:
    """One lengthscale for all pixels and a variance, by the evidence of some rows."""
    d = x.shape[1]
    first = Tied.of(SquaredExponential(*hyperparameters(5.0, 10.0, d=d, dtype=torch.float64, device=x.device)))
    rows = Rows(x.double(), y.double()[:, None], torch.ones_like(y, dtype=torch.float64))
    found = fit_hyperparameters(first, Logistic(), rows, Effort(15, 1e-5))[0].kernel
    assert isinstance(found, SquaredExponential)
    return found.with_parameters({name: value.to(x) for name, value in found.parameters().items()})


def cases(choice: Choice) -> Iterable[Case]:
    sizes = FAST if choice.fast else PRINTED
    data = SMALL if choice.fast and datasets.stored("mnist") is None else "mnist"
    place = (data, sizes.rows, sizes.points, choice.seed, choice.device)
    key = {"data": data, "rows": sizes.rows or "all", "seed": choice.seed, "device": choice.device}
    models: list[tuple[Row, Callable[[Digits], Row]]] = []
    for m in sizes.m:
        steps = {"m": m, "m_tilde": sizes.m_tilde, "n_tilde": sizes.n_tilde, "iterations": sizes.iterations}
        for bound in (choice.asked.bound,) if choice.asked.bound else BOUNDS:
            label = {"model": _model(bound)} | steps | _asked(choice, bound).told()
            models.append((label, partial(_by_steps, bound, replace(sizes, m=(m,)), choice)))
        models.append(({"model": "same model, most probable weights", "m": m}, partial(_solved, m, sizes, choice)))
    models.append(({"model": "ours, classifier", "limit_s": sizes.seconds}, partial(_classifier, sizes, choice)))
    models.append(({"model": "ours, labels as numbers", "limit_s": sizes.seconds}, partial(_labels, sizes, choice)))
    for label, measure in models:
        yield Case(label | key, uninterrupted(partial(_row, place, measure)))


def _asked(choice: Choice, bound: Bound) -> Asked:
    """Neighbouring functions are drawn where steps can: with the quadratic bound."""
    draws = (choice.asked.draws or "blocks") if bound == "Q" else "scattered"
    return replace(choice.asked, bound=bound, draws=draws)


def _row(place: tuple[str, int | None, int, int, str], measure: Callable[[Digits], Row]) -> Row:
    digits = digits_of(*place)
    lengthscale, variance = float(digits.kernel.lengthscale[0]), float(digits.kernel.variance)
    about = {"n": len(digits.x), "lengthscale": lengthscale, "variance": variance, "learned_s": digits.learned_s}
    return measure(digits) | about


def scores(digits: Digits, mean: Tensor, log_density: Tensor) -> Row:
    """Accuracy of the median, and mean negative log probability."""
    right = (mean.to(digits.y_new) * digits.y_new > 0).double().mean()
    return {"accuracy": float(right), "mnlp": float(-log_density.double().mean())}


def _by_steps(bound: Bound, sizes: Sizes, choice: Choice, digits: Digits) -> Row:
    (m,) = sizes.m
    basis, U = Fourier(digits.kernel, m, seed=choice.seed), digits.x[: sizes.support]
    problem = Problem(Arrays(digits.x, digits.y), basis, SITE, Chevron(m), Support.build(digits.kernel, U))
    printed = Settings(
        n_tilde=sizes.n_tilde,
        m_tilde=sizes.m_tilde,
        iterations=sizes.iterations,
        learn_hyperparameters=True,
        control="none",
        seed=choice.seed,
        every=max(1, sizes.iterations // 1000),
    )
    run = trained(problem, _asked(choice, bound).put(printed), choice)
    state = run.state
    found = predict(problem, state, digits.x_new)
    row = scores(digits, found.mean, found.log_density(digits.y_new)) | {"seconds": run.seconds}
    kernel = at_hyperparameters(problem, state.theta)[0].kernel
    assert isinstance(kernel, SquaredExponential)
    return row | {"deviation": float(found.variance.mean().sqrt()), "last_variance": float(kernel.variance)}


def _solved(m: int, sizes: Sizes, choice: Choice, digits: Digits) -> Row:
    """Newton's method on all rows and functions; the variance is that of the support points."""
    began = time.perf_counter()
    basis, U, site = Fourier(digits.kernel, m, seed=choice.seed), digits.x[: sizes.support], sites.logistic()
    descent = Descent(min(m, sizes.m_tilde), 20, 1e-3, halt=lambda: time.perf_counter() - began > NEWTON_S)
    Y = digits.y[:, None]
    found = feature_newton.solve(basis, digits.x, Y, site, U, descent)
    assert site.curvature is not None
    curvature = site.curvature(Y[: len(U)], found.f[: len(U)])
    seconds = time.perf_counter() - began
    mean = basis.phi_v(digits.x_new, found.V)[:, 0]
    variance = SupportVariance.build(digits.kernel, U, curvature, len(Y))(digits.x_new)[:, 0]
    return scores(digits, mean, SITE.log_density(digits.y_new, mean, variance)) | {"seconds": seconds}


def _classifier(sizes: Sizes, choice: Choice, digits: Digits) -> Row:
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was little time is what the row says
        model = QSGPClassifier(max_time=sizes.seconds, device=choice.device, random_state=choice.seed)
        model.fit(digits.x.cpu().numpy(), digits.y.cpu().numpy())
    seconds = time.perf_counter() - began
    odd = torch.from_numpy(model.predict_proba(digits.x_new.cpu().numpy())[:, 1]).double()
    y = digits.y_new.cpu().double()
    own = torch.where(y > 0, odd, 1 - odd)
    return scores(digits, odd - 0.5, own.log()) | {"seconds": seconds, "kernel": model.kernel_}


def _labels(sizes: Sizes, choice: Choice, digits: Digits) -> Row:
    """The labels as numbers with Gaussian noise; odd is what lies above 0."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = QSGPRegressor(max_time=sizes.seconds, device=choice.device, random_state=choice.seed)
        model.fit(digits.x.cpu().numpy(), digits.y.cpu().numpy())
    seconds = time.perf_counter() - began
    mean, deviation = (torch.from_numpy(p) for p in model.predict(digits.x_new.cpu().numpy(), return_std=True))
    own = torch.special.log_ndtr(digits.y_new.cpu() * mean / deviation)
    return scores(digits, mean, own) | {"seconds": seconds, "kernel": model.kernel_}


def summary(rows: Sequence[Row]) -> str:
    """Of every m the printed bound, the best of the mended ones and the solved model; then the defaults."""
    said = []
    for m in dict.fromkeys(row["m"] for row in rows if "m" in row):
        own = [row for row in rows if row.get("m") == m and row.get("mnlp") is not None]
        steps = [row for row in own if "iterations" in row]
        mended = [row for row in steps if row["model"] != _model("printed")]
        said += [f"With m = {m:,}, {_words(row)}." for row in steps if row["model"] == _model("printed")]
        if mended:
            said.append(f"Of the bounds that hold the best is {_words(min(mended, key=lambda row: row['mnlp']))}.")
        said += [f"{_words(row)}." for row in own if "iterations" not in row]
    said += [f"{_words(row)}." for row in rows if "m" not in row and row.get("mnlp") is not None]
    return " ".join(said)


def _words(row: Row) -> str:
    return f"{row['model']}: {row['accuracy']:.2%} and {row['mnlp']:.3f} in {row['seconds']:.0f} s"


def _model(bound: str) -> str:
    return f"QSGP-0, bound {bound}"


TAKES = ("control", "bound", "rate", "draws")
MNIST = Experiment("mnist", "MNIST: odd against even digits", PAPER, cases, summary, takes=TAKES)
