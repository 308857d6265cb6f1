"""Ranks that a process starts itself, on its own machine, with the environment that torchrun would give them."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

_WORDS = 3.0  # seconds that ranks have to say why they end, once one has failed
_LOOK = 0.05  # seconds between two looks at them


def spawned(module: str, folder: Path, size: int, pressed: threading.Event, told: bytes = b"") -> list[int]:
    """Run ``python -m module folder`` once for each of ``size`` ranks, and return their exit codes.

    Each is ``told`` the same by its standard input, which stays open as long as this process lives. A rank that fails
    ends the others. Ctrl-C, which ``pressed`` tells, goes on to rank 0; it decides for all.
    """
    # the port is in use from its choice on: nobody can take it before rank 0 does
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    started = [_start(module, folder, rank, size, store.port) for rank in range(size)]
    asked, end = False, float("inf")
    try:
        for process in started:
            _tell(process, told)
        while None in (codes := [process.poll() for process in started]) and time.monotonic() < end:
            if pressed.is_set() and not asked:
                started[0].send_signal(signal.SIGINT)
                asked = True
            if any(codes):
                end = min(end, time.monotonic() + _WORDS)
            time.sleep(_LOOK)
    finally:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it ended before it was told all
                process.stdin.close()
    return [int(process.returncode) for process in started]


def _tell(process: "subprocess.Popen[bytes]", told: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(told)
        process.stdin.flush()


def _start(module: str, folder: Path, rank: int, size: int, port: int) -> "subprocess.Popen[bytes]":
    """In a session of its own, so that Ctrl-C reaches it by its parent alone."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    numbers |= {"OMP_NUM_THREADS": max(1, torch.get_num_threads() // size), "TORCHELASTIC_RESTART_COUNT": 0}
    given = {name: str(value) for name, value in numbers.items()}
    given |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    source = str(Path(__file__).parents[2])  # this qsgp and no other
    given["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", module, str(folder)],
        env=os.environ | given,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def end_with_parent() -> None:
    """Called in a rank: it ends at once when the process that has started it is gone."""

    def wait() -> None:
        # ends when the other end of the pipe is closed; sys.stdin would hold a lock that the end of Python wants
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
