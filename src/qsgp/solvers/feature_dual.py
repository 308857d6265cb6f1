"""The dual of a Fourier model: (Phi Phi^T + D) A = Y by conjugate gradients, weights V = Phi^T A, Phi never stored.

The residual is kept at all n rows and features are visited ``m_tilde`` at a time: no sampling, no noise, no learning
rate. A product with Phi Phi^T computes 2 n m feature values. What makes few of them enough is the preconditioner
(Q + D + left I)^-1, Q = C (K_pp)^-1 C^T the Nystrom approximation from a support set. With many features C is the exact
kernel at the support points, which costs nothing next to the features; conjugate gradients bear the mismatch, fixed
steps would not. With few features (m < 20 p) the mismatch is too large, and C comes from the features themselves.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from qsgp import engine
from qsgp.bases import Fourier
from qsgp.checks import check_positive, check_rows, check_sample_size, check_shape

KEPT = {"cpu": 1 << 26, "cuda": 1 << 29}  # frequencies kept as numbers; beyond, every product draws them again
ENOUGH = 20  # features for each support point from which on the exact kernel does as well in their place
STORED = 1 << 28  # numbers of C that are kept
ROWS = 16384  # of C at a time
PATIENCE = 5  # passes without progress


def never() -> bool:
    return False


@dataclass(frozen=True)
class Descent:
    """How a system is solved: ``m_tilde`` functions at a time, ``passes`` over all of them at most, until what is left
    is smaller than ``tolerance``, or ``halt``, asked after every pass, says so."""

    m_tilde: int | None = None  # all
    passes: int = 100
    tolerance: float = 1e-2  # relative; a residual of 0.03 was within 2 % of the exact RMSE
    precision: str = "default"
    halt: Callable[[], bool] = never


USUAL = Descent()


@dataclass(frozen=True)
class Features:
    """Phi of ``basis`` at ``x``, as products over blocks of ``m_tilde`` functions."""

    basis: Fourier
    x: Float[Tensor, "n d"]
    m_tilde: int
    precision: str = "default"
    omega: Float[Tensor, "pairs d"] | None = None

    @classmethod
    def of(cls, basis: Fourier, x: Tensor, m_tilde: int | None = None, precision: str = "default") -> "Features":
        m_tilde = basis.m if m_tilde is None else m_tilde
        check_sample_size("m_tilde", m_tilde, "m", basis.m)
        if m_tilde % 2:
            raise ValueError(f"Expected an even m_tilde, got {m_tilde}. Pairs of cosine and sine stay together.")
        if not basis.orthogonal and basis.m // 2 * x.shape[1] > KEPT.get(x.device.type, 0):
            return cls(basis, x, m_tilde, precision)
        pairs = torch.arange(basis.m // 2, device=x.device)
        # orthogonal ones belong to groups: a part would make the groups at its ends twice, no more
        like = x.new_empty(0, dtype=engine.kept_dtype(basis.kernel, x.dtype))
        omega = torch.cat([basis.columns(2 * part).omega.to(like) for part in pairs.split(1 << 16)])
        return cls(basis, x, m_tilde, precision, omega)

    def blocks(self) -> Iterator[tuple[slice, engine.Frequencies]]:
        """Functions of each block, and the frequencies of their pairs."""
        for first in range(0, self.basis.m, self.m_tilde):
            end = min(first + self.m_tilde, self.basis.m)
            part = slice(first // 2, end // 2)
            if self.omega is None:
                drawn = engine.drawn(self.basis.kernel, self.basis.seed, part.start, part.stop - part.start)
                yield slice(first, end), drawn
            else:
                yield slice(first, end), self.omega[part]

    def times(self, V: Float[Tensor, "m c"], x: Float[Tensor, "t d"] | None = None) -> Float[Tensor, "t c"]:
        """Phi V, at ``x`` when given."""
        x = self.x if x is None else x
        out = V.new_zeros(len(x), V.shape[1])
        for part, frequencies in self.blocks():
            out += engine.phi_v(x, frequencies, V[part], *self._scale, total=self.basis.m, precision=self.precision)
        return out

    def transposed(self, R: Float[Tensor, "n c"]) -> Float[Tensor, "m c"]:
        """Phi^T R."""
        return torch.cat([self._pull(frequencies, R) for _, frequencies in self.blocks()])

    def gram(self, R: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Phi Phi^T R: of each block Phi_i (Phi_i^T R), so that no more than m_tilde rows exist at a time."""
        out = torch.zeros_like(R)
        for _, frequencies in self.blocks():
            pulled = self._pull(frequencies, R)
            out += engine.phi_v(self.x, frequencies, pulled, *self._scale, total=self.basis.m, precision=self.precision)
        return out

    def matrix(self, x: Float[Tensor, "t d"], part: slice) -> Float[Tensor, "t i"]:
        """Features themselves, of a few functions."""
        index = torch.arange(part.start, part.stop, device=x.device)
        return self.basis.features(x, self.basis.columns(index)).to(x)

    def _pull(self, frequencies: engine.Frequencies, R: Tensor) -> Tensor:
        return engine.phit_r(self.x, frequencies, R, *self._scale, total=self.basis.m, precision=self.precision)

    @property
    def _scale(self) -> tuple[Tensor, Tensor]:
        return self.basis.kernel.lengthscale, self.basis.kernel.variance


