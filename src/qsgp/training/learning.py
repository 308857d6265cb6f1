"""What the search for hyperparameters is asked for by the keywords of a model."""

from jaxtyping import Float
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.hyperparameters import search
from qsgp.hyperparameters.asked import Asked
from qsgp.hyperparameters.small_tables import Watch
from qsgp.interfaces import Kernel, Likelihood
from qsgp.interrupt import Halt
from qsgp.kernels import AUTO, factorising
from qsgp.training.options import Options, Sizes


def learn(
    rows: Rows, options: Options, sizes: Sizes, halt: Halt, units: Float[Tensor, " d"] | None = None
) -> tuple[Kernel, Likelihood]:
    """Kernel and likelihood for these rows, within the time of ``halt``; ``units`` of the inputs as they came."""
    wanted = asked(options, rows.n, sizes.learn_points, sizes.learn_most)
    return search.learn(rows, wanted, Watch(halt, lambda: halt.left), units)


def asked(options: Options, n: int, most: int, spare: int = 0) -> Asked:
    """For ``n`` rows, from ``most`` of them, or from up to ``spare`` while there is time."""
    kernels: tuple[str, ...] = AUTO if options.kernel == "auto" else (options.kernel,)
    if options.basis == "grid":  # wants a kernel that is a product over its inputs
        kernels = tuple(name for name in kernels if name in factorising())
    return Asked(
        likelihood=options.likelihood,
        kernels=kernels,
        most=most,
        spare=spare,
        closed_form=not options.wants_table(n),
        fixed=not options.learn_hyperparameters,
        seed=options.seed,
        device=options.device,
    )
