"""C with k dense lower-triangular columns and m - k diagonal ones: k = 0 is mean field, k = m is a full C."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Chevron:
    """Sigma = C C^T; C holds exp(log_c) on its diagonal and L below it in the first k columns.

    Rows are named by their place in the table. Where that holds some functions alone, ``functions`` says which.
    """

    m: int
    k: int = 0
    functions: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.k <= self.m:
            raise ValueError(
                f"Expected 0 <= dense_columns <= m = {self.m}, got {self.k}. Use 0 for mean field and m for a full C."
            )

    def dense_columns(
        self,
        index: Int[Tensor, " u"],
        L: Float[Tensor, "u r"],
        log_c: Float[Tensor, " u"],
        r: Int[Tensor, " r"] | None = None,
    ) -> Float[Tensor, "u r"]:
        """Rows ``index`` of the dense columns ``r`` (all k unless said): L below the diagonal, exp(log_c) on it."""
        index = self._named(index)
        if self._below(index):
            return L
        columns = torch.arange(self.k, device=index.device) if r is None else r
        below, on = index[:, None] > columns, index[:, None] == columns
        return torch.where(below, L, 0.0) + torch.where(on, log_c.exp()[:, None], 0.0)

    def pulled_back(
        self, index: Int[Tensor, " u"], of_dense: Float[Tensor, "u k"], log_c: Float[Tensor, " u"]
    ) -> tuple[Float[Tensor, "u k"], Float[Tensor, " u"]]:
        """Gradients with respect to L and log_c, from that with respect to all `dense_columns`."""
        index = self._named(index)
        if self._below(index):
            return of_dense, torch.zeros_like(log_c)
        columns = torch.arange(self.k, device=index.device)
        below, on = index[:, None] > columns, index[:, None] == columns
        return torch.where(below, of_dense, 0.0), torch.where(on, of_dense, 0.0).sum(1) * log_c.exp()

    def _named(self, index: Int[Tensor, " u"]) -> Int[Tensor, " u"]:
        return index if self.functions is None else self.functions(index)

    def _below(self, index: Int[Tensor, " u"]) -> bool:
        """All these rows lie below the dense columns. A GPU is not asked: it would have to stop for the answer."""
        return not index.is_cuda and bool((index >= self.k).all())

    def diagonal_rows(self, index: Int[Tensor, " u"], dtype: torch.dtype) -> Float[Tensor, " u"]:
        """1 where the row's own column is diagonal, 0 where it is dense."""
        return (self._named(index) >= self.k).to(dtype)

    def to_dense(self, L: Float[Tensor, "m k"], log_c: Float[Tensor, " m"]) -> Float[Tensor, "m m"]:
        """The whole C, for tests and small models."""
        index = torch.arange(self.m, device=L.device)
        C = torch.diag(log_c.exp())
        C[:, : self.k] = self.dense_columns(index, L, log_c)
        return C
