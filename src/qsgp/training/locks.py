"""One run at a time in a folder: a lock that ends with the process that holds it, however it ends."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: runs are not kept apart there
    fcntl = None  # type: ignore[assignment]

NAME = ".qsgp-lock"


@contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """The folder is this block's alone; a second run in it, also one of another thread, is refused.

    The file stays after a kill, its lock does not: the next run takes it over.
    """
    path, descriptor = folder / NAME, None
    while descriptor is None:
        descriptor = _taken(path, folder)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is locked: whoever waits for it looks again
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a fork that still has it open
        os.close(descriptor)


def _taken(path: Path, folder: Path) -> int | None:
    """The open lock file, locked; None if it was removed by its owner in the meantime."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except FileNotFoundError:
        pass
    except BlockingIOError as error:
        owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another run"
        os.close(descriptor)
        raise ValueError(
            f"Expected a checkpoint folder that no other run uses, got {folder}, where {owner} is at work. "
            "Wait until it ends, or name another folder."
        ) from error
    except OSError:
        return descriptor  # a file system without locks
    os.close(descriptor)
    return None
