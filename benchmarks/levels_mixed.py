"""A linear mixed model y = X b + sum_j Z_j u_j + e by its exact restricted likelihood, to compare with.

The identifier of most levels is eliminated, whose products are diagonal; the rest is dense, so the others may have a
few thousand levels.
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize, sparse


@dataclass(frozen=True)
class MixedModel:
    centre: np.ndarray
    scale: np.ndarray
    weights: np.ndarray  # of the constant and the inputs
    tables: list[np.ndarray]  # effects of the levels of each identifier; 0 in the last place
    effects: np.ndarray  # variances
    noise: float

    @classmethod
    def fit(cls, X: np.ndarray, codes: np.ndarray, y: np.ndarray) -> "MixedModel":
        centre, scale = X.mean(0), np.where(X.std(0) > 0, X.std(0), 1)
        X = np.concatenate([np.ones((len(X), 1)), (X - centre) / scale], 1)
        _, triangle, pivots = linalg.qr(X, mode="economic", pivoting=True)
        kept = np.sort(pivots[: int((np.abs(np.diag(triangle)) > 1e-8 * np.abs(triangle[0, 0])).sum())])
        sizes = codes.max(0) + 1
        order = np.argsort(-sizes, kind="stable")  # the one that is eliminated first
        Z = [
            sparse.csr_array((np.ones(len(y)), (np.arange(len(y)), code)), shape=(len(y), code.max() + 1))
            for code in codes.T
        ]
        first, rest = Z[order[0]], sparse.hstack([sparse.csr_array(X[:, kept]), *(Z[j] for j in order[1:])]).tocsr()
        parts = _Parts(first, rest, y, len(kept), [int(sizes[j]) for j in order[1:]])
        start = np.zeros(len(order))
        found = optimize.minimize(parts.criterion, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-3})
        noise, own, others = parts.solved(np.exp(found.x))
        weights = np.zeros(X.shape[1])
        weights[kept] = others[: len(kept)]
        split = np.split(others[len(kept) :], np.cumsum(parts.sizes)[:-1]) if parts.sizes else []
        tables = dict(zip(order, [own, *split], strict=True))
        variances = dict(zip(order, noise * np.exp(-found.x), strict=True))
        every = range(len(order))
        return cls(
            centre,
            scale,
            weights,
            [np.append(tables[j], 0) for j in every],
            np.array([variances[j] for j in every]),
            noise,
        )

    def predict(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        fixed = self.weights[0] + (X - self.centre) / self.scale @ self.weights[1:]
        return np.asarray(fixed + sum(table[code] for table, code in zip(self.tables, codes.T, strict=True)))


class _Parts:
    """Products of the columns, and what each ratio noise / effect makes of them."""

    def __init__(
        self, first: sparse.csr_array, rest: sparse.csr_array, y: np.ndarray, fixed: int, sizes: list[int]
    ) -> None:
        self.n, self.fixed, self.sizes = len(y), fixed, sizes
        self.count = np.asarray(first.sum(0)).ravel()
        self.cross = (first.T @ rest).tocsr()
        self.dense = (rest.T @ rest).toarray()
        self.y_first, self.y_rest, self.squares = first.T @ y, rest.T @ y, float(y @ y)

    def _factored(self, ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        own = self.count + ratios[0]
        ridge = np.concatenate(
            [np.zeros(self.fixed), *(np.full(size, one) for size, one in zip(self.sizes, ratios[1:], strict=True))]
        )
        scaled = sparse.diags_array(1 / own) @ self.cross
        S = self.dense + np.diag(ridge) - (self.cross.T @ scaled).toarray()
        return own, linalg.cholesky(S, lower=True), self.y_rest - scaled.T @ self.y_first

    def solved(self, ratios: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        own, factor, right = self._factored(ratios)
        others = linalg.cho_solve((factor, True), right)
        effects = (self.y_first - self.cross @ others) / own
        noise = (self.squares - effects @ self.y_first - others @ self.y_rest) / (self.n - self.fixed)
        return float(noise), effects, others

    def criterion(self, logs: np.ndarray) -> float:
        """-2 log restricted likelihood, the noise at its best."""
        ratios = np.exp(logs)
        own, factor, _ = self._factored(ratios)
        noise = self.solved(ratios)[0]
        counts = [len(self.count), *self.sizes]
        return float(
            (self.n - self.fixed) * np.log(noise)
            + np.log(own).sum()
            + 2 * np.log(np.diag(factor)).sum()
            - sum(size * log for size, log in zip(counts, logs, strict=True))
        )
