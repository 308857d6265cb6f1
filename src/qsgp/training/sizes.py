"""The sizes that "auto" stands for, what they take of the memory, and which of them give way first."""

import math
from dataclasses import replace
from typing import NamedTuple

from qsgp.data.mixing import OPEN
from qsgp.data.sources import piece_rows
from qsgp.likelihoods import BY_NAME as LIKELIHOODS
from qsgp.memory import Need
from qsgp.solvers.system import PORTION
from qsgp.training.options import (
    BATCH_FEATURES,
    BATCH_POINTS,
    CENTRES,
    FEATURES,
    LEARN_POINTS,
    MOST_FEATURES,
    PRODUCTS,
    SECONDS,
    SMALL,
    SUPPORT_POINTS,
    Options,
    Pace,
    Sizes,
)

# The roads. What trains a model by each of them stands in the table of `train`.
CLOSED_FORM = "closed form"  # the exact GP from one factor
ROWS = "rows"  # the exact GP by blocks of rows
WEIGHTS = "weights"  # weights of functions in closed form, from sums over the rows
FEATURES_SOLVED = "features"  # weights of Fourier features by conjugate gradients
STEPS = "steps"  # weights of functions by stochastic steps

_MATRICES = 2.2  # of a block that is all there is: kernel values, their factor, and a portion of more
WINDOW = 262_144  # rows of a stream that are held for a table of functions, at most
_LEAST_WINDOW = 4 * CENTRES
_ATTEMPTS = 16  # to halve what the user has left open
_LEAST_BATCH = 50


class Shape(NamedTuple):
    """Of the data. ``streamed``: they are read from the disk, and only some rows are held in memory."""

    n: int
    d: int
    outputs: int
    streamed: bool = False


def functions(n: int, options: Options) -> int:
    """Basis functions, before time and memory are looked at."""
    m = options.n_features or (min(CENTRES, n) if options.relevance else FEATURES)
    return min(m, n) if options.basis == "inducing" or options.relevance else m


def shares_features(sizes: Sizes, options: Options) -> bool:
    """Whether several ranks share the functions: Fourier features by steps."""
    plain = options.basis in ("auto", "fourier") and not options.relevance and not options.levels
    return sizes.road == STEPS and plain


