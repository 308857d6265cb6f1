"""Inducing functions k(x, z_i): with the training points as centres, those of the exact posterior mean."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from qsgp.interfaces import Kernel


@dataclass(frozen=True)
class Inducing:
    """phi_i(x) = k(x, z_i) with dense prior precision S = K(Z, Z), so Phi S^-1 Phi^T is the Nystrom approximation."""

    kernel: Kernel
    Z: Float[Tensor, "m d"]

    diagonal: ClassVar[bool] = False
    learned_precision: ClassVar[bool] = False
    exchangeable: ClassVar[bool] = False

    @property
    def m(self) -> int:
        return len(self.Z)

    def columns(self, index: Int[Tensor, " i"]) -> Float[Tensor, "i d"]:
        return self.Z[index]

    def features(self, x: Float[Tensor, "l d"], columns: Float[Tensor, "i d"]) -> Float[Tensor, "l i"]:
        return self.kernel(x, columns)

    def precision(self, columns_j: Float[Tensor, "j d"], columns_i: Float[Tensor, "i d"]) -> Float[Tensor, "j i"]:
        return self.kernel(columns_j, columns_i)

    def precision_diag(self, index: Int[Tensor, " i"]) -> Float[Tensor, " i"]:
        return self.kernel.diag(self.Z[index])
