"""Fits in passes over rows in files, on a cluster or on a device: exact, in a few passes."""

from .rows import ArrayRows, Chunk, LazyRows, LocalRows, LostDataError, Rows
from .scanned import Scan, scan

__all__ = ["ArrayRows", "Chunk", "LazyRows", "LocalRows", "LostDataError", "Rows", "Scan", "scan"]
