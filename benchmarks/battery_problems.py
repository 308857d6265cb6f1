"""The problems of `battery.py`: easy and nasty tables, and a design in which each pair of levels appears.

The rows of a table do not depend on how many are asked for: its first 3,000 are the same with 3,001 and with 30,000,
so one reference serves both. All is drawn from fixed seeds.
"""

import itertools
import random
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

NOISE_FREE = 1e-4  # noise below this part of the deviation is none: models may be wider than it
TEST_ROWS = 1000
PROBLEMS = 180
LEVELS: dict[str, list[Any]] = {
    "n": [500, 2999, 3001, 8000, 30000],
    "noise": [0.0, 1e-6, 1e-3, 0.03, 0.3],
    "d": [1, 3, 20],
    "max_time": [3.0, 10.0, 30.0, None],
    "threads": [1, 2],
    "dtype": ["float32", "float64"],
}


@dataclass(frozen=True)
class Problem:
    kind: str
    n: int
    noise: float  # deviation of the noise, in deviations of the noise-free target
    d: int
    max_time: float | None
    threads: int = 1
    dtype: str = "float32"

    @property
    def name(self) -> str:
        seconds = "none" if self.max_time is None else f"{self.max_time:g}"
        return (
            f"{self.kind} n={self.n} noise={self.noise:g} d={self.d} time={seconds} threads={self.threads} {self.dtype}"
        )

    @property
    def noise_free(self) -> bool:
        return self.noise < NOISE_FREE

    @property
    def rough(self) -> bool:
        """One noise for all rows cannot be right: intervals wide enough somewhere are too wide elsewhere."""
        return self.kind in ROUGH

    @property
    def classes(self) -> bool:
        return self.kind in CLASSES

    @property
    def refusable(self) -> bool:
        """What no model can be made of: a ValueError that says so is right."""
        return self.kind in REFUSED


@dataclass(frozen=True)
class Data:
    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    x_new: np.ndarray
    y_new: np.ndarray
    deviation: float  # of the noise-free target: the unit of noise and errors


# --- inputs -----------------------------------------------------------------------------------------------------


def normal(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d))


