"""The estimators' keywords after their check, and the sizes that "auto" stands for within a budget of memory."""

import math
from dataclasses import dataclass, replace

import torch

from qsgp.hyperparameters.asked import LEARN_POINTS as LEARN_POINTS
from qsgp.memory import Need, check_fits, readable

SMALL = 3000  # rows that go to the closed form
FEATURES = 2048
MOST_FEATURES = 4 * FEATURES  # whose precision matrix is written down: 0.5 GB
CENTRES = 2000  # most kernel functions of a relevance vector machine
BATCH_POINTS = 1000
BATCH_FEATURES = 2048
SUPPORT_POINTS = 500
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
    """Keywords with None for "auto"; `sized` fills in the numbers."""

    likelihood: str = "gaussian"
    kernel: str = "auto"
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
    checkpoint: str | None = None  # a folder
    checkpoint_seconds: float = 30.0

    @property
    def table_dtype(self) -> torch.dtype:
        """Precisions of a relevance vector machine spread over ten decades: float32 would lose the small ones."""
        return torch.float64 if self.relevance else self.dtype

    @property
    def _plain(self) -> bool:
        free = self.covariance in ("auto", "support", "samples")
        return self.basis == self.optimizer == "auto" and free and not self.relevance

    def wants_table(self, n: int) -> bool:
        """Features are asked for by name, or there are too many rows for the closed form."""
        return n > SMALL or not self._plain or self.n_features is not None

    @property
    def pace(self) -> Pace:
        return PACES["cuda" if self.device.startswith("cuda") else "cpu"]

    @property
    def wants_dual(self) -> bool:
        """All is left to us."""
        named = (self.n_features, self.batch_points, self.batch_features, self.support_points, self.max_iter, self.tol)
        return self._plain and all(value is None for value in named) and self.checkpoint is None

    @property
    def wants_steps(self) -> bool:
        """Something is said of steps, or steps alone can do it."""
        named = (self.batch_points, self.batch_features, self.support_points, self.max_iter, self.tol)
        return (
            self.optimizer != "auto"
            or self.relevance
            or self.checkpoint is not None
            or any(value is not None for value in named)
        )

    @property
    def solved(self) -> bool:
        """Fourier features, all of them solved for together."""
        return self.optimizer == "preconditioned"

    def groups(self, outputs: int) -> int:
        """Variances that a model of so many outputs has: other sites than Gaussian ones curve each in its own way."""
        return 1 if self.likelihood == "gaussian" else outputs


@dataclass(frozen=True)
class Sizes:
    """What a fit will use; chosen before it begins."""

    closed_form: bool
    dual: bool  # the exact mean by blocks of rows
    summed: bool  # the exact posterior of the weights, from sums over the rows
    dual_rows: int  # that it knows: all, or as many at random as time allows
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

    def need(self, n: int, d: int, outputs: int, options: Options) -> Need:
        """Bytes at the peak: standardised data, and the largest of the phases that follow each other."""
        item = 8 if self.closed_form else options.table_dtype.itemsize
        parts = {"data": n * ((d + outputs) * item + 32)}  # and per row a weight, a target, two index numbers
        rows = min(n, self.learn_most)
        learning = _bytes_of_learning(outputs) * rows**2 if options.learn_hyperparameters else 0
        if self.closed_form:
            parts["closed form"] = max(learning, (7 + outputs) * 8 * n**2)
        elif self.dual:
            groups = options.groups(outputs)
            columns = outputs + groups * self.draws
            parts["columns"] = self.dual_rows * (d + 8 * columns) * item
            parts["blocks"] = max(
                learning,
                8 * self.block * (4 * self.block + 3 * columns),
                16 * (1 + groups) * max(self.variance_points, self.exact_rows) ** 2,
            )
        elif options.solved:
            columns, p = outputs + self.draws, self.support_points
            parts["table"] = self.m * (4 * columns + d) * item
            parts["systems"] = max(learning, 8 * (n * (8 * columns + p) + 4 * p**2))
        elif self.summed:
            matrices = 10 if options.basis == "inducing" else 7
            own = 8 * (matrices * self.m**2 + 4 * self.batch_points * self.m) + 64 * min(n, LEARN_POINTS) ** 2
            parts["weights"] = max(learning, own)
        else:
            width = outputs + 2 + {"chevron": options.dense_columns, "full": self.m}.get(options.covariance, 0)
            drawn = min(self.m, 2 * self.batch_features)
            whole = self.batch_features >= self.m
            parts["table"] = 3 * self.m * width * item
            # features of a batch and of the support set, their gradients, and the block of a Newton step
            step = (8 * self.batch_points + 6 * self.support_points) * drawn * item
            step += 6 * self.support_points * (self.support_points + self.batch_points) * item
            step += 6 * self.m**2 * item if whole and self.m <= MOST_FEATURES else 0
            step += 8 * 4 * self.m**2 if options.basis == "inducing" and self.m <= MOST_FEATURES else 0
            parts["a step"] = max(learning, step)
        return Need(parts)


