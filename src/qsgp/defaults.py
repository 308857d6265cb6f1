"""What "auto" means, and the road from standardised data to a posterior.

Up to `SMALL` rows the closed form is taken. Beyond, hyperparameters come from the closed form on a subset and a table
of Fourier features is trained with all features in every step; sizes are fixed until training chooses them itself.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.bases import Fourier, Inducing, KernelFunctions
from qsgp.checkpoints import Checkpoints, fingerprint_array
from qsgp.closed_form import fit_hyperparameters
from qsgp.covariances import Chevron
from qsgp.fit import fit
from qsgp.interfaces import Basis, Kernel, Likelihood, SpectralKernel
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.kernels import hyperparameters
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.posteriors import ClosedForm, Features, Posterior
from qsgp.predict import relevance_vectors
from qsgp.problem import Problem, at_hyperparameters
from qsgp.sources import Arrays
from qsgp.start import start
from qsgp.state import State
from qsgp.step import Settings
from qsgp.support import Support

SMALL = 3000  # rows that go to the closed form
_CHOOSE_POINTS = 400  # kernels are compared on this many rows, of p outputs 1 / sqrt(p) as many
_LEARN_POINTS = 1000  # hyperparameters are learned on this many, likewise
_FEATURES = 2048
_CENTRES = 2000  # most kernel functions of a relevance vector machine
_LEAST_LEARNED = 4  # with fewer rows the evidence says nothing: keep the defaults


@dataclass(frozen=True)
class Options:
    """The estimators' keywords after their check, with "auto" still inside."""

    kernel: str = "auto"
    basis: str = "auto"
    n_features: int | None = None
    covariance: str = "auto"
    dense_columns: int = 0
    batch_points: int | None = None
    batch_features: int | None = None
    support_points: int | None = None
    optimizer: str = "auto"
    learn_hyperparameters: bool = True
    max_iter: int | None = None
    max_time: float | None = None
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    seed: int = 0
    relevance: bool = False  # a relevance vector machine
    checkpoint: str | None = None  # a folder
    checkpoint_seconds: float = 30.0


@dataclass
class Trained:
    """A posterior and what the run has to tell."""

    posterior: Posterior
    history: list[dict[str, float]] = field(default_factory=list)
    iterations: int = 0
    relevant: Tensor | None = None  # positions of the relevance vectors among the training rows


Report = Callable[[dict[str, float]], None]


def train(
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n o"],
    weight: Float[Tensor, " n"],
    likelihood: str,
    options: Options,
    report: Report | None = None,
) -> Trained:
    """Hyperparameters, then the closed form or the table of features. Tensors arrive in float64 on the CPU."""
    keep = torch.nonzero(weight > 0)[:, 0]
    x, Y, weight = x[keep], Y[keep], weight[keep]
    kernel, sites = learn(x, Y, weight, likelihood, options)
    small = len(x) <= SMALL and options.basis == "auto" and options.optimizer == "auto" and not options.relevance
    if small and options.covariance == "auto" and options.n_features is None:
        return Trained(ClosedForm.build(kernel, sites, x, Y, weight))
    trained = train_table(x, Y, weight, kernel, sites, options, report)
    if trained.relevant is not None:
        trained.relevant = keep[trained.relevant]
    return trained


def learn(
    x: Float[Tensor, "n d"], Y: Float[Tensor, "n o"], weight: Float[Tensor, " n"], likelihood: str, options: Options
) -> tuple[Kernel, Likelihood]:
    """Kernel by the evidence of a few hundred rows, its parameters by that of up to a thousand."""
    n, d = x.shape
    lengthscale, variance = hyperparameters(math.sqrt(d), 1.0, d=d, dtype=torch.float64)
    sites = first_likelihood(likelihood)
    names = ["matern32", "rbf", "matern52"] if options.kernel == "auto" else [options.kernel]
    candidates = [KERNELS[name](lengthscale, variance) for name in names]
    if not options.learn_hyperparameters or n < _LEAST_LEARNED:
        return candidates[0], sites
    if len(candidates) > 1:
        few = some_rows(n, int(_CHOOSE_POINTS / math.sqrt(Y.shape[1])), options.seed)
        tried = [
            fit_hyperparameters(
                k, sites, x[few], Y[few], weight[few], iterations=20, tolerance=1e-4, prior=lengthscale_prior
            )
            for k in candidates
        ]
        kernel, sites, _ = max(tried, key=lambda found: found[2])
    else:
        kernel = candidates[0]
    more = some_rows(n, int(_LEARN_POINTS / math.sqrt(Y.shape[1])), options.seed)
    kernel, sites, _ = fit_hyperparameters(
        kernel, sites, x[more], Y[more], weight[more], iterations=60, tolerance=1e-5, prior=lengthscale_prior
    )
    return kernel, sites


def some_rows(n: int, most: int, seed: int) -> Tensor:
    """All rows in their order, or ``most`` of them at random."""
    return torch.arange(n) if n <= most else torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most]


def lengthscale_prior(kernel: Kernel) -> Float[Tensor, ""]:
    """Log-normal about sqrt(d), wide: without it the evidence of few rows over many inputs fits noise."""
    log_lengthscale = kernel.parameters()["log_lengthscale"]
    centre = 0.5 * math.log(len(log_lengthscale)) + 0.5
    return -0.5 * ((log_lengthscale - centre) / 1.5).square().sum()


def first_likelihood(name: str) -> Likelihood:
    variance = torch.tensor(0.1, dtype=torch.float64)
    if name == "gaussian":
        return Gaussian(variance)
    return Laplace(variance.sqrt()) if name == "laplace" else Logistic()


