"""Checkpoints: a few numbered model files in one folder, of which a damaged one never hides a sound one before it."""

import hashlib
import math
import os
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qsgp.atomic import TEMPORARY, check_folder
from qsgp.files import FileError, read_model, write_model
from qsgp.training.locks import only_run

MARK = "checkpoint-"  # in the names of unfinished files: those without it belong to others
CHUNK_BYTES = 2**16
CHUNKS = 1024


class Checkpoints:
    """The folder of one run: two runs at the same time need two folders, and `claimed` sees to it."""

    def __init__(self, folder: str | os.PathLike[str], keep: int = 2, every_seconds: float = 60.0) -> None:
        if keep < 1:
            raise ValueError(f"Expected keep >= 1, got {keep}. Keep 2, so that a damaged one has one before it.")
        if not every_seconds >= 0:
            raise ValueError(f"Expected every_seconds >= 0, got {every_seconds}. Use 0 to save at every chance.")
        self.folder, self.keep, self.every_seconds = Path(folder), keep, every_seconds
        self._last = time.monotonic()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The folder is made, can be written to and is this run's alone; said before the work, not after it.

        Unfinished checkpoints of a run that was killed are removed, and nothing else: while the folder is locked,
        nobody can be writing them.
        """
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                check_folder(self.folder)
                held.enter_context(only_run(self.folder))
            except OSError as error:
                raise OSError(
                    f"Expected a checkpoint folder that can be written to, got {self.folder} "
                    f"({error.strerror or 'no right to write'}). Name another folder."
                ) from error
            for path in self.folder.glob(f"{TEMPORARY}{MARK}*.tmp"):
                path.unlink(missing_ok=True)
            yield

    def due(self) -> bool:
        """``every_seconds`` have passed since the last save, or since the start."""
        return time.monotonic() - self._last >= self.every_seconds

    def save(self, header: dict[str, Any], tensors: dict[str, Tensor], step: int) -> Path:
        """Write a fresh file, then delete all but the last ``keep``; returns its path.

        Files of later steps go too: who saves an earlier step has resumed before them, since they were damaged.
        Kept beside the new one, they would crowd out the sound ones.
        """
        if step < 0:
            raise ValueError(f"Expected step >= 0, got {step}. Count steps from 0.")
        self._last = time.monotonic()  # of a failed save too: not every step is another attempt
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step:09d}.qsgp"
        write_model(path, header, tensors, MARK)
        saved = self._steps()
        kept = sorted(number for number in saved if number <= step)[-self.keep :]
        for number, old in saved.items():
            if number not in kept:
                old.unlink(missing_ok=True)
        self._last = time.monotonic()
        return path

    def latest(self, device: str | torch.device = "cpu") -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """(header, tensors) of the newest sound file, None without any file; damaged ones are named in a warning."""
        damaged = []
        for _, path in sorted(self._steps().items(), reverse=True):
            try:
                found = read_model(path, device)
            except (FileError, OSError) as error:
                damaged.append(f"{path.name}: {error}")
            else:
                for reason in damaged:
                    warnings.warn(f"Skipped the checkpoint {reason} Going on from {path.name}.", stacklevel=2)
                return found
        if damaged:
            raise FileError(
                f"Expected a sound checkpoint in {self.folder}, got only unreadable ones: {'; '.join(damaged)} "
                "Empty the folder to start anew."
            )
        return None

    def check_same(self, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
        """The run that was saved and the one that wants to resume have the same fingerprint, entry by entry."""
        missing = "nothing"
        differing = [
            f"{name} was {repr(saved[name]) if name in saved else missing} "
            f"and is now {repr(wanted[name]) if name in wanted else missing}"
            for name in sorted(saved.keys() | wanted.keys())
            if name not in saved or name not in wanted or saved[name] != wanted[name]
        ]
        if differing:
            raise ValueError(
                f"Expected the data and arguments of the checkpoint in {self.folder}, got others: "
                f"{'; '.join(differing)}. Go back to those to resume, or name an empty folder to start anew."
            )

    def _steps(self) -> dict[int, Path]:
        matches = {path: re.fullmatch(r"step-(\d{9,})\.qsgp", path.name) for path in self.folder.glob("step-*.qsgp")}
        return {int(match[1]): path for path, match in matches.items() if match}


def fingerprint_array(array: np.ndarray | Tensor) -> str:
    """SHA-256 over shape, dtype and content in row order, whatever the memory order or device.

    Up to 64 MiB every byte counts. Beyond, 1024 evenly spaced chunks of 64 KiB do, the first and last among them:
    the cost stays bounded, and a change that falls between the chunks goes unseen.
    """
    dtype = str(array.dtype).removeprefix("torch.")
    if isinstance(array, np.ndarray) and array.dtype.hasobject:
        raise ValueError(f"Expected numbers or fixed-width text, got an array of dtype {dtype}. Convert it first.")
    digest = hashlib.sha256(f"{dtype} {tuple(array.shape)}".encode())
    size = math.prod(array.shape)
    per_chunk = max(1, CHUNK_BYTES // array.dtype.itemsize) if size else 1
    count = -(-size // per_chunk)
    # equals range(count) as long as there are few enough
    for chunk in np.linspace(0, count - 1, min(count, CHUNKS)).round().astype(int).tolist():
        # the last chunk ends with the array; it may overlap the one before
        begin = max(0, min(chunk * per_chunk, size - per_chunk))
        digest.update(_flat(array, begin, min(begin + per_chunk, size)))
    return digest.hexdigest()


def _flat(array: np.ndarray | Tensor, begin: int, end: int) -> bytes:
    """Elements begin .. end in row order, without a copy of the whole."""
    if isinstance(array, np.ndarray):
        return array.flat[begin:end].tobytes()
    taken = torch.take(array.detach(), torch.arange(begin, end, device=array.device)).cpu()
    return taken.view(torch.uint8).numpy().tobytes()
