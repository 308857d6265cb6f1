"""Table 3: inducing points at all training rows, Phi = S = K, whose exact posterior mean is that of the exact GP."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from qsgp.bases import Inducing
from qsgp.data.arrays import Arrays
from qsgp.likelihoods import Gaussian
from qsgp.paper import Prediction, augment, predict
from qsgp.reproduce import exactly
from qsgp.reproduce.exactly import Found, doubled
from qsgp.reproduce.experiment import Case, Choice, Experiment, Row
from qsgp.reproduce.regression import (
    Sizes,
    Table,
    amount,
    beside,
    by_table,
    case_of,
    distance,
    named,
    of_the_others,
    picture,
    places,
    problem_of,
    scores_of_f,
    sets_for,
    settings_of,
    shrunk,
    who_is_to_blame,
)
from qsgp.reproduce.steps import stored_features, trained, unsampled

# The paper gives neither the number of iterations nor the rate for this table. That of Table 2, and a tenth of it.
RATES = (0.1, 0.01)
PRINTED = Sizes(m=0, m_tilde=3000, n_tilde=3000, rank=200, iterations=100_000)
FAST = Sizes(0, 300, 300, 200, 600, rows=1500, points=500, inducing=128, svgp_iterations=300, seconds=10.0)
FEW = ("pol", "elevators")

PLAIN, WITHOUT = "QSGP-0, as printed", "QSGP-0, nothing sampled"
MEAN_FIELD = "same model, best mean field"

PAPER = (
    "Its numbers are not in its source. The text says that MNLP of QSGP-0 is comparable to that of SVGP-512 and "
    "clearly better on keggu, and that RMSE is nearly that of other sparse GPs on kegg, keggu and song. It says that "
    "AdaGrad was used, but neither the rate nor the number of steps: those of Table 2 are taken, 0.1 and 100,000, and "
    "a rate of 0.01 as well."
)


def cases(choice: Choice) -> Iterable[Case]:
    sizes = FAST if choice.fast else PRINTED
    for place in places(sets_for(choice, FEW), choice, sizes):
        told = sizes.told() | {"m": "n", "draws": "scattered"} | choice.asked.told()
        alone = {"m": "n", "iterations": sizes.iterations}
        for rate in (choice.asked.rate,) if choice.asked.rate else RATES:
            yield case_of(
                place, f"{PLAIN}, rate {rate:g}", told | {"rate": rate}, partial(_by_steps, rate, sizes, choice)
            )
            yield case_of(
                place,
                f"{WITHOUT}, rate {rate:g}",
                alone | {"rate": rate},
                partial(_without_sampling, rate, sizes, choice),
            )
        yield case_of(place, MEAN_FIELD, {"m": "n"}, _solved)
        yield from beside(place, sizes, choice)


def augmented(table: Table, found: Found) -> Found:
    """With a basis function at every new row (`paper.augment`)."""
    assert found.variance is not None
    seen, kernel = table.seen.double(), doubled(table.kernel)
    prediction = Prediction(found.mean, found.variance, Gaussian(seen.sigma2))
    more = augment(prediction, kernel, Arrays(seen.x, seen.y), seen.x_new, seen.sigma2)
    return Found(found.mean, more.variance)


def _by_steps(rate: float, sizes: Sizes, choice: Choice, table: Table) -> Row:
    sizes = shrunk(sizes, table)
    problem = problem_of(table, Inducing(table.kernel, table.x), 0, sizes.rank, choice.seed)
    run = trained(problem, replace(settings_of(sizes, choice), rate=rate), choice)
    prediction = predict(problem, run.state, table.x_new)
    found = Found(prediction.mean.double(), prediction.variance.double())
    return _told(table, found) | {"seconds": run.seconds}


def _without_sampling(rate: float, sizes: Sizes, choice: Choice, table: Table) -> Row:
    """The mean alone is trained; its C is the best diagonal one."""
    if refused := stored_features(len(table.x), len(table.x), choice.device):
        return refused
    K = table.kernel(table.x, table.x)
    settings = replace(settings_of(sizes, choice), rate=rate)
    began = time.perf_counter()
    mu = unsampled(K, True, table.y, table.sigma2, settings, choice.say)
    seconds = time.perf_counter() - began
    mean = table.kernel(table.x_new, table.x) @ mu
    variance = exactly.mean_field_variance(Inducing(table.kernel, table.x), table.seen)
    return _told(table, Found(mean.double(), variance)) | {"seconds": seconds}


def _solved(table: Table) -> Row:
    """The exact GP's mean, which is that of Phi = S = K, with the best diagonal C."""
    if len(table.x) > (largest := exactly.most(table.x.device)):
        return {"note": f"{len(table.x)} rows: here the factor of {largest} at most is made"}
    mean = exactly.gaussian_process(table.kernel, table.seen).mean
    return _told(table, Found(mean, exactly.mean_field_variance(Inducing(table.kernel, table.x), table.seen)))


def _told(table: Table, found: Found) -> Row:
    """Scores with the augmented variance, MNLP also without, and the distance from the exact GP's mean."""
    row = scores_of_f(table, augmented(table, found)) | {"mnlp_plain": scores_of_f(table, found)["mnlp"]}
    if len(table.x) <= exactly.most(table.x.device):
        row["from_solved"] = distance(table, found.mean, exactly.gaussian_process(table.kernel, table.seen).mean)
    return row


def summary(rows: Sequence[Row]) -> str:
    return "\n".join(_said(*key, own) for key, own in by_table(rows).items())


def _said(data: str, split: int, own: Sequence[Row]) -> str:
    """Of the two rates the one that ends nearer."""
    near, alone = _nearest(own, PLAIN), _nearest(own, WITHOUT)
    solved = named(own, MEAN_FIELD)
    diverged = [f"{row['rate']:g}" for row in own if row["model"].startswith(PLAIN) and row.get("rmse") is None]
    also = f" (it diverges at a rate of {' and '.join(diverged)})" if diverged else ""
    return (
        f"{data}, split {split}: QSGP-0 as printed{also} ends {amount(near, 'from_solved')} of the target's deviation "
        f"from the exact GP's mean, at a rate of {amount(near, 'rate')}, with an RMSE of {amount(near, 'rmse')} where "
        f"that has {amount(solved, 'rmse')}. {who_is_to_blame(near, alone)} MNLP with Proposition 4: "
        f"{amount(near, 'mnlp')}, without it {amount(near, 'mnlp_plain')}; of the solved mean {amount(solved, 'mnlp')} "
        f"and {amount(solved, 'mnlp_plain')}. {of_the_others(own)}"
    )


def _nearest(own: Sequence[Row], model: str) -> Row:
    rows = [row for row in own if row["model"].startswith(model) and row.get("from_solved") is not None]
    return min(rows, key=lambda row: row["from_solved"], default={})


TITLE = "Table 3: regression with inducing points at the data"
TABLE_3 = Experiment("table-3", TITLE, PAPER, cases, summary, picture, ("control", "rate"))
