"""Which exact method for a Fourier model: passes over all features until the test RMSE stays within 2 % of the end.

kin40k, some rows, Phi stored and everything dense in float64, so that only the number of passes counts (one pass: 2 n m
feature values); what each needs besides is in docs/training_features.md. Candidates: ``rows``, blocks of rows of the
dual solved exactly (block Gauss-Seidel), a fresh or a fixed partition; ``features``, blocks of features of the primal
solved exactly; ``conjugate``, conjugate gradients on the dual, Nystrom preconditioner from the exact kernel or the
features.

    QSGP_DATA=... python benchmarks/feature_candidates.py --rows 3000 --features 8400
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from optimisers import SIGMA2, Problem
from qsgp.solvers.feature_dual import ENOUGH, Features, Nystrom
from table import arguments, show

Means = Iterator[Tensor]  # test predictions after each pass


def rows(problem: "Dense", share: int, fresh: bool) -> Means:
    n = len(problem.y)
    A, parts = torch.zeros_like(problem.y), torch.randperm(n).split(n // share)
    while True:
        parts = torch.randperm(n).split(n // share) if fresh else parts
        for at in torch.randperm(len(parts)).tolist():
            block = parts[at]
            residual = problem.y[block] - problem.K[block] @ A - SIGMA2 * A[block]
            own = problem.K[block][:, block] + SIGMA2 * torch.eye(len(block), dtype=A.dtype)
            A[block] += torch.linalg.solve(own, residual)
        yield problem.K_new @ A


def features(problem: "Dense", share: int) -> Means:
    m = problem.Phi.shape[1]
    V, residual = torch.zeros(m, 1, dtype=torch.float64), problem.y.clone()
    parts = torch.arange(m).split(m // share)
    while True:
        for at in torch.randperm(len(parts)).tolist():
            Phi = problem.Phi[:, parts[at]]
            own = Phi.mT @ Phi + SIGMA2 * torch.eye(Phi.shape[1], dtype=Phi.dtype)
            change = torch.linalg.solve(own, Phi.mT @ residual - SIGMA2 * V[parts[at]])
            V[parts[at]] += change
            residual -= Phi @ change
        yield problem.Phi_new @ V


def conjugate(problem: "Dense", support: int) -> Means:
    """Textbook conjugate gradients with the library's preconditioner; the kernel's when m >= 20 support points."""
    P = Nystrom.build(problem.products, torch.full_like(problem.y, SIGMA2), problem.products.x[:support])
    A, r = torch.zeros_like(problem.y), problem.y.clone()
    d = z = P(r)
    while True:
        q = problem.K @ d + SIGMA2 * d
        rz = (r * z).sum()
        step = rz / (d * q).sum()
        A, r = A + step * d, r - step * q
        z = P(r)
        d = z + (r * z).sum() / rz * d
        yield problem.K_new @ A


class Dense:
    def __init__(self, n: int, m: int) -> None:
        some = Problem(n, 10, "cpu")
        kernel = some.kernel.with_parameters({name: v.double() for name, v in some.kernel.parameters().items()})
        basis, x, x_new = type(some.basis(m))(kernel, m), some.x.double(), some.x_new.double()
        self.products, self.y, self.y_new = Features.of(basis, x), some.y.double(), some.y_new.double()
        self.Phi, self.Phi_new = (self.products.matrix(rows, slice(0, m)) for rows in (x, x_new))
        self.K, self.K_new = self.Phi @ self.Phi.mT, self.Phi_new @ self.Phi.mT
        A = torch.linalg.solve(self.K + SIGMA2 * torch.eye(n, dtype=x.dtype), self.y)
        self.exact = self.rmse(self.K_new @ A)

    def rmse(self, mean: Tensor) -> float:
        return float((mean - self.y_new).square().mean().sqrt())


def row(problem: Dense, name: str, means: Means, most: int) -> dict[str, Any]:
    ratios = [problem.rmse(mean) / problem.exact for mean, _ in zip(means, range(most), strict=False)]
    late = [k + 1 for k, ratio in enumerate(ratios) if ratio > 1.02]
    passes = (late[-1] + 1 if late else 1) if not late or late[-1] < most else f"> {most}"
    return {"method": name, "passes to 2 %": passes} | {f"after {k}": ratios[k - 1] for k in (3, 10, 20) if k <= most}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--features", type=int, default=8400)
    parser.add_argument("--passes", type=int, default=30)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    problem, n = Dense(chosen.rows, chosen.features), chosen.rows
    cases: dict[str, Callable[[], Means]] = {}
    for share in (16, 8, 4):
        cases[f"rows, blocks of n/{share}, fresh"] = lambda share=share: rows(problem, share, True)
        cases[f"rows, blocks of n/{share}, fixed"] = lambda share=share: rows(problem, share, False)
        source = "kernel" if chosen.features >= ENOUGH * (n // share) else "features"
        cases[f"conjugate, n/{share} support points, {source}"] = lambda share=share: conjugate(problem, n // share)
    cases["features, blocks of m/10"] = lambda: features(problem, 10)
    found = [row(problem, name, case(), chosen.passes) for name, case in cases.items()]
    title = f"n = {n}, m = {chosen.features}: RMSE over that of the solution ({problem.exact:.4f})"
    show(found, chosen.json, title, seed=0)


if __name__ == "__main__":
    main()
