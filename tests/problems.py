"""Small training problems shared by the tests of step, fit and predict."""

import math

import torch
from torch import Tensor

from qsgp.bases import Fourier, Grid, Inducing, KernelFunctions
from qsgp.data.arrays import Arrays
from qsgp.interfaces import Basis, Likelihood
from qsgp.kernels import Matern32, Separable, SquaredExponential
from qsgp.likelihoods import Gaussian, Laplace, Logistic
from qsgp.paper.chevron import Chevron
from qsgp.paper.problem import Problem
from qsgp.paper.state import State
from qsgp.paper.support import Support

BASES = ["fourier", "inducing", "rvm", "grid"]
LIKELIHOODS = ["gaussian", "laplace", "logistic"]


def data(n: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(n, 2, generator=g, dtype=torch.float64) - 2
    y = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.1 * torch.randn(n, generator=g, dtype=torch.float64)
    return x.to(dtype), y.to(dtype)


def make_basis(name: str, m: int, dtype: torch.dtype = torch.float64) -> Basis:
    kernel = SquaredExponential(torch.tensor([0.8, 1.3], dtype=dtype), torch.tensor(1.5, dtype=dtype))
    if name == "fourier":
        return Fourier(kernel, m, seed=4)
    if name == "grid":
        points = torch.linspace(-2, 2, 1 + math.ceil(m**0.5), dtype=dtype)
        return Grid.build(Separable(kernel.lengthscale, kernel.variance, Matern32), [points, points], m)
    Z = data(m, dtype, seed=9)[0]
    return Inducing(kernel, Z) if name == "inducing" else KernelFunctions(kernel, Z)


def make_likelihood(name: str, dtype: torch.dtype = torch.float64) -> Likelihood:
    noise = torch.tensor(0.05, dtype=dtype)
    return {"gaussian": Gaussian(noise), "laplace": Laplace(noise), "logistic": Logistic(21)}[name]


def make_problem(
    basis: str = "fourier",
    likelihood: str = "gaussian",
    *,
    n: int = 30,
    m: int = 12,
    k: int = 2,
    n_bar: int = 5,
    dtype: torch.dtype = torch.float64,
) -> Problem:
    x, y = data(n, dtype)
    y = torch.where(y > 0, 1.0, -1.0).to(dtype) if likelihood == "logistic" else y
    made = make_basis(basis, m, dtype)
    return Problem(
        Arrays(x, y), made, make_likelihood(likelihood, dtype), Chevron(m, k), Support.build(made.kernel, x[:n_bar])
    )


def shake(state: State, problem: Problem, seed: int = 1, scale: float = 0.3) -> State:
    """Random parameters, with the running products set to what they are defined to be."""
    g = torch.Generator().manual_seed(seed)
    state.table += scale * torch.randn(state.table.shape, generator=g, dtype=torch.float64).to(state.table)
    everything = torch.arange(problem.basis.m)
    Phi_p = problem.basis.features(problem.support.U, problem.basis.columns(everything))
    rows, chevron = state.rows, problem.covariance
    V = torch.cat([rows.mu, chevron.dense_columns(everything, rows.L, rows.log_c)], 1)
    if state.a is not None:
        state.a = Phi_p @ V
    if state.a_prior is not None:
        state.a_prior = torch.linalg.solve_triangular(problem.support.factor, Phi_p, upper=False) @ V
    if state.variance is not None:
        state.variance = (Phi_p @ V[:, state.outputs :]).square().sum(1) + Phi_p.square() @ (
            chevron.diagonal_rows(everything, V.dtype) * torch.exp(2 * rows.log_c)
        )
    return state
