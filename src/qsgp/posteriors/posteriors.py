"""What remains after training: mean and variance of f at new inputs, coherent draws of f, and how to store it.

Four kinds with the same four verbs (`mean`, `latent`, `sample`, `parts`): the exact GP of small data, a table over
basis functions, kernel functions at many rows, and Fourier weights with draws. All work on standardised inputs and
targets; the estimators translate. ``one_variance``: all outputs have it in common.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.bases import Fourier, Grid, Inducing, KernelFunctions, Whitened
from qsgp.engine.counter_rng import normals
from qsgp.interfaces import Basis, Degenerate, Kernel, Likelihood, SpectralKernel, Streamed
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import Logistic
from qsgp.paper.chevron import Chevron
from qsgp.paper.prediction import columns_of, missing_draws, stream, stream_draws, stream_mean
from qsgp.posteriors.spread import PRIOR_FEATURES, Spread
from qsgp.solvers.closed_form import Sites, Solved, solve, threads_worth, tighten_all
from qsgp.solvers.dual import product, spectral
from qsgp.solvers.pathwise import prior_draws

_BLOCK_FEATURES = 2048  # made at a time; larger blocks leave the cache and fragment the heap


@dataclass(frozen=True)
class ClosedForm:
    """The exact GP: quadratic sites at the training points, one posterior for each output."""

    kernel: Kernel
    likelihood: Likelihood
    x: Float[Tensor, "n d"]
    Y: Float[Tensor, "n o"]
    weight: Float[Tensor, " n"]
    xi: Float[Tensor, "n o"]  # where the sites touch
    solved: tuple[Solved, ...] = field(repr=False)

    @classmethod
    def build(
        cls,
        kernel: Kernel,
        likelihood: Likelihood,
        x: Tensor,
        Y: Tensor,
        weight: Tensor,
        xi: Tensor | None = None,
        halt: Callable[[], bool] | None = None,
    ) -> "ClosedForm":
        """Solve for every output; a stored ``xi`` gives the stored posterior back to the last bit."""
        with torch.no_grad(), threads_worth(len(x)):
            Gram = kernel(x, x)
            if xi is None:
                xi = tighten_all(Gram, likelihood, Y, weight, halt)
            sites = [Sites.of(likelihood, y, at, weight) for y, at in zip(Y.mT, xi.mT, strict=True)]
            return cls(kernel, likelihood, x, Y, weight, xi, tuple(solve(Gram, site) for site in sites))

    rows_at_a_time: ClassVar[int] = 512  # kernel values of more leave the cache: three times slower

    def with_rows(self, x: Tensor, Y: Tensor, weight: Tensor) -> "ClosedForm":
        """The same hyperparameters, more rows."""
        x, Y, weight = (
            torch.cat([old, more.to(old)]) for old, more in ((self.x, x), (self.Y, Y), (self.weight, weight))
        )
        return ClosedForm.build(self.kernel, self.likelihood, x, Y, weight)

    def bytes_per_row(self, draws: int = 0) -> int:
        """Memory that one more row at a time costs `latent`, or `sample` with so many draws."""
        return 8 * (6 * len(self.x) + (2 * PRIOR_FEATURES + 2 * draws if draws else 0))

    @property
    def one_variance(self) -> bool:
        first, *others = (solved.sites.root for solved in self.solved)
        return all(torch.equal(first, root) for root in others)

    @torch.no_grad()
    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        """Of f for every output, at O(t n): no more than kernel values."""
        alpha = torch.stack([solved.alpha for solved in self.solved], 1)
        return product(spectral(self.kernel), x.to(self.x), self.x, alpha)

    @torch.no_grad()
    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        """Mean and variance of f for every output. Cost O(t n^2), memory O(t n): give it blocks of rows."""
        x = x.to(self.x)
        # Centred by the rows learned from: about the mean of x, one far row would round what the others differ by.
        k_star, prior, mean = self.kernel(x, self.x).mT, self.kernel.diag(x), self.mean(x)
        variances = []
        for solved in self.solved[: 1 if self.one_variance else None]:
            half = torch.linalg.solve_triangular(solved.factor, solved.sites.root[:, None] * k_star, upper=False)
            variances.append((prior - half.square().sum(0)).clamp_min(1e-12 * prior))
        return mean, torch.stack(variances, 1).expand_as(mean)

    @torch.no_grad()
    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """Draws of f, coherent over x, linear in its length: a prior draw, corrected at the data (Matheron's rule)."""
        x = x.to(self.x)
        generator = torch.Generator().manual_seed(seed)
        basis = Fourier(spectral(self.kernel), PRIOR_FEATURES, seed=seed)
        columns = basis.columns(torch.arange(PRIOR_FEATURES, device=x.device))
        at_data, at_x = basis.features(self.x, columns), basis.features(x, columns)
        k_star = self.kernel(x, self.x)
        draws = []
        for solved in self.solved:
            w = torch.randn(PRIOR_FEATURES, count, generator=generator, dtype=torch.float64).to(x)
            noise = torch.randn(len(self.x), count, generator=generator, dtype=torch.float64).to(x)
            root = solved.sites.root[:, None]
            residual = solved.sites.white[:, None] - root * (at_data @ w) - noise
            draws.append((at_x @ w + k_star @ (root * torch.cholesky_solve(residual, solved.factor))).mT)
        return torch.stack(draws, 2)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header = {"kind": "closed form", **describe(self.kernel, self.likelihood)}
        return header, {
            "x": self.x,
            "Y": self.Y,
            "weight": self.weight,
            "xi": self.xi,
            **tensors_of(self.kernel, self.likelihood),
        }


@dataclass(frozen=True)
class Features:
    """Weights over basis functions: mean phi mu, variance phi Sigma phi^T with a chevron Sigma.

    Where the functions vanish, as inducing and grid functions do far from the data, so does that variance; what their
    prior lacks of the kernel's is added. It takes the place of Proposition 4, whose sum over all training rows counts
    twice near the data when Sigma is full.
    """

    basis: Basis
    likelihood: Likelihood
    covariance: Chevron
    table: Float[Tensor, "m w"]  # [mu (outputs) | L (k) | log_c]
    outputs: int

    one_variance: ClassVar[bool] = True

    @property
    def kernel(self) -> Kernel:
        return self.basis.kernel

    def bytes_per_row(self, draws: int = 0) -> int:
        width = self.outputs * (1 + draws) + self.covariance.k
        features = 0 if isinstance(self.basis, Streamed) else min(self.basis.m, _BLOCK_FEATURES)
        own = 8 * (3 * self.basis.m + (PRIOR_FEATURES if draws else 0)) if isinstance(self.basis, Degenerate) else 0
        return self.table.element_size() * (4 * features + 4 * width) + 16 * features + own

    @property
    def rows_at_a_time(self) -> int:
        """More are no faster: frequencies are drawn once for a block of rows."""
        return 65_536 if isinstance(self.basis, Streamed) else 2048

    @torch.no_grad()
    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        return stream_mean(self.basis, self.covariance, self.table, self.outputs, x.to(self.table), _BLOCK_FEATURES)

    @torch.no_grad()
    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        """Mean and variance of f; memory O(t) times a block of features: give it blocks of rows."""
        x = x.to(self.table)
        mean, variance = stream(self.basis, self.covariance, self.table, self.outputs, x, _BLOCK_FEATURES)
        if isinstance(self.basis, Degenerate):
            variance = variance + self.basis.missing(x)
        return mean, variance[:, None].expand_as(mean)

    @torch.no_grad()
    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """Draws of f from draws of the weights: linear in the number of points, coherent over them."""
        x = x.to(self.table)
        draws = stream_draws(self.basis, self.covariance, self.table, self.outputs, x, count, seed)
        if not isinstance(self.basis, Degenerate):
            return draws
        prior = Fourier(spectral(self.kernel), PRIOR_FEATURES, seed=seed)
        every = torch.arange(PRIOR_FEATURES, device=x.device)
        weights = normals(seed, every, count * self.outputs, stream=3).to(x)
        return draws + missing_draws(self.basis, prior, x, weights).unflatten(1, (count, -1)).transpose(0, 1)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        basis = self.basis
        header: dict[str, Any] = {"kind": "features", **describe(basis.kernel, self.likelihood)}
        header |= {"basis": type(basis).__name__, "k": self.covariance.k, "outputs": self.outputs, "m": basis.m}
        tensors = {"table": self.table, **tensors_of(basis.kernel, self.likelihood)}
        if isinstance(basis, Fourier):
            header |= {"seed": basis.seed, "orthogonal": basis.orthogonal}
        elif isinstance(basis, Grid):
            tensors |= basis.tensors()
        elif isinstance(basis, Whitened):
            tensors |= {"centres": basis.Z, "root": basis.root}
        else:
            assert isinstance(basis, Inducing | KernelFunctions)
            tensors["Z"] = basis.Z
        return header, tensors


@dataclass(frozen=True)
class KernelFunctionsAtRows:
    """The GP's mean k(x, X) A for many rows; further columns of A are posterior draws (`pathwise`)."""

    kernel: SpectralKernel
    likelihood: Likelihood
    x: Float[Tensor, "n d"]
    A: Float[Tensor, "n c"]  # of the outputs, then of the draws of each variance
    outputs: int
    seed: int  # of the prior draws
    spread: Spread

    rows_at_a_time: ClassVar[int] = 2048

    @property
    def draws(self) -> int:
        """For each variance."""
        return (self.A.shape[1] - self.outputs) // len(self.spread.factor)

    def bytes_per_row(self, draws: int = 0) -> int:
        return self.spread.bytes_per_row(draws, self.outputs) + 32 * self.A.shape[1]

    @property
    def one_variance(self) -> bool:
        return len(self.spread.factor) == 1

    @torch.no_grad()
    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        return product(self.kernel, x.to(self.x), self.x, columns_of(self.A, self.outputs))[:, : self.outputs]

    @torch.no_grad()
    def pieces(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t g s"]]:
        """Mean, and draws about it."""
        groups, known = len(self.spread.factor), product(self.kernel, x, self.x, self.A)
        draws = prior_draws(self.kernel, x, groups * self.draws, self.seed) - known[:, self.outputs :]
        return known[:, : self.outputs], draws.unflatten(1, (groups, self.draws))

    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        x = x.to(self.x)
        mean, draws = self.pieces(x)
        return mean, self.spread.variance(x, draws).to(mean).expand_as(mean)

    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        x = x.to(self.x)
        mean, draws = self.pieces(x)
        return self.spread.sample(mean, x, draws, count, seed)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header = {"kind": "kernel functions at rows", **describe(self.kernel, self.likelihood)}
        header |= {"outputs": self.outputs, "seed": self.seed}
        tensors = {"x": self.x, "A": self.A, **self.spread.tensors()}
        return header, tensors | tensors_of(self.kernel, self.likelihood)


@dataclass(frozen=True)
class FourierWeights:
    """Weights of the mean over Fourier features, and of posterior draws about it (`feature_posterior`)."""

    basis: Fourier
    likelihood: Likelihood
    table: Float[Tensor, "m c"]  # of the outputs, then of the draws
    outputs: int
    spread: Spread

    one_variance: ClassVar[bool] = True
    rows_at_a_time: ClassVar[int] = 2048

    @property
    def kernel(self) -> SpectralKernel:
        return self.basis.kernel

    @property
    def draws(self) -> int:
        return self.table.shape[1] - self.outputs

    def bytes_per_row(self, draws: int = 0) -> int:
        return self.spread.bytes_per_row(draws, self.outputs) + 32 * self.table.shape[1]

    @torch.no_grad()
    def mean(self, x: Float[Tensor, "t d"]) -> Float[Tensor, "t o"]:
        return self.basis.phi_v(x.to(self.table), columns_of(self.table, self.outputs))[:, : self.outputs]

    @torch.no_grad()
    def pieces(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t one s"]]:
        """Mean, and draws about it."""
        products = self.basis.phi_v(x, self.table)
        return products[:, : self.outputs], products[:, None, self.outputs :]

    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        x = x.to(self.table)
        mean, draws = self.pieces(x)
        return mean, self.spread.variance(x, draws).to(mean).expand_as(mean)

    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        x = x.to(self.table)
        mean, draws = self.pieces(x)
        return self.spread.sample(mean, x, draws, count, seed)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header = {"kind": "fourier weights", **describe(self.kernel, self.likelihood), "outputs": self.outputs}
        header |= {"m": self.basis.m, "seed": self.basis.seed, "orthogonal": self.basis.orthogonal}
        return header, {"table": self.table, **self.spread.tensors(), **tensors_of(self.kernel, self.likelihood)}


Posterior = ClosedForm | Features | KernelFunctionsAtRows | FourierWeights


def describe(kernel: Kernel, likelihood: Likelihood) -> dict[str, Any]:
    """Kernel and likelihood by their public names."""
    kernels = {constructor: name for name, constructor in KERNELS.items()}
    sites = {constructor: name for name, constructor in LIKELIHOODS.items()}
    described: dict[str, Any] = {"kernel": kernels[type(kernel)], "likelihood": sites[type(likelihood)]}
    return described | ({"points": likelihood.points} if isinstance(likelihood, Logistic) else {})


def tensors_of(kernel: Kernel, likelihood: Likelihood) -> dict[str, Tensor]:
    named = {f"kernel.{name}": value for name, value in vars(kernel).items()}
    return named | {f"likelihood.{name}": v for name, v in vars(likelihood).items() if isinstance(v, Tensor)}


def kernel_and_likelihood(header: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[Kernel, Likelihood]:
    """The inverse of `describe` and `tensors_of`."""
    kernel = KERNELS[header["kernel"]](tensors["kernel.lengthscale"], tensors["kernel.variance"])
    own = {name.removeprefix("likelihood."): value for name, value in tensors.items() if name.startswith("likelihood.")}
    settings = {"points": header["points"]} if header["likelihood"] == "logistic" else {}
    return kernel, LIKELIHOODS[header["likelihood"]](**own, **settings)


def posterior_from(header: dict[str, Any], tensors: dict[str, Tensor]) -> Posterior:
    """The inverse of ``parts``."""
    kernel, likelihood = kernel_and_likelihood(header, tensors)
    if header["kind"] == "closed form":
        return ClosedForm.build(kernel, likelihood, tensors["x"], tensors["Y"], tensors["weight"], tensors["xi"])
    if header["kind"] == "kernel functions at rows":
        x, A, own = tensors["x"], tensors["A"], spectral(kernel)
        outputs, seed = header.get("outputs", A.shape[1]), header.get("seed", 0)  # files of before the draws lack both
        return KernelFunctionsAtRows(own, likelihood, x, A, outputs, seed, Spread.restore(own, tensors))
    if header["kind"] == "fourier weights":
        own = spectral(kernel)
        basis = Fourier(own, header["m"], header["seed"], header["orthogonal"])
        return FourierWeights(basis, likelihood, tensors["table"], header["outputs"], Spread.restore(own, tensors))
    return _features_from(kernel, likelihood, header, tensors)


def _features_from(
    kernel: Kernel, likelihood: Likelihood, header: dict[str, Any], tensors: dict[str, Tensor]
) -> Features:
    basis: Basis
    if header["basis"] == "Fourier":
        basis = Fourier(spectral(kernel), header["m"], header["seed"], header["orthogonal"])
    elif header["basis"] == "Grid":
        basis = Grid.restore(spectral(kernel), tensors)
    elif header["basis"] == "Whitened":
        basis = Whitened(spectral(kernel), tensors["centres"], tensors["root"])
    else:
        basis = (Inducing if header["basis"] == "Inducing" else KernelFunctions)(kernel, tensors["Z"])
    return Features(basis, likelihood, Chevron(header["m"], header["k"]), tensors["table"], header["outputs"])
