"""Ctrl-C and the clock: how a run is asked to end where it stands."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_outer: list[threading.Event] = []  # of the main thread


@contextmanager
def deferred_interrupt() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of tearing a step apart; a second one stops at once, as usual. Within another of
    these the event is that of the outer one."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed  # signals reach the main thread only
        return
    if _outer:
        yield _outer[-1]
        return

    def press(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.signal(signal.SIGINT, press)
    _outer.append(pressed)
    try:
        yield pressed
    finally:
        _outer.pop()
        signal.signal(signal.SIGINT, before)


class Halt:
    """Whether a phase must end: Ctrl-C was pressed, or ``seconds`` have passed since the beginning."""

    def __init__(self, pressed: threading.Event, seconds: float) -> None:
        self.pressed, self._end = pressed, time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def __call__(self) -> bool:
        return self.pressed.is_set() or self.left <= 0
