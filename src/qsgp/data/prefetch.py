"""Reading ahead in a thread, so that whoever uses what is read need not wait for it."""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
_PATIENCE = 0.1  # seconds between looks at whether anybody still wants more


class Ahead(Generic[T]):
    """The items of an iterator that a thread advances, at most ``most`` of them ahead; errors come where they belong.

    ``waited``: seconds in which the user had to wait. The thread ends with the iterator, or after `close`.
    """

    def __init__(self, items: Iterator[T], most: int = 2) -> None:
        self._queue: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(most)
        self._closed, self._ended = threading.Event(), False
        self.waited = 0.0
        self._thread = threading.Thread(target=self._read, args=(items,), daemon=True)
        self._thread.start()

    def __iter__(self) -> "Ahead[T]":
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        began = time.perf_counter()
        kind, found = self._queue.get()
        self.waited += time.perf_counter() - began
        if kind == "item":
            return found  # type: ignore[return-value]
        self._ended = True
        if isinstance(found, BaseException):
            raise found
        raise StopIteration

    def close(self) -> None:
        """Nobody wants more."""
        self._closed.set()
        self._ended = True
        self._thread.join()

    def __enter__(self) -> "Ahead[T]":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _read(self, items: Iterator[T]) -> None:
        try:
            for item in items:
                if not self._put("item", item):
                    return
            self._put("end", None)
        except BaseException as error:  # of any kind: it is raised where the items are used
            self._put("error", error)

    def _put(self, kind: str, found: T | BaseException | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put((kind, found), timeout=_PATIENCE)
                return True
            except queue.Full:
                continue
        return False