def train_table(
    x: Tensor,
    Y: Tensor,
    weight: Tensor,
    kernel: Kernel,
    sites: Likelihood,
    options: Options,
    report: Report | None,
) -> Trained:
    """Stochastic training of a table of basis functions, `step` after `step`."""
    # Precisions of a relevance vector machine spread over ten decades: float32 would lose the small ones.
    device, dtype = options.device, torch.float64 if options.relevance else options.dtype

    def put(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype)

    kernel = kernel.with_parameters({name: put(value) for name, value in kernel.parameters().items()})
    sites = sites.with_parameters({name: put(value) for name, value in sites.parameters().items()})
    equal = bool((weight == weight[0]).all() and weight[0] == 1)
    source = Arrays(put(x), put(Y), None if equal else put(weight))
    generator = torch.Generator().manual_seed(options.seed)
    order = torch.randperm(len(x), generator=generator)
    basis, centres = make_basis(kernel, source, order, options)
    support = Support.build(kernel, source.x[order[: options.support_points or 500].to(device)])
    k = {"meanfield": 0, "full": basis.m}.get(options.covariance, options.dense_columns)
    problem = Problem(source, basis, sites, Chevron(basis.m, k), support)
    settings = make_settings(problem, options)
    state, save = resume(problem, settings, options)
    every = max(1, settings.iterations // 50)
    result = fit(
        problem, settings, state=state, every=every, report=report, save=save, max_seconds=options.max_time or math.inf
    )
    if result.interrupted:
        warnings.warn(
            f"Interrupted after {result.state.t} of {settings.iterations} iterations: the model is fitted as far as "
            "that. Fit again with the same checkpoint folder to go on.",
            stacklevel=2,
        )
        save(result.state, True)
    trained_basis, likelihood = at_hyperparameters(problem, result.state.theta)
    table, relevant = result.state.table.detach(), None
    covariance = problem.covariance
    if options.relevance:
        kept = relevance_vectors(result.state)
        relevant = centres[kept.cpu()] if centres is not None else kept.cpu()
        assert isinstance(trained_basis, KernelFunctions)
        trained_basis = replace(trained_basis, Z=trained_basis.Z[kept])
        table, covariance = table[kept], Chevron(len(kept), 0)
    table = table[:, : source.outputs + covariance.k + 1].clone()
    posterior = Features(trained_basis, likelihood, covariance, table, source.outputs)
    return Trained(posterior, result.history, result.state.t, relevant)


def resume(problem: Problem, settings: Settings, options: Options) -> tuple[State, Callable[..., None]]:
    """A fresh state, or that of the checkpoint folder; and what stores it again from time to time."""
    state = start(problem, settings)
    if options.checkpoint is None:
        return state, lambda state, now=False: None
    checkpoints = Checkpoints(options.checkpoint, every_seconds=options.checkpoint_seconds)
    fingerprint = {name: _json(value) for name, value in vars(settings).items()}
    fingerprint |= {f"option {name}": _json(value) for name, value in vars(options).items() if name not in _FREE}
    assert isinstance(problem.source, Arrays)
    fingerprint |= {"inputs": fingerprint_array(problem.source.x), "targets": fingerprint_array(problem.source.y)}
    found = checkpoints.latest(options.device)
    if found is not None:
        header, tensors = found
        checkpoints.check_same(header["fingerprint"], fingerprint)
        state.restore(tensors)
        warnings.warn(f"Resumed from iteration {state.t} in {options.checkpoint}.", stacklevel=2)

    def save(state: State, now: bool = False) -> None:
        if now or checkpoints.due() or state.t == settings.iterations:
            checkpoints.save({"fingerprint": fingerprint}, state.tensors(), state.t)

    return state, save


# What may differ between a run and its continuation: how long it may take, where it is stored.
_FREE = {"max_time", "checkpoint", "checkpoint_seconds"}


def _json(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def make_basis(kernel: Kernel, source: Arrays, order: Tensor, options: Options) -> tuple[Basis, Tensor | None]:
    """The basis, and for a relevance vector machine which rows are its centres."""
    if options.relevance:
        centres = order[: options.n_features or _CENTRES].sort().values
        return KernelFunctions(kernel, source.x[centres.to(source.x.device)]), centres
    if options.basis == "inducing":
        centres = order[: options.n_features or min(_FEATURES, source.n)]
        return Inducing(kernel, source.x[centres.to(source.x.device)]), None
    assert isinstance(kernel, SpectralKernel)
    return Fourier(kernel, options.n_features or _FEATURES, seed=options.seed), None


def make_settings(problem: Problem, options: Options) -> Settings:
    """Newton steps over all features while they fit, AdaGrad with a control variate beyond."""
    m, n = problem.basis.m, problem.source.n
    newton = options.optimizer == "auto" and problem.basis.diagonal and m <= 4 * _FEATURES
    m_tilde = min(options.batch_features or (m if newton else 2048), m)
    whole = m_tilde == m
    settings = Settings(
        n_tilde=min(options.batch_points or 1000, n),
        m_tilde=m_tilde,
        iterations=options.max_iter or (400 if newton else 4000),
        rate=0.3 if options.relevance else 0.1,
        final=0.05,
        learn_hyperparameters=options.learn_hyperparameters and problem.basis.diagonal and not options.relevance,
        learned="likelihood",  # a mean-field bound would spoil the kernel that the evidence of a subset gave
        mean_update="newton" if newton and whole else "adagrad",
        control="none" if whole else "kriging",
        seed=options.seed,
    )
    return replace(settings, hyper_rate=4 / settings.iterations)
