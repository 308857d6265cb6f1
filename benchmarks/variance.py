"""The paper's Figure 1: variance of mu^T Phi^T Phi mu / sigma2 and of its gradient, relative to no control variate.

`qsgp reproduce figure-1` measures the same with its picture; here data, ranks and repeats can be chosen.

    QSGP_DATA=... python benchmarks/variance.py --json variance.json
"""

from qsgp.reproduce.figure_1 import Setting, measured
from table import Collected, arguments


def variances(setting: Setting, kind: str, rank: int) -> dict[str, float]:
    row = measured(setting, kind, rank)
    return {name: row[name] for name in ("objective_variance", "gradient_variance")}


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[30, 100, 300, 1000])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--data", default="kin40k")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    setting = Setting(options.data, repeats=options.repeats, seed=options.seed)
    rows = Collected(
        options.json, f"Variance relative to no control variate, {options.repeats} draws", seed=options.seed
    )
    for kind, rank in [("none", 0), *((kind, rank) for rank in options.ranks for kind in ("gram", "kriging"))]:
        key = {"data": options.data, "control_variate": kind, "rank": rank}
        rows.add(key, lambda kind=kind, rank=rank: variances(setting, kind, rank))
    rows.show()


if __name__ == "__main__":
    main()
