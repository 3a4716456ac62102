"""Rows that do not fit into memory, or live on many machines: the same exact fit, in a few passes over them."""

from .blocks import BLOCK_ROWS, Batch
from .fit import LazyRows, fit_on_shards
from .scan import Scan, scan
from .seam import ArrayShard, Shard, ShardList, Shards, array_shards

__all__ = ["BLOCK_ROWS", "ArrayShard", "Batch", "LazyRows", "Scan", "Shard", "ShardList", "Shards", "array_shards", "fit_on_shards", "scan"]
