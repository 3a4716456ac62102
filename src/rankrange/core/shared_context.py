"""A process-wide context manager that several threads share: the first one enters it, the last one leaves it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class SharedContext:
    """One context manager for all threads; `make` creates it when no thread is inside.

    Limits of thread pools and warning filters are global to the process. If each thread saved and restored them, the
    last thread to leave could restore a value that another thread had set.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._held: Any = None
        self._value: Any = None

    @contextmanager
    def __call__(self) -> Iterator[Any]:
        with self._lock:
            if self._users == 0:
                self._held = self._make()
                self._value = self._held.__enter__()
            self._users += 1
            value = self._value
        try:
            yield value
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._held.__exit__(None, None, None)