@dataclass(frozen=True)
class Nystrom:
    """R -> (C K_pp^-1 C^T + E)^-1 R = (R - C M^-1 C^T E^-1 R) / E by columns, M = K_pp + C^T E^-1 C, E = D + left.

    The difference cancels to 1 / lambda of what it is made of, so it is taken in float64; the numbers C may be rounded.
    """

    features: Features
    U: Float[Tensor, "p d"]
    C: Float64[Tensor, "n p"] | None  # None: K(X, U), made again for every product
    E: Float64[Tensor, "n noises"]
    factor: Float64[Tensor, "noises p p"]  # of M

    @classmethod
    def build(cls, features: Features, noise: Float[Tensor, "n noises"], U: Float[Tensor, "p d"]) -> "Nystrom":
        kernel, x, p = features.basis.kernel, features.x, len(U)
        few, C = features.basis.m < ENOUGH * p, None
        if few:
            C = _features_gram(features, x, U)
        elif len(x) * p <= STORED:
            C = torch.cat([kernel(part, U).double() for part in x.split(ROWS)])
        K_pp = _features_gram(features, U, U) if few else kernel(U, U).double()
        K_pp.diagonal().add_(1e-6 * K_pp.diagonal().mean())
        # What Q leaves of the variance, on average: without it the directions Q lacks would be taken to be noise alone.
        some = torch.arange(0, len(x), max(1, len(x) // 1000), device=x.device)
        C_some = kernel(x[some], U).double() if C is None else C[some]
        taken = torch.linalg.solve_triangular(_cholesky(K_pp), C_some.mT, upper=False).square().sum(0)
        E = noise.double() + (kernel.variance - taken.mean()).clamp_min(0)
        M = K_pp.expand(E.shape[1], p, p).clone()
        for rows, block in _row_blocks(features, U, C):
            for column in range(len(M)):
                M[column] += (block / E[rows, column, None]).mT @ block
        return cls(features, U, C, E, torch.stack([_cholesky(part) for part in M]))

    def __call__(self, R: Float64[Tensor, "n c"]) -> Float64[Tensor, "n c"]:
        scaled = R / self.E
        at_support = R.new_zeros(len(self.U), R.shape[1])
        for rows, block in _row_blocks(self.features, self.U, self.C):
            at_support += block.mT @ scaled[rows]
        if len(self.factor) == 1:
            solved = torch.cholesky_solve(at_support, self.factor[0])
        else:
            solved = torch.cholesky_solve(at_support.mT[..., None], self.factor)[..., 0].mT
        taken = torch.cat([block @ solved for _, block in _row_blocks(self.features, self.U, self.C)])
        return scaled - taken / self.E


def _row_blocks(features: Features, U: Tensor, C: Tensor | None) -> Iterator[tuple[slice, Float64[Tensor, "rows p"]]]:
    """C, kept or made again, some rows at a time."""
    for first in range(0, len(features.x), ROWS):
        rows = slice(first, min(first + ROWS, len(features.x)))
        yield rows, features.basis.kernel(features.x[rows], U).double() if C is None else C[rows]


@dataclass
class FeatureDual:
    """Dual weights A, what they predict at the rows, the weights V of the features, and the residual of each pass."""

    A: Float[Tensor, "n c"]
    f: Float[Tensor, "n c"]  # Phi V
    V: Float[Tensor, "m c"]
    residuals: list[float]  # relative: largest |Y - (Phi Phi^T + D) A| / |Y| of all columns


def solve(
    basis: Fourier,
    x: Float[Tensor, "n d"],
    Y: Float[Tensor, "n c"],
    noise: Float[Tensor, " n"],
    U: Float[Tensor, "p d"],
    descent: Descent = USUAL,
    first: Float[Tensor, "n c"] | None = None,
) -> FeatureDual:
    """A with (Phi Phi^T + diag(noise)) A = Y, preconditioned from the support points ``U``, and V = Phi^T A.

    It begins at ``first``, or at 0. However it ends, what has been learned stays.
    """
    n = check_rows(x=x, Y=Y, noise=noise)
    check_shape("noise", noise, (n,), "Give one noise variance for each row.")
    check_positive("noise", noise, "Without noise the system has no safe solution; use a small one.")
    features = Features.of(basis, x, descent.m_tilde, descent.precision)
    preconditioner = Nystrom.build(features, noise[:, None], U)
    A = torch.zeros_like(Y) if first is None else first
    f = torch.zeros_like(Y) if first is None else features.gram(A)
    enough = descent.tolerance * Y.norm(dim=0)
    A, f, residuals = descend(features, preconditioner, (A, f), Y, noise[:, None], enough, descent)
    return FeatureDual(A, f, features.transposed(A), residuals)


def descend(
    features: Features,
    preconditioner: Callable[[Tensor], Tensor],
    first: tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]],
    Y: Float[Tensor, "n c"],
    noise: Float[Tensor, "n noises"],
    enough: Float[Tensor, " c"],
    descent: Descent,
) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"], list[float]]:
    """Conjugate gradients from the ``first`` A and f = Phi Phi^T A, each column with its own coefficients.

    A, f and the residuals are given back.

    Ends when the residual of every column is shorter than ``enough``, or when what conjugate gradients lower, the sum
    over columns of A^T (Phi Phi^T + D) A / 2 - Y^T A, has not fallen for `PATIENCE` passes: float32 products reach no
    further then. The best A is given back. Sums run in float64; the host reads three numbers in each pass.
    """
    dtype, tiny = Y.dtype, torch.finfo(torch.float64).tiny
    A, f, Y, noise = first[0].double(), first[1].double(), Y.double(), noise.double()
    size = Y.norm(dim=0).clamp_min(tiny)
    r = Y - f - noise * A
    z = preconditioner(r)
    d, rz = z, (r * z).sum(0)
    residuals: list[float] = []
    best, least, idle = (A, f), float("inf"), 0
    for _ in range(descent.passes):
        q = features.gram(d.to(dtype)).double()
        step = rz / (d * (q + noise * d)).sum(0).clamp_min(tiny)
        A, f = A + step * d, f + step * q
        before, r = r, r - step * (q + noise * d)
        length = r.norm(dim=0)
        objective = -0.5 * (A * (Y + r) / size.square()).sum()
        told = torch.stack([(length / size).max(), (length - enough).max(), objective])
        relative, left, value = told.tolist()
        residuals.append(relative)
        if value < least:
            best, least, idle = (A, f), value, 0
        else:
            idle += 1
        if left < 0 or descent.halt() or idle >= PATIENCE:
            break
        z = preconditioner(r)
        # Polak and Ribiere: products are rounded to float32, so directions are not quite conjugate.
        d = z + ((z * (r - before)).sum(0) / rz.clamp_min(tiny)).clamp_min(0) * d
        rz = (r * z).sum(0)
    return best[0].to(dtype), best[1].to(dtype), residuals


def _features_gram(features: Features, x: Tensor, z: Tensor) -> Float64[Tensor, "t p"]:
    """Phi(x) Phi(z)^T over blocks of functions, summed in float64: K_pp must keep its small eigenvalues."""
    out = torch.zeros(len(x), len(z), dtype=torch.float64, device=x.device)
    width = max(2, 2 * ((1 << 24) // (2 * max(len(x), len(z)))))
    for first in range(0, features.basis.m, width):
        part = slice(first, min(first + width, features.basis.m))
        out += features.matrix(x, part) @ features.matrix(z, part).mT
    return out


def _cholesky(K: Float[Tensor, "p p"]) -> Float[Tensor, "p p"]:
    for power in range(-6, 2):
        factor, failed = torch.linalg.cholesky_ex(K)
        if not failed:
            return factor
        K = K + 10.0**power * K.diagonal().mean() * torch.eye(len(K), dtype=K.dtype, device=K.device)
    raise ValueError("The support points have no Cholesky factor even with jitter. Look for non-finite inputs.")
