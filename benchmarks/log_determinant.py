"""log |S| of inducing points from sampled rows (`qsgp.paper.log_determinant`) beside its exact value.

``vecchia``: all rows with all neighbours of their lists; ``deviation``: of one estimate from 32 rows, over 100 draws.
"""

from typing import Any

import torch

from qsgp.bases import Inducing
from qsgp.kernels import BY_NAME, hyperparameters
from qsgp.paper.log_determinant import Looked, level_sizes, log_determinant, look, nearest_earlier
from table import arguments, show


def row(name: str, m: int, d: int, most: int) -> dict[str, Any]:
    Z = torch.randn(m, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    basis = Inducing(BY_NAME[name](*hyperparameters(1.0, 1.0, d=d, dtype=torch.float64)), Z)
    exact = float(torch.logdet(basis.precision(Z, Z)))
    earlier = nearest_earlier(basis, most)
    levels = len(level_sizes(earlier.shape[1]))
    everything = Looked(torch.arange(m), torch.full((m,), levels - 1))
    generator = torch.Generator().manual_seed(1)
    sampled = [float(log_determinant(basis, earlier, look(m, 32, levels, generator))) for _ in range(100)]
    return {
        "kernel": name,
        "m": m,
        "d": d,
        "neighbours": most,
        "exact": exact,
        "vecchia": float(log_determinant(basis, earlier, everything, chance=1.0)),
        "sampled": float(torch.tensor(sampled).mean()),
        "deviation": float(torch.tensor(sampled).std()),
    }


def main() -> None:
    chosen = arguments(__doc__ or "").parse_args()
    rows = [
        row(name, m, d, most)
        for name in ("matern12", "matern32", "matern52")
        for m, d in ((300, 8), (2000, 3))
        for most in (64, 256)
    ]
    show(rows, chosen.json, "log |S| by sampled rows", seed=[0, 1])


if __name__ == "__main__":
    main()
