"""Conformal intervals: coverage by counting every row left out in turn, and by simulation of wrong models."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from qsgp.models.conformal import MOST_SCORES, Conformal, fit_conformal, fit_temperature

SIZES = [19, 40, 99]
COVERAGES = [0.5, 0.55, 0.8, 0.9]


def draw(law: str, size: tuple[int, ...], seed: int) -> Tensor:
    """Targets around 0 that no N(0, 1) describes."""
    rng = np.random.default_rng(seed)
    laws = {
        "cauchy": rng.standard_cauchy,
        "exponential": rng.exponential,
        "normal": lambda size: rng.normal(2, 3, size),
    }
    return torch.from_numpy(laws[law](size=size))


def covered(conformal: Conformal, y: Tensor, mean: Tensor, deviation: Tensor, coverage: float) -> Tensor:
    lower, upper = conformal.interval(mean, deviation, coverage)
    return (lower <= y) & (y <= upper)


def covered_when_left_out(y: Tensor, mean: Tensor, deviation: Tensor, symmetric: bool, coverage: float) -> int:
    """Over every choice of the test row among n + 1: given exchangeability, the exact coverage times n + 1."""
    total = 0
    for row in range(len(y)):
        rest = torch.arange(len(y)) != row
        conformal = fit_conformal(y[rest], mean[rest], deviation[rest], symmetric)
        total += int(covered(conformal, y[row], mean[row], deviation[row], coverage))
    return total


@pytest.mark.parametrize("law", ["cauchy", "exponential", "normal"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("coverage", COVERAGES)
def test_coverage_is_exact(law: str, n: int, coverage: float) -> None:
    """ceil((n + 1) coverage) of the n + 1 rows: no seed matters, whatever the residuals."""
    y, mean = draw(law, (n + 1,), 1), draw("normal", (n + 1,), 2)
    deviation = draw("exponential", (n + 1,), 3) + 0.1
    count = covered_when_left_out(y, mean, deviation, True, coverage)
    assert count == math.ceil(round(coverage * 100) * (n + 1) / 100)


@pytest.mark.parametrize("law", ["cauchy", "exponential", "normal"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("coverage", COVERAGES)
def test_coverage_of_two_tails_is_exact(law: str, n: int, coverage: float) -> None:
    """Each tail misses floor((n + 1) (1 - coverage) / 2) rows."""
    y, zero, one = draw(law, (n + 1,), 4), torch.zeros(n + 1).double(), torch.ones(n + 1).double()
    missed = math.floor((100 - round(100 * coverage)) * (n + 1) / 200)
    assert covered_when_left_out(y, zero, one, False, coverage) == n + 1 - 2 * missed


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("law", ["cauchy", "exponential"])
def test_coverage_over_many_small_calibrations(law: str, symmetric: bool) -> None:
    """Fresh calibration and test rows, deviations that tell something and a mean that is off."""
    n, coverage, repetitions, fresh = 39, 0.9, 1000, 200
    spread = draw("exponential", (repetitions, n + fresh), 5) + 0.2
    y, mean = draw(law, (repetitions, n + fresh), 6) * spread, torch.full((n + fresh,), 0.7).double()
    shares = []
    for row, deviation in zip(y, spread, strict=True):
        conformal = fit_conformal(row[:n], mean[:n], deviation[:n], symmetric)
        shares.append(covered(conformal, row[n:], mean[n:], deviation[n:], coverage).double().mean())
    share = torch.stack(shares)
    noise = 4 * share.std().item() / math.sqrt(repetitions)
    assert coverage - noise <= share.mean().item() <= coverage + (1 if symmetric else 2) / (n + 1) + noise
    assert noise < 0.01


def test_intervals_follow_the_deviation_and_the_skew() -> None:
    y = draw("exponential", (4001,), 7)
    zero, one = torch.zeros_like(y), torch.ones_like(y)
    lower, upper = fit_conformal(y, zero, one, symmetric=False).interval(
        zero[:2], torch.tensor([1.0, 3.0]).double(), 0.8
    )
    torch.testing.assert_close(lower, -math.log(0.9) * torch.tensor([1.0, 3.0]).double(), rtol=0.1, atol=0)
    torch.testing.assert_close(upper, -math.log(0.1) * torch.tensor([1.0, 3.0]).double(), rtol=0.1, atol=0)
    low, high = fit_conformal(y, zero, one).limits(0.8)
    assert low == -high == pytest.approx(math.log(0.2), rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("symmetric", [True, False])
def test_ties_are_covered(dtype: torch.dtype, symmetric: bool) -> None:
    """A target on the very edge of its interval, an edge that no float need hit."""
    y, mean, deviation = (draw(law, (300,), 8).to(dtype) for law in ("cauchy", "normal", "exponential"))
    for row in range(300):
        tied = [values[row].repeat(3) for values in (y, mean, deviation)]
        assert covered(fit_conformal(*tied, symmetric), *tied, 0.5).all()


def test_ties_never_cost_coverage() -> None:
    y, zero, one = (
        torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0] * 8).double(),
        torch.zeros(40).double(),
        torch.ones(40).double(),
    )
    for coverage in COVERAGES:
        assert covered_when_left_out(y, zero, one, True, coverage) >= math.ceil(40 * coverage)
        assert covered_when_left_out(y, zero, one, False, coverage) >= math.ceil(40 * coverage)


def test_a_perfect_model_gets_intervals_of_no_width() -> None:
    y, one = torch.linspace(-1, 1, 50).double(), torch.ones(50).double()
    lower, upper = fit_conformal(y, y, one).interval(y, one, 0.9)
    torch.testing.assert_close(lower, upper, rtol=1e-14, atol=1e-15)
    assert ((lower <= y) & (y <= upper)).all()


@pytest.mark.parametrize(
    ("symmetric", "coverage", "needed", "most"), [(True, 0.95, 19, 0.9473), (False, 0.95, 39, 0.9487)]
)
def test_too_few_rows_are_refused_with_their_number(symmetric: bool, coverage: float, needed: int, most: float) -> None:
    y = draw("normal", (needed,), 9)
    zero, one = torch.zeros_like(y), torch.ones_like(y)
    low, high = fit_conformal(y, zero, one, symmetric).limits(coverage)
    assert (low, high) == ((-y.abs().max(), y.abs().max()) if symmetric else (y.min(), y.max()))
    few = fit_conformal(y[1:], zero[1:], one[1:], symmetric)
    with pytest.raises(
        ValueError, match=rf"Coverage 0.95 needs at least {needed} rows, got {needed - 1}.*at most {most}"
    ):
        few.limits(coverage)
    few.limits(most)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("n", [MOST_SCORES, MOST_SCORES + 1, 123_457])
def test_compaction_widens_a_little_and_never_narrows(n: int, symmetric: bool) -> None:
    y = draw("cauchy", (n,), 10)
    conformal = fit_conformal(y, torch.zeros_like(y), torch.ones_like(y), symmetric)
    assert len(conformal.scores) == MOST_SCORES
    scores = (y.abs() if symmetric else y).sort().values
    for coverage in (0.001, 0.5, 0.95, 0.9995):
        low, high = conformal.limits(coverage)
        level = coverage if symmetric else (1 + coverage) / 2
        rank = math.ceil(round((n + 1) * level, 6))
        used = int((scores <= high).sum())
        assert rank <= used <= rank + 1e-4 * n
        if not symmetric:
            assert n + 1 - rank - 1e-4 * n <= int((scores <= low).sum()) <= n + 1 - rank
        if n == MOST_SCORES:
            assert used == rank


@pytest.mark.parametrize("symmetric", [True, False])
def test_tensors_bring_it_back(symmetric: bool) -> None:
    y = draw("normal", (200,), 11)
    conformal = fit_conformal(y, torch.zeros_like(y), torch.ones_like(y), symmetric)
    copy = Conformal.from_tensors({name: tensor.clone() for name, tensor in conformal.to_tensors().items()})
    assert (copy.n, copy.symmetric) == (conformal.n, conformal.symmetric)
    assert torch.equal(copy.scores, conformal.scores)
    assert copy.limits(0.9) == conformal.limits(0.9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": torch.tensor(51)}, r"Expected scores of shape \(51,\), got \(50,\)"),
        ({"n": torch.tensor(-1)}, r"Expected scores of shape \(1,\)"),
        ({"n": torch.tensor(50.0)}, "Expected the tensors .*The file was altered"),
        ({"n": torch.tensor([50, 50])}, "Expected the tensors"),
        ({"more": torch.tensor(1)}, "Expected the tensors"),
        ({"scores": torch.arange(50.0).double().flip(0)}, "Expected sorted scores"),
        ({"scores": torch.arange(50.0).double() - 1}, "Expected sorted scores, not negative"),
        ({"scores": torch.full((50,), math.nan).double()}, "Expected finite numbers in scores"),
    ],
)
def test_altered_tensors_are_refused(change: dict[str, Tensor], message: str) -> None:
    y = draw("normal", (50,), 12)
    tensors = fit_conformal(y, torch.zeros_like(y), torch.ones_like(y)).to_tensors()
    with pytest.raises(ValueError, match=message):
        Conformal.from_tensors({**tensors, **change})


def test_single_precision_on_its_device(device: torch.device) -> None:
    y = draw("cauchy", (400,), 13).float().to(device)
    zero, one = torch.zeros_like(y), torch.ones_like(y)
    conformal = fit_conformal(y, zero, one)
    lower, upper = conformal.interval(zero, one, 0.9)
    assert lower.dtype == upper.dtype == torch.float32 and lower.device == y.device
    assert ((lower <= y) & (y <= upper)).sum() == math.ceil(401 * 0.9)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_a_deviation_must_be_positive(bad: float) -> None:
    y = torch.zeros(30)
    with pytest.raises(ValueError, match="Expected .*deviation.*got"):
        fit_conformal(y, y, torch.full_like(y, bad))


def test_bad_rows_are_refused(without_shape_checks: None) -> None:
    y = torch.zeros(30)
    with pytest.raises(ValueError, match="Expected finite numbers in y, got inf.*not trained on"):
        fit_conformal(y + math.inf, y, y + 1)
    with pytest.raises(ValueError, match="same number of rows in y, mean, deviation; .*mean has 29"):
        fit_conformal(y, y[1:], y + 1)
    with pytest.raises(ValueError, match=r"Expected y of shape \(1,\), got \(0,\)"):
        fit_conformal(y[:0], y[:0], y[:0])
    with pytest.raises(ValueError, match=r"Expected mean of shape \(30,\), got \(30, 1\)"):
        fit_conformal(y, y[:, None], y + 1)
    for coverage in (0.0, 1.0, 95.0):
        with pytest.raises(ValueError, match="Expected 0 < coverage < 1, got"):
            fit_conformal(y, y, y + 1).limits(coverage)


# --- temperature -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("true", [0.3, 1.0, 3.0])
def test_temperature_is_found_again(true: float) -> None:
    """Labels drawn at sigmoid(logit / T); also the optimum that scipy finds for the same targets."""
    rng = np.random.default_rng(14)
    logit = rng.normal(0, 2, 20_000)
    label = np.where(rng.uniform(size=20_000) < 1 / (1 + np.exp(-logit / true)), 1.0, -1.0)
    found = fit_temperature(torch.from_numpy(logit), torch.from_numpy(label))
    assert found == pytest.approx(true, rel=0.06)
    counts = {sign: (label == sign).sum() for sign in (-1, 1)}
    target = np.where(label == 1, (counts[1] + 1) / (counts[1] + 2), 1 / (counts[-1] + 2))

    def loss(inverse: float) -> float:
        return float(np.mean(np.logaddexp(0, inverse * logit) - target * inverse * logit))

    best = minimize_scalar(loss, bounds=(0.01, 100), method="bounded", options={"xatol": 1e-9}).x
    assert found == pytest.approx(1 / best, rel=1e-5)


def test_temperature_of_labels_without_error_stays_moderate() -> None:
    """Ten right answers do not make a logit of 1 certain: odds of 11 to 1 at most, as Platt's targets say."""
    label = torch.tensor([1.0, -1.0] * 10)
    assert fit_temperature(label, label) == pytest.approx(1 / math.log(11), rel=1e-6)
    assert fit_temperature(-label, label) == pytest.approx(100)  # worse than nothing: flat
    assert fit_temperature(0 * label, label) == pytest.approx(100)


def test_temperature_refuses_other_labels() -> None:
    with pytest.raises(ValueError, match=r"Expected labels -1 and \+1"):
        fit_temperature(torch.zeros(3), torch.tensor([0.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="Expected finite numbers in logit, got inf.*Clip"):
        fit_temperature(torch.full((3,), math.inf), torch.ones(3))
