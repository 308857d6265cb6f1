"""The basis of the relevance vector machine: kernel functions, each with a prior precision of its own."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from qsgp.interfaces import Kernel


@dataclass(frozen=True)
class KernelFunctions:
    """phi_i(x) = k(x, z_i) / variance: unit height, since the learned precisions already set every scale.

    S = diag(s) is learned and lives in the training state; ``precision_diag`` gives the value it starts from. The
    variance of the kernel therefore has no effect and a gradient of zero.
    """

    kernel: Kernel
    Z: Float[Tensor, "m d"]

    diagonal: ClassVar[bool] = True
    learned_precision: ClassVar[bool] = True
    exchangeable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not hasattr(self.kernel, "variance"):
            raise ValueError(
                f"Expected a kernel with one variance to divide by, got {type(self.kernel).__name__}. "
                "Use a squared exponential or Matern kernel."
            )

    @classmethod
    def restore(cls, kernel: Kernel, header: dict[str, Any], tensors: dict[str, Tensor]) -> "KernelFunctions":
        return cls(kernel, tensors["Z"])

    def settings(self) -> dict[str, Any]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {"Z": self.Z}

    @staticmethod
    def shapes(m: int, d: int) -> dict[str, tuple[int | None, ...]]:
        return {"Z": (m, d)}

    @property
    def m(self) -> int:
        return len(self.Z)

    def columns(self, index: Int[Tensor, " i"]) -> Float[Tensor, "i d"]:
        return self.Z[index]

    def features(self, x: Float[Tensor, "l d"], columns: Float[Tensor, "i d"]) -> Float[Tensor, "l i"]:
        # Dividing k by the variance would leave its gradient as rounding noise, which Adam blows up to a drift;
        # this way the gradient exists and is exactly zero.
        kernel: Any = self.kernel
        unit: Kernel = kernel.unit()
        return unit(x, columns)

    def precision_diag(self, index: Int[Tensor, " i"]) -> Float[Tensor, " i"]:
        return self.Z.new_ones(len(index))
