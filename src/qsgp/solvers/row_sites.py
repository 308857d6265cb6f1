"""What many rows say of f: sites made quadratic, each anew whenever its row is visited.

c1 f - lambda f^2 / 2 in place of log g(f) makes a row an equation with target c1 / lambda and noise 1 / lambda.
Gaussian sites are quadratic themselves and stay as they are. Laplace sites are bounded (Q): their curvature is no
guide, being 0 nearly everywhere. Logistic ones have a parabola of their own (`Logistic.parabola`). All need a variance
of f at the row. It comes from the posterior draws, columns of the same system (`pathwise`): nothing but the
visit's own values is needed.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.interfaces import Likelihood, OwnParabola, SpectralKernel
from qsgp.ranks import ALONE, Ranks
from qsgp.solvers.pathwise import noise_draws, prior_draws

LEAST = 1e-4  # precision of a site that tells nothing more; its noise would have no digits left in float32


@dataclass
class RowSites:
    """Targets and noise of n rows; ``g`` noises: one for all outputs if Gaussian, else one for each.

    Columns of the system: the ``o`` outputs, then ``s`` draws for each noise."""

    likelihood: Likelihood
    Y: Float[Tensor, "n o"]
    weight: Float[Tensor, " n"]
    prior: Float[Tensor, "n gs"]
    own: Float[Tensor, "n gs"]  # standard normal, times the deviation of the noise
    noise: Float[Tensor, "n g"]
    floor: float = 0.0  # least noise that the precision of the products allows

    @classmethod
    def build(
        cls,
        kernel: SpectralKernel,
        likelihood: Likelihood,
        rows: Rows,
        draws: int,
        seed: int,
        floor: float = 0.0,
        ranks: Ranks = ALONE,
    ) -> "RowSites":
        """Sites about the prior of a rank's own rows."""
        (x, Y, weight), groups = rows, groups_of(likelihood, rows.Y.shape[1])
        columns, n = groups * draws, int(ranks.total(torch.tensor(len(x))))
        sites = cls(
            likelihood,
            Y,
            weight,
            prior_draws(kernel, x, columns, seed),
            noise_draws(n, columns, seed, x)[ranks.share(n)].contiguous(),
            Y.new_empty(len(Y), groups),
            floor,
        )
        sites._renew(torch.arange(len(Y), device=Y.device), torch.zeros_like(Y), kernel.diag(x)[:, None].expand_as(Y))
        return sites

    @property
    def draws(self) -> int:
        return self.prior.shape[1] // self.noise.shape[1]

    @property
    def group(self) -> Int[Tensor, " c"] | None:
        """Which noise each column of the system has."""
        groups = self.noise.shape[1]
        if groups == 1:
            return None
        every = torch.arange(groups, device=self.noise.device)
        return torch.cat([every, every.repeat_interleave(self.draws)])

    @property
    def unit_noise(self) -> Float[Tensor, "n g"]:
        """Of a row that counts once."""
        return self.noise * self.weight[:, None]

    def right(
        self, rows: Int[Tensor, " b"], f: Float[Tensor, "b c"], variance: Float[Tensor, "b g"] | None = None
    ) -> Float[Tensor, "b c"]:
        """Right-hand sides of ``rows`` whose values are ``f``, of all columns or of the outputs alone; their noise is
        renewed first.

        ``variance`` of f at the rows is needed when there are no draws to tell it."""
        outputs, groups, prior = self.Y.shape[1], self.noise.shape[1], self.prior[rows]
        target = self.Y[rows]
        if not self.likelihood.fixed_sites:
            if variance is None:
                # of all draws: one output has few, and what rows leave open differs little between outputs
                variance = (prior - f[:, outputs:]).square().mean(1, keepdim=True)
            target = self._renew(rows, f[:, :outputs], variance.expand(-1, groups))
        if f.shape[1] == outputs:
            return target
        deviation = self.noise[rows].sqrt().repeat_interleave(self.draws, 1)
        return torch.cat([target, prior + deviation * self.own[rows]], 1)

    def _renew(
        self, rows: Int[Tensor, " b"], mean: Float[Tensor, "b o"], variance: Float[Tensor, "b o"]
    ) -> Float[Tensor, "b o"]:
        """Make the sites of ``rows`` quadratic about a posterior; their targets."""
        linear, precision = quadratic_sites(self.likelihood, self.Y[rows], mean, variance)
        noise = 1 / (self.weight[rows, None] * precision[:, : self.noise.shape[1]])
        self.noise[rows] = noise.clamp_min(self.floor)
        return linear / precision


def quadratic_sites(
    likelihood: Likelihood, y: Float[Tensor, "*s"], mean: Float[Tensor, "*s"], variance: Float[Tensor, "*s"]
) -> tuple[Float[Tensor, "*s"], Float[Tensor, "*s"]]:
    """c1 and lambda of the sites about f ~ N(mean, variance)."""
    if isinstance(likelihood, OwnParabola):
        return likelihood.parabola(y, mean, variance)
    xi = likelihood.optimal_xi(y, mean, mean.square() + variance)
    _, linear, quadratic = likelihood.quadratic_bound(y, xi)
    return linear, (-2 * quadratic).clamp_min(LEAST)


def groups_of(likelihood: Likelihood, outputs: int) -> int:
    """How many noises: outputs with Gaussian noise share theirs, other sites curve each in its own way."""
    return 1 if likelihood.fixed_sites else outputs
