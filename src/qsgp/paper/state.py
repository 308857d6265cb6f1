"""What a step reads and writes: one table with a row for each basis function, and a few small tensors."""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.interfaces import Parameters
from qsgp.paper.optimisers import Moments
from qsgp.paper.sharing import Shares


@dataclass(frozen=True)
class Rows:
    """Rows of the table by name. mu: a mean for each output; L, log_c: the chevron; log_s: own precisions."""

    mu: Float[Tensor, "u o"]
    L: Float[Tensor, "u k"]
    log_c: Float[Tensor, " u"]
    log_s: Float[Tensor, " u"] | None

    @classmethod
    def of(cls, table: Float[Tensor, "u w"], outputs: int, k: int) -> "Rows":
        """Views of the columns [mu (outputs) | L (k) | log_c | log_s, for bases that learn their precision]."""
        c = outputs + k
        return cls(
            table[:, :outputs], table[:, outputs:c], table[:, c], table[:, c + 1] if table.shape[1] > c + 1 else None
        )


@dataclass
class State:
    """Everything that training changes. Only `step` writes into it.

    All that has m rows sits in ``table`` and, row for row, in the optimiser's ``sums``: a step gathers the touched
    rows once and scatters them once, so its cost does not depend on m, not even through cache misses per array. Of L
    it takes the columns that it drew.
    """

    table: Float[Tensor, "m w"]
    sums: Float[Tensor, "m v"]  # as the table, or with one column for all of L
    outputs: int  # columns of mu: targets that share the features and the covariance
    k: int  # dense columns of the chevron
    theta: Parameters  # log-scale hyperparameters of kernel and likelihood
    moments: dict[str, Moments] = field(default_factory=dict)
    a: Float[Tensor, "p c"] | None = None  # Phi_p [mu, C_dense], Proposition 3
    a_prior: Float[Tensor, "p c"] | None = None  # the same for the Nystrom factor of S
    variance: Float[Tensor, " p"] | None = None  # phi_p Sigma phi_p^T
    t: int = 0
    shares: Shares | None = None  # of ranks that exchange the rows a step touches: the table has those of this one

    @property
    def rows(self) -> Rows:
        """The whole table by name, as views."""
        return self.named(self.table)

    def named(self, table: Float[Tensor, "u w"], dense: Int[Tensor, " r"] | None = None) -> Rows:
        """Any rows of the table by name; of L they hold the columns ``dense``, or all."""
        return Rows.of(table, self.outputs, self.k if dense is None else len(dense))

    def columns(self, dense: Int[Tensor, " r"]) -> Int[Tensor, " w"]:
        """Where [mu | L_dense | log_c | log_s] stand in the table."""
        every = torch.arange(self.table.shape[1] - self.k, device=dense.device)
        before, after = every[: self.outputs], every[self.outputs :] + self.k
        return torch.cat([before, self.outputs + dense, after])

    def check(self, m: int, outputs: int, k: int, theta: Parameters, own_precision: bool) -> None:
        """A state of another model has rows that mean something else, and would be read without complaint."""
        table, width = tuple(self.table.shape), outputs + k + 1 + own_precision
        if table != (m, width) or (self.outputs, self.k) != (outputs, k) or set(self.theta) != set(theta):
            raise ValueError(
                f"Expected a state for m = {m}, {k} dense columns, a table of {width} columns and {sorted(theta)}, "
                f"got one with a table of {table}, {self.k} dense columns and {sorted(self.theta)}. "
                "Use the state with the problem it was started for, or start a new one."
            )

    def gather(
        self, touched: Int[Tensor, " u"], dense: Int[Tensor, " r"] | None = None
    ) -> tuple[Float[Tensor, "u w"], Float[Tensor, "u v"]]:
        """Rows ``touched`` of the table and of the sums, in both without the columns of L that are not ``dense``."""
        if self.shares is not None:
            here, own = self.shares.places(touched)
            table, sums = replace(self, shares=None).gather(own, dense)
            both = table.new_zeros(len(touched), table.shape[1] + sums.shape[1])
            both[here] = torch.cat([table, sums], 1)
            both = self.shares.ranks.total(both)  # all but one rank add zeros, which changes no number
            return both[:, : table.shape[1]].contiguous(), both[:, table.shape[1] :].contiguous()
        columns = None if dense is None else self.columns(dense)
        table, sums = (of[touched] if at is None else of[touched[:, None], at] for of, at in self._columns_of(columns))
        return table, sums

    def scatter(
        self,
        touched: Int[Tensor, " u"],
        dense: Int[Tensor, " r"] | None,
        table: Float[Tensor, "u w"],
        sums: Float[Tensor, "u v"],
    ) -> None:
        """Put back what `gather` took."""
        if self.shares is not None:
            here, own = self.shares.places(touched)
            replace(self, shares=None).scatter(own, dense, table[here], sums[here])
            return
        columns = None if dense is None else self.columns(dense)
        for (of, at), new in zip(self._columns_of(columns), (table, sums), strict=True):
            if at is None:
                of.index_copy_(0, touched, new)
            else:
                of.index_put_((touched[:, None], at), new)

    def _columns_of(self, columns: Tensor | None) -> tuple[tuple[Tensor, Tensor | None], ...]:
        """The sums have those columns only if they have one for each of the table's."""
        each = self.sums.shape[1] == self.table.shape[1]
        return (self.table, columns), (self.sums, columns if each else None)

    def tensors(self) -> dict[str, Tensor]:
        """All of it as named tensors, for a checkpoint."""
        named = {"table": self.table, "sums": self.sums, "t": torch.tensor(self.t)}
        named |= {f"theta.{name}": value for name, value in self.theta.items()}
        for name, moments in self.moments.items():
            named |= {f"first.{name}": moments.first, f"second.{name}": moments.second}
        products = {"a": self.a, "a_prior": self.a_prior, "variance": self.variance}
        return named | {name: value for name, value in products.items() if value is not None}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `tensors` of a state of the same run gave."""
        for name, value in self.tensors().items():
            if name not in tensors or tensors[name].shape != value.shape or tensors[name].dtype != value.dtype:
                raise ValueError(
                    f"Expected {name} of shape {tuple(value.shape)} and {value.dtype} in the checkpoint, got "
                    f"{tensors[name].shape if name in tensors else 'nothing'}. It belongs to another model."
                )
        self.table.copy_(tensors["table"])
        self.sums.copy_(tensors["sums"])
        self.t = int(tensors["t"])
        self.theta = {name: tensors[f"theta.{name}"] for name in self.theta}
        self.moments = {name: Moments(tensors[f"first.{name}"], tensors[f"second.{name}"]) for name in self.moments}
        self.a, self.a_prior, self.variance = (
            None if old is None else tensors[name]
            for name, old in (("a", self.a), ("a_prior", self.a_prior), ("variance", self.variance))
        )
