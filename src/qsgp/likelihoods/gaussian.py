"""Gaussian noise: the site whose bounds are exact."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from qsgp.checks import check_finite, check_positive, check_shape, check_tensor
from qsgp.interfaces import Parameters, Quadratic
from qsgp.likelihoods.laplace import expected_absolute
from qsgp.likelihoods.levels import normal_quantile


@dataclass(frozen=True)
class Gaussian:
    """log g(f) = -log(2 pi sigma2) / 2 - (y - f)^2 / (2 sigma2), sigma2 = noise_variance (Site Projection Notes)."""

    noise_variance: Float[Tensor, ""] = field(default_factory=lambda: torch.tensor(1.0))

    name: ClassVar[str] = "gaussian"
    words: ClassVar[str] = "Gaussian"
    labels: ClassVar[bool] = False
    fixed_sites: ClassVar[bool] = True
    first_noise: ClassVar[float] = 0.1

    def __post_init__(self) -> None:
        remedy = "Give the variance, not its logarithm; for noise-free data use a small value such as 1e-6."
        check_tensor("noise_variance", self.noise_variance, "Write torch.tensor(0.1).")
        check_shape("noise_variance", self.noise_variance, (), "Give one noise variance for all points.")
        check_positive("noise_variance", self.noise_variance, remedy)

    @classmethod
    def of_noise(cls, variance: Float[Tensor, ""]) -> "Gaussian":
        return cls(variance)

    def parameters(self) -> Parameters:
        return {"log_noise_variance": self.noise_variance.log()}

    def with_parameters(self, parameters: Parameters) -> "Gaussian":
        return replace(self, noise_variance=parameters["log_noise_variance"].exp())

    def check_targets(self, y: Float[Tensor, "*s"]) -> None:
        check_finite("y", y, "Drop or impute the rows that lack a target.")

    def log_site(self, y: Float[Tensor, "*#s"], f: Float[Tensor, "*#s"]) -> Float[Tensor, "*#s"]:
        return -0.5 * ((2 * math.pi * self.noise_variance).log() + (y - f).square() / self.noise_variance)

    def expected_log_site(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], deviation: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """h(a, s) = log g(a) - s^2 / (2 sigma2)."""
        return self.log_site(y, mean) - 0.5 * deviation.square() / self.noise_variance

    def quadratic_bound(self, y: Float[Tensor, "*#s"], xi: Float[Tensor, "*#s"]) -> Quadratic:
        """The site itself, whatever ``xi``."""
        precision = torch.ones_like(xi) / self.noise_variance
        return Quadratic(self.log_site(y, torch.zeros_like(xi)), y * precision, -0.5 * precision)

    def optimal_xi(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], second_moment: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """xi^2 = E (f - y)^2, as for the other sites; the bound does not depend on it."""
        return (second_moment - 2 * y * mean + y.square()).detach().clamp_min(0).sqrt()

    def log_density(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """log N(y | mean, variance + sigma2)."""
        total = variance + self.noise_variance
        return -0.5 * ((2 * math.pi * total).log() + (y - mean).square() / total)

    def moments(
        self, mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> tuple[Float[Tensor, "*#s"], Float[Tensor, "*#s"]]:
        return mean, variance + self.noise_variance

    def cdf(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """Pr(below y), uniform over calibrated data: the probability integral transform."""
        # Not ndtr: (1 + erf) / 2 has no digits left in the lower tail.
        return 0.5 * torch.erfc((mean - y) / (2 * (variance + self.noise_variance)).sqrt())

    def quantile(
        self, q: float | Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        return mean + (variance + self.noise_variance).sqrt() * normal_quantile(q, mean)

    def crps(
        self, y: Float[Tensor, "*#s"], mean: Float[Tensor, "*#s"], variance: Float[Tensor, "*#s"]
    ) -> Float[Tensor, "*#s"]:
        """E|y - y'| - E|y' - y''| / 2 for independent draws y', y'' of the prediction; in the unit of y."""
        total = variance + self.noise_variance
        return expected_absolute(y - mean, total.sqrt()) - (total / math.pi).sqrt()
