"""The paper's control-variate figure: variance of mu^T Phi^T Phi mu / sigma2 and of its gradient, on kin40k.

mu is a draw from the prior, m = 10,000 Fourier features, m_tilde = n_tilde = 500, hyperparameters from an exact GP
on 1,000 points. All numbers are relative to no control variate, from the same draws.

    QSGP_DATA=... python benchmarks/variance.py --json variance.json
"""

import torch

from qsgp import datasets
from qsgp.bases import Fourier
from qsgp.hyperparameters import fit_exact_gp
from qsgp.kernels import SquaredExponential, hyperparameters
from qsgp.paper import control_variates, theorems
from qsgp.paper.sampling import draw, step_generator
from qsgp.paper.support import Support
from qsgp.paper.theorems import Sampled
from table import arguments, show

M, BATCH = 10_000, 500


class Study:
    """One fixed problem; an estimate is its value and its gradient for a given batch."""

    def __init__(self, name: str, seed: int) -> None:
        data = datasets.load(name)
        x, y = (torch.tensor(datasets.standardise(part)[0]) for part in (data.x_train, data.y_train))
        lengthscale, variance = hyperparameters(1.0, 1.0, d=x.shape[1])
        kernel, self.sigma2 = fit_exact_gp(SquaredExponential(lengthscale, variance), x, y)
        self.x, self.n = x, len(x)
        self.basis = Fourier(kernel, M, seed=seed)
        self.mu = torch.randn(M, generator=torch.Generator().manual_seed(seed))  # S = I
        self.columns = self.basis.columns(torch.arange(M))
        self.order = torch.randperm(self.n, generator=torch.Generator().manual_seed(seed + 1))

    def support(self, rank: int) -> tuple[Support, torch.Tensor]:
        """The first ``rank`` of a random order, so that larger support sets contain the smaller ones."""
        support = Support.build(self.basis.kernel, self.x[self.order[:rank]])
        return support, self.basis.features(support.U, self.columns)

    def estimates(self, t: int, supports: dict[int, tuple[Support, torch.Tensor]]) -> dict[tuple[str, int], tuple]:
        """No control variate, Eq. (3) and kriging for every rank, all from batch number t."""
        batch = draw(self.n, M, BATCH, BATCH, step_generator(0, t))
        x_l = self.x[batch.l]
        Phi_l = self.basis.features(x_l, self.basis.columns(batch.drawn))
        Phi_li, Phi_lj = batch.split(Phi_l, 1)
        results = {}
        for kind, rank in [("none", 0), *((kind, rank) for rank in supports for kind in ("gram", "kriging"))]:
            mu = self.mu.clone().requires_grad_()
            V_u = mu[batch.drawn, None]
            V_i, V_j = batch.split(V_u)
            seen = Sampled.of(Phi_li, Phi_lj, V_i, V_j, self.n, M)
            value = theorems.gram_quadratic(seen)
            if kind != "none":
                support, Phi_p = supports[rank]
                a = (Phi_p @ self.mu)[:, None]
                Phi_pu = Phi_p[:, batch.drawn]
                Phi_pi, Phi_pj = batch.split(Phi_pu, 1)
                parts = [control_variates.Part(*pair) for pair in ((Phi_pi, V_i), (Phi_pj, V_j), (Phi_pu, V_u))]
            if kind == "gram":
                share = batch.share(mu.dtype)
                value = value + control_variates.gram(*parts, share, a, self.n, M)
            if kind == "kriging":
                W, scale = support.weights(x_l), M / BATCH
                f_i = control_variates.kriged(seen.F_i, scale * Phi_pi @ V_i, a, W)
                f_j = control_variates.kriged(seen.F_j, scale * Phi_pj @ V_j, a, W)
                value = value + control_variates.kriging(torch.zeros_like(f_i), seen.F_i, seen.F_j, f_i, f_j, self.n)
            (gradient,) = torch.autograd.grad(value.sum() / self.sigma2, mu)
            results[kind, rank] = (value.detach().sum() / self.sigma2, gradient)
        return results


class Running:
    """Mean and variance of a tensor seen many times (Welford): no list of gradients is kept."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, value: torch.Tensor) -> None:
        self.count += 1
        difference = value.double() - self.mean
        self.mean = self.mean + difference / self.count
        self.squares = self.squares + difference * (value.double() - self.mean)

    def variance(self) -> float:
        """Averaged over the elements."""
        return float(torch.as_tensor(self.squares).mean() / (self.count - 1))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[30, 100, 300, 1000])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--data", default="kin40k")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    study = Study(options.data, options.seed)
    supports = {rank: study.support(rank) for rank in options.ranks}
    seen: dict[tuple[str, int], tuple[Running, Running]] = {}
    for t in range(options.repeats):
        for key, (value, gradient) in study.estimates(t, supports).items():
            of_value, of_gradient = seen.setdefault(key, (Running(), Running()))
            of_value.add(value)
            of_gradient.add(gradient)
    base = [running.variance() for running in seen["none", 0]]
    rows = [
        {
            "data": options.data,
            "control_variate": kind,
            "rank": rank,
            "objective_variance": of_value.variance() / base[0],
            "gradient_variance": of_gradient.variance() / base[1],
        }
        for (kind, rank), (of_value, of_gradient) in seen.items()
    ]
    show(rows, options.json, f"Variance relative to no control variate, {options.repeats} draws")


if __name__ == "__main__":
    main()
