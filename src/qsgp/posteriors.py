"""What remains after training: mean and variance of f at new inputs, coherent draws of f, and how to store it.

Three kinds with the same three verbs (`latent`, `sample`, `parts`): the exact GP of small data, a table over basis
functions, and kernel functions at many rows. All work on standardised inputs and targets; the estimators translate.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp.bases import Fourier, Grid, Inducing, KernelFunctions
from qsgp.closed_form import Sites, Solved, solve, tighten
from qsgp.covariances import Chevron
from qsgp.dual import product, spectral
from qsgp.interfaces import Basis, Kernel, Likelihood, Streamed
from qsgp.kernels import BY_NAME as KERNELS
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.likelihoods import Logistic
from qsgp.pathwise import blended, prior_draws
from qsgp.predict import stream, stream_draws

# Fourier features of a prior draw in `ClosedForm.sample`; the data correct what they get wrong.
_PRIOR_FEATURES = 4096
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
        with torch.no_grad():
            Gram = kernel(x, x)
            if xi is None:
                xi = torch.stack([tighten(Gram, likelihood, y, weight, halt=halt) for y in Y.mT], 1)
            sites = [Sites.of(likelihood, y, at, weight) for y, at in zip(Y.mT, xi.mT, strict=True)]
            return cls(kernel, likelihood, x, Y, weight, xi, tuple(solve(Gram, site) for site in sites))

    rows_at_a_time: ClassVar[int] = 2048

    def with_rows(self, x: Tensor, Y: Tensor, weight: Tensor) -> "ClosedForm":
        """The same hyperparameters, more rows."""
        x, Y, weight = (
            torch.cat([old, more.to(old)]) for old, more in ((self.x, x), (self.Y, Y), (self.weight, weight))
        )
        return ClosedForm.build(self.kernel, self.likelihood, x, Y, weight)

    def bytes_per_row(self, draws: int = 0) -> int:
        """Memory that one more row at a time costs `latent`, or `sample` with so many draws."""
        return 8 * (6 * len(self.x) + (2 * _PRIOR_FEATURES + 2 * draws if draws else 0))

    @torch.no_grad()
    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        """Mean and variance of f for every output. Cost O(t n^2), memory O(t n): give it blocks of rows."""
        x = x.to(self.x)
        k_star, prior = self.kernel(self.x, x), self.kernel.diag(x)
        means, variances = [], []
        for solved in self.solved:
            half = torch.linalg.solve_triangular(solved.factor, solved.sites.root[:, None] * k_star, upper=False)
            means.append(k_star.mT @ solved.alpha)
            variances.append((prior - half.square().sum(0)).clamp_min(1e-12 * prior))
        return torch.stack(means, 1), torch.stack(variances, 1)

    @torch.no_grad()
    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """Draws of f, coherent over x, linear in its length: a prior draw, corrected at the data (Matheron's rule)."""
        x = x.to(self.x)
        generator = torch.Generator().manual_seed(seed)
        basis = Fourier(spectral(self.kernel), _PRIOR_FEATURES, seed=seed)
        columns = basis.columns(torch.arange(_PRIOR_FEATURES, device=x.device))
        at_data, at_x = basis.features(self.x, columns), basis.features(x, columns)
        k_star = self.kernel(x, self.x)
        draws = []
        for solved in self.solved:
            w = torch.randn(_PRIOR_FEATURES, count, generator=generator, dtype=torch.float64).to(x)
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
    """Weights over basis functions: mean phi mu, variance phi Sigma phi^T with a chevron Sigma."""

    basis: Basis
    likelihood: Likelihood
    covariance: Chevron
    table: Float[Tensor, "m w"]  # [mu (outputs) | L (k) | log_c]
    outputs: int

    @property
    def kernel(self) -> Kernel:
        return self.basis.kernel

    def bytes_per_row(self, draws: int = 0) -> int:
        width = self.outputs * (1 + draws) + self.covariance.k
        features = 0 if isinstance(self.basis, Streamed) else min(self.basis.m, _BLOCK_FEATURES)
        return self.table.element_size() * (4 * features + 4 * width)

    @property
    def rows_at_a_time(self) -> int:
        """More are no faster: frequencies are drawn once for a block of rows."""
        return 65_536 if isinstance(self.basis, Streamed) else 2048

    @torch.no_grad()
    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        """Mean and variance of f; memory O(t) times a block of features: give it blocks of rows."""
        mean, variance = stream(
            self.basis, self.covariance, self.table, self.outputs, x.to(self.table), _BLOCK_FEATURES
        )
        return mean, variance[:, None].expand_as(mean)

    @torch.no_grad()
    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """Draws of f from draws of the weights: linear in the number of points, coherent over them."""
        return stream_draws(self.basis, self.covariance, self.table, self.outputs, x.to(self.table), count, seed)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        basis = self.basis
        header: dict[str, Any] = {"kind": "features", **describe(basis.kernel, self.likelihood)}
        header |= {"basis": type(basis).__name__, "k": self.covariance.k, "outputs": self.outputs, "m": basis.m}
        tensors = {"table": self.table, **tensors_of(basis.kernel, self.likelihood)}
        if isinstance(basis, Fourier):
            header |= {"seed": basis.seed, "orthogonal": basis.orthogonal}
        elif isinstance(basis, Grid):
            tensors |= basis.tensors()
        else:
            assert isinstance(basis, Inducing | KernelFunctions)
            tensors["Z"] = basis.Z
        return header, tensors


@dataclass(frozen=True)
class KernelFunctionsAtRows:
    """The GP's mean k(x, X) A for many rows. Its variance is a blend: that of posterior draws (further columns of A,
    `pathwise`), and that of the GP that knows some rows U, each counting for n / p rows:
    k(x, x) - k(x, U) (K_UU + (p / n) noise)^-1 k(U, x). One for all outputs (Gaussian noise), or one for each."""

    kernel: Kernel
    likelihood: Likelihood
    x: Float[Tensor, "n d"]
    A: Float[Tensor, "n c"]  # of the outputs, then of the draws of each variance
    U: Float[Tensor, "p d"]
    noise: Float[Tensor, "p g"]  # of a support point: (p / n) times that of a row
    outputs: int
    seed: int  # of the prior draws
    blend: Float[Tensor, "g two"]
    factor: Float[Tensor, "g p p"] = field(repr=False)

    rows_at_a_time: ClassVar[int] = 2048

    @classmethod
    def build(
        cls,
        kernel: Kernel,
        likelihood: Likelihood,
        x: Tensor,
        A: Tensor,
        U: Tensor,
        noise: Tensor,
        outputs: int,
        seed: int,
        blend: Tensor | None = None,
    ) -> "KernelFunctionsAtRows":
        with torch.no_grad():
            noise = noise.expand(len(U), 1) if noise.ndim == 0 else noise  # one number in files of format 1
            double = kernel.with_parameters({name: value.double() for name, value in kernel.parameters().items()})
            K = double(U.double(), U.double())
            K.diagonal().add_(1e-10 * K[0, 0])
            factor = torch.stack([torch.linalg.cholesky(K + torch.diag(own)) for own in noise.double().mT])
            blend = torch.ones(len(factor), 2, dtype=torch.float64, device=x.device) if blend is None else blend
            return cls(kernel, likelihood, x, A, U, noise, outputs, seed, blend.reshape(-1, 2), factor)

    @property
    def draws(self) -> int:
        """For each variance."""
        return (self.A.shape[1] - self.outputs) // len(self.factor)

    def bytes_per_row(self, draws: int = 0) -> int:
        own = (3 + 2 * len(self.factor)) * len(self.U) + 4 * self.A.shape[1]
        return 8 * (own + (2 * _PRIOR_FEATURES + 3 * draws * self.outputs if draws else 0))

    @torch.no_grad()
    def pieces(
        self, x: Float[Tensor, "t d"]
    ) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t g s"], Float64[Tensor, "t g"]]:
        """Mean, draws about it, and the variance that the support points leave."""
        x, kernel, groups = x.to(self.x), spectral(self.kernel), len(self.factor)
        known = product(kernel, x, self.x, self.A)
        spread = prior_draws(kernel, x, groups * self.draws, self.seed) - known[:, self.outputs :]
        return known[:, : self.outputs], spread.unflatten(1, (groups, self.draws)), self.support_variance(x)

    @torch.no_grad()
    def support_variance(self, x: Float[Tensor, "t d"]) -> Float64[Tensor, "t g"]:
        cross, prior = self.kernel(self.U, x).double(), self.kernel.diag(x).double()
        known = [torch.linalg.solve_triangular(own, cross, upper=False).square().sum(0) for own in self.factor]
        return torch.stack([(prior - each).clamp_min(1e-12 * prior) for each in known], 1)

    def latent(self, x: Float[Tensor, "t d"]) -> tuple[Float[Tensor, "t o"], Float[Tensor, "t o"]]:
        mean, spread, support = self.pieces(x)
        return mean, blended(spread, support, self.blend).to(mean).expand_as(mean)

    @torch.no_grad()
    def sample(self, x: Float[Tensor, "t d"], count: int, seed: int) -> Float[Tensor, "count t o"]:
        """The mean and a spread whose covariance is the blend's: a mixture of the draws, and a prior draw less what the
        support points know of it."""
        x, s = x.to(self.x), self.draws
        mean, spread, _ = self.pieces(x)
        generator = torch.Generator().manual_seed(seed)
        basis = Fourier(spectral(self.kernel), _PRIOR_FEATURES, seed=seed)
        w = torch.randn(_PRIOR_FEATURES, count * self.outputs, generator=generator, dtype=torch.float64).to(x)
        noise = torch.randn(len(self.U), count * self.outputs, generator=generator, dtype=torch.float64)
        mixing = torch.randn(s, count * self.outputs, generator=generator, dtype=torch.float64)
        at_support, at_x = basis.phi_v(self.U, w).double(), basis.phi_v(x, w).double()
        noise, mixing, cross = noise.to(at_x), mixing.to(at_x), self.kernel(x, self.U).double()
        draws = []
        for output in range(self.outputs):
            g, own = output % len(self.factor), slice(output * count, (output + 1) * count)
            known = at_support[:, own] + self.noise[:, g, None].double().sqrt() * noise[:, own]
            draw = at_x[:, own] - cross @ torch.cholesky_solve(known, self.factor[g])
            if s:
                ratio, worth = self.blend[g].to(draw)
                draw = (spread[:, g].double() @ mixing[:, own] + (worth * ratio).sqrt() * draw) / (s + worth).sqrt()
            draws.append((mean[:, output, None] + draw.to(x)).mT)
        return torch.stack(draws, 2)

    def parts(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header = {"kind": "kernel functions at rows", **describe(self.kernel, self.likelihood)}
        header |= {"outputs": self.outputs, "seed": self.seed}
        tensors = {"x": self.x, "A": self.A, "U": self.U, "noise": self.noise.contiguous(), "blend": self.blend}
        return header, tensors | tensors_of(self.kernel, self.likelihood)


Posterior = ClosedForm | Features | KernelFunctionsAtRows


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
        x, A, U, noise = (tensors[name] for name in ("x", "A", "U", "noise"))
        outputs, seed = header.get("outputs", A.shape[1]), header.get("seed", 0)  # files of before the draws lack both
        return KernelFunctionsAtRows.build(kernel, likelihood, x, A, U, noise, outputs, seed, tensors.get("blend"))
    basis: Basis
    if header["basis"] == "Fourier":
        basis = Fourier(spectral(kernel), header["m"], header["seed"], header["orthogonal"])
    elif header["basis"] == "Grid":
        basis = Grid.restore(spectral(kernel), tensors)
    else:
        basis = (Inducing if header["basis"] == "Inducing" else KernelFunctions)(kernel, tensors["Z"])
    return Features(basis, likelihood, Chevron(header["m"], header["k"]), tensors["table"], header["outputs"])