def sized(n: int, d: int, outputs: int, options: Options, *, closed_form: bool = False) -> tuple[Sizes, Need]:
    """Sizes within ``options.max_memory``: the closed form where it fits, else smaller batches; an error at last."""
    m = options.n_features or (min(CENTRES, n) if options.relevance else FEATURES)
    if options.basis == "inducing" or options.relevance:
        m = min(m, n)
    groups, seconds = options.groups(outputs), options.max_time or SECONDS
    pace = options.pace.of_each(groups)
    draws = 0 if options.covariance == "support" else pace.draws
    rows = min(n, options.pace.rows(seconds, outputs + groups * draws))
    closed_form = closed_form or not options.wants_table(n)
    learned = LEARN_POINTS
    if (options.wants_dual or options.solved) and not closed_form:  # the evidence of k rows costs k^3
        # sites that are not Gaussian are tightened at every step of the search
        most = pace.learn_points if options.likelihood == "gaussian" else pace.learn_points // 2
        learned = max(learned, int(most * min(1.5, (seconds / SECONDS) ** (1 / 3))))
    newton = options.optimizer == "auto" and m <= MOST_FEATURES
    summed = m <= MOST_FEATURES and not options.wants_steps
    if summed and options.n_features is None and options.max_time:
        m = min(m, features_within(options.max_time, n, options.pace))
    # A search that half of the memory does not hold must not make blocks smaller: the rows of the search give way.
    fits = max(LEARN_POINTS, int(math.sqrt(options.max_memory / 2 / _bytes_of_learning(outputs))))
    learned = max(4, min(int(learned / math.sqrt(groups)), fits))
    preconditioning = pace.variance_points
    if options.max_time:
        preconditioning = min(preconditioning, support_within(options.max_time, n, m, options.pace))
    sizes = Sizes(
        closed_form=closed_form,
        dual=options.wants_dual,
        summed=summed,
        dual_rows=rows,
        held_out=min(pace.held_out, (n if options.solved else rows) // 20),
        # sites that are not Gaussian are tightened in rounds, each of which costs a factor
        exact_rows=min(pace.exact_rows if options.likelihood == "gaussian" else 2 * learned, rows),
        block=min(pace.block, rows),
        variance_points=min(pace.variance_points, rows),
        draws=draws,
        learn_points=learned,
        # Only where the clock decides already: without it equal seeds must give equal models.
        learn_most=min(2 * learned, fits) if options.max_time and options.wants_dual and not closed_form else learned,
        m=m,
        batch_points=min(options.batch_points or BATCH_POINTS, n),
        batch_features=min(options.batch_features or (m if newton or options.solved else BATCH_FEATURES), m),
        support_points=min(options.support_points or (preconditioning if options.solved else SUPPORT_POINTS), n),
    )
    limit = options.max_memory
    if sizes.closed_form and sizes.need(n, d, outputs, options).total > limit:
        sizes = replace(sizes, closed_form=False)
    while sizes.dual and not sizes.closed_form and sizes.need(n, d, outputs, options).total > limit:
        sizes = _smaller(sizes)
    while sizes.summed and not (sizes.closed_form or sizes.dual) and sizes.need(n, d, outputs, options).total > limit:
        smaller = sizes.m // 4 * 2
        fewer = options.n_features is None and smaller >= 256
        sizes = replace(sizes, m=smaller) if fewer else replace(sizes, summed=False)  # steps need no m^2 numbers
    for _ in range(16):  # halve what the user left open until it fits
        need = sizes.need(n, d, outputs, options)
        if need.total <= limit:
            break
        sizes = replace(
            sizes,
            learn_points=max(100, sizes.learn_points // 2),
            learn_most=max(100, sizes.learn_points // 2),
            batch_points=sizes.batch_points if options.batch_points else max(min(n, 50), sizes.batch_points // 2),
            support_points=sizes.support_points
            if options.support_points
            else max(min(n, 50), sizes.support_points // 2),
        )
        if sizes.batch_points <= 50 and options.n_features is None:
            m = max(min(m, 64), sizes.m // 4 * 2)
            sizes = replace(sizes, m=m, batch_features=min(sizes.batch_features, m))
    check_fits(need, limit, f"Lower n_features (now {sizes.m}) or batch_features (now {sizes.batch_features}).")
    return sizes, need


def support_within(seconds: float, n: int, m: int, pace: Pace) -> int:
    """Support points whose preconditioner takes a fifth of the time; with many for few features, features make it."""
    p = pace.variance_points
    while p > 50 and 2 * n * p * (p + (m if m < 20 * p else 0)) > pace.operations * seconds / 5:
        p = int(0.8 * p)
    return p


def features_within(seconds: float, n: int, pace: Pace) -> int:
    """Features whose exact posterior takes half of the time: ten rows for each at most, some factors of m^3."""
    m = FEATURES
    while m > 128 and (4 * min(n, 10 * m) + 8 * m) * m**2 > pace.operations * seconds / 2:
        m -= 64
    return m


def _bytes_of_learning(outputs: int) -> int:
    """The evidence and its slope, for each pair of rows."""
    return 8 * (20 + 2 * outputs)


def _smaller(sizes: Sizes) -> Sizes:
    """Of the dual: first what costs time or smoothness, then rows, at last a table of features instead."""
    if sizes.block >= 500:
        block = sizes.block // 2
        return replace(
            sizes,
            block=block,
            variance_points=sizes.variance_points // 2,
            exact_rows=max(100, sizes.exact_rows // 2),
            draws=min(sizes.draws, max(8, sizes.draws // 2)),
            learn_points=min(sizes.learn_points, max(100, block)),
            learn_most=min(sizes.learn_points, max(100, block)),
        )
    rows = sizes.dual_rows // 2
    return replace(sizes, dual_rows=rows, held_out=rows // 20) if rows >= SMALL else replace(sizes, dual=False)


def statement(need: Need, options: Options) -> str:
    limit = "no limit" if options.max_memory >= 2**62 else readable(options.max_memory)
    return f"This fit takes about {need} on {options.device}; max_memory is {limit}."
