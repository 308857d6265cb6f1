"""Mixed models: Y = B w + Z u + e with a few functions B of a row and effects u of the levels of its identifiers.

All that estimates need are sums over the rows, so that they take memory in levels, not in rows. With S the products of
the columns of (B, Z), and the prior's precisions, the posterior of (w, u) has precision M = S / noise + precisions. It
is solved by conjugate gradients: crossed identifiers make M as large as there are levels, and sparse.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from scipy import sparse
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.factor import cholesky
from qsgp.kernels.levels import WithLevels, looked_up

_ROWS = 8192  # at a time
_FLAT = 1e-8  # precision of the first function, the constant
_PASSES, _TOLERANCE = 200, 1e-4
_ROUNDS = 4  # of identifiers that make noise for each other


@dataclass(frozen=True)
class Sums:
    """Over the rows, of products of k functions, v levels (of all identifiers, one after another), o targets and s
    columns of noise; on the CPU in float64."""

    BB: Float64[Tensor, "k k"]
    BZ: Float64[Tensor, "k v"]
    count: Float64[Tensor, " v"]  # rows of a level
    pairs: sparse.csr_array  # rows of two levels of different identifiers
    right: Float64[Tensor, "kv o"]
    noise: Float64[Tensor, "kv s"]  # of standard normal noise
    squares: Float64[Tensor, " o"]
    total: float  # of the weights
    sizes: tuple[int, ...]  # levels of each identifier

    @classmethod
    def of(
        cls,
        functions: Callable[[Tensor], Tensor],
        rows: Rows,
        codes: Int[Tensor, "n q"],
        draws: int = 0,
        seed: int = 0,
    ) -> "Sums":
        """``functions`` of a row, the first of which is 1, take ``rows.x``; a code of -1 is no level."""
        sizes = tuple(max(int(code.max()) + 1, 1) for code in codes.mT)
        levels, outputs = sum(sizes), rows.Y.shape[1]
        generator = torch.Generator().manual_seed(seed)
        k = functions(rows.x[:1].double()).shape[1]
        of_B, of_Z = torch.zeros(k, k + outputs + draws).double(), torch.zeros(levels, k + outputs + draws).double()
        for at in torch.arange(rows.n).split(_ROWS):
            weight = rows.weight[at].double()
            noise = torch.randn(len(at), draws, generator=generator, dtype=torch.float64) / weight[:, None].sqrt()
            B = functions(rows.x[at].double())
            both = torch.cat([B, rows.Y[at].double(), noise], 1) * weight[:, None]
            of_B += B.mT @ both
            for code, first in zip(codes[at].mT, _firsts(sizes), strict=True):
                known = code >= 0
                of_Z.index_add_(0, first + code[known], both[known])
        count, pairs = _counted(codes, rows.weight.double(), sizes)
        sums, squares = torch.cat([of_B, of_Z]), rows.weight.double() @ rows.Y.double().square()
        return cls(
            BB=of_B[:, :k],
            BZ=of_Z[:, :k].mT.contiguous(),
            count=count,
            pairs=pairs,
            right=sums[:, k : k + outputs].contiguous(),
            noise=sums[:, k + outputs :].contiguous(),
            squares=squares,
            total=float(rows.weight.double().sum()),
            sizes=sizes,
        )

    def times(self, V: Float64[Tensor, "kv c"]) -> Float64[Tensor, "kv c"]:
        """S V."""
        w, u = V[: len(self.BB)], V[len(self.BB) :]
        crossed = torch.from_numpy(self.pairs @ u.numpy()) if self.pairs.nnz else 0.0
        return torch.cat([self.BB @ w + self.BZ @ u, self.BZ.mT @ w + self.count[:, None] * u + crossed])

    def parts(self) -> list[slice]:
        """Of the unknowns: the functions beside the constant, then the levels of each identifier."""
        k = len(self.BB)
        return [
            slice(1, k),
            *(slice(k + a, k + a + size) for a, size in zip(_firsts(self.sizes), self.sizes, strict=True)),
        ]


@dataclass(frozen=True)
class Equations:
    """M of one noise and one variance for each part of the unknowns (`Sums.parts`)."""

    sums: Sums
    noise: float
    precision: Float64[Tensor, " kv"]
    block: Float64[Tensor, "k k"]  # the inverse of M among the functions
    single: Float64[Tensor, " v"]  # 1 / M of each level
    shared: Float64[Tensor, " v"]  # the same if every identifier had its rows for itself: less than M is no bound
    schur: Float64[Tensor, "k k"]  # the factor of what levels leave of M among the functions, then

    @classmethod
    def of(cls, sums: Sums, noise: float, variances: list[float]) -> "Equations":
        k = len(sums.BB)
        precision = torch.full((k + len(sums.count),), _FLAT, dtype=torch.float64)
        for part, variance in zip(sums.parts(), variances, strict=True):
            precision[part] = 1 / variance
        among = sums.BB / noise + torch.diag(precision[:k])
        shared = 1 / (len(sums.sizes) * sums.count / noise + precision[k:])
        schur = cholesky(among - (sums.BZ * (shared / noise**2)) @ sums.BZ.mT)[0]
        block = torch.cholesky_inverse(cholesky(among)[0])
        return cls(sums, noise, precision, block, 1 / (sums.count / noise + precision[k:]), shared, schur)

    def nearly(self, R: Float64[Tensor, "kv c"]) -> Float64[Tensor, "kv c"]:
        """M^-1 R if functions and levels knew nothing of each other."""
        k = len(self.block)
        return torch.cat([self.block @ R[:k], self.single[:, None] * R[k:]])

    def preconditioned(self, R: Float64[Tensor, "kv c"]) -> Float64[Tensor, "kv c"]:
        """M'^-1 R of an M' above M whose levels know nothing of each other, but of the functions."""
        k, BZ = len(self.block), self.sums.BZ
        own = self.shared[:, None] * R[k:]
        w = torch.cholesky_solve(R[:k] - BZ @ own / self.noise, self.schur)
        return torch.cat([w, own - self.shared[:, None] * (BZ.mT @ (w / self.noise))])

    def solve(self, R: Float64[Tensor, "kv c"], first: Float64[Tensor, "kv c"]) -> Float64[Tensor, "kv c"]:
        """M^-1 R by conjugate gradients from ``first``, each column with its own coefficients."""
        X, tiny = first, torch.finfo(torch.float64).tiny
        r = R - self._times(X)
        z = self.preconditioned(r)
        d, rz = z, (r * z).sum(0)
        enough = _TOLERANCE**2 * (R * self.preconditioned(R)).sum(0)
        for _ in range(_PASSES):
            if bool((rz <= enough).all()):
                break
            q = self._times(d)
            step = rz / (d * q).sum(0).clamp_min(tiny)
            X, r = X + step * d, r - step * q
            z, before = self.preconditioned(r), rz
            rz = (r * z).sum(0)
            d = z + (rz / before.clamp_min(tiny)) * d
        return X

    def left(self, G: Float64[Tensor, "kv s"], R: Float64[Tensor, "kv s"]) -> Float64[Tensor, " kv"]:
        """The diagonal of M^-1 from draws G = M^-1 R, R ~ N(0, M): what each unknown leaves open if the others were
        known is exact, and the draws only tell what these add."""
        own = torch.cat([self.block.diagonal(), self.single])
        return own + (G - self.nearly(R)).square().mean(1)

    def _times(self, V: Float64[Tensor, "kv c"]) -> Float64[Tensor, "kv c"]:
        return self.sums.times(V) / self.noise + self.precision[:, None] * V


@torch.no_grad()
def left_open(kernel: WithLevels, x: Float[Tensor, "n d"], noise: Float[Tensor, " n"]) -> Float64[Tensor, "q levels"]:
    """The variance that rows leave of the effect of each level; its prior's in the last place.

    ``noise`` holds the effects of levels that are not known.

    For one identifier 1 / (1 / effect + sum 1 / noise). What is left open of the others is noise of a row, too: a few
    rounds settle it. That is for the sum of a row: what moves between identifiers cancels there and does not count.
    """
    codes, effects = kernel.codes(x), kernel.effects.double()
    levels, shares = max(int(codes.max()) + 1, 1), noise.double()
    left = effects[:, None].repeat(1, levels + 1)
    for number in range(_ROUNDS if len(effects) > 1 else 1):
        left[:, -1] = 0.0  # of what is not known: it is in the noise
        others = looked_up(left, codes) if number else torch.zeros_like(shares)
        told = torch.zeros_like(left)
        for j, code in enumerate(codes.mT):
            known = code >= 0
            own = left[j, code] if number else 0.0
            told[j].index_add_(0, code[known], (1 / (shares + others - own))[known])
        left = 1 / (1 / effects[:, None] + told)  # nothing is told of the last place
    return left


def _firsts(sizes: tuple[int, ...]) -> list[int]:
    return [sum(sizes[:j]) for j in range(len(sizes))]


def _counted(
    codes: Int[Tensor, "n q"], weight: Float64[Tensor, " n"], sizes: tuple[int, ...]
) -> tuple[Float64[Tensor, " v"], sparse.csr_array]:
    """Weights of the rows of each level, and of those that two levels share."""
    levels, firsts = sum(sizes), _firsts(sizes)
    count = torch.zeros(levels).double()
    pairs = sparse.csr_array((levels, levels), dtype=np.float64)
    for j, first in enumerate(firsts):
        known = codes[:, j] >= 0
        count.index_add_(0, first + codes[known, j], weight[known])
        for other in range(j):
            both = known & (codes[:, other] >= 0)
            at = ((first + codes[both, j]).numpy(), (firsts[other] + codes[both, other]).numpy())
            shared = sparse.coo_array((weight[both].numpy(), at), shape=(levels, levels)).tocsr()
            pairs = pairs + shared + shared.T
    return count, pairs.tocsr()
