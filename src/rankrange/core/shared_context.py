"""A setting of the whole process that several threads want for a while: made by the first, undone by the last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class SharedContext:
    """One context manager for all threads.

    Limits of thread pools and filters of warnings belong to the process. If each thread saved and restored them, the
    last to leave would restore what another had set.

    Parameters
    ----------
    make : callable
        Makes the context manager, each time that nobody is inside.
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
