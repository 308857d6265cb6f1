"""The estimators' keywords after their check, and the sizes that "auto" stands for within a budget of memory."""

import math
from dataclasses import dataclass, replace

import torch

from qsgp.memory import Need, check_fits, readable

SMALL = 3000  # rows that go to the closed form
FEATURES = 2048
CENTRES = 2000  # most kernel functions of a relevance vector machine
BATCH_POINTS = 1000
BATCH_FEATURES = 2048
SUPPORT_POINTS = 500
DUAL_ROWS = {"cpu": 60_000, "cuda": 300_000}  # beyond, an epoch of n^2 kernel values takes too long
DUAL_BLOCK = 2000
VARIANCE_POINTS = 3000
LEARN_POINTS = 1000  # hyperparameters are learned on this many rows, of p outputs 1 / sqrt(p) as many


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
        return self.basis == self.optimizer == self.covariance == "auto" and not self.relevance

    def wants_table(self, n: int) -> bool:
        """Features are asked for by name, or there are too many rows for the closed form."""
        return n > SMALL or not self._plain or self.n_features is not None

    def wants_dual(self, n: int) -> bool:
        """All is left to us, noise is Gaussian, and the exact mean can be had."""
        named = (self.n_features, self.batch_points, self.batch_features, self.support_points, self.max_iter, self.tol)
        open_ = all(value is None for value in named) and self.checkpoint is None and self.likelihood == "gaussian"
        return self._plain and open_ and n <= DUAL_ROWS["cuda" if self.device.startswith("cuda") else "cpu"]


@dataclass(frozen=True)
class Sizes:
    """What a fit will use; chosen before it begins."""

    closed_form: bool
    dual: bool  # the exact mean by blocks of rows
    block: int  # rows of such a block
    variance_points: int  # whose GP gives the variance of such a mean
    learn_points: int
    m: int
    batch_points: int
    batch_features: int
    support_points: int

    def need(self, n: int, d: int, outputs: int, options: Options) -> Need:
        """Bytes at the peak: standardised data, and the largest of the phases that follow each other."""
        item = 8 if self.closed_form else options.table_dtype.itemsize
        parts = {"data": n * ((d + outputs) * item + 32)}  # and per row a weight, a target, two index numbers
        rows = min(n, self.learn_points)
        learning = (12 + 2 * outputs) * 8 * rows**2 if options.learn_hyperparameters else 0
        if self.closed_form:
            parts["closed form"] = max(learning, (7 + outputs) * 8 * n**2)
        elif self.dual:
            solving = 8 * (4 * self.block**2 + n * (d + 3 * outputs))
            parts["blocks"] = max(learning, solving, 8 * 4 * self.variance_points**2)
        else:
            width = outputs + 2 + {"chevron": options.dense_columns, "full": self.m}.get(options.covariance, 0)
            drawn = min(self.m, 2 * self.batch_features)
            whole = self.batch_features >= self.m
            parts["table"] = 3 * self.m * width * item
            # features of a batch and of the support set, their gradients, and the block of a Newton step
            step = (8 * self.batch_points + 6 * self.support_points) * drawn * item
            step += 6 * self.support_points * (self.support_points + self.batch_points) * item
            step += 6 * self.m**2 * item if whole and self.m <= 4 * FEATURES else 0
            parts["a step"] = max(learning, step)
        return Need(parts)


def sized(n: int, d: int, outputs: int, options: Options, *, closed_form: bool = False) -> tuple[Sizes, Need]:
    """Sizes within ``options.max_memory``: the closed form where it fits, else smaller batches; an error at last."""
    m = options.n_features or (min(CENTRES, n) if options.relevance else FEATURES)
    if options.basis == "inducing" or options.relevance:
        m = min(m, n)
    newton = options.optimizer == "auto" and options.basis != "inducing" and m <= 4 * FEATURES
    sizes = Sizes(
        closed_form=closed_form or not options.wants_table(n),
        dual=options.wants_dual(n),
        block=min(DUAL_BLOCK, n),
        variance_points=min(VARIANCE_POINTS, n),
        learn_points=max(4, int(LEARN_POINTS / math.sqrt(outputs))),
        m=m,
        batch_points=min(options.batch_points or BATCH_POINTS, n),
        batch_features=min(options.batch_features or (m if newton else BATCH_FEATURES), m),
        support_points=min(options.support_points or SUPPORT_POINTS, n),
    )
    limit = options.max_memory
    if sizes.closed_form and sizes.need(n, d, outputs, options).total > limit:
        sizes = replace(sizes, closed_form=False)
    while sizes.dual and not sizes.closed_form and sizes.need(n, d, outputs, options).total > limit:
        smaller = replace(sizes, block=sizes.block // 2, variance_points=sizes.variance_points // 2)
        smaller = replace(smaller, learn_points=min(smaller.learn_points, max(100, smaller.block)))
        sizes = smaller if smaller.block >= 250 else replace(sizes, dual=False)
    for _ in range(16):  # halve what the user left open until it fits
        need = sizes.need(n, d, outputs, options)
        if need.total <= limit:
            break
        sizes = replace(
            sizes,
            learn_points=max(100, sizes.learn_points // 2),
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


def statement(need: Need, options: Options) -> str:
    limit = "no limit" if options.max_memory >= 2**62 else readable(options.max_memory)
    return f"This fit takes about {need} on {options.device}; max_memory is {limit}."
