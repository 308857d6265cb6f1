"""Training as it is seen from the terminal, and Ctrl-C as a request to keep what was learned."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, Any, cast

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from qsgp.models.callbacks import SUPPORTED

_RESEND, _PATIENCE = 0.1, 100  # seconds between attempts to interrupt, and how many of them
_LINE_EVERY = 10.0  # seconds between lines where there is no terminal
_JUDGED_EVERY = 0.5  # seconds at least between looks at an unfinished model: training comes first

Judge = Callable[[Any], str]  # words about a model that is not finished


class _Vanishing:
    """A stream whose terminal may be closed before training ends: what was learned is not lost to that."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream  # the bar puts itself in the place of sys.stderr

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


class _Clock(Progress):
    """A bar that follows the time allowed: records come when they come, time passes evenly."""

    def get_renderables(self) -> Iterator[RenderableType]:
        for task in self.tasks:
            if task.total is not None:
                passed = min(task.elapsed or 0.0, task.total)
                task.completed = passed
                task.fields["left"] = f"{task.total - passed:.0f} s left"
        yield from super().get_renderables()


class Training:
    """A callback of scikit-learn's kind: phase and iteration beside the bar, or as lines where there is none."""

    def __init__(self, console: Console, seconds: float | None, judge: Judge | None, lines: bool) -> None:
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        ]
        self._bar = _Clock(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._seconds, self._judge, self._lines = seconds, judge, lines and not console.is_terminal
        self._console, self._began, self._said = console, time.monotonic(), 0.0
        self._words, self._ended = "hyperparameters and first iteration", threading.Event()

    def setup(self, estimator: Any, context: Any) -> None:
        self._bar.start()
        self._task = self._bar.add_task(self._words, total=self._seconds, left="")
        if self._lines:
            threading.Thread(target=self._print_lines, daemon=True).start()

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Whether a record follows is known only when it is there."""

    def on_fit_task_end(self, estimator: Any, context: Any, *, fitted_estimator: Any) -> None:
        if context.parent is None:
            return
        passed = time.monotonic() - self._began
        if self._bar.disable and not self._lines or passed - self._said < _JUDGED_EVERY:
            return
        self._said = passed
        words = f"training, iteration {fitted_estimator.n_iter_:,}"
        self._words = words + (f", {self._judge(fitted_estimator)}" if self._judge else "")
        self._bar.update(self._task, description=self._words)

    def teardown(self, estimator: Any, context: Any) -> None:
        self._ended.set()
        self._bar.stop()

    def _print_lines(self) -> None:
        """A sign of life where there is no bar: records may be minutes apart."""
        of = f" of {self._seconds:.0f}" if self._seconds else ""
        while not self._ended.wait(_LINE_EVERY):
            passed = time.monotonic() - self._began
            self._console.print(f"{passed:4.0f}{of} s: {self._words}", highlight=False, soft_wrap=True)


def train(
    model: Any,
    X: Any,
    y: Any,
    weight: Any = None,
    *,
    quiet: bool = False,
    judge: Judge | None = None,
    lines: bool = False,
) -> bool:
    """Fit ``model``; True if somebody asked it to stop. It is fitted then all the same, as far as it came."""
    if SUPPORTED and not quiet:
        model.set_callbacks(Training(Console(file=cast(IO[str], _Vanishing(sys.stderr))), model.max_time, judge, lines))
    with _interrupts() as pressed:
        model.fit(X, y, sample_weight=weight)
        return pressed()


@dataclass
class _Again:
    """A handler of Ctrl-C that sends it again, until somebody listens or patience ends."""

    attempts: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.attempts += 1
        if self.attempts > _PATIENCE:
            raise KeyboardInterrupt
        threading.Timer(_RESEND, self.send).start()

    def send(self) -> None:
        if not self.ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C (or a request to terminate, or the end of the terminal) came, however training has taken it.

    Training catches the signal while it learns. Between its phases nobody does: there the signal is sent again until
    somebody listens, so that no moment loses what was learned.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals reach the main thread only
        return
    reading, writing = socket.socketpair()
    reading.setblocking(False)
    writing.setblocking(False)
    again = _Again()
    before = signal.signal(signal.SIGINT, again)
    others = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # what a caller ignores, as nohup does, stays ignored
    ended_by = {number: signal.getsignal(number) for number in others if signal.getsignal(number) != signal.SIG_IGN}
    for other in ended_by:
        signal.signal(other, lambda number, frame: os.kill(os.getpid(), signal.SIGINT))
    # the interpreter writes the number of every signal here, whichever handler serves it
    wakeup = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)

    def pressed() -> bool:
        try:
            return signal.SIGINT in reading.recv(4096, socket.MSG_PEEK)
        except BlockingIOError:
            return False

    try:
        yield pressed
    finally:
        again.ended.set()
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, before)
        for other, handler in ended_by.items():
            signal.signal(other, handler)
        reading.close()
        writing.close()
