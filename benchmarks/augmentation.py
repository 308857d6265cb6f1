"""The deviation of f near and far from the data, for inducing points and a grid, with and without Proposition 4.

Two inputs, rows from a standard normal, a squared exponential; weights in closed form, C mean field (Proposition 1) or
full. Deviations are in units of the prior's, and averages over 200 inputs: at training rows, ``near``, two lengthscales
(of the rougher kernel one) beyond the outermost row, and ``far``, ten times as far from it. plain: phi Sigma phi^T;
augmented: Proposition 4 (`augment`); lacking: plain and what the functions lack of the kernel's prior (`missing`), as
the estimators say it. exact: the GP. ``cover`` is the share of 2,000 new rows inside 95 %
intervals of each.

    python benchmarks/augmentation.py --json augmentation.json
"""

from typing import Any

import torch
from torch import Tensor

from qsgp import metrics
from qsgp.bases import Grid, Inducing
from qsgp.data.arrays import Arrays
from qsgp.kernels import Matern32, Separable, SquaredExponential, hyperparameters
from qsgp.likelihoods import Gaussian
from qsgp.paper import dense, theorems
from qsgp.paper.prediction import Prediction, augment
from table import arguments, show

LENGTHSCALE, NOISE = 0.8, 0.3


def data(n: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=g, dtype=torch.float64)
    return x, torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + NOISE * torch.randn(n, generator=g, dtype=torch.float64)


def places(x: Tensor) -> dict[str, Tensor]:
    """200 inputs at the rows, and around all of them at two distances."""
    angle = torch.linspace(0, 6.28, 200, dtype=x.dtype)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    outermost = float(x.norm(dim=1).max())
    beyond = {"near": outermost + 2 * LENGTHSCALE, "far": outermost + 20 * LENGTHSCALE}
    return {"rows": x[:200]} | {name: radius * circle for name, radius in beyond.items()}


def bases(x: Tensor, m: int) -> dict[str, Any]:
    ell, variance = hyperparameters(LENGTHSCALE, 1.0, d=2, dtype=x.dtype)
    smooth, rough = SquaredExponential(ell, variance), Separable(2 * ell, variance, Matern32)
    lines = [torch.linspace(float(part.min()), float(part.max()), 25, dtype=x.dtype) for part in x.mT]
    return {
        f"inducing, {m} of the rows": Inducing(smooth, x[:m]),
        f"inducing, all {len(x)} rows": Inducing(smooth, x),
        f"grid, {m} functions": Grid.build(smooth, lines, m),
        f"grid of Matern 3/2, {m} functions": Grid.build(rough, lines, m),
    }


def posterior(basis: Any, x: Tensor, y: Tensor, full: bool, sigma2: Tensor) -> tuple[Tensor, Tensor]:
    """mu, and C for a full or a diagonal covariance."""
    everything = basis.columns(torch.arange(basis.m))
    Phi = basis.features(x, everything)
    S = torch.eye(basis.m, dtype=x.dtype) if basis.diagonal else basis.precision(everything, everything)
    S = S + 1e-8 * torch.eye(basis.m, dtype=x.dtype)
    mu, Sigma = dense.posterior(y, Phi, S, sigma2)
    if full:
        return mu, torch.linalg.cholesky(Sigma + 1e-12 * torch.eye(basis.m, dtype=x.dtype))
    return mu, torch.diag(theorems.optimal_diagonal(Phi.square().sum(0), S.diagonal(), sigma2))


def variances(basis: Any, mu: Tensor, C: Tensor, source: Arrays, x: Tensor, sigma2: Tensor) -> dict[str, Any]:
    """Mean of f, and its variance in each of the three ways and for the exact GP."""
    Phi = basis.features(x, basis.columns(torch.arange(basis.m)))
    plain = Prediction(Phi @ mu, (Phi @ C).square().sum(1), Gaussian(sigma2))
    added = augment(plain, basis.kernel, source, x, sigma2)
    mean, exact = dense.gaussian_process(basis.kernel, source.x, source.y, sigma2, x)
    return {
        "plain": (plain.mean, plain.variance),
        "augmented": (plain.mean, added.variance),
        "lacking": (plain.mean, plain.variance + basis.missing(x)),
        "exact": (mean, exact),
    }


def study(n: int, m: int) -> list[dict[str, Any]]:
    (x, y), (x_new, y_new) = data(n, 0), data(2000, 1)
    sigma2, source, rows = torch.tensor(NOISE**2, dtype=x.dtype), Arrays(x, y), list[dict[str, Any]]()
    for name, basis in bases(x, m).items():
        for shape in ("mean field", "full"):
            mu, C = posterior(basis, x, y, shape == "full", sigma2)
            at = {place: variances(basis, mu, C, source, where, sigma2) for place, where in places(x).items()}
            new = variances(basis, mu, C, source, x_new, sigma2)
            for way, (mean, variance) in new.items():
                if way == "exact" and shape == "full":
                    continue
                row: dict[str, Any] = {"basis": name, "C": "-" if way == "exact" else shape, "variance": way}
                row |= {place: float(found[way][1].clamp_min(0).sqrt().mean()) for place, found in at.items()}
                rows.append(row | {"cover": float(metrics.coverage(y_new, mean, variance + sigma2))})
    return rows


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--functions", type=int, default=100)
    chosen = parser.parse_args()
    show(study(chosen.rows, chosen.functions), chosen.json, "deviation of f in units of the prior's", seed=[0, 1])


if __name__ == "__main__":
    main()
