"""Out-of-core and distributed fits: exact fits in a few passes over rows on disk or on a cluster.

Names are imported when they are first used, so a worker imports only what its kernel needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import ArrayShard, LazyRows, Shard, Shards, array_shards
    from .fit import fit_on_shards
    from .row_blocks import BLOCK_ROWS, Batch
    from .scanned import Scan, scan
    from .shard_list import ShardList

_HOME_OF = {
    "ArrayShard": "engine",
    "BLOCK_ROWS": "row_blocks",
    "Batch": "row_blocks",
    "LazyRows": "engine",
    "Scan": "scanned",
    "Shard": "engine",
    "ShardList": "shard_list",
    "Shards": "engine",
    "array_shards": "engine",
    "fit_on_shards": "fit",
    "scan": "scanned",
}

__all__ = [
    "BLOCK_ROWS",
    "ArrayShard",
    "Batch",
    "LazyRows",
    "Scan",
    "Shard",
    "ShardList",
    "Shards",
    "array_shards",
    "fit_on_shards",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value
