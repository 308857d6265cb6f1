"""Rows held in memory, on the device the tensors are on."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.checks import check_finite, check_shape


@dataclass(frozen=True)
class Arrays:
    """Inputs ``x``, targets ``y`` (a column for each output) and, if points count unequally, a ``weight`` each.

    Checked once here, so that no step has to look again.
    """

    x: Float[Tensor, "n d"]
    y: Float[Tensor, "n *o"]
    weight: Float[Tensor, " n"] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.x, Tensor) or not isinstance(self.y, Tensor):
            raise ValueError(
                f"Expected x and y as tensors, got {type(self.x).__name__} and {type(self.y).__name__}. "
                "Convert arrays with torch.from_numpy."
            )
        if self.x.ndim != 2 or 0 in self.x.shape:
            raise ValueError(
                f"Expected x of shape (n, d) with n, d >= 1, got {tuple(self.x.shape)}. "
                "Put one data point in each row; a single input is the column x[:, None]."
            )
        outputs = () if self.y.ndim == 1 else self.y.shape[1:2]
        remedy = f"Pass one target for each of the {self.n} rows of x, as a vector or with a column for each output."
        check_shape("y", self.y, (self.n, *outputs), remedy)
        if not self.x.is_floating_point() or self.y.dtype != self.x.dtype or self.y.device != self.x.device:
            raise ValueError(
                "Expected x and y of one floating type on one device, got "
                f"x {self.x.dtype} on {self.x.device} and y {self.y.dtype} on {self.y.device}. "
                "Convert them with .to(dtype=torch.float32, device=...)."
            )
        _check_columns_finite(self.x)
        check_finite("y", self.y, "Drop the rows without a target before building the source.")
        if self.weight is not None:
            check_shape("weight", self.weight, (self.n,), "Pass one weight for each row.")
            check_finite("weight", self.weight, "Give every row a weight; 0 leaves it out.")
            if (self.weight < 0).any() or not (self.weight > 0).any():
                raise ValueError(
                    f"Expected weights >= 0, not all of them 0, got {float(self.weight.min())} to "
                    f"{float(self.weight.max())}. A weight says how often a row counts."
                )

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @property
    def d(self) -> int:
        return self.x.shape[1]

    @property
    def outputs(self) -> int:
        return 1 if self.y.ndim == 1 else self.y.shape[1]

    @property
    def total(self) -> float:
        return float(self.n if self.weight is None else self.weight.sum())

    def weights(self, index: Int[Tensor, " l"]) -> Float[Tensor, " l"] | None:
        return None if self.weight is None else self.weight[index]

    def take(self, index: Int[Tensor, " l"]) -> tuple[Float[Tensor, "l d"], Float[Tensor, "l *o"]]:
        """Rows ``index`` in that order, repeats kept. Cost O(l d)."""
        return self.x[index], self.y[index]


def _check_columns_finite(x: Tensor) -> None:
    # A sum is finite only if all its terms are: no n x d mask is made for clean data.
    if torch.isfinite(x.sum(0)).all():
        return
    missing = (~torch.isfinite(x)).sum(0)
    if missing.any():
        listing = ", ".join(f"column {c} has {missing[c]}" for c in missing.nonzero().flatten().tolist())
        raise ValueError(
            f"Expected finite numbers in x, got NaN or infinite entries: {listing}. "
            "Drop those rows or columns, or fill the gaps before building the source."
        )
