"""A fit by several processes that it starts itself (`devices=`): rows go to them by files, the model comes back by one.

`one_rank` is what each of them runs. Keywords go to them as those of multiprocessing do, by a pipe; no file that is
read holds a pickle.
"""

import builtins
import json
import os
import pickle
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from qsgp.files import FileError, read_model
from qsgp.interrupt import deferred_interrupt
from qsgp.models.stored import restore
from qsgp.models.stored_parts import FITTED
from qsgp.ranks import LostRanks, spawned
from qsgp.training.options import Options

PARTS = ("X", "Y", "weight")
MODEL, HEARD = "model.qsgp", "heard.json"
_KNOWN = {kind.__name__: kind for kind in (ConvergenceWarning, FileError, LostRanks)}


def several(model: Any, options: Options, ranks: int) -> int:
    """How many processes ``devices`` asks for, 1 where this one is to fit alone."""
    asked = model.devices
    if isinstance(asked, str) and asked == "all":
        if options.device == "cpu":
            raise ValueError(
                "Expected a machine with GPUs for devices='all', got device 'cpu'. Name a number of processes, such as "
                "devices=2, or leave it out: one process uses all cores."
            )
        asked = torch.cuda.device_count()
    if isinstance(asked, bool) or not isinstance(asked, int | np.integer) or asked < 1:
        raise ValueError(f"Expected devices to be 'all' or a whole number >= 1, got {asked!r}. Leave it at 1.")
    if asked == 1:
        return 1
    _check_machine(model, options, int(asked), ranks)
    return int(asked)


def _check_machine(model: Any, options: Options, asked: int, ranks: int) -> None:
    if ranks > 1:
        raise ValueError(
            f"Expected devices=1 in a run of {ranks} ranks, got {model.devices!r}. Leave it out: torchrun has started "
            "the processes."
        )
    if ":" in options.device:
        raise ValueError(
            f"Expected device 'auto', 'cuda' or 'cpu' with devices={model.devices!r}, got {options.device!r}. Each of "
            "the processes takes a GPU of its own."
        )
    cpu = options.device == "cpu"
    most, of = (os.cpu_count() or 1, "cores") if cpu else (torch.cuda.device_count(), "GPUs")
    if asked > most:
        raise ValueError(f"Expected devices of at most {most}, the number of {of} here, got {asked}. Name fewer.")


def spread(model: Any, data: tuple[np.ndarray, ...], options: Options, size: int, *, scale_y: bool) -> None:
    """Fit ``model``, whose keywords and rows have been checked, by ``size`` processes."""
    if getattr(model, "_skl_callbacks", None):
        raise ValueError(
            f"Expected no callbacks with devices={model.devices!r}, got some: they cannot look into other processes. "
            "Leave one of the two out."
        )
    name = next(kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("qsgp."))
    keywords = model.get_params(deep=False) | {"devices": 1, "random_state": options.seed}
    fitted = {key: getattr(model, key) for key in FITTED if key in vars(model)}
    about = {"name": name, "keywords": keywords, "fitted": fitted, "options": options, "scale_y": scale_y}
    with tempfile.TemporaryDirectory(prefix="qsgp-devices-") as temporary, deferred_interrupt() as pressed:
        folder = Path(temporary)
        for part, array in zip(PARTS, data, strict=True):
            np.save(folder / f"{part}.npy", array)
        codes = spawned("qsgp.models.one_rank", folder, size, pressed, pickle.dumps(about))
        if any(codes):
            raise KeyboardInterrupt if pressed.is_set() else _why(folder, codes)
        for name, words in json.loads((folder / HEARD).read_text()):
            warnings.warn(words, _named(name, Warning) or UserWarning, stacklevel=4)
        stored, tensors = read_model(folder / MODEL, options.device)
    restore(model, stored, tensors, options.max_memory, trusted=True)


def _why(folder: Path, codes: list[int]) -> BaseException:
    """What the rank that failed first has said: the others say that they have lost one."""
    found = [_error(*json.loads(path.read_text())) for path in sorted(folder.glob("error-*.json"))]
    own = [error for error in found if not isinstance(error, LostRanks)]
    if own:
        return own[0]
    ended = [f"rank {rank} {_how(code)}" for rank, code in enumerate(codes) if code not in (0, 1)]
    ended = ended or [f"rank {rank} {_how(code)}" for rank, code in enumerate(codes) if code]
    return LostRanks(
        f"Of the {len(codes)} processes of devices={len(codes)}, {', '.join(ended)}; the others end with it. What it "
        "printed stands above. Where the memory is too small for all of them, name fewer; with checkpoint=folder the "
        "same call goes on where it was."
    )


def _error(name: str, words: str) -> Exception:
    """Of Python or ours; others by their name."""
    try:
        return _named(name, Exception)(words)
    except TypeError:  # none of that name, or one that takes more than words
        return RuntimeError(f"{name}: {words}")


def _named(name: str, base: type) -> Any:
    kind = _KNOWN.get(name, getattr(builtins, name, None))
    return kind if isinstance(kind, type) and issubclass(kind, base) else None


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"has ended with code {code}"
