"""Figure 3 once more: what keeps functions in a relevance vector machine that is trained by sampling.

`qsgp reproduce figure-3` measures the paper's settings, implicit steps and the exact evidence, with a picture. Here one
thing is changed after another: the control variate, the dense columns of C, the step of mu, and whether anything is
sampled at all.

    python benchmarks/relevance.py --json relevance.json
"""

import time
from dataclasses import replace

from qsgp.reproduce.figure_3 import DENSE, EXACT, IMPLICIT, POINTS, PRINTED, Sinc, exact, trained
from table import Collected, arguments

NEWTON = replace(PRINTED, iterations=500, rate=0.3, final=0.1, control="kriging", mean_update="newton")
WAYS = {  # name: settings and dense columns
    "the paper's": (PRINTED, DENSE),
    "AdaGrad, kriging": (replace(PRINTED, control="kriging"), DENSE),
    "AdaGrad, kriging, k = 0": (replace(PRINTED, control="kriging"), 0),
    "Newton for mu": (NEWTON, DENSE),
    "Newton for mu, k = 0": (NEWTON, 0),
    "implicit": (IMPLICIT, DENSE),
    "implicit, all points and functions": (
        replace(IMPLICIT, n_tilde=POINTS, m_tilde=POINTS, iterations=300, control="none"),
        DENSE,
    ),
}


def measure(name: str, seed: int) -> dict[str, object]:
    data, began = Sinc.of(seed), time.perf_counter()
    row = exact(data) if name == EXACT else trained(data, *WAYS[name])
    return {key: row[key] for key in ("vectors", "rmse", "bound")} | {"seconds": time.perf_counter() - began}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    rows = Collected(options.json, "Relevance vectors of a noisy sinc, 500 functions", seed=list(range(options.seeds)))
    for seed in range(options.seeds):
        for name in [*WAYS, EXACT]:
            rows.add({"settings": name, "seed": seed}, lambda name=name, seed=seed: measure(name, seed))
    rows.show()


if __name__ == "__main__":
    main()
