"""The experiments of the paper by name, each in a file of its own: what `qsgp reproduce` runs."""

from qsgp.reproduce.experiment import Experiment

_IN_ORDER: tuple[Experiment, ...] = ()

EXPERIMENTS: dict[str, Experiment] = {each.name: each for each in _IN_ORDER}
