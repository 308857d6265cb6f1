"""Streaming prediction against the dense model; Proposition 4; relevance vectors."""

import dataclasses
import math

import pytest
import torch

from problems import BASES, data, make_problem, shake
from qsgp.data.arrays import Arrays
from qsgp.kernels import SquaredExponential
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense
from qsgp.paper import theorems as estimators
from qsgp.paper.prediction import Prediction, augment, predict, relevance_vectors
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("k", [0, 3, 12])
def test_any_block_size_gives_the_dense_prediction(basis, k):
    problem = make_problem(basis, k=k)
    state = shake(start(problem, Settings(8, 5)), problem)
    x = data(17, seed=3)[0]
    Phi = problem.basis.features(x, problem.basis.columns(torch.arange(12)))
    C = problem.covariance.to_dense(state.rows.L, state.rows.log_c)
    for features, rows in [(1, 5), (5, 17), (12, 1), (100, 100)]:
        got = predict(problem, state, x, block_features=features, block_rows=rows)
        torch.testing.assert_close(got.mean, Phi @ state.rows.mu[:, 0])
        torch.testing.assert_close(got.variance, (Phi @ C).square().sum(1))


def sinc_study(C_of):
    """The augmentation figure: 20 noisy sinc points, Phi = S = K, a squared exponential kernel."""
    g = torch.Generator().manual_seed(2)
    x = (10 * torch.rand(20, 1, generator=g, dtype=torch.float64) - 5).sort(0).values
    y = torch.sinc(x[:, 0]) + 0.1 * torch.randn(20, generator=g, dtype=torch.float64)
    kernel = SquaredExponential(torch.ones(1, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
    sigma2 = torch.tensor(0.01, dtype=torch.float64)
    K = kernel(x, x) + 1e-8 * torch.eye(20, dtype=torch.float64)
    x_star = torch.linspace(-15, 15, 301, dtype=torch.float64)[:, None]
    C = C_of(y, K, sigma2)
    k_star = kernel(x_star, x)
    plain = Prediction(torch.zeros(301, dtype=torch.float64), (k_star @ C).square().sum(1), Gaussian(sigma2))
    return kernel, Arrays(x, y), sigma2, K, x_star, C, k_star, plain


def mean_field(y, K, sigma2):
    return torch.diag(estimators.optimal_diagonal(K.square().sum(0), K.diagonal(), sigma2))


def full(y, K, sigma2):
    return torch.linalg.cholesky(dense.posterior(y, K, K, sigma2)[1])


@pytest.mark.parametrize("C_of", [mean_field, full])
def test_proposition_4_never_less_and_prior_far_away(C_of):
    """The augmentation figure's claims; the closed form equals the (m + 1)-sized problem it comes from."""
    kernel, source, sigma2, K, x_star, C, k_star, plain = sinc_study(C_of)
    got = augment(plain, kernel, source, x_star, sigma2, block_rows=7)
    wanted = dense.augmented_variance(K, K, k_star, k_star, kernel.diag(x_star), C, sigma2)
    torch.testing.assert_close(got.variance, wanted)
    assert (got.variance >= plain.variance).all()
    far, edge = x_star[:, 0].abs() > 12, x_star[:, 0].abs() > 14.9
    assert (got.variance[far] > 0.99).all() and (plain.variance[far] < 0.2).all()
    torch.testing.assert_close(got.variance[edge], kernel.diag(x_star)[edge], rtol=1e-6, atol=1e-6)
    near = (x_star[:, 0] - source.x[10, 0]).abs() < 0.3
    assert (got.variance - plain.variance)[near].max() < 0.05


def test_proposition_4_holds_for_fewer_functions_than_points():
    kernel, source, sigma2, _, x_star, *_ = sinc_study(mean_field)
    Z = source.x[::4]
    S, Phi, phi_star = kernel(Z, Z), kernel(source.x, Z), kernel(x_star, Z)
    C = torch.diag(estimators.optimal_diagonal(Phi.square().sum(0), S.diagonal(), sigma2))
    plain = Prediction(torch.zeros(301, dtype=torch.float64), (phi_star @ C).square().sum(1), Gaussian(sigma2))
    got = augment(plain, kernel, source, x_star, sigma2)
    wanted = dense.augmented_variance(Phi, S, phi_star, kernel(x_star, source.x), kernel.diag(x_star), C, sigma2)
    torch.testing.assert_close(got.variance, wanted)


def test_augmented_full_covariance_counts_twice_near_the_data():
    """With a full C the plain variance is exact at the data already, so augmenting overstates it there."""
    kernel, source, sigma2, K, _, C, _, _ = sinc_study(full)
    plain = Prediction(source.y, (K @ C).square().sum(1), Gaussian(sigma2))
    exact = dense.gaussian_process(kernel, source.x, source.y, sigma2, source.x)[1]
    torch.testing.assert_close(plain.variance, exact, rtol=1e-3, atol=1e-6)
    assert (augment(plain, kernel, source, source.x, sigma2).variance > 1.2 * exact).any()


def test_relevance_vectors_alone_predict():
    problem = make_problem("rvm", k=2)
    state = shake(start(problem, Settings(8, 5)), problem)
    state.rows.log_s[::2] = 20.0
    kept = relevance_vectors(state)
    assert kept.tolist() == list(range(1, 12, 2))
    x = data(9, seed=3)[0]
    alone = predict(problem, state, x, relevant=1e4)
    Phi = problem.basis.features(x, problem.basis.columns(kept))
    torch.testing.assert_close(alone.mean, Phi @ state.rows.mu[kept, 0])


def test_relevance_needs_learned_precisions():
    problem = make_problem("fourier")
    with pytest.raises(ValueError, match="one learned precision.*KernelFunctions"):
        relevance_vectors(start(problem, Settings(8, 5)))


def test_predictions_use_the_learned_hyperparameters():
    problem = make_problem("fourier")
    state = shake(start(problem, Settings(8, 5)), problem)
    state.theta["kernel.log_lengthscale"] += 0.5
    state.theta["likelihood.log_noise_variance"] += 1.0
    x = data(9, seed=3)[0]
    kernel = problem.basis.kernel
    moved = dataclasses.replace(
        problem.basis, kernel=dataclasses.replace(kernel, lengthscale=kernel.lengthscale * math.exp(0.5))
    )
    Phi = moved.features(x, moved.columns(torch.arange(12)))
    got = predict(problem, state, x)
    torch.testing.assert_close(got.mean, Phi @ state.rows.mu[:, 0])
    torch.testing.assert_close(got.moments()[1] - got.variance, torch.full((9,), 0.05 * math.e, dtype=torch.float64))
    assert got.log_density(got.mean).shape == (9,)


@pytest.mark.parametrize("k", [0, 12])
@pytest.mark.parametrize("basis", ["inducing", "grid"])
def test_far_from_the_data_augmented_inducing_and_grid_functions_have_the_deviation_of_the_prior(basis, k):
    """Proposition 4, and what `missing` adds in its place: without either there is no variance at all."""
    problem = make_problem(basis, k=k)
    state = shake(start(problem, Settings(8, 5)), problem)
    x = data(5, seed=3)[0] + 50
    plain = predict(problem, state, x)
    prior = problem.basis.kernel.diag(x)
    assert (plain.variance < 1e-8 * prior).all()
    augmented = augment(plain, problem.basis.kernel, problem.source, x, problem.likelihood.noise_variance)
    torch.testing.assert_close(augmented.variance, prior)
    torch.testing.assert_close(plain.variance + problem.basis.missing(x), prior)
