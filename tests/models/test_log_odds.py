"""Labels taken for numbers: what a training says of them, and the classifier it becomes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import qsgp
from qsgp import QSGPClassifier
from qsgp.data.rows import Rows
from qsgp.data.scaling import Scaling
from qsgp.kernels import Mapped, Matern32, SpectralSum, SquaredExponential, hyperparameters
from qsgp.likelihoods import LabelsAsNumbers, Logistic
from qsgp.models.log_odds import as_log_odds
from qsgp.posteriors.posteriors import KernelFunctionsAtRows
from qsgp.posteriors.spread import Spread
from qsgp.training.held_out import scores, watched

SCALE = 3.0


def normals(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def posterior(outputs: int = 3, draws: int = 4) -> KernelFunctionsAtRows:
    map_ = normals(2, 2, seed=9)
    kernel = SpectralSum(
        (
            Mapped(Matern32(*hyperparameters([0.8, 1.2], 0.7, dtype=torch.float64)), map_),
            SquaredExponential(*hyperparameters([1.0, 2.0], 0.4, dtype=torch.float64)),
        )
    )
    sites = LabelsAsNumbers(torch.tensor(0.2, dtype=torch.float64), torch.tensor(SCALE, dtype=torch.float64))
    x = normals(30, 2)
    spread = Spread.build(kernel, x[:10], torch.full((10, 1), 0.3, dtype=torch.float64), trust=0.8)
    return KernelFunctionsAtRows(kernel, sites, x, normals(30, outputs + draws, seed=1), outputs, 5, spread)


def scaling(outputs: int = 3) -> Scaling:
    return Scaling(np.zeros(2), np.ones(2), np.linspace(-0.9, 0.3, outputs), np.ones(outputs), np.zeros((2, outputs)))


def test_the_model_of_log_odds_is_the_scaled_one() -> None:
    before, x = posterior(), normals(7, 2, seed=2)
    centred, after = as_log_odds(scaling(), before)
    assert isinstance(after.likelihood, Logistic)
    assert isinstance(after, KernelFunctionsAtRows)
    np.testing.assert_allclose(centred.y_mean, SCALE * scaling().y_mean)
    torch.testing.assert_close(after.mean(x), SCALE * before.mean(x))
    torch.testing.assert_close(after.latent(x)[1], SCALE**2 * before.latent(x)[1])
    again = Spread.build(after.kernel, after.spread.U, after.spread.noise, trust=after.spread.trust)
    torch.testing.assert_close(again.factor, after.spread.factor, rtol=1e-6, atol=1e-8)


def test_other_models_stay_as_they_are() -> None:
    plain = replace(posterior(), likelihood=Logistic())
    same = scaling()
    assert as_log_odds(same, plain) == (same, plain)


@pytest.mark.parametrize("outputs", [1, 3])
def test_rows_held_out_are_scored_by_their_class(outputs: int) -> None:
    """As the fitted model does it: one class against the rest, divided by the sum."""
    sites = posterior().likelihood
    assert isinstance(sites, LabelsAsNumbers)
    classes = torch.tensor([0, 2, 1, 2, 0]) % max(outputs, 2)
    labels = torch.where(classes[:, None] == torch.arange(outputs), 1.0, -1.0).double()
    centre = torch.linspace(-0.5, 0.2, outputs, dtype=torch.float64)
    mean, variance, weight = normals(5, outputs), normals(5, outputs, seed=3).square(), torch.ones(5).double()
    found = scores(sites, labels - centre, mean, variance, weight)
    p = Logistic().moments(SCALE * (mean + centre), SCALE**2 * variance)[0]
    p = torch.cat([1 - p, p], 1) if outputs == 1 else p
    p = p / p.sum(1, keepdim=True)
    own = classes if outputs > 1 else (labels[:, 0] > 0).long()
    assert found["mnlp"] == pytest.approx(-float(p[torch.arange(5), own].log().mean()), rel=1e-9)
    assert found["error"] == pytest.approx(float((p.argmax(1) != own).double().mean()))


def test_rows_held_out_choose_the_scale() -> None:
    """Labels that are right nine times in ten at |g| = 1 have log odds of about 2.2."""
    known = posterior(1, 0)
    generator = torch.Generator().manual_seed(0)
    g = torch.where(torch.rand(4000, 1, generator=generator) < 0.5, 1.0, -1.0).double()
    wrong = torch.rand(4000, 1, generator=generator) < 0.1
    labels = torch.where(wrong, -g, g)

    class Known(KernelFunctionsAtRows):
        def pieces(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return g, torch.empty(len(g), 1, 0).double()

    sure = Known(**vars(known))
    sure = replace(sure, spread=replace(known.spread, trust=1.0))
    rows = Rows(normals(4000, 2), labels, torch.ones(4000).double())
    found, _ = watched(sure, known.likelihood, rows)
    assert isinstance(found.likelihood, LabelsAsNumbers)
    assert 1.5 < float(found.likelihood.scale) < 4.5


def ring(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three rings, a tenth of the labels at random."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.digitize(np.hypot(*X.T), [0.8, 1.5])
    return X, np.where(rng.random(n) < 0.1, rng.integers(0, 3, n), y)


@pytest.mark.slow
def test_many_labels_are_learned_and_their_probabilities_kept(tmp_path) -> None:
    X, y = ring(3400, 0)
    X_new, y_new = ring(2000, 1)
    model = QSGPClassifier(random_state=0, kernel="rbf", metric="ard", device="cpu").fit(X, y)
    assert model.likelihood_ == "logistic"
    assert "numbers" in str(model.plan_)
    p = model.predict_proba(X_new)
    assert np.mean(model.predict(X_new) != y_new) < 0.1  # 0.067 at best
    assert -model.log_density(X_new, y_new).mean() < 0.4
    assert (model.predict(X_new) == p.argmax(1)).mean() > 0.995
    model.save(tmp_path / "model.qsgp")
    np.testing.assert_allclose(qsgp.load(tmp_path / "model.qsgp").predict_proba(X_new), p, atol=1e-6)
    assert QSGPClassifier(likelihood="logistic").plan(X, y).road == "rows"
    assert "numbers" not in str(QSGPClassifier(likelihood="logistic").plan(X, y))


def test_labels_that_there_was_no_time_for_have_sites_of_their_own():
    """What a fit leaves that is stopped while it learns hyperparameters: probabilities, not numbers."""
    X, y = ring(3400, 0)
    with pytest.warns(UserWarning, match="Stopped|There was time"):
        model = QSGPClassifier(random_state=0, max_time=0.01, device="cpu").fit(X, y)
    assert model.likelihood_ == "logistic"
    p = model.predict_proba(X[:200])
    np.testing.assert_allclose(p.sum(1), 1)
    assert (model.target_mean_ == 0).all() or model.posterior_["kind"] != "closed form"
    assert np.mean(model.predict(X) != y) < 0.3
