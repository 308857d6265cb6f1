"""The experiments of the paper by name, each in a file of its own: what `qsgp reproduce` runs."""

from qsgp.reproduce.experiment import Experiment
from qsgp.reproduce.mnist import MNIST
from qsgp.reproduce.table_2 import TABLE_2
from qsgp.reproduce.table_3 import TABLE_3

_IN_ORDER: tuple[Experiment, ...] = (TABLE_2, TABLE_3, MNIST)

EXPERIMENTS: dict[str, Experiment] = {each.name: each for each in _IN_ORDER}