def first_sizes(n: int, outputs: int, options: Options, road: str, summed: bool) -> Sizes:
    """Sizes for the time there is. ``summed``: weights, should they be needed, come from sums over the rows."""
    m, groups, seconds = functions(n, options), options.groups(outputs), options.max_time or SECONDS
    pace, solved = options.pace.of_each(groups), options.optimizer == "preconditioned"
    draws = 0 if options.covariance == "support" else pace.draws
    rows = min(n, options.pace.rows(seconds, outputs + groups * draws))
    learned, most = _learned(outputs, options, pace, road)
    whole = solved or (options.optimizer == "auto" and m <= MOST_FEATURES)  # all functions in every step
    if summed and options.n_features is None and options.max_time:
        m = min(m, features_within(options.max_time, n, options.pace))
    support = SUPPORT_POINTS
    if solved:
        support = pace.variance_points
        support = min(support, support_within(seconds, n, m, options.pace)) if options.max_time else support
    return Sizes(
        road=road,
        dual_rows=rows,
        held_out=min(pace.held_out, (n if solved else rows) // 20),
        # sites that are not Gaussian are tightened in rounds, each of which costs a factor
        exact_rows=min(pace.exact_rows if LIKELIHOODS[options.likelihood].fixed_sites else 2 * learned, rows),
        block=min(_block(rows, seconds, options, pace) if road == ROWS else pace.block, rows),
        variance_points=min(pace.variance_points, rows),
        draws=draws,
        learn_points=learned,
        learn_most=most,
        m=m,
        batch_points=min(options.batch_points or BATCH_POINTS, n),
        batch_features=min(options.batch_features or (m if whole else BATCH_FEATURES), m),
        support_points=min(options.support_points or support, n),
    )


def _block(rows: int, seconds: float, options: Options, pace: Pace) -> int:
    """Rows of a block: on a GPU all of them where one factor fits into memory and an eighth of the time."""
    fixed = LIKELIHOODS[options.likelihood].fixed_sites
    at_once = rows**3 / 3 <= pace.operations * seconds / 8 and 8 * _MATRICES * rows**2 <= 0.9 * options.max_memory
    return rows if fixed and at_once and options.device.startswith("cuda") else pace.block


def _learned(outputs: int, options: Options, pace: Pace, road: str) -> tuple[int, int]:
    """Rows that hyperparameters are learned on, and as many as there may be when there is time to spare."""
    learned, groups = LEARN_POINTS, options.groups(outputs)
    if road in (ROWS, FEATURES_SOLVED):  # the evidence of k rows costs k^3
        # sites that are not Gaussian are tightened at every step of the search
        most = pace.learn_points if LIKELIHOODS[options.likelihood].fixed_sites else pace.learn_points // 2
        seconds = options.max_time or SECONDS
        learned = max(learned, int(most * min(1.5, (seconds / SECONDS) ** (1 / 3))))
    # A search that half of the memory does not hold must not make blocks smaller: the rows of the search give way.
    fits = max(LEARN_POINTS, int(math.sqrt(options.max_memory / 2 / _bytes_of_learning(outputs, road))))
    learned = max(4, min(int(learned / math.sqrt(groups)), fits))
    # Only where the clock decides already: without it equal seeds must give equal models.
    return learned, min(2 * learned, fits) if options.max_time and road == ROWS else learned


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


# --- rows that are streamed -------------------------------------------------------------------------------------


def rows_held(sizes: Sizes, shape: Shape, options: Options) -> int:
    """Rows in memory: all, or of a stream those that the model will know, or a window for a table of functions."""
    if not shape.streamed:
        return shape.n
    if sizes.road in (CLOSED_FORM, ROWS):
        return min(shape.n, sizes.dual_rows)
    most = min(WINDOW, options.max_memory // 4 // _bytes_held(shape))
    return min(shape.n, max(_LEAST_WINDOW, most))


def _bytes_held(shape: Shape) -> int:
    """Of a row: in float64 while it is drawn, twice, and standardised, twice; its number, weight and key."""
    return 32 * (shape.d + shape.outputs) + 64


def _need_of_data(sizes: Sizes, shape: Shape, options: Options) -> dict[str, int]:
    if shape.streamed:
        item = 8 * (shape.d + shape.outputs)
        rounds = 6 * OPEN * piece_rows(shape.d) * item  # waiting, in use and in the making
        return {"rows held": rows_held(sizes, shape, options) * _bytes_held(shape), "reading": rounds}
    item = 8 if sizes.road == CLOSED_FORM else options.table_dtype.itemsize
    # and per row a weight, a target, two index numbers
    return {"data": shape.n * ((shape.d + shape.outputs) * item + 32)}


# --- memory -----------------------------------------------------------------------------------------------------


def need_of(sizes: Sizes, shape: Shape, options: Options) -> Need:
    """Bytes at the peak: standardised data, and the largest of the phases that follow each other."""
    n, outputs = shape.n, shape.outputs
    data = _need_of_data(sizes, shape, options)
    data |= {"effects": _bytes_of_effects(shape, len(options.levels))} if options.levels else {}
    rows = min(n, sizes.learn_most)
    learning = _bytes_of_learning(outputs, sizes.road) * rows**2 if options.learn_hyperparameters else 0
    if sizes.road == CLOSED_FORM:
        return Need(data | {"closed form": max(learning, (7 + outputs) * 8 * n**2)})
    of_road = {
        ROWS: _need_of_rows,
        WEIGHTS: _need_of_weights,
        FEATURES_SOLVED: _need_of_features,
        STEPS: _need_of_steps,
    }
    parts = of_road[sizes.road](sizes, shape, options)
    *_, longest = parts
    return Need(data | parts | {longest: max(learning, parts[longest])})


def _bytes_of_learning(outputs: int, road: str) -> int:
    """The evidence and its slope, for each pair of rows; a metric takes a factor of twice as many."""
    return 8 * ((32 if road in (ROWS, FEATURES_SOLVED) else 20) + 2 * outputs)


def _bytes_of_effects(shape: Shape, identifiers: int) -> int:
    """Rows a second time, sums over them of functions and levels, and pairs of levels that share a row."""
    sums = min(PRODUCTS, 256 * shape.n * identifiers)  # there may be as many levels as rows
    return 8 * shape.n * (shape.d + shape.outputs + 4 * identifiers**2) + 40 * sums


# What each road takes; the last part is that of a phase, which learning comes before.


def _need_of_rows(sizes: Sizes, shape: Shape, options: Options) -> dict[str, int]:
    groups = options.groups(shape.outputs)
    columns = shape.outputs + groups * sizes.draws
    matrices = 16 * (1 + groups) * max(sizes.variance_points, sizes.exact_rows) ** 2
    each = _MATRICES if sizes.block == sizes.dual_rows > PORTION else 4
    return {
        "columns": sizes.dual_rows * (shape.d + 8 * columns) * options.table_dtype.itemsize,
        "blocks": max(int(8 * sizes.block * (each * sizes.block + 3 * columns)), matrices),
    }


def _need_of_features(sizes: Sizes, shape: Shape, options: Options) -> dict[str, int]:
    columns, p = shape.outputs + sizes.draws, sizes.support_points
    return {
        "table": sizes.m * (4 * columns + shape.d) * options.table_dtype.itemsize,
        "systems": 8 * (shape.n * (8 * columns + p) + 4 * p**2),
    }


def _need_of_weights(sizes: Sizes, shape: Shape, options: Options) -> dict[str, int]:
    matrices = 10 if options.basis == "inducing" else 7
    own = 8 * (matrices * sizes.m**2 + 4 * sizes.batch_points * sizes.m)
    return {"weights": own + 64 * min(shape.n, LEARN_POINTS) ** 2}


def _need_of_steps(sizes: Sizes, shape: Shape, options: Options) -> dict[str, int]:
    m, item = sizes.m, options.table_dtype.itemsize
    width = shape.outputs + 2 + {"chevron": options.dense_columns, "full": m}.get(options.covariance, 0)
    drawn, whole = min(m, 2 * sizes.batch_features), sizes.batch_features >= m
    # features of a batch and of the support set, their gradients, and the block of a Newton step
    step = (8 * sizes.batch_points + 6 * sizes.support_points) * drawn * item
    step += 6 * sizes.support_points * (sizes.support_points + sizes.batch_points) * item
    step += 6 * m**2 * item if whole and m <= MOST_FEATURES else 0
    step += 8 * 4 * m**2 if options.basis == "inducing" and m <= MOST_FEATURES else 0
    parts = options.ranks if shares_features(sizes, options) and not shape.streamed else 1
    return {"table": 3 * -(-m // parts) * width * item, "a step": step}


def smaller_rows(sizes: Sizes) -> Sizes | None:
    """First what costs time or smoothness, then rows; None when there is nothing left to give."""
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
    return replace(sizes, dual_rows=rows, held_out=rows // 20) if rows >= SMALL else None


def smaller_weights(sizes: Sizes, options: Options) -> Sizes | None:
    """Fewer functions, where nobody has named a number; None when they would be too few."""
    smaller = sizes.m // 4 * 2
    return replace(sizes, m=smaller) if options.n_features is None and smaller >= 256 else None


def within(sizes: Sizes, shape: Shape, options: Options) -> Sizes:
    """What the user has left open, halved until it fits or nothing is left to halve."""
    for _ in range(_ATTEMPTS):
        if need_of(sizes, shape, options).total <= options.max_memory:
            break
        sizes = _halved(sizes, shape.n, options)
    return sizes


def _halved(sizes: Sizes, n: int, options: Options) -> Sizes:
    least = min(n, _LEAST_BATCH)
    points, support = max(least, sizes.batch_points // 2), max(least, sizes.support_points // 2)
    sizes = replace(
        sizes,
        learn_points=max(100, sizes.learn_points // 2),
        learn_most=max(100, sizes.learn_points // 2),
        batch_points=sizes.batch_points if options.batch_points else points,
        support_points=sizes.support_points if options.support_points else support,
    )
    if sizes.batch_points <= _LEAST_BATCH and options.n_features is None:
        m = max(min(sizes.m, 64), sizes.m // 4 * 2)
        sizes = replace(sizes, m=m, batch_features=min(sizes.batch_features, m))
    return sizes
