"""Initial hyperparameters: empirical Bayes with an exact GP on a random subset (Appendix I.1)."""

from typing import TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_finite, check_positive, check_rows, check_vectors
from qsgp.data.rows import Rows
from qsgp.interfaces import Kernel
from qsgp.likelihoods import Gaussian
from qsgp.solvers.closed_form import Effort, fit_hyperparameters

K = TypeVar("K", bound=Kernel)


def fit_exact_gp(
    kernel: K,
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    *,
    noise_variance: float = 0.1,
    points: int = 1000,
    iterations: int = 100,
    seed: int = 0,
) -> tuple[K, Float[Tensor, ""]]:
    """Kernel and noise variance that maximise the marginal likelihood of at most ``points`` random rows.

    L-BFGS in float64 from the kernel given; cost O(points^3) for each of about ``iterations`` evaluations.
    """
    check_rows(x=x, y=y)
    check_vectors(y=y)
    check_positive("points", points, "Give the number of rows to fit, for example 1000.")
    check_finite("x", x, "Drop or fill the rows with missing values.")
    check_finite("y", y, "Drop the rows whose target is missing.")
    check_positive("noise_variance", noise_variance, "Give the variance to start from, for example 0.1.")
    generator = torch.Generator().manual_seed(seed)
    subset = torch.randperm(len(x), generator=generator)[:points].to(x.device)
    targets = y[subset].double()
    rows = Rows(x[subset].double(), targets[:, None], torch.ones_like(targets))
    likelihood = Gaussian(torch.tensor(noise_variance, dtype=torch.float64, device=x.device))
    first = cast(K, kernel.with_parameters({name: value.double() for name, value in kernel.parameters().items()}))
    found, noise, _ = fit_hyperparameters(first, likelihood, rows, Effort(iterations))
    rounded = {name: value.to(x.dtype) for name, value in found.parameters().items()}
    return cast(K, kernel.with_parameters(rounded)), noise.noise_variance.to(x.dtype)
