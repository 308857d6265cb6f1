"""What Tables 2 and 3 share: data, hyperparameters of 1,000 rows, training as printed, the rows beside it, scores."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from qsgp import datasets, metrics
from qsgp.data.arrays import Arrays
from qsgp.hyperparameters import fit_exact_gp
from qsgp.interfaces import Basis
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.models.regressor import QSGPRegressor
from qsgp.paper import Chevron, Problem, Settings, Support
from qsgp.reproduce import exactly, svgp
from qsgp.reproduce.exactly import Found, Seen
from qsgp.reproduce.experiment import Case, Choice, Row
from qsgp.reproduce.steps import NowAndThen, uninterrupted

SETS = ("kin40k", "protein", "keggdirected", "keggundirected", "pol", "elevators")
FAR = 10.0  # training may end anywhere: a score beyond this would leave the others no room
ROBOT_ARM = "robot arm"  # where no data are at hand


@dataclass(frozen=True)
class Sizes:
    """Of the training that the paper prints, and of what stands beside it."""

    m: int  # 0: as many as there are rows
    m_tilde: int
    n_tilde: int
    rank: int  # of the control variate
    iterations: int
    rows: int | None = None  # of the data set; None: all
    points: int = 1000  # rows that hyperparameters are learned from
    inducing: int = 512  # of SVGP
    svgp_iterations: int = 20_000
    seconds: float = 60.0  # of the library's default

    def told(self) -> Row:
        """The part of a row's key that training by steps has."""
        return {name: getattr(self, name) for name in ("m", "m_tilde", "n_tilde", "rank", "iterations")}


@dataclass(frozen=True)
class Table:
    """One split, standardised on its training rows, and the hyperparameters that its rows share."""

    x: Float[Tensor, "n d"]
    y: Float[Tensor, " n"]
    x_new: Float[Tensor, "t d"]
    y_new: Float[Tensor, " t"]
    unit: float  # deviation of the target in the file
    kernel: SquaredExponential
    sigma2: Float[Tensor, ""]
    learned_s: float

    @property
    def seen(self) -> Seen:
        return Seen(self.x, self.y, self.sigma2, self.x_new)


@dataclass(frozen=True)
class Place:
    """What tells one table from another."""

    data: str
    split: int
    rows: int | None
    points: int
    seed: int
    device: str


def places(names: Sequence[str], choice: Choice, sizes: Sizes) -> Iterator[Place]:
    for name in names:
        for split in choice.splits:
            yield Place(name, split, sizes.rows, sizes.points, choice.seed, choice.device)


def sets_for(choice: Choice, few: Sequence[str]) -> Sequence[str]:
    """All six; when it should be fast ``few`` of them, or robot-arm rows, which need no file."""
    if not choice.fast:
        return SETS
    return few if all(datasets.stored(name) for name in few) else (ROBOT_ARM,)


@lru_cache(maxsize=1)  # the cases of one table follow each other
def table_of(place: Place) -> Table:
    x, y, x_new, y_new = _numbers(place)
    unit = float(y.std())
    x, x_new = datasets.standardise(x, x_new)
    y, y_new = datasets.standardise(y, y_new)
    parts = (torch.tensor(part, dtype=torch.float32, device=place.device) for part in (x, y, x_new, y_new))
    rows, targets, new, new_targets = parts
    began = time.perf_counter()
    kernel, sigma2 = _learned(rows, targets, place)
    return Table(rows, targets, new, new_targets, unit, kernel, sigma2, time.perf_counter() - began)


