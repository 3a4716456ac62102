"""Restrict BLAS to one thread during fits with many small products.

BLAS threads wait for each other by spinning. If the cores are busy, a product that takes a millisecond then waits for
the scheduler, and a fit makes thousands of products.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  # loads SciPy's BLAS, which may differ from NumPy's
import scipy.sparse as sp

# Products with a matrix of more entries are faster with several threads.
_MAX_ENTRIES = 1 << 22


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process, cached, because finding them takes longer than a small fit."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _OneThread:
    """Context manager that restricts BLAS to one thread and restores the setting after the last user has left.

    Some libraries have one setting for the process: the first user saves it, the last one restores it. Others (with
    OpenMP) have one setting per calling thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: list[int] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        libraries = _libraries()
        with self._lock:
            current = [library.get_num_threads() for library in libraries]
            self._before = current if self._users == 0 else self._before
            self._users += 1
            for library in libraries:
                _set(library, 1)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                for library, count, before in zip(libraries, current, self._before, strict=True):
                    if getattr(library, "threading_layer", None) == "openmp":
                        _set(library, count)
                    elif self._users == 0:
                        _set(library, before)


def _set(library: Any, count: int) -> None:
    """Set the number of threads of a library directly.

    Newer versions of threadpoolctl ignore calls from all Python threads but one. Here a lock prevents conflicts."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


one_thread = _OneThread()


def threads_for(X: Any) -> AbstractContextManager[None]:
    """Restrict BLAS to one thread for products with X, unless X is large.

    Parameters
    ----------
    X : ndarray or sparse matrix
        The matrix of the products.
    """
    entries = X.nnz if sp.issparse(X) else X.shape[0] * X.shape[1]
    return one_thread() if entries <= _MAX_ENTRIES else nullcontext()
