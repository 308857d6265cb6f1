"""What every road is given: `train(task, kernel, likelihood) -> Trained` is the shape they share."""

from dataclasses import dataclass

from qsgp.data.rows import Rows
from qsgp.interrupt import Halt
from qsgp.ranks import ALONE, Ranks
from qsgp.training.options import Options, Sizes
from qsgp.training.store import Store
from qsgp.training.stream import Stream
from qsgp.training.trained import Report


@dataclass(frozen=True)
class Task:
    """Standardised rows, what was asked for, the sizes that follow, and when to stop."""

    rows: Rows
    options: Options
    sizes: Sizes
    halt: Halt
    report: Report | None = None
    store: Store | None = None  # of a run with a checkpoint folder
    stream: Stream | None = None  # of all rows, where ``rows`` are a uniform sample of them
    ranks: Ranks = ALONE  # that share the rows
