"""How long this thread waits for others: limits of time are meant for a machine that has time."""

import time

import torch


def waiting() -> float:
    """Seconds of the clock for one second of this thread's work, at least 1; measured on a fifth of a second of it."""
    clock, thread = time.perf_counter(), time.thread_time()
    matrix = torch.eye(200)
    while time.thread_time() - thread < 0.2:
        matrix = matrix @ matrix
    return max(1.0, (time.perf_counter() - clock) / (time.thread_time() - thread))
