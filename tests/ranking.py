"""Several ranks in one test: forked processes that find each other as those of torchrun do."""

import multiprocessing
import os
import socket
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

import torch

from qsgp.ranks import starting

SECONDS = 60.0  # until the first answer


def together(size: int, work: Callable[..., Any], *given: Any, seconds: float = 20.0) -> list[Any]:
    """What ``work`` returns on each rank; an exception comes back as its type and words, None of a rank that was killed
    or hangs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    ends = [fork.Pipe(duplex=False) for _ in range(size)]
    started = [
        fork.Process(target=_run, args=(rank, size, port, seconds, ends[rank][1], work, given)) for rank in range(size)
    ]
    for process, (_, writing) in zip(started, ends, strict=True):
        process.start()
        writing.close()
    found = dict[int, Any]()
    open_, end = {reading: rank for rank, (reading, _) in enumerate(ends)}, time.monotonic() + SECONDS
    while open_ and (ready := wait(list(open_), max(0.0, end - time.monotonic()))):
        for reading in ready:
            with suppress(EOFError):  # of a killed one
                found[open_[reading]] = reading.recv()
            del open_[reading]
        end = min(end, time.monotonic() + 1.5 * seconds)  # who is stopped never answers
    for process in started:
        process.kill()
        process.join()
    return [found.get(rank) for rank in range(size)]


def _run(rank: int, size: int, port: int, seconds: float, pipe: Any, work: Callable[..., Any], given: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in names.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "QSGP_RANKS_TIMEOUT": str(seconds)}
    starting._started.cache_clear()
    try:
        result = work(*given)
    except BaseException as error:
        traceback.print_exc()
        result = type(error).__name__, str(error)
    pipe.send(result)
    pipe.close()
    time.sleep(0.2)  # others may still be told by gloo
    os._exit(0)
