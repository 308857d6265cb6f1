"""Runs that were cut, on the disk: a row of hours is gone on with, step for step as if it had not been cut."""

import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from qsgp import atomic
from qsgp.paper import Fit, Problem, Settings

OFTEN = 30.0  # seconds between two looks at a run that may be killed


@dataclass
class Unfinished:
    """The file of one run, or none where nothing is kept."""

    path: Path | None
    device: torch.device
    last: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, folder: Path | None, problem: Problem, settings: Settings) -> "Unfinished":
        """Named after what is trained: the targets, the basis, the settings and the device."""
        device = problem.support.U.device
        if folder is None:
            return cls(None, device)
        basis, rows = problem.basis, torch.arange(problem.source.n, device=device)
        sizes = (type(basis).__name__, basis.m, problem.covariance.k, len(problem.support.U), str(device))
        named = hashlib.sha256(repr((settings, sizes)).encode())
        named.update(problem.source.take(rows)[1].cpu().numpy().tobytes())
        return cls(folder / f"{named.hexdigest()[:16]}.pt", device)

    def restore(self, run: Fit) -> bool:
        """Put what is kept into ``run``; False where there is nothing."""
        if self.path is None or not self.path.exists():
            return False
        kept = torch.load(self.path, map_location=self.device, weights_only=True)
        run.state.restore(kept["tensors"])
        run.history, run.pending = kept["history"], list(kept["pending"].unbind())
        run.seconds = kept["seconds"]
        return True

    def save(self, run: Fit) -> None:
        """When it is time, and when the run is interrupted."""
        now = time.monotonic()
        if self.path is None or not run.interrupted and now - self.last < OFTEN:
            return
        self.last = now
        pending = torch.stack(run.pending) if run.pending else run.state.table.new_zeros(0)
        spent = run.history[-1]["seconds"] if run.history else run.seconds
        kept = {"tensors": run.state.tensors(), "history": run.history, "pending": pending, "seconds": spent}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.written(self.path) as file:
            torch.save(kept, file)

    def remove(self) -> None:
        """The run has ended; an empty folder goes with it."""
        if self.path is None or not self.path.exists():
            return
        self.path.unlink()
        if not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()
