"""Wrong input is refused with a message that ends the search: what was expected, what came, what to do.

Shape checks are off, as users run the library: the annotations would otherwise speak before its own messages.
"""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from problems import data, make_problem
from qsgp import datasets, metrics
from qsgp.bases import Fourier, Grid, KernelFunctions
from qsgp.data.arrays import Arrays
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import Matern32, SquaredExponential, Sum, hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.paper import bounds, control_variates, theorems
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import fit
from qsgp.paper.prediction import Prediction, augment, predict, relevance_vectors
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start
from qsgp.paper.state import State
from qsgp.paper.support import Support
from qsgp.paper.theorems import Sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")


# what is wrong, a call, and the message in three parts: what was expected ... what came ... what to do
Case = tuple[str, Callable[[], object], str]


ones = torch.ones
one = torch.tensor(1.0)
SITE = Gaussian(one)
SETTINGS = Settings(n_tilde=8, m_tilde=5, iterations=3)
GRID = [torch.linspace(-1, 1, 3)] * 2


def kernel(*lengthscale: float, variance: float = 1.0) -> SquaredExponential:
    return SquaredExponential(torch.tensor(lengthscale or (1.0, 1.0)), torch.tensor(variance))


def mean_loss(
    y: tuple[int, int] = (2, 1),
    i: int = 3,
    j: int = 3,
    rows: int = 2,
    s: Tensor | None = None,
    sigma2: float = 1.0,
) -> Tensor:
    """Theorem 1 on a batch of 2 points and 3 functions, one size changed."""
    mu = Sampled.of(ones(2, 3), ones(rows, 3), ones(i, 1), ones(j, 1), 4, 6)
    return theorems.mean_loss(ones(y), mu, (ones(3), ones(3)) if s is None else s, torch.tensor(sigma2))


def covariance_loss(i: int = 3, j_columns: int = 2, c: int = 2) -> Tensor:
    """Theorem 2 likewise, with two columns of C."""
    C = Sampled.of(ones(2, 3), ones(2, 3), ones(i, 2), ones(3, j_columns), 4, 6)
    return theorems.covariance_loss(C, ones(c), (ones(3), ones(3)), one)


def parts() -> list[control_variates.Part]:
    """A sketch at two draws of three functions, and at both together."""
    return [control_variates.Part(ones(2, size), ones(size, 2)) for size in (3, 3, 6)]


def gram(a: tuple[int, int] = (2, 2), share: int = 6) -> Tensor:
    """Eq. (3) with two support points and two columns."""
    return control_variates.gram(*parts(), ones(share), ones(a), 4, 6)


def nystrom(a: tuple[int, int] = (2, 2), share: int = 6) -> Tensor:
    return control_variates.nystrom(*parts(), ones(share), ones(a), 6)


def gram_quadratic(i: int = 3, j_columns: int = 2) -> Tensor:
    return theorems.gram_quadratic(Sampled.of(ones(2, 3), ones(2, 3), ones(i, 2), ones(3, j_columns), 4, 6))


def sampled_variance(rows: int = 2, i: int = 3, j_columns: int = 2) -> Tensor:
    return bounds.sampled_variance(ones(2, 3), ones(rows, 3), ones(i, 2), ones(3, j_columns), 6, 2)


def fourier_at(width: int) -> Tensor:
    basis = Fourier(kernel(), 4)
    return basis.features(ones(4, width), basis.columns(torch.arange(4)))


def go_on(**other: int | str) -> object:
    """Train another problem from the state of the usual one."""
    return fit(make_problem(**other), SETTINGS, past=begun())


def begun(**kwargs: int | str | torch.dtype) -> State:
    return start(make_problem(**kwargs), SETTINGS)


def single_support() -> Problem:
    """Double precision everywhere but in the support set."""
    return replace(make_problem(), support=Support.build(kernel(), data(5, torch.float32)[0]))


def wide_kernel() -> SquaredExponential:
    return SquaredExponential(*hyperparameters(1.0, d=3, dtype=torch.float64))


