"""What tests of fits with a limit of time share."""

import time
from collections.abc import Iterable
from typing import Any

import pytest
import torch


def slow(problems: Iterable[Any]) -> list[Any]:
    """Parameters of a test that `make test` leaves to `make test-slow`."""
    return [pytest.param(problem, marks=pytest.mark.slow) for problem in problems]


def waiting() -> float:
    """Seconds of the clock for one second of this thread's work, at least 1; measured on a fifth of a second of it.

    A limit of time is meant for a machine that has time: on a busy one it is longer by as much.
    """
    clock, thread = time.perf_counter(), time.thread_time()
    matrix = torch.eye(200)
    while time.thread_time() - thread < 0.2:
        matrix = matrix @ matrix
    return max(1.0, (time.perf_counter() - clock) / (time.thread_time() - thread))
