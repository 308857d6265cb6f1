"""A run that outlives its program: what is stored of it in a checkpoint folder, and how it is taken up again."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from qsgp.data.rows import Rows
from qsgp.files import FileError
from qsgp.interfaces import Kernel, Likelihood
from qsgp.paper.fit import Fit
from qsgp.posteriors.posteriors import describe, kernel_and_likelihood, tensors_of
from qsgp.training.checkpoints import Checkpoints, fingerprint_array
from qsgp.training.options import Options, Sizes
from qsgp.training.sizes import CLOSED_FORM


@contextmanager
def storing(rows: Rows, options: Options, sizes: Sizes) -> Iterator["Store | None"]:
    """The store of a run that has a checkpoint folder, which no other run may use meanwhile."""
    if sizes.road == CLOSED_FORM or options.checkpoint is None:
        yield None
        return
    checkpoints = Checkpoints(options.checkpoint, every_seconds=options.checkpoint_seconds)
    with checkpoints.claimed():
        yield Store(checkpoints, rows, options, sizes)


class Store:
    """The checkpoint folder of one run: refuses other data or arguments, brings back what was learned, saves it."""

    def __init__(self, checkpoints: Checkpoints, rows: Rows, options: Options, sizes: Sizes) -> None:
        self._checkpoints = checkpoints
        self._fingerprint = {name: _json(value) for name, value in vars(options).items() if name not in _FREE}
        self._fingerprint |= {f"{name} (auto)": _json(value) for name, value in vars(sizes).items()}
        arrays = {"inputs": rows.x, "targets": rows.Y, "weights": rows.weight}
        self._fingerprint |= {name: fingerprint_array(array) for name, array in arrays.items()}
        self._saved_at = -1
        self.saved = self._checkpoints.latest(options.device)
        if self.saved is not None:
            self._checkpoints.check_same(self.saved[0].get("fingerprint", {}), self._fingerprint)

    def hyperparameters(self) -> tuple[Kernel, Likelihood]:
        """Those the run began with: they are not learned twice."""
        assert self.saved is not None
        return kernel_and_likelihood(self.saved[0], self.saved[1])

    def resume(self, past: Fit) -> None:
        """Put the stored run into ``past``, if there is one."""
        if self.saved is None:
            return
        header, tensors = self.saved
        past.state.restore(tensors)
        past.history, past.seconds, past.stopped = header["history"], header["seconds"], header["stopped"]
        past.pending = list(tensors["pending"].unbind())
        self._saved_at = past.state.t
        warnings.warn(f"Resumed from iteration {past.state.t} in {self._checkpoints.folder}.", stacklevel=4)

    def save(self, result: Fit, learned: tuple[Kernel, Likelihood], now: bool = False) -> None:
        """When it is time, or ``now``; nothing is written twice. What was learned outlives a save that fails."""
        if not (now or self._checkpoints.due()) or result.state.t <= self._saved_at:
            return
        header: dict[str, Any] = {"fingerprint": self._fingerprint, "history": result.history}
        header |= {"seconds": result.seconds, "stopped": result.stopped, **describe(*learned)}
        pending = torch.stack(result.pending) if result.pending else result.state.table.new_zeros(0)
        tensors = result.state.tensors() | tensors_of(*learned) | {"pending": pending}
        try:
            self._checkpoints.save(header, tensors, result.state.t)
        except (OSError, FileError) as error:
            warnings.warn(
                f"The checkpoint of iteration {result.state.t} was not written ({error}). Training goes on: the model "
                "is fitted, but a killed run would go on from an earlier iteration. Make room, or name another folder.",
                stacklevel=2,
            )
        else:
            self._saved_at = result.state.t


# What may differ between a run and its continuation: how long it may take, how much memory, where it is stored.
_FREE = {"max_time", "max_memory", "checkpoint", "checkpoint_seconds"}


def _json(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
