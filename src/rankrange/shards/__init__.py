"""Fits in passes over rows in files, on a cluster or on a device: exact, in a few passes.

Names are imported when they are first used, so a worker imports only what its kernel needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dask_rows import LostDataError
    from .rows import ArrayRows, Chunk, LazyRows, LocalRows, Rows
    from .scanned import Scan, scan

_MODULE_OF = {
    "LostDataError": "dask_rows",
    "ArrayRows": "rows",
    "Chunk": "rows",
    "LazyRows": "rows",
    "LocalRows": "rows",
    "Rows": "rows",
    "Scan": "scanned",
    "scan": "scanned",
}

__all__ = ["ArrayRows", "Chunk", "LazyRows", "LocalRows", "LostDataError", "Rows", "Scan", "scan"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value
