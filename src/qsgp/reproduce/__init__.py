"""The experiments of the paper by name, each in a file of its own: what `qsgp reproduce` runs."""

from qsgp.reproduce.experiment import Experiment
from qsgp.reproduce.figure_1 import FIGURE_1
from qsgp.reproduce.figure_2 import FIGURE_2
from qsgp.reproduce.figure_3 import FIGURE_3
from qsgp.reproduce.mnist import MNIST
from qsgp.reproduce.table_1 import TABLE_1
from qsgp.reproduce.table_2 import TABLE_2
from qsgp.reproduce.table_3 import TABLE_3

_IN_ORDER: tuple[Experiment, ...] = (TABLE_1, TABLE_2, TABLE_3, FIGURE_1, FIGURE_2, FIGURE_3, MNIST)

EXPERIMENTS: dict[str, Experiment] = {each.name: each for each in _IN_ORDER}
