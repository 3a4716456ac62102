"""Restrict BLAS to one thread during fits with many small products.

BLAS threads wait for each other by spinning. If the cores are busy, a product that takes a millisecond then waits for
the scheduler, and a fit makes thousands of products.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import scipy.linalg  # noqa: F401  # loads SciPy's BLAS, which may differ from NumPy's
import scipy.sparse as sp

from .shared_context import SharedContext

# Products with a matrix of more entries are faster with several threads.
_MAX_ENTRIES = 1 << 22


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries of this process, cached, because finding them takes longer than a small fit."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def _set(library: Any, count: int) -> None:
    """Set the number of threads of a library directly.

    Newer versions of threadpoolctl ignore calls from all Python threads but one. Here a lock prevents conflicts."""
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


@contextmanager
def _limited(per_thread: bool) -> Iterator[None]:
    """Restrict some of the BLAS libraries to one thread: those that use OpenMP if `per_thread`, otherwise the others.

    With OpenMP the number of threads is a setting of the calling thread, otherwise of the whole process.
    """
    chosen = [one for one in _libraries() if (getattr(one, "threading_layer", None) == "openmp") == per_thread]
    before = [library.get_num_threads() for library in chosen]
    for library in chosen:
        _set(library, 1)
    try:
        yield
    finally:
        for library, count in zip(chosen, before, strict=True):
            _set(library, count)


_limited_process = SharedContext(lambda: _limited(per_thread=False))


@contextmanager
def one_thread() -> Iterator[None]:
    """A context manager that restricts BLAS to one thread.

    Settings of the whole process are restored when the last Python thread leaves the context.
    """
    with _limited_process(), _limited(per_thread=True):
        yield


def threads_for(X: Any) -> AbstractContextManager[None]:
    """A context manager that restricts BLAS to one thread for products with X.

    It has no effect if X is large: if it has more than 2^22 entries (stored entries if it is sparse).
    """
    entries = X.nnz if sp.issparse(X) else X.shape[0] * X.shape[1]
    return one_thread() if entries <= _MAX_ENTRIES else nullcontext()
