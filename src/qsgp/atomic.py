"""The one way to write a file: whole or not at all, never through a link somebody planted, with the rights it had.

A random name beside the target is created afresh (links of that name are not followed), filled, brought to the disk and
renamed. What ends early is removed: after an error, Ctrl-C, SIGTERM and SIGHUP. Only `kill -9` leaves a file behind.
"""

import os
import secrets
import shutil
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

TEMPORARY = ".qsgp-"  # how the names of unfinished files begin
_SPECIAL = {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
_unfinished: dict[Path, int] = {}  # what must not stay, and the process that made it


def place_for(path: str | os.PathLike[str]) -> Path:
    """Where ``path`` leads to, if a file can be written there. Ask before the work begins, not after it."""
    place = Path(os.path.realpath(path))  # a link keeps pointing to its file
    found = _stat(Path(path))  # of the path as it is given: /dev/stdout leads to no name that could be looked at
    kind = 0 if found is None else stat.S_IFMT(found.st_mode)
    if kind == stat.S_IFDIR or not place.parent.is_dir():
        came = "a folder of that name" if kind else f"no folder {Path(path).parent}"
        raise FileNotFoundError(f"Expected a place for the file {path}, got {came}. Make the folder, or name another.")
    if kind not in (0, stat.S_IFREG):
        raise ValueError(f"Expected a place for a file at {path}, got {_SPECIAL.get(kind, 'no file')}. Name another.")
    check_folder(place.parent)
    return place


def check_folder(folder: Path) -> None:
    """Files can be made in it."""
    effective = os.access in os.supports_effective_ids
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=effective):
        raise PermissionError(f"Expected a folder that can be written to, got {folder.absolute()}. Name another.")


def refuse_inputs(output: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """The output is none of the files that are read, by whatever link, relative path or spelling it is named."""
    for path in inputs:
        if os.path.exists(output) and os.path.exists(path) and os.path.samefile(output, path):
            raise ValueError(f"Expected another file to write than those to read, got {output} for both. Rename it.")


@contextmanager
def written(path: str | os.PathLike[str], mark: str = "") -> Iterator[IO[bytes]]:
    """A file to fill. It takes the name ``path`` when the block ends; until then an older one stays as it is.

    ``mark`` is part of the temporary name: who uses one of his own can tell his unfinished files from others.
    """
    target = place_for(path)
    temporary = target.parent / f"{TEMPORARY}{mark}{secrets.token_hex(8)}.tmp"
    with removed_when_ended(temporary):
        with _created(temporary, _stat(target)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _unfinished.pop(temporary)  # nothing of that name is ours any more
    _sync(target.parent)


@contextmanager
def removed_when_ended(path: Path) -> Iterator[None]:
    """``path``, which the block makes, does not outlive it: not after an error, nor when a signal ends the process.

    The signals are watched from the main thread alone: Python allows no other. A handler of the program's own is left
    in its place; if it raises, the error removes the file.
    """
    with _signals_clean_up():
        _unfinished[path] = os.getpid()
        try:
            yield
        finally:
            _remove(path)


def _created(temporary: Path, old: os.stat_result | None) -> IO[bytes]:
    """A file that was not there before, with the rights of the one it will replace, or the usual ones."""
    try:
        file = open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600 if old else 0o666))
    except FileExistsError:
        del _unfinished[temporary]  # it is another's
        raise
    if old is not None and hasattr(os, "fchmod"):
        mode = stat.S_IMODE(old.st_mode) & 0o777
        try:
            os.fchown(file.fileno(), -1, old.st_gid)
        except OSError:
            mode &= ~0o070  # what its group was allowed is not for another group
        with suppress(OSError):  # only the superuser can give a file away
            os.fchown(file.fileno(), old.st_uid, -1)
        os.fchmod(file.fileno(), mode)
    return file


@contextmanager
def _signals_clean_up() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    replaced = [number for number in known if signal.getsignal(number) == signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, _clean_up_and_end)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def _clean_up_and_end(number: int, frame: FrameType | None) -> None:
    """Then what the signal does by default: whoever waits for the process must see how it ended."""
    for path in list(_unfinished):
        _remove(path)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _remove(path: Path) -> None:
    if _unfinished.pop(path, None) != os.getpid():
        return  # a fork must not remove what its parent still writes
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _sync(folder: Path) -> None:
    """The new name itself reaches the disk. Only POSIX systems can open a folder for this."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
