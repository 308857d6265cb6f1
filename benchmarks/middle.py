"""Tables of some ten thousand rows: `QSGPRegressor()` as it comes, split 0, inputs and target standardised.

QSGP_DATA=... python benchmarks/middle.py --data kin40k --json middle.json
"""

from small import row
from table import arguments, show


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", nargs="+", default=["kin40k"], help="names of data sets")
    chosen = parser.parse_args()
    show([row(name, 0, "qsgp") for name in chosen.data], chosen.json, "middle-sized tables, defaults")


if __name__ == "__main__":
    main()
