"""Other libraries' regressors as they come, each kept to a budget of seconds; every library is optional.

A model is a function of training rows, new rows, seconds and a device that returns means, standard deviations of new
targets and, where it has them, 95 % intervals of its own. Inputs and target are standardised. Models that predict no
deviation (trees, xRFM) hold out a tenth of the rows: their deviation is that of the errors there, their interval the
split-conformal one.
"""

import itertools
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

LIBRARIES = ["scikit-learn", "gpytorch", "lightgbm", "ngboost", "xrfm", "gpboost", "fastrvm"]
SEED = 0  # of every model, and of the rows held out
HELD_OUT = 0.1  # of the rows, for early stopping and for the intervals of models that have none
EXACT_ROWS = 2000  # of scikit-learn's GP: its matrices take n^3 operations for every step of its search


class Predicted(NamedTuple):
    """``fit_s`` without the time that predictions take."""

    mean: np.ndarray
    deviation: np.ndarray
    fit_s: float
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    note: str = ""
    assess: Callable[[np.ndarray], dict[str, np.ndarray]] | None = None  # targets by the model's own law


class Task(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    seconds: float
    device: str

    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Which rows are learned from, and which are held out."""
        order = np.random.default_rng(SEED).permutation(len(self.x))
        count = int(HELD_OUT * len(order))
        return order[count:], order[:count]


def with_errors(task: Task, predict: Callable[[np.ndarray], np.ndarray], fit_s: float, note: str = "") -> Predicted:
    """Deviation and interval from the errors of the rows held out."""
    _, aside = task.parts()
    errors = np.abs(task.y[aside] - predict(task.x[aside]))
    mean = predict(task.x_new)
    half = np.quantile(errors, min(1.0, 0.95 * (1 + 1 / len(errors))))
    deviation = np.full(len(mean), np.sqrt(np.mean(errors**2)))
    return Predicted(mean, deviation, fit_s, mean - half, mean + half, note)


def qsgp(task: Task) -> Predicted:
    """The default of this library."""
    from qsgp import QSGPRegressor

    began = time.perf_counter()
    model = QSGPRegressor(max_time=task.seconds, device=task.device, random_state=SEED).fit(task.x, task.y)
    fit_s = time.perf_counter() - began
    mean, deviation = model.predict(task.x_new, return_std=True)
    lower, upper = model.predict_interval(task.x_new)
    return Predicted(mean, deviation, fit_s, lower, upper, model.kernel_, partial(model.assess, task.x_new))


def lightgbm(task: Task) -> Predicted:
    """As it comes, at most 5,000 trees, stopped by the rows held out."""
    import lightgbm as library

    train, aside = task.parts()
    began = time.perf_counter()

    def out_of_time(env: Any) -> None:
        if time.perf_counter() - began > task.seconds:
            raise library.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

    model = library.LGBMRegressor(n_estimators=5000, random_state=SEED, verbose=-1)
    stops = [library.early_stopping(50, verbose=False), out_of_time]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases have another name for eval_set
        model.fit(task.x[train], task.y[train], eval_set=[(task.x[aside], task.y[aside])], callbacks=stops)
    return with_errors(task, model.predict, time.perf_counter() - began, f"{model.best_iteration_} trees")


def histgb(task: Task) -> Predicted:
    """scikit-learn's HistGradientBoostingRegressor with early stopping, at most 5,000 rounds."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    train, _ = task.parts()
    began = time.perf_counter()
    model = HistGradientBoostingRegressor(max_iter=5000, early_stopping=True, n_iter_no_change=50, random_state=SEED)
    model.fit(task.x[train], task.y[train])
    return with_errors(task, model.predict, time.perf_counter() - began, f"{model.n_iter_} rounds")


def ngboost(task: Task) -> Predicted:
    """A normal distribution for each row; at most 2,000 rounds, fewer where time is short or held-out rows say so."""
    from ngboost import NGBRegressor

    train, aside = task.parts()
    x, y = task.x[train], task.y[train]
    began = time.perf_counter()
    NGBRegressor(n_estimators=10, random_state=SEED, verbose=False).fit(x, y)
    each = (time.perf_counter() - began) / 10
    rounds = int(np.clip(task.seconds / each - 10, 10, 2000))
    model = NGBRegressor(n_estimators=rounds, random_state=SEED, verbose=False, early_stopping_rounds=50)
    model.fit(x, y, X_val=task.x[aside], Y_val=task.y[aside])
    fit_s = time.perf_counter() - began
    law = model.pred_dist(task.x_new)
    return Predicted(law.loc, law.scale, fit_s, note=f"{rounds} rounds at most")


def xrfm(task: Task) -> Predicted:
    """Recursive feature machines as they come."""
    from xrfm import xRFM

    train, aside = task.parts()
    place = {"dtype": torch.float32, "device": task.device}
    x, y, x_aside, y_aside = (
        torch.tensor(part, **place) for part in (task.x[train], task.y[train], task.x[aside], task.y[aside])
    )
    began = time.perf_counter()
    model = xRFM(device=task.device, time_limit_s=task.seconds, random_state=SEED, verbose=False)
    model.fit(x, y[:, None], x_aside, y_aside[:, None])
    fit_s = time.perf_counter() - began

    def predict(x: np.ndarray) -> np.ndarray:
        found = model.predict(torch.tensor(x, **place))
        return np.asarray(found.cpu() if isinstance(found, torch.Tensor) else found, dtype=np.float64).reshape(-1)

    return with_errors(task, predict, fit_s)


def sklearn_gp(task: Task) -> Predicted:
    """scikit-learn's GaussianProcessRegressor with a lengthscale for each input, on some of the rows."""
    from scipy.optimize import minimize
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    rows = np.random.default_rng(SEED).permutation(len(task.x))[:EXACT_ROWS]
    began = time.perf_counter()
    best: list[tuple[float, np.ndarray]] = []

    def in_time(value: Any, start: np.ndarray, bounds: Any) -> tuple[np.ndarray, float]:
        def noted(theta: np.ndarray) -> Any:
            if best and time.perf_counter() - began > task.seconds:
                raise StopIteration
            loss, slope = value(theta)
            if not best or loss < best[0][0]:
                best[:] = [(loss, theta.copy())]
            return loss, slope

        try:
            minimize(noted, start, method="L-BFGS-B", jac=True, bounds=bounds)
        except StopIteration:
            pass
        return best[0][1], best[0][0]

    kernel = ConstantKernel() * Matern(np.ones(task.x.shape[1]), nu=1.5) + WhiteKernel(0.1, (1e-8, 1e3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a lengthscale that reaches its bound
        model = GaussianProcessRegressor(kernel, optimizer=in_time).fit(task.x[rows], task.y[rows])
    fit_s = time.perf_counter() - began
    mean, deviation = model.predict(task.x_new, return_std=True)
    return Predicted(mean, deviation, fit_s, note=f"{len(rows)} rows")


def nystroem(task: Task) -> Predicted:
    """Nystroem, at most 1,000 points, and BayesianRidge; the rows held out choose among five widths of the kernel."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline

    train, aside = task.parts()
    began = time.perf_counter()
    best, error = None, np.inf
    for gamma in np.array([0.3, 0.1, 1.0, 0.03, 3.0]) / task.x.shape[1]:
        if best is not None and (time.perf_counter() - began) * 2 > task.seconds:
            break
        model = make_pipeline(
            Nystroem(gamma=gamma, n_components=min(1000, len(train) // 2), random_state=SEED), BayesianRidge()
        )
        model.fit(task.x[train], task.y[train])
        own = float(np.mean((model.predict(task.x[aside]) - task.y[aside]) ** 2))
        best, error = (model, own) if own < error else (best, error)
    assert best is not None
    fit_s = time.perf_counter() - began
    mean, deviation = best.predict(task.x_new, return_std=True)
    return Predicted(mean, deviation, fit_s)


def gpboost(task: Task) -> Predicted:
    """GPBoost's Vecchia approximation, Matern-3/2 with a lengthscale for each input; it has no limit of time."""
    import gpboost as library

    began = time.perf_counter()
    keywords = {"cov_function": "matern_ard", "cov_fct_shape": 1.5, "gp_approx": "vecchia", "num_neighbors": 20}
    model = library.GPModel(gp_coords=task.x, likelihood="gaussian", seed=SEED, **keywords)
    model.fit(y=task.y, X=np.ones((len(task.x), 1)))
    fit_s = time.perf_counter() - began
    found = model.predict(
        gp_coords_pred=task.x_new, X_pred=np.ones((len(task.x_new), 1)), predict_var=True, predict_response=True
    )
    return Predicted(found["mu"], np.sqrt(found["var"]), fit_s)


def svgp_of(points: int) -> Callable[[Task], Predicted]:
    """GPyTorch's SVGP, Matern-3/2 with a lengthscale for each input, batches of 1,024, Adam 0.01."""

    def svgp(task: Task) -> Predicted:
        import gpytorch

        torch.manual_seed(SEED)
        place = {"dtype": torch.float32, "device": task.device}
        x, y, new = (torch.tensor(part, **place) for part in (task.x, task.y, task.x_new))
        began = time.perf_counter()
        model = _inducing(x[torch.randperm(len(x))[:points]]).to(task.device)
        likelihood = gpytorch.likelihoods.GaussianLikelihood().to(task.device)
        optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
        bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(x))
        for batch in itertools.chain.from_iterable(
            torch.randperm(len(x), device=task.device).split(1024) for _ in itertools.count()
        ):
            if time.perf_counter() - began >= task.seconds:
                break
            optimiser.zero_grad()
            (-bound(model(x[batch]), y[batch])).backward()
            optimiser.step()
        fit_s = time.perf_counter() - began
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            laws = [likelihood(model(part)) for part in new.split(1024)]
        mean, deviation = (torch.cat([getattr(law, name) for law in laws]) for name in ("mean", "stddev"))
        return Predicted(mean.double().cpu().numpy(), deviation.double().cpu().numpy(), fit_s)

    return svgp


def _inducing(points: torch.Tensor) -> Any:
    import gpytorch

    class Inducing(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, q, learn_inducing_locations=True))
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=points.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Inducing()


def rvm(task: Task) -> Predicted:
    """QSRVMRegressor: this library's relevance vector machine."""
    from qsgp import QSRVMRegressor

    began = time.perf_counter()
    model = QSRVMRegressor(max_time=task.seconds, random_state=SEED).fit(task.x, task.y)
    fit_s = time.perf_counter() - began
    mean, deviation = model.predict(task.x_new, return_std=True)
    return Predicted(mean, deviation, fit_s, note=f"{len(model.relevance_)} vectors")


def fastrvm(task: Task) -> Predicted:
    """fastrvm's RVR on at most 2,000 rows: it holds the matrix of all kernel functions."""
    from fastrvm import RVR

    rows = np.random.default_rng(SEED).permutation(len(task.x))[:EXACT_ROWS]
    began = time.perf_counter()
    model = RVR().fit(task.x[rows], task.y[rows])
    fit_s = time.perf_counter() - began
    mean, deviation = model.predict(task.x_new, return_std=True)
    return Predicted(mean, deviation, fit_s, note=f"{len(model.relevance_)} vectors")


MODELS: dict[str, Callable[[Task], Predicted]] = {
    "qsgp": qsgp,
    "svgp-512": svgp_of(512),
    "svgp-1024": svgp_of(1024),
    "sklearn-gp": sklearn_gp,
    "nystroem": nystroem,
    "lightgbm": lightgbm,
    "histgb": histgb,
    "ngboost": ngboost,
    "xrfm": xrfm,
    "gpboost": gpboost,
    "qsrvm": rvm,
    "fastrvm": fastrvm,
}
