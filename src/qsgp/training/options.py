"""The estimators' keywords after their check, what a device does in a minute, and the sizes that follow (`plan`)."""

import math
from dataclasses import dataclass, replace

import torch

from qsgp.hyperparameters.asked import LEARN_POINTS as LEARN_POINTS
from qsgp.likelihoods import BY_NAME as LIKELIHOODS

SMALL = 3000  # rows that go to the closed form
FEATURES = 2048
MOST_FEATURES = 4 * FEATURES  # whose precision matrix is written down: 0.5 GB
CENTRES = 2000  # most kernel functions of a relevance vector machine
BATCH_POINTS = 1000
BATCH_FEATURES = 2048
SUPPORT_POINTS = 500
PRODUCTS = 10**7  # of functions and levels, while effects of identifiers are estimated
LEAST_ROWS = 100  # that can tell what noise predictions have, or whether a target wants a map
MOST_MAPPED = 4  # outputs of which a map is looked for
SECONDS_OF_A_MAP, OF_FEW_ROWS = 5.0, 2.0  # of max_time, at least; up to 1,000 rows
SECONDS = 60.0  # what sizes are made for when no max_time is given


@dataclass(frozen=True)
class Pace:
    """What a device does in a minute or so of the dual."""

    values: float  # kernel values in a second, with the columns of ``draws``
    learn_points: int
    block: int
    variance_points: int
    draws: int
    held_out: int  # rows at most; errors with heavy tails need many, where time is short they are missed
    exact_rows: int  # of the exact GP that training begins with
    operations: float  # in a second, of matrix products in float64 on a busy machine

    def rows(self, seconds: float, columns: int) -> int:
        """Half of the time for about eight epochs of n^2 kernel values; more columns than usual slow them down."""
        values = self.values * min(1.0, (1 + self.draws) / columns)
        return max(SMALL, int(math.sqrt(seconds / 2 * values / 8)))

    def of_each(self, groups: int) -> "Pace":
        """With a variance for each of several outputs: factors are as many, so matrices are smaller."""
        root = math.sqrt(groups)
        return replace(
            self,
            block=max(500, int(self.block / root)),
            variance_points=max(200, int(self.variance_points / root)),
            draws=max(2, self.draws // groups),
        )


PACES = {
    "cpu": Pace(
        values=1e9,
        learn_points=2000,
        block=2000,
        variance_points=2000,
        draws=16,
        held_out=1000,
        exact_rows=4000,
        operations=1e10,
    ),
    # 64 columns with that of the mean: tensor cores take powers of two
    "cuda": Pace(
        values=4e11,
        learn_points=8000,
        block=8000,
        variance_points=4000,
        draws=63,
        held_out=3000,
        exact_rows=8000,
        operations=1e13,
    ),
}


@dataclass(frozen=True)
class Options:
    """Keywords with None for "auto"; a plan fills in the numbers."""

    likelihood: str = "gaussian"
    noise: str = "equal"
    target_map: str = "none"
    kernel: str = "auto"
    metric: str = "auto"
    basis: str = "auto"
    n_features: int | None = None
    covariance: str = "auto"
    dense_columns: int = 0
    batch_points: int | None = None
    batch_features: int | None = None
    support_points: int | None = None
    optimizer: str = "auto"
    learn_hyperparameters: bool = True
    max_iter: int | None = None
    max_time: float | None = None
    tol: float | None = None
    max_memory: int = 2**62
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    seed: int = 0
    relevance: bool = False  # a relevance vector machine
    by_numbers: bool = False  # labels may be taken for numbers
    # inputs, the last ones, that hold levels of identifiers: codes 0 to L - 1, or -1 for one that is not known
    levels: tuple[int, ...] = ()
    level_counts: tuple[int, ...] = ()  # L of each
    checkpoint: str | None = None  # a folder
    checkpoint_seconds: float = 30.0
    ranks: int = 1  # processes that share the rows

    @property
    def table_dtype(self) -> torch.dtype:
        """Precisions of a relevance vector machine spread over ten decades: float32 would lose the small ones."""
        return torch.float64 if self.relevance else self.dtype

    @property
    def plain(self) -> bool:
        """No basis, no covariance of its weights and no way to train them is named."""
        free = self.covariance in ("auto", "support", "samples")
        return self.basis == self.optimizer == "auto" and free and not self.relevance

    def wants_table(self, n: int) -> bool:
        """Features are asked for by name, or there are too many rows for the closed form."""
        return n > SMALL or not self.plain or self.n_features is not None

    def maps_targets(self, n: int, outputs: int) -> bool:
        """Whether a map of so many targets is looked for: each costs about a second, of few rows less.

        Maps are judged with Gaussian noise. Who names another likelihood means it of the targets as they are: with
        Laplace noise a map of targets with outliers made the error of the mean two thirds larger.
        """
        if self.target_map != "auto":
            return self.target_map != "none"
        time = self.max_time is None or self.max_time >= (OF_FEW_ROWS if n <= LEARN_POINTS else SECONDS_OF_A_MAP)
        return time and outputs <= MOST_MAPPED and LIKELIHOODS[self.likelihood].fixed_sites

    def without_map(self, where: str) -> "Options":
        """These where targets have no map, which is an error if one is asked for."""
        if self.target_map not in ("auto", "none"):
            raise ValueError(
                f"Expected target_map 'auto' or 'none' {where}, got {self.target_map!r}. Map the target yourself, or "
                "leave target_map out."
            )
        return replace(self, target_map="none")

    @property
    def pace(self) -> Pace:
        """Of all ranks where a time is given; else equal seeds give equal models, however many share the work."""
        pace = PACES["cuda" if self.device.startswith("cuda") else "cpu"]
        ranks = 1 if self.max_time is None or self.levels else self.ranks  # beside identifiers nothing is shared
        return replace(pace, values=ranks * pace.values)

    def groups(self, outputs: int) -> int:
        """Variances that a model of so many outputs has: other sites than Gaussian ones curve each in its own way."""
        return 1 if LIKELIHOODS[self.likelihood].fixed_sites else outputs


@dataclass(frozen=True)
class Sizes:
    """What a fit will use, chosen before it begins; which of them matter is up to the road."""

    road: str
    dual_rows: int  # that kernel functions at the rows know: all, or as many at random as time allows
    held_out: int  # of those, until the last epoch
    exact_rows: int  # of the exact GP that training begins with, at most
    block: int  # rows of a block
    variance_points: int  # whose GP gives the variance of such a mean
    draws: int  # of the posterior, for the same purpose; of each variance
    learn_points: int
    learn_most: int  # when there is time to spare
    m: int
    batch_points: int
    batch_features: int
    support_points: int
