"""The C files of the CPU products: compiled when first needed, into a folder nobody else can write to."""

import ctypes
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock, Thread

import torch
from torch import Tensor

from qsgp.atomic import removed_when_ended

SOURCES = [str(Path(__file__).absolute().with_name(name)) for name in ("features.c", "kernels.c", "l1.c")]
# No -ffast-math: it would remove the addition that rounds. What remains lets products and sums fuse.
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-Wno-psabi", "-shared", "-fPIC")
PATIENCE = 10  # seconds for a compiler; ours needs half of one
_lock = Lock()
if hasattr(os, "register_at_fork"):  # a child must not inherit it held by a thread that it does not have
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def library() -> ctypes.CDLL | None:
    """The compiled C files, or None: torch computes then. Threads that ask at once wait for the first."""
    with _lock:
        return _built()


@functools.cache
def _built() -> ctypes.CDLL | None:
    return build()


def build() -> ctypes.CDLL | None:
    """Compiled anew in each process: it fits the processor it runs on, and no file is kept that others could change.

    None without a compiler at an absolute place, with one that fails or hangs, and where files cannot be loaded (a
    folder for temporary files that is mounted noexec: ``TMPDIR`` names another).
    """
    folders = os.pathsep.join(_absolute(os.environ.get("PATH", os.defpath).split(os.pathsep)))
    found = (shutil.which(name, path=folders) for name in (os.environ.get("CC", "cc"), "gcc", "clang"))
    compiler = next(iter(_absolute(filter(None, found))), None)
    if compiler is None:
        return None
    try:
        folder = Path(tempfile.mkdtemp())
        with removed_when_ended(folder):
            target = str(folder / "engine.so")
            # the compiler looks for its assembler and linker in the same way: it gets the same folders
            if _runs([compiler, *FLAGS, *SOURCES, "-o", target], folder, os.environ | {"PATH": folders}):
                return ctypes.CDLL(target)
    except OSError:
        pass
    return None


def _absolute(paths: Iterable[str]) -> list[str]:
    """Without those that depend on the working folder, where anybody may have put a program called cc."""
    return [path for path in paths if os.path.isabs(path)]


def _runs(command: list[str], folder: Path, environment: dict[str, str]) -> bool:
    """A command that ends well, and in time; what it started ends with it."""
    quiet = subprocess.DEVNULL  # no pipes: what a killed compiler has started could keep them open
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        return process.wait(PATIENCE) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()


def call(function: Callable[..., None], tensors: tuple[Tensor | None, ...], sizes: tuple[int, ...]) -> None:
    pointers = (ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors)
    function(*pointers, *(ctypes.c_size_t(size) for size in sizes))


def share(run: Callable[[int, int], None], size: int, unit: int) -> None:
    """run(begin, end) on as many threads as torch uses; each owns its part of the output, whatever their number."""
    parts = min(torch.get_num_threads(), -(-size // unit))
    step = -(-size // (parts * unit)) * unit
    bounds = [(begin, min(begin + step, size)) for begin in range(0, size, step)]
    helpers = [Thread(target=run, args=bound) for bound in bounds[1:]]
    for helper in helpers:
        helper.start()
    run(*bounds[0])
    for helper in helpers:
        helper.join()
