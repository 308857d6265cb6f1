"""The dual of a Fourier model by conjugate gradients, and Newton's method on it, against dense solves."""

import pytest
import torch

from qsgp.bases import Fourier
from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.likelihoods import pointwise as sites
from qsgp.solvers import feature_dual, feature_newton
from qsgp.solvers.feature_dual import Descent


def problem(n=150, m=400, columns=1, dtype=torch.float64, name="rbf", orthogonal=False, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=generator, dtype=dtype).to(device)
    Y = torch.sin(2 * x[:, :1]) + 0.1 * torch.randn(n, columns, generator=generator, dtype=dtype).to(device)
    kernel = BY_NAME[name](*hyperparameters(1.2, 1.3, d=3, dtype=dtype, device=device))
    return Fourier(kernel, m, seed=1, orthogonal=orthogonal), x, Y, torch.full((n,), 0.02, dtype=dtype, device=device)


def matrix(basis, x):
    return basis.features(x, basis.columns(torch.arange(basis.m, device=x.device)))


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize(("support", "m_tilde", "orthogonal"), [(15, None, False), (60, 34, False), (15, 100, True)])
def test_the_weights_are_those_of_the_dense_solve(name, support, m_tilde, orthogonal):
    """15 support points: the exact kernel preconditions; 60: the features do (m < 20 p)."""
    basis, x, Y, noise = problem(columns=2, name=name, orthogonal=orthogonal and name != "laplacian")
    noise[::3] *= 4
    Phi = matrix(basis, x)
    A = torch.linalg.solve(Phi @ Phi.mT + torch.diag(noise), Y)
    found = feature_dual.solve(basis, x, Y, noise, x[:support], Descent(m_tilde=m_tilde, passes=300, tolerance=1e-10))
    torch.testing.assert_close(found.A, A, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.V, Phi.mT @ A, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.f, Phi @ Phi.mT @ A, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("support", [20, 60])
def test_the_preconditioner_is_the_inverse_of_its_formula(support):
    basis, x, Y, noise = problem(columns=2)
    features, U = feature_dual.Features.of(basis, x), x[:support]
    both = torch.stack([noise, 3 * noise], 1)
    P = feature_dual.Nystrom.build(features, both, U)
    if support == 60:
        C, K = matrix(basis, x) @ matrix(basis, U).mT, matrix(basis, U) @ matrix(basis, U).mT
    else:
        C, K = basis.kernel(x, U), basis.kernel(U, U)
    K = K + 1e-6 * K.diagonal().mean() * torch.eye(support, dtype=K.dtype)
    Q = C @ torch.linalg.solve(K, C.mT)
    left = (basis.kernel.variance - Q.diagonal().mean()).clamp_min(0)  # of all rows: there are fewer than 1,000
    for column in range(2):
        wanted = torch.linalg.solve(Q + torch.diag(both[:, column] + left), Y[:, column])
        torch.testing.assert_close(P(Y)[:, column], wanted, rtol=1e-6, atol=1e-6)


def test_the_preconditioner_saves_passes():
    basis, x, Y, noise = problem(n=400, m=4000)
    near = feature_dual.solve(basis, x, Y, noise, x[:200], Descent(tolerance=1e-3, passes=200))
    far = feature_dual.solve(basis, x, Y, noise, x[:5], Descent(tolerance=1e-3, passes=200))
    assert near.residuals[-1] < 1e-3 and 3 * len(near.residuals) < len(far.residuals)


def test_a_start_is_used_and_it_ends_when_told_to():
    basis, x, Y, noise = problem()
    found = feature_dual.solve(basis, x, Y, noise, x[:30], Descent(tolerance=1e-8))
    again = feature_dual.solve(basis, x, Y, noise, x[:30], Descent(tolerance=1e-6), first=found.A)
    assert len(again.residuals) == 1
    cut = feature_dual.solve(basis, x, Y, noise, x[:30], Descent(tolerance=1e-8, halt=lambda: True))
    assert len(cut.residuals) == 1 and bool(cut.V.ne(0).any())
    torch.testing.assert_close(cut.V, matrix(basis, x).mT @ cut.A)


def test_float32_with_little_noise(device):
    basis, x, Y, noise = problem(400, 1000, dtype=torch.float32, device=device)
    found = feature_dual.solve(basis, x, Y, 0.005 * noise, x[:100], Descent(passes=200, tolerance=1e-3))
    Phi = matrix(basis, x).double()
    A = torch.linalg.solve(Phi @ Phi.mT + torch.diag(0.005 * noise.double()), Y.double())
    wanted = Phi @ (Phi.mT @ A)
    assert (found.f.double() - wanted).norm() < 0.01 * wanted.norm()


def test_what_cannot_be_solved_is_refused(without_shape_checks):
    basis, x, Y, noise = problem()
    with pytest.raises(ValueError, match="noise"):
        feature_dual.solve(basis, x, Y, 0 * noise, x[:10])
    with pytest.raises(ValueError, match="even m_tilde, got 7"):
        feature_dual.solve(basis, x, Y, noise, x[:10], Descent(m_tilde=7))
    with pytest.raises(ValueError, match="curvature for each column"):
        feature_newton.solve(basis, x, Y, sites.softmax(), x[:10])


# --- sites ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", [sites.gaussian(0.3), sites.logistic(), sites.softmax()])
def test_slope_and_curvature_are_derivatives_of_the_value(site):
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(6, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    Y = torch.where(f.detach() == f.detach().amax(1, keepdim=True), 1.0, 0.0 if site.curvature is None else -1.0)
    Y = Y.double().roll(1, 1)
    (slope,) = torch.autograd.grad(site.value(Y, f).sum(), f, create_graph=True)
    torch.testing.assert_close(site.slope(Y, f), slope)
    H = torch.autograd.functional.hessian(lambda row: site.value(Y[0], row).sum(), f[0].detach())
    assert torch.linalg.eigvalsh(H).max() <= site.steepest + 1e-12
    if site.curvature is not None:
        torch.testing.assert_close(torch.diag(site.curvature(Y, f)[0].detach()), H)


def test_newton_finds_the_most_probable_weights():
    basis, x, Y, _ = problem(columns=2)
    labels = torch.where(Y > 0, 1.0, -1.0).double()
    found = feature_newton.solve(
        basis, x, labels, sites.logistic(), x[:30], Descent(tolerance=1e-12, passes=60), steps=60
    )
    Phi = matrix(basis, x)
    gradient = Phi.mT @ sites.logistic().slope(labels, Phi @ found.V) + found.V
    assert gradient.norm() < 1e-4 * found.V.norm()
    torch.testing.assert_close(found.f, Phi @ found.V, rtol=1e-6, atol=1e-6)


def test_newton_with_gaussian_sites_is_the_linear_solve():
    basis, x, Y, noise = problem()
    newton = feature_newton.solve(
        basis, x, Y, sites.gaussian(0.02), x[:30], Descent(tolerance=1e-12, passes=60), steps=60
    )
    linear = feature_dual.solve(basis, x, Y, noise, x[:30], Descent(tolerance=1e-10, passes=300))
    torch.testing.assert_close(newton.V, linear.V, rtol=1e-4, atol=1e-4)
