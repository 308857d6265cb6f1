"""Ascent on the evidence by blocks, judged by the dense evidence."""

import torch

from qsgp.data.rows import Rows
from qsgp.hyperparameters.refinement import Ascent, refine
from qsgp.kernels import BY_NAME, hyperparameters


def data(n=240, outputs=1):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    true = BY_NAME["matern32"](*hyperparameters([0.8, 3.0], 1.5, dtype=torch.float64))
    root = torch.linalg.cholesky(true(x, x) + 1e-8 * torch.eye(n, dtype=torch.float64))
    Y = root @ torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    return true, x, Y + 0.3 * torch.randn(n, outputs, generator=generator, dtype=torch.float64)


def evidence(kernel, noise, x, Y):
    H = kernel(x, x) + noise * torch.eye(len(x), dtype=x.dtype)
    factor = torch.linalg.cholesky(H)
    half = torch.linalg.solve_triangular(factor, Y, upper=False)
    return float(-0.5 * half.square().sum() - Y.shape[1] * factor.diagonal().log().sum())


def test_the_evidence_rises_to_that_of_the_truth():
    true, x, Y = data(outputs=2)
    first = BY_NAME["matern32"](*hyperparameters([2.0, 1.2], 0.7, dtype=torch.float64))
    noise, weight = torch.tensor(0.3, dtype=torch.float64), torch.ones(len(x), dtype=torch.float64)
    told = []
    kernel, found = refine(first, noise, Rows(x, Y, weight), Ascent(25, 80), tell=told.append)
    before, truth = evidence(first, noise, x, Y), evidence(true, 0.09, x, Y)
    after = evidence(kernel, float(found), x, Y)
    assert before < truth - 20
    assert after > truth - 0.15 * (truth - before)
    assert [record["iteration"] for record in told] == list(range(1, 28))


def test_it_ends_when_told_to():
    true, x, Y = data(100)
    noise, weight = torch.tensor(0.09, dtype=torch.float64), torch.ones(len(x), dtype=torch.float64)
    kernel, found = refine(true, noise, Rows(x, Y, weight), Ascent(5, 50), halt=lambda: True)
    torch.testing.assert_close(kernel.lengthscale, true.lengthscale)
    torch.testing.assert_close(found, noise)
