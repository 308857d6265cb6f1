"""The checkpoint folder of one run: it refuses other data or arguments, and keeps what was learned and the states."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.files import FileError
from qsgp.interfaces import Kernel, Likelihood
from qsgp.posteriors.posteriors import describe, kernel_and_likelihood, tensors_of
from qsgp.training.checkpoints import Checkpoints, fingerprint_array
from qsgp.training.options import Options

# What may differ between a run and its continuation: how long it may take, how much memory, where it is stored.
_FREE = {"max_time", "max_memory", "checkpoint", "checkpoint_seconds"}


@contextmanager
def storing(rows: Rows, options: Options, sizes: object, unit: str = "iteration") -> Iterator["Store | None"]:
    """The store of a run that has a checkpoint folder, which no other run may use meanwhile.

    ``sizes`` must be those of the run that is resumed; None where it brings its own back.
    """
    if options.checkpoint is None:
        yield None
        return
    checkpoints = Checkpoints(options.checkpoint, every_seconds=options.checkpoint_seconds)
    with checkpoints.claimed():
        yield Store(checkpoints, rows, options, sizes, unit)


class Store:
    """Files of hyperparameters and states, numbered by ``unit``, and the fingerprint of what they belong to."""

    def __init__(self, checkpoints: Checkpoints, rows: Rows, options: Options, sizes: object, unit: str) -> None:
        self._checkpoints, self._unit, self._saved_at = checkpoints, unit, -1
        self._fingerprint = {name: _json(value) for name, value in vars(options).items() if name not in _FREE}
        if sizes is not None:
            self._fingerprint |= {f"{name} (auto)": _json(value) for name, value in vars(sizes).items()}
        arrays = {"inputs": rows.x, "targets": rows.Y, "weights": rows.weight}
        self._fingerprint |= {name: fingerprint_array(array) for name, array in arrays.items()}
        self.saved = self._checkpoints.latest(options.device)
        if self.saved is not None:
            self._checkpoints.check_same(self.saved[0].get("fingerprint", {}), self._fingerprint)

    def hyperparameters(self) -> tuple[Kernel, Likelihood]:
        """Those the run began with: they are not learned twice."""
        assert self.saved is not None
        return kernel_and_likelihood(self.saved[0], self.saved[1])

    def resumed(self, number: int) -> None:
        """Training goes on from the stored state of that number."""
        self._saved_at, self.saved = number, None  # its matrices are as large as the data
        warnings.warn(f"Resumed from {self._unit} {number} in {self._checkpoints.folder}.", stacklevel=5)

    def wants(self, number: int, now: bool = False) -> bool:
        """It is time to save, or ``now``, and nothing is written twice."""
        return (now or self._checkpoints.due()) and number > self._saved_at

    def save(
        self,
        number: int,
        learned: tuple[Kernel, Likelihood],
        header: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
    ) -> None:
        """What was learned, and a state. The model outlives a save that fails."""
        about = {"fingerprint": self._fingerprint, **describe(*learned), **header}
        try:
            self._checkpoints.save(about, {**tensors_of(*learned), **tensors}, number)
        except (OSError, FileError) as error:
            warnings.warn(
                f"The checkpoint of {self._unit} {number} was not written ({error}). Training goes on: the model is "
                f"fitted, but a killed run would go on from an earlier {self._unit}. Make room, or name another "
                "folder.",
                stacklevel=3,
            )
        else:
            self._saved_at = number


def _json(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
