"""The plan of a fit: which road it takes, with which sizes, in how much memory, and why.

Roads are chosen here, sizes in `sizes`; where the clock of a CPU decides, `rows_start` may take fewer rows later.

A plan is made from the keywords, the shape of the data and the machine before any work is done; a model keeps it as
``plan_``. Its sentences are in `plan_words`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from qsgp.likelihoods import LabelsAsNumbers, Logistic
from qsgp.memory import Need, check_fits
from qsgp.posteriors.spread import FEW
from qsgp.training.options import MOST_FEATURES, Options, Sizes
from qsgp.training.plan_words import Decision, sentences
from qsgp.training.safeguard import judges
from qsgp.training.sizes import (
    CLOSED_FORM,
    FEATURES_SOLVED,
    ROWS,
    STEPS,
    WEIGHTS,
    Shape,
    first_sizes,
    functions,
    need_of,
    smaller_rows,
    smaller_weights,
    within,
)

SETTINGS_OF_STEPS = ("batch_points", "batch_features", "support_points", "max_iter", "tol", "checkpoint")
ROWS_ROAD_HONOURS = {"tol", "checkpoint"}  # settings of steps that the road by blocks of rows follows as well


@dataclass(frozen=True, repr=False)
class Plan:
    """What a fit will do. ``print(plan)`` says it in sentences; the numbers are attributes."""

    sizes: Sizes
    need: Need
    given: int  # rows
    device: str
    dtype: str
    max_time: float | None
    sentences: tuple[str, ...]

    @property
    def road(self) -> str:
        """'closed form', 'rows', 'weights', 'features' or 'steps'."""
        return self.sizes.road

    @property
    def memory(self) -> int:
        """Bytes at the peak."""
        return self.need.total

    @property
    def rows(self) -> int:
        """Rows that the model will know."""
        return self.sizes.dual_rows if self.road == ROWS else self.given

    @property
    def held_out(self) -> int:
        """Rows that the model is judged by before it sees them."""
        return held_out(self.sizes)

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return f"Plan(road={self.road!r}, rows={self.rows}, memory={self.memory}, device={self.device!r})"

    def with_sums(self, m: int, need: Need) -> "Plan":
        """After portions have outgrown the rows that are kept."""
        more = f"Portions beyond these rows are added to exact sums over {m:,} Fourier features."
        known = [sentence for sentence in self.sentences if sentence != more]
        need = max(self.need, need, key=lambda each: each.total)
        return replace(self, sizes=replace(self.sizes, road=WEIGHTS, m=m), need=need, sentences=(*known, more))

    def header(self) -> dict[str, Any]:
        """As a model file holds it."""
        found: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return found | {"sizes": vars(self.sizes), "need": self.need.parts, "sentences": list(self.sentences)}

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> "Plan":
        """From a file, which anybody may have written: nothing but words and whole numbers of a usual size."""
        sizes, need = Sizes(**header["sizes"]), Need(dict(header["need"]))
        counts = [value for name, value in vars(sizes).items() if name != "road"]
        counts += [*need.parts.values(), header["given"]]
        words = [sizes.road, *need.parts, header["device"], header["dtype"], *header["sentences"]]
        seconds = header["max_time"]
        if any(type(count) is not int or not 0 <= count < 2**62 for count in counts):
            raise ValueError("a plan with numbers that no fit has")
        if any(type(word) is not str for word in words) or not (seconds is None or type(seconds) is float):
            raise ValueError("a plan of other things than words and numbers")
        return cls(sizes, need, header["given"], header["device"], header["dtype"], seconds, tuple(header["sentences"]))


def make_plan(n: int, d: int, outputs: int, options: Options, *, keep: bool = False, streamed: bool = False) -> Plan:
    """For n rows of weight. ``keep``: the closed form whatever keywords say of features, for portions that follow.
    ``streamed``: rows are read from the disk."""
    shape = Shape(n, d, outputs, streamed)
    after = weights_or_steps(functions(n, options), options)
    first = CLOSED_FORM if keep or not options.wants_table(n) else table_road(options, after)
    if first == ROWS and options.by_numbers:
        options = replace(options, likelihood=LabelsAsNumbers.name)
    wanted = first_sizes(n, outputs, options, first, after == WEIGHTS)
    sizes = within_memory(wanted, shape, options, after)
    if sizes.road != ROWS and options.likelihood == LabelsAsNumbers.name:
        fewer = replace(options, likelihood=Logistic.name, by_numbers=False)
        return make_plan(n, d, outputs, fewer, keep=keep, streamed=streamed)
    need = need_of(sizes, shape, options)
    remedy = f"Lower n_features (now {sizes.m}) or batch_features (now {sizes.batch_features})."
    check_fits(need, options.max_memory, remedy)
    double = sizes.road == CLOSED_FORM
    decision = Decision(
        shape=shape,
        options=options,
        first=first,
        wanted=wanted,
        sizes=sizes,
        need=need,
        wanted_need=need_of(wanted, shape, options),
        held_out=held_out(sizes),
        named=named(options, SETTINGS_OF_STEPS),
        honoured=named(options, ROWS_ROAD_HONOURS),
        keep=keep,
    )
    return Plan(
        sizes=sizes,
        need=need,
        given=n,
        device="cpu" if double else options.device,
        dtype="float64" if double else str(options.table_dtype).removeprefix("torch."),
        max_time=options.max_time,
        sentences=tuple(sentences(decision)),
    )


def takes_labels_for_numbers(plan: Plan, options: Options) -> bool:
    """Whether the fit of this plan does; told from what the plan was made of."""
    return options.by_numbers and plan.road == ROWS and options.wants_table(plan.given)


def named(options: Options, names: tuple[str, ...] | set[str]) -> list[str]:
    """Those of these keywords that are set, in their order."""
    return [name for name in SETTINGS_OF_STEPS if name in names and getattr(options, name) is not None]


def table_road(options: Options, after: str) -> str:
    """Where the closed form is not taken: rows if all is left to us, else what the keywords ask for."""
    free = options.plain and options.n_features is None
    if free and not set(named(options, SETTINGS_OF_STEPS)) - ROWS_ROAD_HONOURS:
        return ROWS
    return FEATURES_SOLVED if options.optimizer == "preconditioned" else after


def weights_or_steps(m: int, options: Options) -> str:
    """Of a table of m functions: steps where something is said of them, or where steps alone can do it."""
    said = options.optimizer != "auto" or options.relevance or named(options, SETTINGS_OF_STEPS)
    return STEPS if said or m > MOST_FEATURES else WEIGHTS


def within_memory(sizes: Sizes, shape: Shape, options: Options, after: str) -> Sizes:
    """Smaller sizes, then the next road, until it fits."""

    def fits(sizes: Sizes) -> bool:
        return need_of(sizes, shape, options).total <= options.max_memory

    if sizes.road == CLOSED_FORM and not fits(sizes):
        sizes = replace(sizes, road=table_road(options, after))
    while sizes.road == ROWS and not fits(sizes):
        sizes = smaller_rows(sizes) or replace(sizes, road=after)
    while sizes.road == WEIGHTS and not fits(sizes):
        sizes = smaller_weights(sizes, options) or replace(sizes, road=STEPS)
    return within(sizes, shape, options)


def held_out(sizes: Sizes) -> int:
    """Rows that no training sees before it has been judged by them; too few would tell nothing."""
    if sizes.road == ROWS or (sizes.road == FEATURES_SOLVED and sizes.held_out >= FEW):
        return sizes.held_out
    return judges(sizes) if sizes.road == WEIGHTS else 0