REFUSED: list[Case] = [
    # --- estimators and bounds
    (
        "y_l against Phi_li",
        lambda: mean_loss(y=(3, 1)),
        "same number of rows in y_l, Phi_li ... y_l has 3 ... same indices",
    ),
    ("Phi_lj against Phi_li", lambda: mean_loss(rows=4), "same number of rows ... Phi_lj has 4 ... same indices"),
    (
        "s_i of another draw",
        lambda: mean_loss(s=(ones(2), ones(2))),
        "s_i of shape (3,) ... got (2,) ... at the rows i",
    ),
    ("S_ji turned round", lambda: mean_loss(s=ones(3, 2)), "S_ji of shape (3, 3) ... got (3, 2) ... columns follow i"),
    (
        "noise of zero",
        lambda: mean_loss(sigma2=0.0),
        "sigma2 > 0 ... got 0.0 ... Give the noise variance, not its logarithm",
    ),
    (
        "negative noise",
        lambda: mean_loss(sigma2=-1.0),
        "sigma2 > 0 ... got -1.0 ... Give the noise variance, not its logarithm",
    ),
    (
        "noise not a number",
        lambda: mean_loss(sigma2=torch.nan),
        "sigma2 > 0 ... got nan ... Give the noise variance, not its logarithm",
    ),
    (
        "dense S in constant_loss",
        lambda: theorems.constant_loss(ones(2), ones(3, 3), one, 4, 6),
        "needs a diagonal S ... got a block of shape (3, 3) ... log_determinant",
    ),
    (
        "one function for a U-statistic",
        lambda: theorems.gram_quadratic_u(ones(2, 1), ones(1, 1), 4, 6),
        "2 <= k <= m = 6 ... got k = 1 ... Draw two or more without replacement",
    ),
    (
        "more functions than there are in a U-statistic",
        lambda: theorems.prior_quadratic_u(ones(7, 7), ones(7, 1), 6),
        "2 <= k <= m = 6 ... got k = 7 ... without replacement",
    ),
    (
        "bound A: f_hat of another batch",
        lambda: bounds.site_bound_a(SITE, ones(2), ones(3), ones(2), 4),
        "same number of rows in y_l, f_hat ... f_hat has 3 ... same indices",
    ),
    (
        "bound B: eta of another batch",
        lambda: bounds.site_bound_b(SITE, ones(2), ones(2), ones(2), ones(1), 4),
        "same number of rows in y_l, f_hat, v_hat, eta ... eta has 1 ... same indices",
    ),
    (
        "bound Q: xi of another batch",
        lambda: bounds.site_bound_q(SITE, ones(2), bounds.Moments(ones(2), ones(2), ones(2)), ones(3), 4),
        "same number of rows ... xi has 3 ... same indices",
    ),
    # --- draws
    ("m_tilde > m", lambda: fit(make_problem(), Settings(8, 13)), "m_tilde <= m = 12 ... m_tilde = 13 ... m_tilde = m"),
    ("n_tilde > n", lambda: fit(make_problem(), Settings(31, 5)), "n_tilde <= n = 30 ... n_tilde = 31 ... n_tilde = n"),
    ("no functions", lambda: fit(make_problem(), Settings(8, 0)), "1 <= m_tilde ... got m_tilde = 0 ... full batch"),
    # --- data
    (
        "NaN in x",
        lambda: Arrays(torch.tensor([[1.0, torch.nan]]), ones(1)),
        "finite numbers in x ... column 1 has 1 ... fill the gaps",
    ),
    (
        "infinity in x",
        lambda: Arrays(torch.tensor([[torch.inf, 1.0]]), ones(1)),
        "finite numbers in x ... column 0 has 1 ... Drop those rows",
    ),
    (
        "NaN in y",
        lambda: Arrays(ones(3, 2), ones(3) * torch.nan),
        "finite numbers in y ... nan at [0] ... Drop the rows",
    ),
    (
        "y of another length",
        lambda: Arrays(ones(3, 2), ones(4)),
        "y of shape (3,) ... got (4,) ... one target for each",
    ),
    (
        "y with three axes",
        lambda: Arrays(ones(3, 2), ones(3, 1, 1)),
        "y of shape (3, 1) ... got (3, 1, 1) ... each output",
    ),
    (
        "weights of another length",
        lambda: Arrays(ones(3, 2), ones(3), ones(2)),
        "weight of shape (3,) ... got (2,) ... each row",
    ),
    (
        "negative weights",
        lambda: Arrays(ones(3, 2), ones(3), -ones(3)),
        "weights >= 0 ... got -1.0 ... how often a row counts",
    ),
    (
        "weights of zero",
        lambda: Arrays(ones(3, 2), ones(3), 0 * ones(3)),
        "not all of them 0 ... got 0.0 ... how often a row",
    ),
    (
        "weight not a number",
        lambda: Arrays(ones(3, 2), ones(3), ones(3) * torch.nan),
        "numbers in weight ... nan at [0] ... 0 leaves",
    ),
    ("x as a vector", lambda: Arrays(ones(3), ones(3)), "x of shape (n, d) ... got (3,) ... x[:, None]"),
    (
        "x and y of different types",
        lambda: Arrays(ones(3, 2), ones(3).double()),
        "one floating type on one device ... x torch.float32 on cpu and y torch.float64 ... Convert them",
    ),
    (
        "labels 0 and 1",
        lambda: Logistic().check_targets(torch.tensor([0.0, 1.0])),
        "labels -1 and +1 ... got 0.0 (1 such ... 2 * (y == positive) - 1",
    ),
    (
        "unknown data set",
        lambda: datasets.load("nonsense"),
        "No nonsense.npz in ... no download is known ... set the environment variable QSGP_DATA",
    ),
    (
        "known data set, no file and no network",
        lambda: datasets.load("kin40k"),
        "No kin40k.npz in ... the download failed ... set the environment variable QSGP_DATA",
    ),
    ("split out of range", lambda: datasets.load("toy", 2), "a split of toy from 0 to 1 ... got 2 ... 2 in all"),
    ("negative split", lambda: datasets.load("toy", -1), "a split of toy from 0 to 1 ... got -1 ... 2 in all"),
    ("no rows of robot arms", lambda: datasets.make_robot_arm(0), "n >= 1 ... got n = 0 ... one row or more"),
    (
        "negative noise of robot arms",
        lambda: datasets.make_robot_arm(3, -1.0),
        "noise >= 0 ... got -1.0 ... 0 switches",
    ),
    # --- kernels and bases
    (
        "lengthscales for another number of inputs",
        lambda: hyperparameters([1.0, 1.0, 1.0], d=2),
        "lengthscale of shape (2,) ... got (3,) ... one lengthscale per input",
    ),
    ("a lengthscale without inputs", lambda: hyperparameters(1.0), "one lengthscale per input ... 1.0 ... d as well"),
    ("negative lengthscale", lambda: kernel(1.0, -1.0), "lengthscale > 0 ... got -1.0 ... not its logarithm"),
    ("lengthscale not a number", lambda: kernel(1.0, torch.nan), "lengthscale > 0 ... got nan ... not its logarithm"),
    ("variance of zero", lambda: kernel(variance=0.0), "variance > 0 ... got 0.0 ... not its logarithm"),
    (
        "lengthscale that is no vector",
        lambda: SquaredExponential(one, one),
        "lengthscale of shape (1,) ... got () ... qsgp.kernels.hyperparameters",
    ),
    ("x of another width", lambda: kernel()(ones(3, 3), ones(3, 2)), "x of shape (3, 2) ... got (3, 3) ... 2 columns"),
    ("z of another width", lambda: kernel()(ones(3, 2), ones(3, 1)), "z of shape (3, 2) ... got (3, 1) ... 2 columns"),
    (
        "unknown hyperparameter",
        lambda: kernel().with_parameters({"lengthscale": ones(2)}),
        "parameters among ['log_lengthscale', 'log_variance'] ... got 'lengthscale' ... the names of parameters()",
    ),
    ("odd number of Fourier functions", lambda: Fourier(kernel(), 5), "an even m >= 2 ... got m = 5 ... Use m = 6"),
    ("no Fourier functions", lambda: Fourier(kernel(), 0), "an even m >= 2 ... got m = 0 ... Use m = 2"),
    (
        "Fourier functions of a sum",
        lambda: Fourier(Sum((kernel(), kernel())), 4),
        "spectral density can be drawn ... got Sum ... use inducing functions",
    ),
    (
        "negative seed",
        lambda: Fourier(kernel(), 4, seed=-1).columns(torch.arange(4)),
        "0 <= seed < 2^64 ... got seed = -1 ... modulo 2^64",
    ),
    (
        "grid of a Matern kernel",
        lambda: Grid.build(Matern32(ones(2), one), GRID, 5),
        "a product over its inputs ... got Matern32 ... Use SquaredExponential, Separable",
    ),
    (
        "more functions than a grid has",
        lambda: Grid.build(kernel(), GRID, 500),
        "m <= 9 ... got m = 500 ... more grid points",
    ),
    (
        "grids for another number of inputs",
        lambda: Grid.build(kernel(), [*GRID, *GRID], 5),
        "lengthscale of shape (4,) ... got (2,) ... one grid per input",
    ),
    (
        "relevance vectors of a sum",
        lambda: KernelFunctions(Sum((kernel(), kernel())), ones(3, 2)),
        "one variance to divide by ... got Sum ... squared exponential or Matern",
    ),
    # --- likelihoods, covariance, support
    ("Gaussian noise of zero", lambda: Gaussian(0 * one), "noise_variance > 0 ... got 0.0 ... such as 1e-6"),
    ("Gaussian noise not a number", lambda: Gaussian(one * torch.nan), "noise_variance > 0 ... got nan ... variance"),
    ("negative Laplace scale", lambda: Laplace(-one), "scale > 0 ... got -1.0 ... its variance is 2 b^2"),
    ("no quadrature points", lambda: Logistic(points=0), "points >= 1 ... got 0 ... sufficient_points"),
    (
        "dense_columns > m",
        lambda: Chevron(4, 5),
        "dense_columns <= m = 4 ... got 5 ... 0 for mean field and m for a full",
    ),
    ("negative dense_columns", lambda: Chevron(4, -1), "0 <= dense_columns ... got -1 ... 0 for mean field"),
    (
        "support points of another width than the kernel",
        lambda: Support.build(kernel(), ones(3, 3)),
        "x of shape (3, 2) ... got (3, 3) ... 2 columns",
    ),
    (
        "support points not a number",
        lambda: Support.build(kernel(), ones(3, 2) * torch.nan),
        "K(U, U) of the 3 support points ... no Cholesky factor ... Look for non-finite inputs",
    ),
    # --- training and prediction
    (
        "support points of another width than the data",
        lambda: start(replace(make_problem(), support=Support.build(wide_kernel(), torch.eye(3).double())), SETTINGS),
        "support points with d = 2 ... got 3 ... Take them from the source",
    ),
    (
        "covariance over another m",
        lambda: start(replace(make_problem(), covariance=Chevron(7, 2)), SETTINGS),
        "a covariance over m = 12 ... got one over 7 ... Chevron(basis.m, k)",
    ),
    (
        "dense S with hyperparameters to learn",
        lambda: start(make_problem("inducing"), replace(SETTINGS, learn_hyperparameters=True)),
        "needs log |S| ... Inducing has a dense S ... learn_hyperparameters=False",
    ),
    (
        "Newton steps with a dense S",
        lambda: start(make_problem("inducing"), replace(SETTINGS, mean_update="newton")),
        "needs a diagonal S ... Inducing has a dense one ... Use mean_update='adagrad'",
    ),
    (
        "Newton steps with kriging inside sites",
        lambda: start(make_problem(likelihood="laplace"), replace(SETTINGS, mean_update="newton", control="kriging")),
        "mean_update='newton' cannot be used ... non-Gaussian likelihood ... Use control='none'",
    ),
    (
        "implicit steps with Eq. (3)",
        lambda: start(make_problem(), replace(SETTINGS, mean_update="implicit", control="gram")),
        "needs draws without replacement and control='kriging' ... control='gram' ... use 'kriging'",
    ),
    (
        "x of another width in predict",
        lambda: predict(make_problem(), begun(), ones(2, 3).double()),
        "x of shape (2, 2) ... got (2, 3) ... trained on 2 inputs",
    ),
    (
        "one input for two in predict",
        lambda: predict(make_problem(), begun(), ones(4, 1).double()),
        "x of shape (4, 2) ... got (4, 1) ... trained on 2 inputs",
    ),
    (
        "relevance vectors without learned precisions",
        lambda: relevance_vectors(begun()),
        "one learned precision for each function ... got one without ... Train a KernelFunctions basis",
    ),
    (
        "relevant functions only, without learned precisions",
        lambda: predict(make_problem(), begun(), ones(2, 2).double(), relevant=1e4),
        "one learned precision for each function ... got one without ... Train a KernelFunctions basis",
    ),
    (
        "x and y of different lengths in fit_exact_gp",
        lambda: fit_exact_gp(kernel(), ones(3, 2), ones(4)),
        "same number of rows in x, y ... y has 4 ... same indices",
    ),
    (
        "noise of zero in fit_exact_gp",
        lambda: fit_exact_gp(kernel(), ones(3, 2), ones(3), noise_variance=0.0),
        "noise_variance > 0 ... got 0.0 ... for example 0.1",
    ),
    (
        "NaN in fit_exact_gp",
        lambda: fit_exact_gp(kernel(), ones(3, 2) * torch.nan, ones(3)),
        "finite numbers in x ... got nan at [0, 0] ... Drop or fill",
    ),
    # --- metrics
    (
        "a column in rmse",
        lambda: metrics.rmse(np.ones(3), np.ones((3, 1))),
        "mean of shape (3,) ... got (3, 1) ... flatten a column",
    ),
    (
        "negative variance in coverage",
        lambda: metrics.coverage(np.ones(3), np.ones(3), -np.ones(3)),
        "variance > 0 ... got -1.0 ... noise variance included",
    ),
    ("a level in percent", lambda: metrics.coverage(ones(3), ones(3), ones(3), 95), "< level < 1 ... got 95 ... 0.95"),
]


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    """A data folder with one small set, an empty cache, and a source that answers nothing."""
    np.savez(tmp_path / "toy.npz", X=np.ones((4, 2)), y=np.ones(4), test_mask=np.eye(2, 4, dtype=bool))
    monkeypatch.setenv("QSGP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "SOURCE", (tmp_path / "nowhere").as_uri())


def assert_refused(call: Callable[[], object], message: str) -> None:
    parts = message.split(" ... ")
    assert len(parts) == 3, "A message says what was expected, what came and what to do."
    with pytest.raises((ValueError, FileNotFoundError), match="(?s)" + ".*".join(map(re.escape, parts))):
        call()


# --- shapes that would broadcast, states of other problems ----------------------------------------------------------

OTHER_PROBLEMS = {
    "more functions": {"m": 20},
    "fewer functions": {"m": 6},
    "more dense columns": {"k": 3},
    "no dense columns": {"k": 0},
    "another likelihood": {"likelihood": "laplace"},
    "a likelihood without parameters": {"likelihood": "logistic"},
    "another basis": {"basis": "inducing"},
    "own precisions": {"basis": "rvm"},
    "more support points": {"n_bar": 7},
}

REFUSED += [
    # --- estimators
    ("V_i of another draw", lambda: gram_quadratic(i=2), "V_i of shape (3, 2) ... got (2, 2) ... each drawn function"),
    (
        "V_j with other columns",
        lambda: gram_quadratic(j_columns=1),
        "V_j of shape (3, 2) ... got (3, 1) ... same columns",
    ),
    (
        "V_j with other columns, dense S",
        lambda: theorems.prior_quadratic(ones(3, 3), ones(3, 2), ones(3, 1), 6),
        "V_j of shape (3, 2) ... got (3, 1) ... same columns",
    ),
    ("mu_i of another draw", lambda: mean_loss(i=2), "V_i of shape (3, 1) ... got (2, 1) ... each drawn function"),
    ("mu_j of another draw", lambda: mean_loss(j=2), "V_j of shape (3, 1) ... got (2, 1) ... each drawn function"),
    ("y_l of two outputs", lambda: mean_loss(y=(2, 2)), "y_l of shape (2, 1) ... got (2, 2) ... for each output"),
    (
        "C_ir of another draw",
        lambda: covariance_loss(i=2),
        "V_i of shape (3, 2) ... got (2, 2) ... each drawn function",
    ),
    ("c_rr of another draw", lambda: covariance_loss(c=3), "c_rr of shape (2,) ... got (3,) ... at the columns r"),
    ("one c_rr for two columns", lambda: covariance_loss(c=1), "c_rr of shape (2,) ... got (1,) ... at the columns r"),
    (
        "C_jr with other columns",
        lambda: covariance_loss(j_columns=1),
        "V_j of shape (3, 2) ... (3, 1) ... same columns",
    ),
    (
        "c_rr against Phi_lr",
        lambda: theorems.diagonal_quadratic(ones(2, 3), ones(3), ones(2), one, 4, 6),
        "c_rr of shape (3,) ... got (2,) ... at the columns r",
    ),
    (
        "c_rr against Phi_lr in diagonal_gram",
        lambda: theorems.diagonal_gram(ones(2, 3), ones(2), 4, 6),
        "c_rr of shape (3,) ... got (2,) ... at the columns r",
    ),
    (
        "V_k against Phi_lk",
        lambda: theorems.gram_quadratic_u(ones(2, 3), ones(2, 1), 4, 6),
        "V_k of shape (3, 1) ... got (2, 1) ... each drawn function",
    ),
    (
        "S_kk against V_k",
        lambda: theorems.prior_quadratic_u(ones(2, 2), ones(3, 1), 6),
        "S_kk of shape (3, 3) ... got (2, 2) ... follow k",
    ),
    (
        "y_l as a column in constant_loss",
        lambda: theorems.constant_loss(ones(2, 1), ones(3), one, 4, 6),
        "y_l of shape (2,) ... got (2, 1) ... flatten a column",
    ),
    (
        "one s_r for three columns in optimal_diagonal",
        lambda: theorems.optimal_diagonal(ones(3), ones(1), one),
        "same number of rows in norm2_r, s_r ... s_r has 1 ... same indices",
    ),
    (
        "negative noise in optimal_diagonal",
        lambda: theorems.optimal_diagonal(ones(3), ones(3), -one),
        "sigma2 > 0 ... got -1.0 ... Give the noise variance, not its logarithm",
    ),
    (
        "one k_diag for three points in augmentation",
        lambda: theorems.augmentation(ones(3), ones(1), one),
        "same number of rows in k_norm2, k_diag ... k_diag has 1 ... same indices",
    ),
    (
        "negative noise in augmentation",
        lambda: theorems.augmentation(ones(3), ones(3), -one),
        "sigma2 > 0 ... got -1.0 ... Give the noise variance, not its logarithm",
    ),
    # --- bounds
    (
        "mu_i of another draw in a bound",
        lambda: bounds.sampled_argument(ones(2, 3), ones(2), 6),
        "mu_i of shape (3,) ... got (2,) ... each drawn function",
    ),
    (
        "points of another draw in a bound",
        lambda: sampled_variance(rows=1),
        "same number of rows ... Phi_lj has 1 ... same",
    ),
    (
        "C_ir of another draw in a bound",
        lambda: sampled_variance(i=2),
        "C_ir of shape (3, 2) ... got (2, 2) ... each drawn function",
    ),
    (
        "C_jr with other columns in a bound",
        lambda: sampled_variance(j_columns=1),
        "C_jr of shape (3, 2) ... got (3, 1) ... each drawn function",
    ),
    (
        "c_r of another draw in a bound",
        lambda: bounds.diagonal_variance(ones(2, 3), ones(2), 6),
        "c_r of shape (3,) ... got (2,) ... each drawn function",
    ),
    (
        "C_i of another draw in bound A",
        lambda: bounds.conditional_variance(ones(2, 3), ones(2, 2), 6),
        "C_i of shape (3, 2) ... got (2, 2) ... each drawn function",
    ),
    (
        "one count of repeats for three functions in bound A",
        lambda: bounds.conditional_diagonal_variance(ones(2, 3), ones(3), ones(1), 6),
        "repeats_i of shape (3,) ... got (1,) ... each drawn function",
    ),
    (
        "f_hat as a column in bound B",
        lambda: bounds.site_bound_b(SITE, ones(2), ones(2, 1), ones(2), ones(2), 4),
        "f_hat of shape (2,) ... got (2, 1) ... flatten a column",
    ),
    # --- control variates
    (
        "a of other columns in gram",
        lambda: gram(a=(2, 1)),
        "a of shape (2, 2) ... got (2, 1) ... a row for each support point",
    ),
    ("one share for six functions in gram", lambda: gram(share=1), "share of shape (6,) ... got (1,) ... Batch.share"),
    (
        "a of other support points in nystrom",
        lambda: nystrom(a=(3, 2)),
        "a of shape (2, 2) ... (3, 2) ... a row for each support point",
    ),
    (
        "other support points in nystrom_factor",
        lambda: control_variates.nystrom_factor(torch.eye(2), ones(3, 4)),
        "K_Ui of shape (2, 4) ... got (3, 4) ... each support point",
    ),
    (
        "one a for three support points in kriged",
        lambda: control_variates.kriged(ones(2, 1), ones(3, 1), ones(1, 1), ones(2, 3)),
        "W of shape (2, 1) ... got (2, 3) ... Support.weights(x)",
    ),
    (
        "F_pr of other support points in kriged_in_site",
        lambda: control_variates.kriged_in_site(ones(2, 1), ones(3, 1), ones(2, 1), ones(3, 1), ones(2, 3)),
        "F_pr of shape (3, 1) ... got (2, 1) ... a row for each support point",
    ),
    (
        "y as a vector in kriging",
        lambda: control_variates.kriging(ones(2), *[ones(2, 1)] * 4, 4),
        "F_li of shape (2,) ... got (2, 1) ... as y has",
    ),
    (
        "one share for three functions in target",
        lambda: control_variates.target(ones(3), ones(3), ones(3), ones(3), ones(1), one, 6),
        "same number of rows in b_u, mu_u, share ... share has 1 ... same indices",
    ),
    (
        "b of another draw in exact_target",
        lambda: control_variates.exact_target(ones(2), ones(3), 6),
        "same number of rows in b_i, mu_i ... b_i has 2 ... same indices",
    ),
    (
        "one share for three functions in advance",
        lambda: control_variates.advance(ones(2, 1), ones(2, 3), ones(3, 1), ones(1)),
        "share of shape (3,) ... got (1,) ... Batch.share",
    ),
    (
        "one estimate for three controls",
        lambda: control_variates.optimal_coefficient(ones(1), ones(3)),
        "same number of rows in estimates, controls ... estimates has 1 ... same indices",
    ),
    # --- data, kernels, bases, likelihoods
    (
        "arrays for tensors",
        lambda: Arrays(np.ones((3, 2)), np.ones(3)),
        "x and y as tensors ... got ndarray and ndarray ... torch.from_numpy",
    ),
    (
        "labels 0 and 1 in fit",
        lambda: fit(replace(make_problem(likelihood="logistic"), source=Arrays(*data(30))), SETTINGS),
        "labels -1 and +1 ... such labels in all ... 2 * (y == positive) - 1",
    ),
    (
        "negative seed of robot arms",
        lambda: datasets.make_robot_arm(3, random_state=-1),
        "0 <= random_state < 2^128 ... got -1 ... modulo 2^128",
    ),
    (
        "integers in standardise",
        lambda: datasets.standardise(np.arange(6).reshape(3, 2)),
        "train in floating point ... got int64 ... astype(np.float32)",
    ),
    (
        "test rows of another width in standardise",
        lambda: datasets.standardise(np.eye(3, 2), np.ones((4, 3))),
        "rows of shape (2,) ... got (3,) ... the same columns",
    ),
    (
        "a list of lengthscales",
        lambda: SquaredExponential([1.0, 1.0], one),
        "lengthscale as a floating-point tensor ... got list ... qsgp.kernels.hyperparameters",
    ),
    (
        "integer lengthscales",
        lambda: SquaredExponential(torch.tensor([1, 2]), one),
        "lengthscale as a floating-point tensor ... got torch.int64 ... qsgp.kernels.hyperparameters",
    ),
    (
        "a number as noise",
        lambda: Gaussian(0.1),
        "noise_variance as a floating-point tensor ... got float ... torch.tensor",
    ),
    (
        "a noise for each point",
        lambda: Gaussian(ones(3)),
        "noise_variance of shape () ... got (3,) ... one noise variance",
    ),
    (
        "a number as Laplace scale",
        lambda: Laplace(0.1),
        "scale as a floating-point tensor ... got float ... torch.tensor",
    ),
    ("three inputs for two in Fourier", lambda: fourier_at(3), "x of shape (4, 2) ... got (4, 3) ... 2 columns"),
    ("one input for two in Fourier", lambda: fourier_at(1), "x of shape (4, 2) ... got (4, 1) ... 2 columns"),
    ("no grid functions", lambda: Grid.build(kernel(), GRID, 0), "1 <= m <= 9 ... got m = 0 ... Use fewer functions"),
    (
        "no support points",
        lambda: Support.build(kernel(), ones(0, 2)),
        "one support point or more ... none ... Take some",
    ),
    # --- training and prediction
    (
        "misspelt control variate",
        lambda: Settings(control="krigging"),
        "('none', 'gram', 'kriging') ... 'krigging' ... one of",
    ),
    ("misspelt bound", lambda: Settings(bound="C"), "bound among ('A', 'B', 'Q', 'printed') ... got 'C' ... one of"),
    (
        "misspelt update",
        lambda: Settings(mean_update="sgd"),
        "('adagrad', 'newton', 'implicit') ... got 'sgd' ... one of",
    ),
    ("negative rate", lambda: Settings(rate=-1.0), "rate > 0 ... got -1.0 ... down the gradient"),
    ("rates decayed to nothing", lambda: Settings(final=0.0), "final > 0 ... got 0.0 ... 1.0 for constant rates"),
    (
        "a record every 0 steps",
        lambda: Settings(every=0),
        "every > 0 ... got 0 ... every 100 steps",
    ),
    (
        "kernel for another number of inputs than the data",
        lambda: start(replace(make_problem(), basis=Fourier(wide_kernel(), 12)), SETTINGS),
        "x of shape (5, 3) ... got (5, 2) ... 3 columns",
    ),
    (
        "support points of another type",
        lambda: start(single_support(), SETTINGS),
        "one floating type ... U torch.float32 ... Convert",
    ),
    *(
        (f"state of a problem with {name}", lambda other=other: go_on(**other), "Expected a state ... got ... tart")
        for name, other in OTHER_PROBLEMS.items()
    ),
    (
        "state of other settings",
        lambda: fit(make_problem(), SETTINGS, past=start(make_problem(), replace(SETTINGS, control="none"))),
        "a state with 'a' at 5 support points ... got none ... Start it with the settings it goes on with",
    ),
    (
        "dense S with hyperparameters to learn, going on",
        lambda: fit(
            make_problem("inducing"), replace(SETTINGS, learn_hyperparameters=True), past=begun(basis="inducing")
        ),
        "needs log |S| ... Inducing has a dense S ... learn_hyperparameters=False",
    ),
    (
        "prediction from a state of another problem",
        lambda: predict(make_problem(m=6), begun(), ones(2, 2).double()),
        "a state for m = 6 ... got one with a table of (12, 4) ... the problem it was started for",
    ),
    (
        "NaN in predict",
        lambda: predict(make_problem(), begun(), ones(2, 2).double() * torch.nan),
        "finite numbers in x ... got nan at [0, 0] ... Drop or fill",
    ),
    (
        "prediction at other points in augment",
        lambda: augment(Prediction(ones(1), ones(1), SITE), kernel(), Arrays(ones(3, 2), ones(3)), ones(2, 2), one),
        "same number of rows in prediction, x ... prediction has 1 ... same indices",
    ),
    (
        "y as a column in fit_exact_gp",
        lambda: fit_exact_gp(kernel(), ones(3, 2), ones(3, 1)),
        "y of shape (3,) ... got (3, 1) ... flatten a column",
    ),
    ("no points in fit_exact_gp", lambda: fit_exact_gp(kernel(), *data(5), points=0), "points > 0 ... got 0 ... 1000"),
]


@pytest.mark.parametrize(("what", "call", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_bad_input_is_refused(what: str, call: Callable[[], object], message: str) -> None:
    assert_refused(call, message)


def test_more_functions_than_there_are_can_be_drawn_with_replacement() -> None:
    """What the message about m_tilde > m recommends must work."""
    assert fit(make_problem(), replace(SETTINGS, m_tilde=13, replacement=True)).state.t == SETTINGS.iterations
