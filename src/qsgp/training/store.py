"""The checkpoint folder of one run: it refuses other data or arguments, and keeps what was learned and the states."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qsgp.data.rows import Rows
from qsgp.files import FileError
from qsgp.interfaces import Kernel, Likelihood
from qsgp.posteriors.posteriors import describe, kernel_and_likelihood, tensors_of
from qsgp.ranks import ALONE, Ranks
from qsgp.training.checkpoints import Checkpoints, fingerprint_array
from qsgp.training.options import Options

Saved = tuple[dict[str, Any], dict[str, Tensor]]

# What may differ between a run and its continuation: how long it may take, how much memory, where it is
# stored, how many share the work.
_FREE = {"max_time", "max_memory", "checkpoint", "checkpoint_seconds", "ranks"}


@contextmanager
def storing(
    rows: Rows, options: Options, sizes: object, unit: str = "iteration", ranks: Ranks = ALONE
) -> Iterator["Store | None"]:
    """The store of a run that has a checkpoint folder, which no other run may use meanwhile.

    ``sizes`` must be those of the run that is resumed; None where it brings its own back. Of several ranks the first
    alone touches the folder.
    """
    if options.checkpoint is None:
        yield None
        return
    checkpoints = Checkpoints(options.checkpoint, every_seconds=options.checkpoint_seconds)
    with ExitStack() as held:
        ranks.on_first(lambda: held.enter_context(checkpoints.claimed()))
        yield Store(checkpoints, rows, options, (sizes, unit), ranks)


class Store:
    """Files of hyperparameters and states, numbered by ``unit``, and the fingerprint of what they belong to."""

    def __init__(
        self, checkpoints: Checkpoints, rows: Rows, options: Options, kind: tuple[object, str], ranks: Ranks = ALONE
    ) -> None:
        (sizes, unit), self._first = kind, ranks.rank == 0
        self._checkpoints, self._unit, self._saved_at = checkpoints, unit, -1
        self._fingerprint = {name: _json(value) for name, value in vars(options).items() if name not in _FREE}
        if sizes is not None:
            self._fingerprint |= {f"{name} (auto)": _json(value) for name, value in vars(sizes).items()}
        arrays = {"inputs": rows.x, "targets": rows.Y, "weights": rows.weight}
        self._fingerprint |= {name: fingerprint_array(array) for name, array in arrays.items()}
        self.saved = ranks.on_first(lambda: self._latest("cpu" if ranks.size > 1 else options.device))
        if self.saved is not None and ranks.size > 1:
            header, tensors = self.saved
            self.saved = header, {name: value.to(options.device) for name, value in tensors.items()}

    def _latest(self, device: str) -> Saved | None:
        saved = self._checkpoints.latest(device)
        if saved is not None:
            self._checkpoints.check_same(saved[0].get("fingerprint", {}), self._fingerprint)
        return saved

    def hyperparameters(self) -> tuple[Kernel, Likelihood]:
        """Those the run began with: they are not learned twice."""
        assert self.saved is not None
        return kernel_and_likelihood(self.saved[0], self.saved[1])

    def resumed(self, number: int) -> None:
        """Training goes on from the stored state of that number."""
        self._saved_at, self.saved = number, None  # its matrices are as large as the data
        if self._first:
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
        if not self._first:
            return
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


def check_same(ranks: Ranks, *arrays: np.ndarray) -> None:
    """Every rank takes its own part of the rows, so all must be given the same ones."""
    if ranks.size == 1:
        return
    found = [fingerprint_array(array) for array in arrays]
    differs = torch.tensor(float(found != ranks.agreed(found)))
    if ranks.total(differs):
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(
            f"Expected the same rows on all {ranks.size} ranks, got others than on rank 0 (here of shapes {shapes}). "
            "Read the same file on every rank, and draw random rows with the same seed: each takes its own part."
        )


def _json(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
