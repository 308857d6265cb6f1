"""What the search for hyperparameters is asked for by the keywords of a model."""

import warnings
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.hyperparameters import search
from qsgp.hyperparameters.asked import Asked
from qsgp.hyperparameters.small_tables import Watch
from qsgp.interfaces import Kernel, Likelihood
from qsgp.interrupt import Halt
from qsgp.kernels import AUTO, ROUGH, factorising
from qsgp.training.options import Options, Sizes
from qsgp.training.sizes import FEATURES_SOLVED, ROWS

_ROWS_OF_AN_INPUT = 20  # fewer overfit a metric
MADE_OF_OTHERS = (ROWS, FEATURES_SOLVED)  # roads whose searches see thousands of rows


def learn(
    rows: Rows, options: Options, sizes: Sizes, halt: Halt, units: Float[Tensor, " d"] | None = None
) -> tuple[Kernel, Likelihood]:
    """Kernel and likelihood for these rows, within the time of ``halt``; ``units`` of the inputs as they came."""
    wanted = asked(options, rows.n, sizes.learn_points, sizes.learn_most)
    if options.metric == "full" and rows.n < _ROWS_OF_AN_INPUT * rows.x.shape[1]:
        warnings.warn(
            f"metric='full' is learned from {rows.n:,} rows of {rows.x.shape[1]:,} inputs, which is likely to overfit: "
            "intervals may be far too narrow. Compare with metric='ard' on rows held out, or call calibrate.",
            stacklevel=5,
        )
    if sizes.road in MADE_OF_OTHERS:
        wanted = replace(wanted, metric=options.metric)
        if options.kernel == "auto":
            wanted = replace(wanted, kernels=(*AUTO, *ROUGH), sums=True)
    return search.learn(rows, wanted, Watch(halt, lambda: halt.left), units)


def asked(options: Options, n: int, most: int, spare: int = 0) -> Asked:
    """For ``n`` rows, from ``most`` of them, or from up to ``spare`` while there is time."""
    terms = tuple(options.kernel.split("+"))
    kernels = AUTO if options.kernel == "auto" else tuple(dict.fromkeys(terms))
    made = len(terms) > 1 or options.metric == "full"
    if options.basis == "grid":  # wants a kernel that is a product over its inputs
        kernels = tuple(name for name in kernels if name in factorising())
    return Asked(
        likelihood=options.likelihood,
        kernels=kernels,
        most=most,
        spare=spare,
        metric="full" if options.metric == "full" else "ard",
        sum_of=terms if len(terms) > 1 else (),
        closed_form=not options.wants_table(n) and not made,
        fixed=not options.learn_hyperparameters,
        seed=options.seed,
        device=options.device,
    )
