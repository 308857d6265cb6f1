"""The loop: exact posteriors at the full batch, resuming, diverging."""

import copy

import pytest
import torch

from problems import make_problem
from qsgp.bases import KernelFunctions
from qsgp.data.arrays import Arrays
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense
from qsgp.paper.chevron import Chevron
from qsgp.paper.fitting import fit
from qsgp.paper.prediction import predict, relevance_vectors
from qsgp.paper.problem import Problem
from qsgp.paper.settings import Settings
from qsgp.paper.starting import start
from qsgp.paper.stepping import step
from qsgp.paper.support import Support


@pytest.mark.slow
def test_full_batches_reach_the_exact_posterior_on_50_points():
    """Mean and, with a full C, covariance; AdaGrad as the paper uses it, at a constant rate."""
    m = 20
    problem = make_problem("fourier", n=50, m=m, k=m)
    settings = Settings(n_tilde=50, m_tilde=m, iterations=2500, rate=0.5, final=1.0, control="none", every=1000)
    state = fit(problem, settings).state
    Phi = problem.basis.features(problem.source.x, problem.basis.columns(torch.arange(m)))
    S = torch.eye(m, dtype=torch.float64)
    mu, Sigma = dense.posterior(problem.source.y, Phi, S, problem.likelihood.noise_variance)
    C = problem.covariance.to_dense(state.rows.L, state.rows.log_c)
    torch.testing.assert_close(state.rows.mu[:, 0], mu, rtol=0, atol=1e-3 * float(mu.abs().max()))
    torch.testing.assert_close(C @ C.mT, Sigma, rtol=0, atol=1e-3 * float(Sigma.abs().max()))


def test_a_resumed_run_ends_bit_for_bit_the_same():
    problem = make_problem("fourier", "logistic")
    settings = Settings(8, 5, iterations=40, learn_hyperparameters=True, hyper_rate=1e-2, control="kriging")
    whole = fit(problem, settings).state
    half = start(problem, settings)
    for _ in range(17):
        half, _ = step(problem, half, settings)
    resumed = fit(problem, settings, past=copy.deepcopy(half)).state
    assert resumed.t == whole.t == 40
    assert torch.equal(resumed.table, whole.table) and torch.equal(resumed.sums, whole.sums)
    assert all(torch.equal(resumed.theta[name], whole.theta[name]) for name in whole.theta)


def test_history_reports_and_the_elbo_rises():
    seen = []
    problem = make_problem(n=30, m=12)
    settings = Settings(n_tilde=30, m_tilde=12, iterations=300)
    result = fit(problem, settings, evaluate=lambda state: {"extra": float(state.t)}, report=seen.append)
    assert [record["iteration"] for record in result.history] == [100, 200, 300] == [r["extra"] for r in seen]
    assert result.history[-1]["elbo"] > result.history[0]["elbo"]


def test_time_is_a_limit():
    result = fit(make_problem(), Settings(8, 5, iterations=10**9), max_seconds=0.2)
    assert 0 < result.state.t < 10**9


def test_divergence_is_named():
    problem = make_problem()
    with pytest.raises(FloatingPointError, match="diverged.*Lower the rate"):
        fit(problem, Settings(8, 5, iterations=200, rate=1e6, final=1.0, every=10))


@pytest.mark.slow
def test_qsrvm_on_the_noisy_sinc_is_sparse_and_accurate():
    """Appendix I.3: n = m = 500, batches of 100 points and 250 functions, control variate of rank 250."""
    g = torch.Generator().manual_seed(0)
    x = 20 * torch.rand(500, 1, generator=g, dtype=torch.float64) - 10
    y = sinc(x) + 0.1 * torch.randn(500, generator=g, dtype=torch.float64)
    centre, scale = y.mean(), y.std()
    target = (y - centre) / scale
    one = torch.ones(1, dtype=torch.float64)
    kernel, sigma2 = fit_exact_gp(SquaredExponential(2 * one, one[0]), x, target, points=300)
    basis, support = KernelFunctions(kernel, x), Support.build(kernel, x[:250])
    problem = Problem(Arrays(x, target), basis, Gaussian(sigma2), Chevron(500), support)
    settings = Settings(
        n_tilde=100, m_tilde=250, iterations=500, rate=0.3, final=0.1, control="kriging", mean_update="newton"
    )
    state = fit(problem, settings).state
    x_star = torch.linspace(-10, 10, 400, dtype=torch.float64)[:, None]
    prediction = predict(problem, state, x_star, relevant=1e4)
    error = prediction.mean * scale + centre - sinc(x_star)
    assert 3 <= len(relevance_vectors(state)) <= 20
    assert error.square().mean().sqrt() < 0.05


def sinc(x):
    return torch.sinc(x[:, 0] / torch.pi)
