"""A kernel with very many inputs: one number scales all lengthscales, whose proportions are given."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from qsgp.interfaces import Parameters, SpectralKernel


@dataclass(frozen=True)
class Tied:
    """``kernel`` with lengthscales ``proportions`` exp(log_scale): hundreds of them cannot be told from some rows."""

    kernel: SpectralKernel
    proportions: Float[Tensor, " d"]
    log_scale: Float[Tensor, ""]

    @classmethod
    def of(cls, kernel: SpectralKernel) -> "Tied":
        return cls(kernel, kernel.lengthscale, kernel.variance.new_zeros(()))

    def __call__(self, x: Float[Tensor, "a d"], z: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
        return self.kernel(x, z)

    def diag(self, x: Float[Tensor, "a d"]) -> Float[Tensor, " a"]:
        return self.kernel.diag(x)

    def parameters(self) -> Parameters:
        return {"log_scale": self.log_scale, "log_variance": self.kernel.variance.log()}

    def with_parameters(self, parameters: Parameters) -> "Tied":
        log_scale = parameters["log_scale"]
        proportions = self.proportions.to(log_scale)
        own = {"log_lengthscale": proportions.log() + log_scale, "log_variance": parameters["log_variance"]}
        kernel = self.kernel.with_parameters(own)
        assert isinstance(kernel, SpectralKernel)
        return replace(self, kernel=kernel, proportions=proportions, log_scale=log_scale)
