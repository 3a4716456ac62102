"""One BLAS thread where more do not pay: small products, one after the other, with work in NumPy between them.

Threads of a BLAS wait for each other by spinning. If the cores are busy with other work, a product that takes a
millisecond then takes as long as the scheduler needs to come round, and a fit makes thousands of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  # loads the BLAS of SciPy, which may be another than that of NumPy
import scipy.sparse as sp

# Products with a matrix of more numbers than this are worth several threads.
_WORTH_THREADS = 1 << 22


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process; to look for them takes longer than a small fit, so that it is done once."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _OneThread:
    """BLAS on one thread as long as anyone in this process asks for it; then as it was before.

    Some libraries have one number of threads for the whole process: who comes first remembers it, who leaves last puts
    it back. Others (over OpenMP) have one for each thread that calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: list[int] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        libraries = _libraries()
        with self._lock:
            own = [library.get_num_threads() for library in libraries]
            self._before = own if self._users == 0 else self._before
            self._users += 1
            for library in libraries:
                _set(library, 1)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                for library, here, before in zip(libraries, own, self._before, strict=True):
                    if getattr(library, "threading_layer", None) == "openmp":
                        _set(library, here)
                    elif self._users == 0:
                        _set(library, before)


def _set(library: Any, count: int) -> None:
    """Newer versions of threadpoolctl ignore all Python threads but one, lest they fight; here a lock sees to that."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


one_thread = _OneThread()


def threads_for(X: Any) -> AbstractContextManager[None]:
    """BLAS on one thread while fits multiply with X, unless X is so large that more threads pay.

    Parameters
    ----------
    X : ndarray or sparse matrix
        What is multiplied with.
    """
    numbers = X.nnz if sp.issparse(X) else X.shape[0] * X.shape[1]
    return one_thread() if numbers <= _WORTH_THREADS else nullcontext()