def _numbers(place: Place) -> tuple[np.ndarray, ...]:
    """Training and test rows in the unit of the file, at most ``place.rows`` of the first and half as many others."""
    limit = place.rows
    if place.data == ROBOT_ARM:
        limit = limit or 10_000
        x, y = datasets.make_robot_arm(limit + limit // 2, noise=0.1, random_state=place.split)
        return x[:limit], y[:limit], x[limit:], y[limit:]
    found = datasets.load(place.data, place.split)
    some = slice(None) if limit is None else np.random.default_rng(place.seed).permutation(len(found.x_train))[:limit]
    first = slice(None if limit is None else limit // 2)
    return found.x_train[some], found.y_train[some], found.x_test[first], found.y_test[first]


def _learned(x: Tensor, y: Tensor, place: Place) -> tuple[SquaredExponential, Tensor]:
    """Appendix I.1: an exact GP on some random rows, one lengthscale for each input."""
    d = x.shape[1]
    first = SquaredExponential(*hyperparameters(d**0.5, d=d, dtype=x.dtype, device=x.device))
    return fit_exact_gp(first, x, y, points=place.points, seed=place.seed)


def problem_of(table: Table, basis: Basis, dense_columns: int, rank: int, seed: int) -> Problem:
    """Support points are random training rows."""
    some = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(seed))[:rank].to(table.x.device)
    support = Support.build(table.kernel, table.x[some])
    source = Arrays(table.x, table.y)
    return Problem(source, basis, Gaussian(table.sigma2), Chevron(basis.m, dense_columns), support)


def shrunk(sizes: Sizes, table: Table) -> Sizes:
    """Draws are no larger than what they are from; m of 0 is n."""
    n = len(table.x)
    m = sizes.m or n
    return replace(sizes, m=m, m_tilde=min(sizes.m_tilde, m), n_tilde=min(sizes.n_tilde, n), rank=min(sizes.rank, n))


def settings_of(sizes: Sizes, choice: Choice) -> Settings:
    """Appendix I.1: AdaGrad 0.1 for every entry, Adam 1e-5 once a tenth is done, Eq. (3), rates that decay; but what
    was asked for."""
    printed = Settings(
        n_tilde=sizes.n_tilde,
        m_tilde=sizes.m_tilde,
        iterations=sizes.iterations,
        rate=0.1,
        hyper_rate=1e-5,
        frozen=0.1,
        covariance_update="entry",
        control="gram",
        seed=choice.seed,
        every=max(1, sizes.iterations // 1000),
    )
    return choice.asked.put(printed)


# --- rows -----------------------------------------------------------------------------------------------------------


def scores(table: Table, mean: Tensor, variance: Tensor | None) -> Row:
    """Of the standardised target; ``variance`` is that of y."""
    row: Row = {"rmse": metrics.rmse(table.y_new, mean), "mnlp": None, "coverage95": None}
    if variance is not None:
        row["mnlp"] = metrics.mnlp(metrics.gaussian_log_density(table.y_new, mean, variance))
        row["coverage95"] = metrics.coverage(table.y_new, mean, variance)
    return row


def scores_of_f(table: Table, found: Found) -> Row:
    variance = None if found.variance is None else found.variance + table.sigma2.double()
    return scores(table, found.mean, variance)


def distance(table: Table, mean: Tensor, exact: Tensor) -> float:
    """Root mean squared difference of two predictions, in units of the target's root mean square."""
    difference = mean.double() - exact.double()
    return float((difference.square().mean() / table.y_new.double().square().mean()).sqrt())


def about(table: Table) -> Row:
    return {"n": len(table.x), "unit": table.unit, "noise": float(table.sigma2), "learned_s": table.learned_s}


def case_of(place: Place, model: str, sizes: Row, measure: Callable[[Table], Row]) -> Case:
    """``sizes`` of training belong to the key: rows of other sizes are other rows."""
    key = {"data": place.data, "split": place.split, "model": model, "rows": place.rows or "all", **sizes}
    key |= {"seed": place.seed, "device": place.device}

    def measured() -> Row:
        table = table_of(place)
        began = time.perf_counter()
        row = measure(table)
        spent = {} if "seconds" in row else {"seconds": time.perf_counter() - began}
        return row | spent | about(table)

    return Case(key, uninterrupted(measured))


def beside(place: Place, sizes: Sizes, choice: Choice) -> Iterator[Case]:
    """SVGP, the library's default, and the exact GP at the shared hyperparameters."""
    points = {"m": sizes.inducing, "n_tilde": svgp.BATCH, "iterations": sizes.svgp_iterations}
    yield case_of(place, "SVGP", points, lambda table: _svgp(table, sizes, choice))
    yield case_of(place, "ours", {"limit_s": sizes.seconds}, lambda table: _ours(table, sizes, choice))
    yield case_of(place, "exact GP", {}, _exact_gp)


def _svgp(table: Table, sizes: Sizes, choice: Choice) -> Row:
    some = torch.randperm(len(table.x), generator=torch.Generator().manual_seed(choice.seed))[: sizes.inducing]
    told, began = NowAndThen(choice.say), time.perf_counter()
    first = svgp.Svgp.start(table.kernel, table.sigma2, table.x[some.to(table.x.device)])
    steps = sizes.svgp_iterations
    model = svgp.fit(first, table.x, table.y, steps, lambda done: told(done, steps), choice.seed)
    seconds = time.perf_counter() - began
    return scores(table, *model.predict(table.x_new)) | {"seconds": seconds}


def _ours(table: Table, sizes: Sizes, choice: Choice) -> Row:
    x, y, x_new = (part.cpu().numpy().astype(np.float64) for part in (table.x, table.y, table.x_new))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there was little time is what the row says
        model = QSGPRegressor(max_time=sizes.seconds, device=choice.device, random_state=choice.seed).fit(x, y)
    seconds = time.perf_counter() - began
    mean, deviation = model.predict(x_new, return_std=True)
    row = scores(table, torch.from_numpy(mean), torch.from_numpy(deviation).square())
    return row | {"seconds": seconds, "kernel": model.kernel_}


def _exact_gp(table: Table) -> Row:
    largest = exactly.most(table.x.device)
    if len(table.x) > largest:
        return {"note": f"{len(table.x)} rows: here the factor of {largest} at most is made"}
    return scores_of_f(table, exactly.gaussian_process(table.kernel, table.seen))


# --- words and pictures ---------------------------------------------------------------------------------------------


def by_table(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["data"], row["split"]), []).append(row)
    return found


def named(rows: Sequence[Row], model: str) -> Row:
    """The row of that model, or an empty one."""
    return next((row for row in rows if row["model"] == model), {})


def amount(row: Row, name: str) -> str:
    """Three digits, or a word where there is no number."""
    value = row.get(name)
    return "not measured" if value is None else f"{value:.3g}"


def who_is_to_blame(sampled: Row, unsampled: Row) -> str:
    """Whether the distance from the solved model is the optimiser's or the noise of the draws."""
    far, alone = sampled.get("from_solved"), unsampled.get("from_solved")
    if far is None or alone is None:
        return ""
    whose = "most of the distance is the optimiser's" if alone > far / 2 else "most of the distance is the draws' noise"
    return f"Where nothing is sampled the same steps of AdaGrad end {alone:.3g} away: {whose}."


def of_the_others(own: Sequence[Row]) -> str:
    ours, sparse, exact = (named(own, model) for model in ("ours", "SVGP", "exact GP"))
    return (
        f"RMSE and MNLP of the default: {amount(ours, 'rmse')} and {amount(ours, 'mnlp')} in "
        f"{amount(ours, 'seconds')} s; of SVGP: {amount(sparse, 'rmse')} and {amount(sparse, 'mnlp')}; of the exact GP "
        f"with the shared hyperparameters: {amount(exact, 'rmse')} and {amount(exact, 'mnlp')}."
    )


def picture(rows: Sequence[Row], figure: Any) -> None:
    """RMSE and MNLP, a line for each table and model, a dot for each row."""
    tables = by_table(rows)
    models = list(dict.fromkeys(row["model"] for row in rows))
    labels = [f"{data} {split}" for data, split in tables]
    figure.set_size_inches(9, 1.2 + 0.3 * len(tables) * (len(models) + 1) / 2)
    for axes, score in zip(figure.subplots(1, 2, sharey=True), ("rmse", "mnlp"), strict=True):
        for number, model in enumerate(models):
            at = [k + number / (len(models) + 1) for k in range(len(tables))]
            values = [named(own, model).get(score) for own in tables.values()]
            there = [(value, place) for value, place in zip(values, at, strict=True) if value is not None]
            if there:
                axes.plot(*zip(*there, strict=True), "o", color=f"C{number}", label=model)
        axes.set_yticks([k + 0.4 for k in range(len(tables))], labels)
        axes.set_xlabel("RMSE" if score == "rmse" else "MNLP")
        if max((row[score] for row in rows if row.get(score) is not None), default=0.0) > FAR:
            axes.set_xscale("symlog", linthresh=1.0)
        axes.grid(axis="x", alpha=0.3)
    axes.invert_yaxis()
    handles, words = axes.get_legend_handles_labels()
    figure.legend(handles, words, loc="outside lower center", ncols=3, frameon=False)