def uniform(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.uniform(-3, 3, (n, d))


def integers(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.integers(0, 8, (n, d)).astype(float)


def bits(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.integers(0, 2, (n, d)).astype(float)


def pairs(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Each row twice, 1e-7 apart."""
    shift, rows = 1e-7 * np.random.default_rng(1).normal(size=(n, d)), rng.normal(size=((n + 1) // 2, d))
    return np.repeat(rows, 2, axis=0)[:n] + shift


def few(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Forty different rows, again and again."""
    return np.random.default_rng(2).normal(size=(40, d))[rng.integers(0, 40, n)]


def half_constant(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = rng.normal(size=(n, d))
    x[:, (d + 1) // 2 :] = 7.0
    return x


def far_apart_scales(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d)) * 10.0 ** np.linspace(-6, 6, d)


def far_from_zero(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d)) + 1e4


def skewed(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return np.exp(1.5 * rng.normal(size=(n, d)))


# --- functions --------------------------------------------------------------------------------------------------


def linear(x: np.ndarray) -> np.ndarray:
    return x @ np.arange(1.0, x.shape[1] + 1)


def quadratic(x: np.ndarray) -> np.ndarray:
    return np.square(x).sum(1) + x[:, 0] * x[:, -1]


def product(x: np.ndarray) -> np.ndarray:
    return x[:, 0] * np.abs(x[:, 0]) if x.shape[1] == 1 else x[:, :3].prod(1)


def sine(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0])


def step(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, 0] > 0.3, 1.0, -1.0)


def additive(x: np.ndarray) -> np.ndarray:
    return np.sin(x).sum(1)


def mixed(x: np.ndarray) -> np.ndarray:
    return sine(x) + (x[:, 1] * x[:, 2] if x.shape[1] > 2 else 0.0)


def remainders(x: np.ndarray) -> np.ndarray:
    return (x[:, 0] % 3) + 0.3 * x.sum(1)


def blocks(x: np.ndarray) -> np.ndarray:
    """Zero for half of the rows, steps for the others."""
    return np.floor(2 * np.maximum(x[:, 0], 0))


def clipped(x: np.ndarray) -> np.ndarray:
    return np.maximum(x.sum(1), 0)


def of_logs(x: np.ndarray) -> np.ndarray:
    return np.log(x).sum(1)


def of_unit_columns(x: np.ndarray) -> np.ndarray:
    return additive(x / 10.0 ** np.linspace(-6, 6, x.shape[1]))


def of_shifted(x: np.ndarray) -> np.ndarray:
    return mixed(x - 1e4)


@dataclass(frozen=True)
class Kind:
    inputs: Callable[[np.random.Generator, int, int], np.ndarray]
    function: Callable[[np.ndarray], np.ndarray]


KINDS: dict[str, Kind] = {
    "linear": Kind(normal, linear),
    "quadratic": Kind(normal, quadratic),
    "product": Kind(normal, product),
    "sine": Kind(uniform, sine),
    "step": Kind(uniform, step),
    "sum": Kind(uniform, additive),
    "mixed": Kind(normal, mixed),
    "integer grid": Kind(integers, remainders),
    "binary columns": Kind(bits, linear),
    "near duplicates": Kind(pairs, additive),
    "many duplicates": Kind(few, additive),
    "constant blocks": Kind(uniform, blocks),
    "clipped": Kind(normal, clipped),
    "constant columns": Kind(half_constant, sine),
    "outputs, one constant": Kind(uniform, additive),
    "Laplace noise": Kind(normal, additive),
    "outlier in y": Kind(normal, additive),
    "outlier in x": Kind(normal, additive),
    "scales apart": Kind(far_apart_scales, of_unit_columns),
    "far from zero": Kind(far_from_zero, of_shifted),
    "skewed inputs": Kind(skewed, of_logs),
    "rounded target": Kind(uniform, additive),
    "weights": Kind(uniform, additive),
    "two classes": Kind(uniform, additive),
    "three classes": Kind(uniform, additive),
}
ROUGH = {"step", "constant blocks", "rounded target", "skewed inputs", "outlier in y"}
CLASSES = {"two classes": 2, "three classes": 3, "one class": 1}
REFUSED = {"missing value": Kind(normal, linear), "one class": Kind(normal, linear)}


# --- tables -----------------------------------------------------------------------------------------------------


def table(problem: Problem) -> Data:
    """Rows to learn from and `TEST_ROWS` others of the same law, with noise as users have it."""
    kind, seed = (KINDS | REFUSED)[problem.kind], zlib.crc32(f"{problem.kind} {problem.d}".encode())
    x_new = kind.inputs(np.random.default_rng([seed, 0]), TEST_ROWS, problem.d)
    x = kind.inputs(np.random.default_rng([seed, 1]), problem.n, problem.d)
    deviation = float(kind.function(x_new).std()) or 1.0
    # A row that counts ten times is ten rows with one and the same noise, of which every model is too sure.
    weight = np.random.default_rng([seed, 2]).choice([0.5, 1.0, 2.0], problem.n) if problem.kind == "weights" else None
    y_new = target(problem, x_new, deviation, np.random.default_rng([seed, 3]))
    y = target(problem, x, deviation, np.random.default_rng([seed, 4]))
    if problem.kind == "outlier in y":
        y[0] += 100 * deviation
    if problem.kind == "outlier in x":
        x[0, 0] = 1000.0
    if problem.kind == "missing value":
        y[problem.n // 2] = np.nan  # of a target: inputs may be missing
    if problem.classes:
        edges = np.quantile(y_new, np.arange(1, CLASSES[problem.kind]) / CLASSES[problem.kind])
        y, y_new = np.searchsorted(edges, y), np.searchsorted(edges, y_new)
    return Data(x, y, weight, x_new, y_new, deviation)


def target(problem: Problem, x: np.ndarray, deviation: float, rng: np.random.Generator) -> np.ndarray:
    y = (KINDS | REFUSED)[problem.kind].function(x)
    # unit deviation, whatever the weight: a weight says how often a row counts, not how exact it is
    noise = rng.laplace(size=len(x)) / np.sqrt(2) if problem.kind == "Laplace noise" else rng.normal(size=len(x))
    y = y + problem.noise * deviation * noise
    if problem.kind == "rounded target":
        return np.round(2 * y / deviation) * deviation / 2
    if problem.kind == "far from zero":
        return 1e4 * deviation + y
    if problem.kind == "outputs, one constant":
        return np.stack([y, deviation * np.cos(x[:, 0]) + y, np.full(len(x), 5.0)], 1)
    return y


# --- design -----------------------------------------------------------------------------------------------------


def design(count: int = PROBLEMS, seed: int = 0) -> list[Problem]:
    """Each pair of levels at least once, the rest drawn at random from short ones; then what must be refused."""
    rng = random.Random(seed)
    names = ["kind", *LEVELS]
    levels = {"kind": list(KINDS), **LEVELS}
    missing = {
        ((a, one), (b, other)) for a, b in itertools.combinations(names, 2) for one in levels[a] for other in levels[b]
    }
    chosen: list[Problem] = []
    while missing:
        begin = rng.choice(sorted(missing, key=repr))
        drawn = [dict(begin) for _ in range(60)]
        for each in drawn:
            each.update({name: rng.choice(levels[name]) for name in names if name not in each})
        best = max(drawn, key=lambda each: (len(pairs_of(each, names) & missing), -cost(Problem(**each))))
        missing -= pairs_of(best, names)
        chosen.append(Problem(**best))
    while len(chosen) < count:
        each = Problem(**{name: rng.choice(levels[name]) for name in names})
        each = replace(each, max_time=rng.choice([3.0, 10.0]))
        if each not in chosen:
            chosen.append(each)
    return chosen + [Problem(kind, n, 0.03, 3, 3.0) for kind in REFUSED for n in (500, 3001)]


def pairs_of(chosen: dict[str, Any], names: list[str]) -> set[Any]:
    return set(itertools.combinations([(name, chosen[name]) for name in names], 2))


def cost(problem: Problem) -> float:
    """Seconds, roughly: what is left open takes longest."""
    return problem.max_time or problem.n / 200


def as_row(problem: Problem) -> dict[str, Any]:
    return {"problem": problem.name, **asdict(problem)}
