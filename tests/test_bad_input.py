"""Wrong input is refused with a message that ends the search: what was expected, what came, what to do.

Shape checks are off, as users run the library: the annotations would otherwise speak before its own messages.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from problems import data, make_problem
from qsgp import bounds, control_variates, datasets, estimators, metrics
from qsgp.bases import Fourier, Grid, Inducing, KernelFunctions
from qsgp.covariances import Chevron
from qsgp.fit import fit
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import Matern32, SquaredExponential, Sum, hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.predict import Prediction, augment, predict, relevance_vectors
from qsgp.problem import Problem
from qsgp.sampling import draw, step_generator
from qsgp.sources import Arrays
from qsgp.start import start
from qsgp.state import State
from qsgp.step import Settings
from qsgp.support import Support

pytestmark = pytest.mark.usefixtures("without_shape_checks")


class Case(NamedTuple):
    what: str
    call: Callable[[], object]
    expected: str
    got: str
    remedy: str
    error: type[Exception] = ValueError


ones = torch.ones
one = torch.tensor(1.0)
SITE = Gaussian(one)
SETTINGS = Settings(n_tilde=8, m_tilde=5, iterations=3)
GRID = [torch.linspace(-1, 1, 3)] * 2


def kernel(*lengthscale: float, variance: float = 1.0) -> SquaredExponential:
    return SquaredExponential(torch.tensor(lengthscale or (1.0, 1.0)), torch.tensor(variance))


def mean_loss(
    y: int = 2, i: int = 3, j: int = 3, rows: int = 2, s: Tensor | None = None, sigma2: float = 1.0
) -> Tensor:
    """Theorem 1 on a batch of 2 points and 3 functions, one size changed."""
    s = ones(3) if s is None else s
    return estimators.mean_loss(ones(y), ones(2, 3), ones(rows, 3), s, ones(i), ones(j), torch.tensor(sigma2), 4, 6)


def covariance_loss(i: int = 3, j_columns: int = 2, c: int = 2) -> Tensor:
    """Theorem 2 likewise, with two columns of C."""
    return estimators.covariance_loss(
        ones(2, 3), ones(2, 3), ones(3), ones(i, 2), ones(3, j_columns), ones(c), one, 4, 6
    )


def gram(a: tuple[int, int] = (2, 2), share: int = 6) -> Tensor:
    """Eq. (3) with two support points and two columns."""
    Phi_i, V_i = ones(2, 3), ones(3, 2)
    return control_variates.gram(Phi_i, Phi_i, ones(2, 6), V_i, V_i, ones(6, 2), ones(share), ones(a), 4, 6)


def nystrom(a: tuple[int, int] = (2, 2), share: int = 6) -> Tensor:
    B_i, V_i = ones(2, 3), ones(3, 2)
    return control_variates.nystrom(B_i, B_i, ones(2, 6), V_i, V_i, ones(6, 2), ones(share), ones(a), 6)


def begun(**kwargs: int | str | torch.dtype) -> State:
    return start(make_problem(**kwargs), SETTINGS)


def single_support() -> Problem:
    """Double precision everywhere but in the support set."""
    return replace(make_problem(), support=Support.build(kernel(), data(5, torch.float32)[0]))


def wide_kernel() -> SquaredExponential:
    return SquaredExponential(*hyperparameters(1.0, d=3, dtype=torch.float64))


NOISE = "Give the noise variance, not its logarithm"

REFUSED = [
    # --- estimators and bounds
    Case(
        "y_l against Phi_li", lambda: mean_loss(y=3), "same number of rows in y_l, Phi_li", "y_l has 3", "same indices"
    ),
    Case("Phi_lj against Phi_li", lambda: mean_loss(rows=4), "same number of rows", "Phi_lj has 4", "same indices"),
    Case("s_i of another draw", lambda: mean_loss(s=ones(2)), "s_i of shape (3,)", "got (2,)", "at the rows i"),
    Case(
        "S_ji turned round", lambda: mean_loss(s=ones(3, 2)), "S_ji of shape (3, 3)", "got (3, 2)", "columns follow i"
    ),
    Case("noise of zero", lambda: mean_loss(sigma2=0.0), "sigma2 > 0", "got 0.0", NOISE),
    Case("negative noise", lambda: mean_loss(sigma2=-1.0), "sigma2 > 0", "got -1.0", NOISE),
    Case("noise not a number", lambda: mean_loss(sigma2=torch.nan), "sigma2 > 0", "got nan", NOISE),
    Case(
        "dense S in constant_loss",
        lambda: estimators.constant_loss(ones(2), ones(3, 3), one, 4, 6),
        "needs a diagonal S",
        "got a block of shape (3, 3)",
        "learn_hyperparameters=False",
    ),
    Case(
        "one function for a U-statistic",
        lambda: estimators.gram_quadratic_u(ones(2, 1), ones(1, 1), 4, 6),
        "2 <= k <= m = 6",
        "got k = 1",
        "Draw two or more without replacement",
    ),
    Case(
        "more functions than there are in a U-statistic",
        lambda: estimators.prior_quadratic_u(ones(7, 7), ones(7, 1), 6),
        "2 <= k <= m = 6",
        "got k = 7",
        "without replacement",
    ),
    Case(
        "bound A: f_hat of another batch",
        lambda: bounds.site_bound_a(SITE, ones(2), ones(3), ones(2), 4),
        "same number of rows in y_l, f_hat",
        "f_hat has 3",
        "same indices",
    ),
    Case(
        "bound B: eta of another batch",
        lambda: bounds.site_bound_b(SITE, ones(2), ones(2), ones(2), ones(1), 4),
        "same number of rows in y_l, f_hat, v_hat, eta",
        "eta has 1",
        "same indices",
    ),
    Case(
        "bound Q: xi of another batch",
        lambda: bounds.site_bound_q(SITE, ones(2), ones(2), ones(2), ones(2), ones(3), 4),
        "same number of rows",
        "xi has 3",
        "same indices",
    ),
    # --- draws
    Case(
        "m_tilde > m", lambda: fit(make_problem(), Settings(8, 13)), "m_tilde <= m = 12", "m_tilde = 13", "m_tilde = m"
    ),
    Case(
        "n_tilde > n", lambda: fit(make_problem(), Settings(31, 5)), "n_tilde <= n = 30", "n_tilde = 31", "n_tilde = n"
    ),
    Case("no functions", lambda: fit(make_problem(), Settings(8, 0)), "1 <= m_tilde", "got m_tilde = 0", "full batch"),
    # --- data
    Case(
        "NaN in x",
        lambda: Arrays(torch.tensor([[1.0, torch.nan]]), ones(1)),
        "finite numbers in x",
        "column 1 has 1",
        "fill the gaps",
    ),
    Case(
        "infinity in x",
        lambda: Arrays(torch.tensor([[torch.inf, 1.0]]), ones(1)),
        "finite numbers in x",
        "column 0 has 1",
        "Drop those rows",
    ),
    Case(
        "NaN in y",
        lambda: Arrays(ones(3, 2), ones(3) * torch.nan),
        "finite numbers in y",
        "nan at [0]",
        "Drop the rows",
    ),
    Case(
        "y of another length", lambda: Arrays(ones(3, 2), ones(4)), "y of shape (3,)", "got (4,)", "one target for each"
    ),
    Case("y as a column", lambda: Arrays(ones(3, 2), ones(3, 1)), "y of shape (3,)", "got (3, 1)", "as a vector"),
    Case("x as a vector", lambda: Arrays(ones(3), ones(3)), "x of shape (n, d)", "got (3,)", "x[:, None]"),
    Case(
        "x and y of different types",
        lambda: Arrays(ones(3, 2), ones(3).double()),
        "one floating type on one device",
        "x torch.float32 on cpu and y torch.float64",
        "Convert them",
    ),
    Case(
        "labels 0 and 1",
        lambda: Logistic().check_targets(torch.tensor([0.0, 1.0])),
        "labels -1 and +1",
        "got 0.0 (1 such",
        "2 * (y == positive) - 1",
    ),
    Case(
        "unknown data set",
        lambda: datasets.load("nonsense"),
        "No nonsense.npz in",
        "no download is known",
        "set the environment variable QSGP_DATA",
        FileNotFoundError,
    ),
    Case(
        "known data set, no file and no network",
        lambda: datasets.load("kin40k"),
        "No kin40k.npz in",
        "the download failed",
        "set the environment variable QSGP_DATA",
        FileNotFoundError,
    ),
    Case("split out of range", lambda: datasets.load("toy", 2), "a split of toy from 0 to 1", "got 2", "2 in all"),
    Case("negative split", lambda: datasets.load("toy", -1), "a split of toy from 0 to 1", "got -1", "2 in all"),
    Case("no rows of robot arms", lambda: datasets.make_robot_arm(0), "n >= 1", "got n = 0", "one row or more"),
    Case(
        "negative noise of robot arms", lambda: datasets.make_robot_arm(3, -1.0), "noise >= 0", "got -1.0", "0 switches"
    ),
    # --- kernels and bases
    Case(
        "lengthscales for another number of inputs",
        lambda: hyperparameters([1.0, 1.0, 1.0], d=2),
        "lengthscale of shape (2,)",
        "got (3,)",
        "one lengthscale per input",
    ),
    Case("a lengthscale without inputs", lambda: hyperparameters(1.0), "one lengthscale per input", "1.0", "d as well"),
    Case("negative lengthscale", lambda: kernel(1.0, -1.0), "lengthscale > 0", "got -1.0", "not its logarithm"),
    Case("lengthscale not a number", lambda: kernel(1.0, torch.nan), "lengthscale > 0", "got nan", "not its logarithm"),
    Case("variance of zero", lambda: kernel(variance=0.0), "variance > 0", "got 0.0", "not its logarithm"),
    Case(
        "lengthscale that is no vector",
        lambda: SquaredExponential(one, one),
        "lengthscale of shape (1,)",
        "got ()",
        "qsgp.kernels.hyperparameters",
    ),
    Case(
        "x of another width", lambda: kernel()(ones(3, 3), ones(3, 2)), "x of shape (3, 2)", "got (3, 3)", "2 columns"
    ),
    Case(
        "z of another width", lambda: kernel()(ones(3, 2), ones(3, 1)), "z of shape (3, 2)", "got (3, 1)", "2 columns"
    ),
    Case(
        "unknown hyperparameter",
        lambda: kernel().with_parameters({"lengthscale": ones(2)}),
        "parameters among ['log_lengthscale', 'log_variance']",
        "got 'lengthscale'",
        "the names of parameters()",
    ),
    Case("odd number of Fourier functions", lambda: Fourier(kernel(), 5), "an even m >= 2", "got m = 5", "Use m = 6"),
    Case("no Fourier functions", lambda: Fourier(kernel(), 0), "an even m >= 2", "got m = 0", "Use m = 2"),
    Case(
        "Fourier functions of a sum",
        lambda: Fourier(Sum((kernel(), kernel())), 4),
        "spectral density can be drawn",
        "got Sum",
        "or inducing functions",
    ),
    Case(
        "negative seed",
        lambda: Fourier(kernel(), 4, seed=-1).columns(torch.arange(4)),
        "0 <= seed < 2^64",
        "got seed = -1",
        "modulo 2^64",
    ),
    Case(
        "grid of a Matern kernel",
        lambda: Grid.build(Matern32(ones(2), one), GRID, 5),
        "a product over its inputs",
        "got Matern32",
        "Use the squared exponential kernel",
    ),
    Case(
        "more functions than a grid has",
        lambda: Grid.build(kernel(), GRID, 500),
        "m <= 9",
        "got m = 500",
        "more grid points",
    ),
    Case(
        "grids for another number of inputs",
        lambda: Grid.build(kernel(), [*GRID, *GRID], 5),
        "lengthscale of shape (4,)",
        "got (2,)",
        "one grid per input",
    ),
    Case(
        "grid at another lengthscale",
        lambda: replace(Grid.build(kernel(), GRID, 5), kernel=kernel(2.0, 2.0)),
        "lengthscales [1.0, 1.0] of the eigenfunctions",
        "got [2.0, 2.0]",
        "call Grid.build again",
    ),
    Case(
        "relevance vectors of a sum",
        lambda: KernelFunctions(Sum((kernel(), kernel())), ones(3, 2)),
        "one variance to divide by",
        "got Sum",
        "squared exponential or Matern",
    ),
    # --- likelihoods, covariance, support
    Case("Gaussian noise of zero", lambda: Gaussian(0 * one), "noise_variance > 0", "got 0.0", "such as 1e-6"),
    Case("Gaussian noise not a number", lambda: Gaussian(one * torch.nan), "noise_variance > 0", "got nan", "variance"),
    Case("negative Laplace scale", lambda: Laplace(-one), "scale > 0", "got -1.0", "its variance is 2 b^2"),
    Case("no quadrature points", lambda: Logistic(points=0), "points >= 1", "got 0", "sufficient_points"),
    Case(
        "dense_columns > m",
        lambda: Chevron(4, 5),
        "dense_columns <= m = 4",
        "got 5",
        "0 for mean field and m for a full",
    ),
    Case("negative dense_columns", lambda: Chevron(4, -1), "0 <= dense_columns", "got -1", "0 for mean field"),
    Case(
        "support points of another width than the kernel",
        lambda: Support.build(kernel(), ones(3, 3)),
        "x of shape (3, 2)",
        "got (3, 3)",
        "2 columns",
    ),
    Case(
        "support points not a number",
        lambda: Support.build(kernel(), ones(3, 2) * torch.nan),
        "K(U, U) of the 3 support points",
        "no Cholesky factor",
        "Look for non-finite inputs",
    ),
    # --- training and prediction
    Case(
        "support points of another width than the data",
        lambda: start(replace(make_problem(), support=Support.build(wide_kernel(), torch.eye(3).double())), SETTINGS),
        "support points with d = 2",
        "got 3",
        "Take them from the source",
    ),
    Case(
        "covariance over another m",
        lambda: start(replace(make_problem(), covariance=Chevron(7, 2)), SETTINGS),
        "a covariance over m = 12",
        "got one over 7",
        "Chevron(basis.m, k)",
    ),
    Case(
        "dense S with hyperparameters to learn",
        lambda: start(make_problem("inducing"), replace(SETTINGS, learn_hyperparameters=True)),
        "needs a diagonal S",
        "Inducing has a dense one",
        "learn_hyperparameters=False",
    ),
    Case(
        "x of another width in predict",
        lambda: predict(make_problem(), begun(), ones(2, 3).double()),
        "x of shape (2, 2)",
        "got (2, 3)",
        "trained on 2 inputs",
    ),
    Case(
        "one input for two in predict",
        lambda: predict(make_problem(), begun(), ones(4, 1).double()),
        "x of shape (4, 2)",
        "got (4, 1)",
        "trained on 2 inputs",
    ),
    Case(
        "relevance vectors without learned precisions",
        lambda: relevance_vectors(begun()),
        "one learned precision for each function",
        "got one without",
        "Train a KernelFunctions basis",
    ),
    Case(
        "relevant functions only, without learned precisions",
        lambda: predict(make_problem(), begun(), ones(2, 2).double(), relevant=1e4),
        "one learned precision for each function",
        "got one without",
        "Train a KernelFunctions basis",
    ),
    Case(
        "x and y of different lengths in fit_exact_gp",
        lambda: fit_exact_gp(kernel(), ones(3, 2), ones(4)),
        "same number of rows in x, y",
        "y has 4",
        "same indices",
    ),
    Case(
        "NaN in fit_exact_gp",
        lambda: fit_exact_gp(kernel(), ones(3, 2) * torch.nan, ones(3)),
        "finite numbers in x",
        "got nan at [0, 0]",
        "Drop or fill",
    ),
    # --- metrics
    Case(
        "a column in rmse",
        lambda: metrics.rmse(np.ones(3), np.ones((3, 1))),
        "mean of shape (3,)",
        "got (3, 1)",
        "flatten a column",
    ),
    Case(
        "negative variance in coverage",
        lambda: metrics.coverage(np.ones(3), np.ones(3), -np.ones(3)),
        "variance > 0",
        "got -1.0",
        "noise variance included",
    ),
    Case(
        "a level in percent", lambda: metrics.coverage(ones(3), ones(3), ones(3), 95), "< level < 1", "got 95", "0.95"
    ),
]


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    """A data folder with one small set, an empty cache, and a source that answers nothing."""
    np.savez(tmp_path / "toy.npz", X=np.ones((4, 2)), y=np.ones(4), test_mask=np.eye(2, 4, dtype=bool))
    monkeypatch.setenv("QSGP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "SOURCE", (tmp_path / "nowhere").as_uri())


def assert_refused(case: Case) -> None:
    with pytest.raises(case.error) as caught:
        case.call()
    pattern = ".*".join(re.escape(part) for part in (case.expected, case.got, case.remedy))
    assert re.search(pattern, str(caught.value), re.DOTALL), str(caught.value)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
def test_bad_input_is_refused(case: Case) -> None:
    assert_refused(case)
